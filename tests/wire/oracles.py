"""Adapters for two other codecs of Kafka's protocol, so that they handle kohort's messages.

An oracle turns one of our messages into its own object and back. Fields are matched by position,
since both sides list them in the protocol's order; some names differ.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib
import io
import types
import typing
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kohort.schema.declare import FieldSpec, VersionRange, layout_of
from kohort.wire.apis import APIS, Api

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MS = datetime.timedelta(milliseconds=1)


class Oracle(Protocol):
    """Another codec. Every method may raise anything; an exception is a gap."""

    name: str
    narrow: bool

    def encode(self, message: Any, version: int) -> bytes: ...
    def decode(self, cls: type, version: int, data: bytes) -> Any: ...


def declared(api: Api) -> VersionRange:
    """Versions of the client or the broker: the messages have all of them."""
    low = min(api.client.low, api.handled.low)
    return VersionRange(low, max(api.client.high, api.handled.high))


def messages() -> list[tuple[Api, type, int]]:
    """Every message and version that kohort declares."""
    return [
        (api, cls, version)
        for api in APIS
        for cls in (api.request, api.response)
        for version in range(layout_of(cls).versions.low, layout_of(cls).versions.high + 1)
    ]


def _rows(cls: type, version: int) -> list[FieldSpec]:
    return [f for f in layout_of(cls).fields if version in f.versions]


def _same_name(ours: str, theirs: str) -> bool:
    a, b = ours.replace("_", ""), theirs.replace("_", "")
    return a.startswith(b) or a.endswith(b) or b.startswith(a)


class Kio:
    """kio: frozen dataclasses per version, typed times, errors and ids."""

    name = "kio"
    narrow = True

    @functools.cache  # noqa: B019 - the oracles live as long as the run
    def module_class(self, cls: type, version: int) -> Any:
        layout = layout_of(cls)
        index = importlib.import_module("kio.schema.index")
        folder = index.api_key_map[layout.api_key]
        half = "request" if layout.is_request else "response"
        return getattr(
            importlib.import_module(f"kio.schema.{folder}.v{version}.{half}"), cls.__name__
        )

    def encode(self, message: Any, version: int) -> bytes:
        serial = importlib.import_module("kio.serial")
        ours: Any = type(message)
        theirs = self.module_class(ours, version)
        out = io.BytesIO()
        serial.entity_writer(theirs)(out, self.build(message, theirs, version))
        return out.getvalue()

    def decode(self, cls: type, version: int, data: bytes) -> Any:
        serial = importlib.import_module("kio.serial")
        theirs = self.module_class(cls, version)
        entity, size = serial.entity_reader(theirs)(data, 0)
        assert size == len(data), f"kio read {size} of {len(data)} bytes"
        return self.back(entity, cls, version)

    def build(self, message: Any, theirs: Any, version: int) -> Any:
        inner_classes = _inner_classes(theirs)
        ours: Any = type(message)
        values = {}
        for row, other in _kio_pairs(ours, theirs, version):
            value = getattr(message, row.name)
            if row.tag is not None and value is None and isinstance(row.kind, type):
                continue
            inner = inner_classes[other.name]
            values[other.name] = self.out(value, other.metadata.get("kafka_type"), inner, version)
        return theirs(**values)

    def out(self, value: Any, kafka_type: str | None, inner: Any, version: int) -> Any:
        if isinstance(value, list):
            return tuple(self.out(item, kafka_type, inner, version) for item in value)
        if value is None:
            return None
        if dataclasses.is_dataclass(inner):
            return self.build(value, inner, version)
        return _TO_KIO.get(kafka_type or "", _same)(value)

    def back(self, entity: Any, cls: type, version: int) -> Any:
        theirs: Any = type(entity)
        values = {}
        for row, other in _kio_pairs(cls, theirs, version):
            value = getattr(entity, other.name)
            if row.tag is not None and isinstance(row.kind, type) and value == other.default:
                continue
            values[row.name] = self.back_value(value, row.kind, other, version)
        return cls(**values)

    def back_value(self, value: Any, kind: Any, other: Any, version: int) -> Any:
        kafka_type = other.metadata.get("kafka_type", "")
        if isinstance(value, tuple):
            return [self.back_value(item, kind.element, other, version) for item in value]
        if value is None:
            return _KIO_NONE.get(kafka_type)
        if isinstance(kind, type):
            return self.back(value, kind, version)
        return _FROM_KIO.get(kafka_type, _same)(value)


def _same(value: Any) -> Any:
    return value


@functools.cache
def _kio_pairs(cls: type, theirs: Any, version: int) -> list[tuple[FieldSpec, Any]]:
    return _paired(cls, version, dataclasses.fields(theirs))


def _kafka_python_pairs(cls: type, struct: Any, version: int) -> list[tuple[FieldSpec, Any]]:
    return _paired(cls, version, [f for f in struct.fields.values() if f.for_version_q(version)])


def _paired(cls: type, version: int, fields: Sequence[Any]) -> list[tuple[FieldSpec, Any]]:
    ours = _rows(cls, version)
    assert len(ours) == len(fields), (cls, version, [field.name for field in fields])
    for row, other in zip(ours, fields, strict=True):
        assert _same_name(row.name, other.name), (row.name, other.name)
    return list(zip(ours, fields, strict=True))


@functools.cache
def _inner_classes(theirs: Any) -> dict[str, Any]:
    """The entity class of each field of a class of kio, None for a field without one."""
    hints = typing.get_type_hints(theirs)
    return {name: _inner_class(hint) for name, hint in hints.items()}


def _inner_class(hint: Any) -> Any:
    """The entity class in ``X``, ``X | None`` or ``tuple[X, ...] | None``; else None."""
    if dataclasses.is_dataclass(hint):
        return hint
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) in (typing.Union, tuple):
        for part in typing.get_args(hint):
            found = _inner_class(part)
            if found is not None:
                return found
    return None


def _kio_error(code: int) -> Any:
    return importlib.import_module("kio.schema.errors").ErrorCode(code)


def _kio_time(millis: int) -> Any:
    return None if millis == -1 else _EPOCH + millis * _MS


_TO_KIO: dict[str, Callable[[Any], Any]] = {
    "error_code": _kio_error,
    "timedelta_i32": lambda n: n * _MS,
    "timedelta_i64": lambda n: n * _MS,
    "datetime_i64": _kio_time,
    "uuid": lambda b: uuid.UUID(bytes=b) if any(b) else None,
    "records": bytes,
}
_FROM_KIO: dict[str, Callable[[Any], Any]] = {
    "error_code": int,
    "timedelta_i32": lambda t: t // _MS,
    "timedelta_i64": lambda t: t // _MS,
    "datetime_i64": lambda t: (t - _EPOCH) // _MS,
    "uuid": lambda u: u.bytes,
    "records": bytes,
}
_KIO_NONE: dict[str, Any] = {"datetime_i64": -1, "uuid": bytes(16)}

_KAFKA_PYTHON_MODULES = (
    "kafka.protocol.consumer.group",
    "kafka.protocol.consumer.fetch",
    "kafka.protocol.consumer.offsets",
    "kafka.protocol.producer.produce",
    "kafka.protocol.producer.transaction",
    "kafka.protocol.metadata.metadata",
    "kafka.protocol.metadata.api_versions",
    "kafka.protocol.metadata.find_coordinator",
    "kafka.protocol.sasl",
    "kafka.protocol.admin.topics",
    "kafka.protocol.admin.groups",
    "kafka.protocol.admin.configs",
    "kafka.protocol.admin.cluster",
)


class KafkaPython:
    """kafka-python: one slotted class per message, plain values, sets for bit fields."""

    name = "kafka-python"
    narrow = False

    @functools.cache  # noqa: B019 - the oracles live as long as the run
    def primary(self, cls: type) -> Any:
        for name in _KAFKA_PYTHON_MODULES:
            found = getattr(importlib.import_module(name), cls.__name__, None)
            if found is not None:
                return found
        raise LookupError(f"kafka-python has no {cls.__name__}")

    def object(self, message: Any, version: int) -> Any:
        """The message as kafka-python's own object, ready for encoding in ``version``."""
        ours: Any = type(message)
        theirs = self.primary(ours)
        return self.build(message, theirs, theirs._struct, version)

    def encode(self, message: Any, version: int) -> bytes:
        return bytes(self.object(message, version).encode(version=version))

    def encode_frame(self, message: Any, version: int, correlation_id: int, client: str) -> bytes:
        """The same with header and size."""
        made = self.object(message, version)
        if layout_of(type(message)).is_request:
            made.with_header(correlation_id=correlation_id, client_id=client)
        else:
            made.with_header(correlation_id=correlation_id)
        return bytes(made.encode(header=True, framed=True))

    def decode(self, cls: type, version: int, data: bytes) -> Any:
        theirs = self.primary(cls)
        return self.back(theirs.decode(data, version=version), cls, theirs._struct, version)

    def build(self, message: Any, theirs: Any, struct: Any, version: int) -> Any:
        values = {}
        for row, other in _kafka_python_pairs(type(message), struct, version):
            value = getattr(message, row.name)
            if row.tag is not None and value == row.fresh_default():
                continue
            values[other.name] = self.out(value, other, version)
        return theirs(version=version, **values)

    def out(self, value: Any, other: Any, version: int) -> Any:
        if value is None:
            return None
        if other.is_struct():
            return self.build(value, other.data_class, other, version)
        if other.is_struct_array():
            return [self.build(item, other.data_class, other, version) for item in value]
        if other._type_str == "bitfield":
            return {bit for bit in range(32) if value & 0xFFFF_FFFF & (1 << bit)}
        if other._type_str == "uuid":
            return uuid.UUID(bytes=value)
        return value

    def back(self, made: Any, cls: type, struct: Any, version: int) -> Any:
        values = {}
        for row, other in _kafka_python_pairs(cls, struct, version):
            if row.tag is not None and other.name not in (made.tags or ()):
                continue
            values[row.name] = self.back_value(getattr(made, other.name), row.kind, other, version)
        return cls(**values)

    def back_value(self, value: Any, kind: Any, other: Any, version: int) -> Any:
        if other._type_str == "bitfield":
            bits = sum(1 << bit for bit in ({31} if value is None else value))
            return bits - (1 << 32) if bits >> 31 else bits
        if value is None:
            return None
        if other.is_struct():
            return self.back(value, kind, other, version)
        if other.is_struct_array():
            return [self.back(item, kind.element, other, version) for item in value]
        if isinstance(value, uuid.UUID):
            return value.bytes
        return bytes(value) if isinstance(value, memoryview) else value


ORACLES: tuple[Oracle, ...] = (Kio(), KafkaPython())
