"""Declares messages: a class body is a table of fields.

In: class bodies that assign ``field(...)`` to names. Out: the same classes with slots, a keyword
constructor with defaults for all fields, comparison, a short ``repr`` and, in ``__layout__``, the
table that the generators compile. Must not know: bytes.

One class describes all versions of a message: a field names the versions that have it. A field that
a version lacks is decoded to its default. The table follows Kafka's own message definitions (names
in snake case, KIP-482 for tags).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar, cast, dataclass_transform, overload

from kohort.schema.kinds import Kind

T = TypeVar("T")
C = TypeVar("C", bound=type)

_OPEN_END = 32_767
_REPR_ITEMS = 4
_REPR_BYTES = 24
_UNSET: Any = object()


class VersionRange(NamedTuple):
    """Versions from ``low`` to ``high``, both included; empty when ``high`` is below ``low``."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    def __str__(self) -> str:
        return f"{self.low}-{self.high}"

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Read Kafka's notation: ``3``, ``0-4``, ``2+`` or ``none``."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), _OPEN_END)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))


NO_VERSIONS = VersionRange(0, -1)


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One row of a message's table."""

    name: str
    """Empty until the class is finished."""
    kind: Kind[Any] | type
    versions: VersionRange
    nullable: VersionRange
    tag: int | None
    ignorable: bool
    default: Any

    def fresh_default(self) -> Any:
        """The default value; lists and structs are new ones each time."""
        if self.default is _UNSET:
            return self.kind() if isinstance(self.kind, type) else list(self.kind.default)
        return self.default

    @property
    def default_is_fresh(self) -> bool:
        """Whether each object needs its own default, because its value is mutable."""
        return self.default is _UNSET


@dataclass(frozen=True, slots=True)
class Layout:
    """The table of one class, for the generators."""

    name: str
    fields: tuple[FieldSpec, ...]
    versions: VersionRange
    flexible: VersionRange
    api_key: int | None = None
    is_request: bool = False

    def present(self, version: int) -> list[FieldSpec]:
        """Fields that ``version`` writes in its body, in order."""
        return [f for f in self.fields if version in f.versions and f.tag is None]

    def tagged(self, version: int) -> list[FieldSpec]:
        """Fields that ``version`` writes as tagged fields, by ascending tag."""
        rows = [(f.tag, f) for f in self.fields if f.tag is not None and version in f.versions]
        return [f for _, f in sorted(rows, key=lambda row: row[0])]

    def absent(self, version: int) -> list[FieldSpec]:
        """Fields that ``version`` lacks."""
        return [f for f in self.fields if version not in f.versions]


@overload
def field(
    kind: Kind[T],
    *,
    versions: str = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
    default: T = ...,
) -> T: ...
@overload
def field(
    kind: Kind[T],
    *,
    versions: str = ...,
    nullable: str,
    tag: int | None = ...,
    ignorable: bool = ...,
    default: T | None = ...,
) -> T | None: ...
@overload
def field(kind: type[T], *, versions: str = ..., ignorable: bool = ..., tag: None = ...) -> T: ...
@overload
def field(
    kind: type[T],
    *,
    versions: str = ...,
    nullable: str = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
    default: None,
) -> T | None: ...
def field(
    kind: Kind[Any] | type,
    *,
    versions: str = "0+",
    nullable: str = "none",
    tag: int | None = None,
    ignorable: bool = False,
    default: Any = _UNSET,
) -> Any:
    """Declare a field of a message.

    Args:
        kind: A primitive kind, ``array(...)``, or a class made by ``struct``.
        versions: Versions that have the field.
        nullable: Versions in which None may be written.
        tag: The tag of an optional field (KIP-482); a tagged field is written only when it differs
            from its default. A tagged struct has the default None, "not sent".
        ignorable: Whether a version that lacks the field drops its value silently. Otherwise
            encoding a value other than the default raises ProtocolError.
        default: The value if a caller or a version leaves the field out.
    """
    if default is _UNSET and isinstance(kind, Kind) and kind.element is None:
        default = kind.default
    spans = VersionRange.parse(versions), VersionRange.parse(nullable)
    return FieldSpec("", kind, *spans, tag, ignorable, default)


@dataclass_transform(kw_only_default=True)
def struct(*, versions: str = "0+", flexible: str = "none") -> Callable[[C], C]:
    """Make a class a structure: part of a message, an embedded protocol or a record."""
    return lambda cls: _finish(cls, versions, flexible, api_key=None, is_request=False)


@dataclass_transform(kw_only_default=True)
def request(*, api_key: int, versions: str, flexible: str = "none") -> Callable[[C], C]:
    """Make a class the request of ``api_key``, in ``versions``, compact in ``flexible`` ones."""
    return lambda cls: _finish(cls, versions, flexible, api_key=api_key, is_request=True)


@dataclass_transform(kw_only_default=True)
def response(*, api_key: int, versions: str, flexible: str = "none") -> Callable[[C], C]:
    """Make a class the response of ``api_key``, in ``versions``, compact in ``flexible`` ones."""
    return lambda cls: _finish(cls, versions, flexible, api_key=api_key, is_request=False)


def layout_of(cls: type) -> Layout:
    """The table of a class made by ``struct``, ``request`` or ``response``; else TypeError."""
    layout = getattr(cls, "__layout__", None)
    if not isinstance(layout, Layout):
        raise TypeError(f"{cls.__name__} is not a message: it has no table of fields")
    return layout


def _finish(cls: C, versions: str, flexible: str, *, api_key: int | None, is_request: bool) -> C:
    rows = {name: value for name, value in vars(cls).items() if isinstance(value, FieldSpec)}
    tags = [row.tag for row in rows.values() if row.tag is not None]
    for tag in tags:
        if tags.count(tag) > 1:
            raise TypeError(f"{cls.__name__}: two fields have tag {tag}")
    layout = Layout(
        name=cls.__name__,
        fields=tuple(replace(row, name=name) for name, row in rows.items()),
        versions=VersionRange.parse(versions),
        flexible=VersionRange.parse(flexible),
        api_key=api_key,
        is_request=is_request,
    )
    body = {
        name: value
        for name, value in vars(cls).items()
        if name not in rows and name not in ("__dict__", "__weakref__")
    }
    body |= {
        "__slots__": tuple(rows),
        "__layout__": layout,
        "__init__": _constructor(cls, layout),
        "__eq__": _equal,
        "__codecs__": {},
        "__hash__": None,
        "__repr__": _short_repr,
    }
    # A class gets its slots when it is made, so the decorated class is made again.
    return type(cls)(cls.__name__, cls.__bases__, body)


def maker(cls: type[T]) -> type[T]:
    """A function like ``cls``, for hot paths: it makes a message in less than half of the time.

    A call of a class with keywords makes a dictionary of them; a call of a function does not.
    """
    return cast("type[T]", _constructor(cls, layout_of(cls), ["self = new(cls)"], "return self"))


def _constructor(
    cls: type, layout: Layout, before: Sequence[str] = (), after: str = "pass"
) -> Callable[..., Any]:
    """A function with keywords that sets all fields, without a loop.

    It is ``__init__``, unless ``before`` makes the object and ``after`` returns it.
    """
    scope: dict[str, Any] = {"UNSET": _UNSET, "new": object.__new__, "cls": cls}
    arguments, lines = [], []
    for f in layout.fields:
        if f.default_is_fresh:
            scope[f"new_{f.name}"] = f.kind if isinstance(f.kind, type) else list
            arguments.append(f"{f.name}=UNSET")
            value = f"new_{f.name}() if {f.name} is UNSET else {f.name}"
        else:
            scope[f"default_{f.name}"] = f.default
            arguments.append(f"{f.name}=default_{f.name}")
            value = f.name
        lines.append(f"self.{f.name} = {value}")
    star = ["*"] if arguments else []
    head = f"def __init__({', '.join([*([] if before else ['self']), *star, *arguments])}):"
    exec("\n    ".join([head, *before, *lines, after]), scope)
    made: Callable[..., Any] = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    return made


def _equal(self: Any, other: Any) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


def _short_repr(self: Any) -> str:
    """Fields that differ from their defaults, long values cut: messages end up in log lines."""
    parts = []
    for f in layout_of(type(self)).fields:
        value = getattr(self, f.name, None)
        if value != f.fresh_default():
            parts.append(f"{f.name}={_shorten(value)}")
    return f"{type(self).__name__}({', '.join(parts)})"


def _shorten(value: object) -> str:
    if isinstance(value, list) and len(value) > _REPR_ITEMS:
        shown = ", ".join(_shorten(item) for item in value[:_REPR_ITEMS])
        return f"[{shown}, … {len(value)} in all]"
    if isinstance(value, list):
        return f"[{', '.join(_shorten(item) for item in value)}]"
    if isinstance(value, (bytes, bytearray, memoryview)) and len(value) > _REPR_BYTES:
        return f"<{len(value)} bytes>"
    return repr(value)


def holds_records(cls: type) -> bool:
    """Whether a message, or a part of it, has record batches."""
    for f in layout_of(cls).fields:
        inner = f.kind if isinstance(f.kind, type) else f.kind.element
        if isinstance(f.kind, Kind) and f.kind.name == "records":
            return True
        if isinstance(inner, type) and holds_records(inner):
            return True
    return False
