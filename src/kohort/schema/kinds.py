"""Kafka's wire types as values: the content and width of a message's fields.

In: nothing. Out: one ``Kind`` per primitive type and ``array(...)`` of any kind or struct class.
Must not know: how a version reads or writes a kind, the meaning of messages.

Source: the protocol primitive types of the Kafka protocol guide, KIP-482 for the compact forms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar, cast

T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """One wire type. ``T`` is its type in Python.

    ``code`` is the ``struct`` format character of a fixed-size type and empty for others.
    ``element`` is the type of an array's elements: another kind or a struct class.
    """

    name: str
    default: T
    code: str = ""
    size: int = 0
    element: Kind[object] | type | None = None


BOOL = Kind("bool", False, "?", 1)
INT8 = Kind("int8", 0, "b", 1)
INT16 = Kind("int16", 0, "h", 2)
INT32 = Kind("int32", 0, "i", 4)
INT64 = Kind("int64", 0, "q", 8)

UUID = Kind("uuid", bytes(16), "16s", 16)
"""A topic id: 16 bytes, most significant first. All zero means "none" (KIP-516)."""

STRING = Kind("string", "")
"""UTF-8 text, at most 32,767 bytes."""

BYTES = Kind("bytes", b"")
"""Opaque bytes. Written from anything that ``bytes.join`` accepts, read as ``bytes``."""

RECORDS: Kind[bytes | memoryview] = Kind("records", cast("bytes | memoryview", b""))
"""Record batches as they were sent: opaque here, read as ``bytes``."""


def array(element: Kind[S] | type[S]) -> Kind[list[S]]:
    """The kind of an array of ``element``: a primitive kind or a class made by ``struct``."""
    return Kind("array", cast("list[S]", ()), element=cast("Kind[object] | type", element))
