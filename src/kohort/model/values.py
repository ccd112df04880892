"""Values that exist in millions: frozen for the type checker, cheap at run time.

In: classes. Out: the same classes as values; the kinds below a base class; shared copies of equal
texts, bytes and numbers. Must not know: which values exist.

A frozen dataclass sets each field through ``object.__setattr__`` and costs three times as much to
construct. ``value`` replaces ``dataclass``: mypy treats it as ``dataclass`` and refuses
assignments; at run time the class has the same fields, equality, hash and slots, but assignments
work. docs/adr/0029 has the numbers.

Values are made with keywords. A few, which every commit or each member of a rebalance makes, may
also be made by position (``kw_only=False``), which costs less than half.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    from dataclasses import dataclass

    def value(*, frozen: bool, slots: bool, kw_only: bool) -> Any:
        """A decorator like ``dataclass(...)`` with exactly these arguments."""
        if not (frozen and slots):
            raise TypeError("a value is frozen and has slots")
        return dataclass(slots=True, kw_only=kw_only, unsafe_hash=True)


def kinds_of(names: Mapping[str, Any], base: type[Any]) -> tuple[type[Any], ...]:
    """The subclasses of ``base`` in a module's names, without those that are bases themselves."""
    found = [k for k in names.values() if isinstance(k, type) and issubclass(k, base)]
    return tuple(kind for kind in found if sum(issubclass(other, kind) for other in found) == 1)


_SHARED: Final = 1_024
"""Limit for the shared texts, bytes and numbers, because clients choose them."""

Plain = TypeVar("Plain", bound="str | int | bytes")
Maker = TypeVar("Maker", bound=Callable[..., Any])


def _lasting(maker: Maker) -> Maker:
    """The function with a bounded cache, under its own type: a function around it would cost."""
    return cast("Maker", lru_cache(_SHARED, typed=True)(maker))


@_lasting
def shared(plain: Plain) -> Plain:
    """An object equal to ``plain`` that thousands of members share.

    Two requests with equal content bring two objects, and each member would keep its own.
    """
    return plain


__all__ = ["kinds_of", "shared", "value"]
