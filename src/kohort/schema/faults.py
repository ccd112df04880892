"""Finds the value of a message that cannot be written, after its encoder has failed.

In: a message and a version. Out: the path of the first value that does not fit, and the reason.
Must not know: bytes. The encoder checks nothing twice; this slow walk runs only after a refusal, to
tell a person the cause.
"""

from __future__ import annotations

from typing import Any

from kohort.schema.declare import FieldSpec, layout_of
from kohort.schema.kinds import Kind
from kohort.schema.runtime import MAX_STRING_BYTES

_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}


def find_fault(message: object, version: int) -> tuple[str, str] | None:
    """Path and reason of the first value of ``message`` that ``version`` cannot carry."""
    return _struct(message, type(message), version)


def _struct(value: Any, cls: type, version: int) -> tuple[str, str] | None:
    if type(value) is not cls:
        return "", f"expected a {cls.__name__}, got {type(value).__name__}"
    for f in layout_of(cls).fields:
        found = _field(f, getattr(value, f.name), version)
        if found is not None:
            return f"{f.name}.{found[0]}".rstrip("."), found[1]
    return None


def _field(f: FieldSpec, value: Any, version: int) -> tuple[str, str] | None:
    if version not in f.versions:
        if f.ignorable or value == f.fresh_default():
            return None
        return "", f"version {version} has no such field, so {value!r} cannot be sent"
    if value is None:
        tagged_away = f.tag is not None and f.default is None
        if version in f.nullable or tagged_away:
            return None
        return "", f"may not be null in version {version}"
    return _value(f.kind, value, version)


def _value(kind: Kind[Any] | type, value: Any, version: int) -> tuple[str, str] | None:
    if isinstance(kind, type):
        return _struct(value, kind, version)
    if kind.element is not None:
        return _array(kind.element, value, version)
    reason = _primitive(kind, value)
    return None if reason is None else ("", reason)


def _array(element: Any, value: Any, version: int) -> tuple[str, str] | None:
    if not isinstance(value, (list, tuple)):
        return "", f"expected a list, got {type(value).__name__}"
    for place, item in enumerate(value):
        found = _value(element, item, version)
        if found is not None:
            return f"{place}.{found[0]}".rstrip("."), found[1]
    return None


def _primitive(kind: Kind[Any], value: Any) -> str | None:
    if kind.name == "string":
        return _string(value)
    if kind.name in ("bytes", "records"):
        return None if isinstance(value, (bytes, bytearray, memoryview)) else _expected(kind, value)
    if kind.name == "uuid":
        fits = isinstance(value, bytes) and len(value) == kind.size
        return None if fits else f"expected 16 bytes, got {value!r}"
    bits = _BITS.get(kind.code)
    if bits is None:
        return None if isinstance(value, int) else _expected(kind, value)
    if not isinstance(value, int):
        return _expected(kind, value)
    top = 1 << (bits - 1)
    return None if -top <= value < top else f"{value} does not fit {kind.name}"


def _string(value: Any) -> str | None:
    if not isinstance(value, str):
        return f"expected a string, got {type(value).__name__}"
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        return f"not UTF-8: {error.reason} at character {error.start}"
    if size > MAX_STRING_BYTES:
        return f"a string of {size} bytes; at most {MAX_STRING_BYTES} are possible"
    return None


def _expected(kind: Kind[Any], value: Any) -> str:
    return f"expected {kind.name}, got {type(value).__name__}"
