"""Turns facts into plain JSON values and back, by the types of their fields.

In: any fact of the model. Out: a dict for json, and the fact again. Must not know: files,
recorders.

Codecs are made once for each class from its annotations, so a new kind of fact needs no code here.
Fields with their default value are left out; fields that a file does not have get their default.
"""

from __future__ import annotations

import base64
import dataclasses
import types
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NewType, Union, get_args, get_origin, get_type_hints

from kohort.model.errors import ProtocolError
from kohort.model.history_record import FACT_TYPES
from kohort.model.ids import TopicPartition

_Convert = Callable[[Any], Any]
_KIND: Final = "kind"
"""Key for the class of a nested value, if its field allows several classes."""


def encode_fact(fact: object) -> dict[str, Any]:
    """The fields of a fact that differ from their defaults, as JSON values."""
    return _writer(type(fact))(fact)


def decode_fact(name: str, fields: dict[str, Any]) -> Any:
    """The fact of that name.

    Raises:
        ProtocolError: no such fact, or its fields have wrong types.
    """
    kind = FACT_TYPES.get(name)
    if kind is None:
        raise ProtocolError(f"there is no fact {name!r}; a newer kohort may have written it")
    try:
        return _reader(kind)(fields)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ProtocolError(f"{name} cannot be read: {error}") from error


# -- writing -----------------------------------------------------------------------------------


_WRITERS: Final[dict[type[Any], Callable[[Any], dict[str, Any]]]] = {}


def _writer(kind: type[Any]) -> Callable[[Any], dict[str, Any]]:
    found = _WRITERS.get(kind)
    if found is None:
        found = _WRITERS[kind] = _make_writer(kind)
    return found


def _make_writer(kind: type[Any]) -> Callable[[Any], dict[str, Any]]:
    hints = get_type_hints(kind)
    plan = [
        (spec.name, _value_writer(hints[spec.name]), spec.default)
        for spec in dataclasses.fields(kind)
    ]

    def write(value: Any) -> dict[str, Any]:
        out = {}
        for name, convert, default in plan:
            held = getattr(value, name)
            if held is default or held == default:
                continue
            out[name] = held if convert is None else convert(held)
        return out

    return write


def _value_writer(hint: Any) -> _Convert | None:
    """The function that makes JSON of a value; None if the value is JSON already."""
    hint = _bare(hint)
    if hint is TopicPartition:
        return list
    if hint is bytes:
        return lambda value: base64.b64encode(value).decode()
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda value: value.value
    if _is_union(hint):
        return _union_writer(hint)
    if get_origin(hint) is tuple:
        return _tuple_writer(hint)
    return None


def _union_writer(hint: Any) -> _Convert | None:
    kinds = [a for a in get_args(hint) if a is not type(None)]
    if all(dataclasses.is_dataclass(k) for k in kinds):
        return lambda value: (
            None if value is None else {_KIND: type(value).__name__, **_writer(type(value))(value)}
        )
    inner = _value_writer(kinds[0])
    return None if inner is None else lambda value: None if value is None else inner(value)


def _tuple_writer(hint: Any) -> _Convert:
    args = get_args(hint)
    if len(args) == 2 and args[1] is Ellipsis:
        item = _value_writer(args[0])
        if item is None:
            return list
        return lambda value: [item(v) for v in value]
    items = [_value_writer(a) or _same for a in args]
    return lambda value: [convert(v) for convert, v in zip(items, value, strict=True)]


# -- reading -----------------------------------------------------------------------------------


_PLAIN: Final = (str, int, bool, float)
"""Types that JSON has, too."""

_READERS: Final[dict[type[Any], Callable[[dict[str, Any]], Any]]] = {}


def _reader(kind: type[Any]) -> Callable[[dict[str, Any]], Any]:
    found = _READERS.get(kind)
    if found is None:
        found = _READERS[kind] = _make_reader(kind)
    return found


def _make_reader(kind: type[Any]) -> Callable[[dict[str, Any]], Any]:
    hints = {name: _bare(hint) for name, hint in get_type_hints(kind).items()}
    converts = {spec.name: _value_reader(hints[spec.name]) for spec in dataclasses.fields(kind)}
    plain = {name: hint for name, hint in hints.items() if hint in _PLAIN}

    def read(fields: dict[str, Any]) -> Any:
        made = fields
        for name, value in fields.items():
            if type(value) is not plain.get(name):
                made = dict(fields) if made is fields else made
                made[name] = converts[name](value)
        return kind(**made)

    return read


def _value_reader(hint: Any) -> _Convert:
    hint = _bare(hint)
    if hint is TopicPartition:
        return lambda value: TopicPartition(*value)
    if hint is bytes:
        return lambda value: base64.b64decode(value, validate=True)
    if isinstance(hint, type) and issubclass(hint, Enum):
        # Calling an enumeration takes five times as long.
        members = {member.value: member for member in hint}
        return lambda value: members[value] if value in members else hint(value)
    if _is_union(hint):
        return _union_reader(hint)
    if get_origin(hint) is tuple:
        return _tuple_reader(hint)
    return _checked(hint)


def _union_reader(hint: Any) -> _Convert:
    kinds = [a for a in get_args(hint) if a is not type(None)]
    if all(dataclasses.is_dataclass(k) for k in kinds):
        by_name = {k.__name__: k for k in kinds}

        def read(value: Any) -> Any:
            if value is None:
                return None
            rest = {k: v for k, v in value.items() if k != _KIND}
            return _reader(by_name[value[_KIND]])(rest)

        return read
    inner = _value_reader(kinds[0])
    return lambda value: None if value is None else inner(value)


def _tuple_reader(hint: Any) -> _Convert:
    args = get_args(hint)
    if len(args) == 2 and args[1] is Ellipsis:
        item = _value_reader(args[0])
        return lambda value: tuple(map(item, _list(value)))
    items = [_value_reader(a) for a in args]
    return lambda value: tuple([convert(v) for convert, v in zip(items, _list(value), strict=True)])


def _list(value: Any) -> Any:
    if not isinstance(value, list):
        raise TypeError(f"a list was expected, but there is {value!r}")
    return value


def _checked(kind: Any) -> _Convert:
    def check(value: Any) -> Any:
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise TypeError(f"{kind.__name__} was expected, but there is {value!r}")
        return value

    return check


def _bare(hint: Any) -> Any:
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    return hint


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def _same(value: Any) -> Any:
    return value
