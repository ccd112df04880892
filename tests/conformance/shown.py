"""Messages in a line of text: the fields that say something, errors by name and always."""

from __future__ import annotations

from typing import Any

from kohort.model.errors import ErrorCode

SILENT = {"throttle_time_ms", "error_message", "topic_id"}


def shown(value: Any) -> str:
    """A value of a message; of a struct its fields that differ from their defaults."""
    layout = getattr(type(value), "__layout__", None)
    if layout is None:
        return _scalar(value)
    return " ".join(
        f"{spec.name}={_field(spec.name, getattr(value, spec.name))}"
        for spec in layout.fields
        if spec.name not in SILENT
        and (spec.name == "error_code" or getattr(value, spec.name) != spec.fresh_default())
    )


def _field(name: str, value: Any) -> str:
    if name == "error_code":
        return ErrorCode.of(value).name
    if isinstance(value, list):
        return (
            "["
            + ", ".join(f"({shown(each)})" if _is_struct(each) else _scalar(each) for each in value)
            + "]"
        )
    return _scalar(value)


def _is_struct(value: Any) -> bool:
    return hasattr(type(value), "__layout__")


def _scalar(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return repr(data)
    return repr(value) if isinstance(value, str) else str(value)
