"""Layer 1. Wire types, message declarations and the compiler of straight-line codecs.

The body of a message class is a table; ``encode`` and ``decode`` compile that table, per version,
on first use:

    @struct(versions="0-1")
    class Subscription:
        topics: list[str] = field(array(STRING))
        user_data: bytes | None = field(BYTES, nullable="0+", default=None)
        generation_id: int = field(INT32, versions="1+", default=-1, ignorable=True)

    data = encode(Subscription(topics=["access"]), 1)
    subscription, end = decode(Subscription, 1, data)
"""

from __future__ import annotations

from kohort.schema.codec import MAX_ELEMENTS, decode, encode
from kohort.schema.declare import VersionRange, field, layout_of, request, response, struct
from kohort.schema.kinds import (
    BOOL,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Kind,
    array,
)

__all__ = [
    "BOOL",
    "BYTES",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "MAX_ELEMENTS",
    "RECORDS",
    "STRING",
    "UUID",
    "Kind",
    "VersionRange",
    "array",
    "decode",
    "encode",
    "field",
    "layout_of",
    "request",
    "response",
    "struct",
]
