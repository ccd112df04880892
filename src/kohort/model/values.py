"""Values that are made by the million: frozen for the type checker, cheap to make at run time.

A frozen dataclass sets each field through ``object.__setattr__``, which makes it three times as
dear to construct as one that is not frozen. ``value`` stands in for ``dataclass``: mypy reads it as
that and refuses assignments, at run time the class has the same fields, equality, hash and slots,
but nobody stops who assigns all the same. docs/adr/0029 has the numbers.

Values are made by keywords. A few, of which every commit makes some, may be made by position as
well (``kw_only=False``): that costs less than half.

``shared`` is for what is kept by the thousand and mostly equal.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    from dataclasses import dataclass

    def value(*, frozen: bool, slots: bool, kw_only: bool) -> Any:
        """A decorator as ``dataclass(...)`` gives, which takes only what is written here."""
        if not (frozen and slots):
            raise TypeError("a value is frozen and has slots")
        return dataclass(slots=True, kw_only=kw_only, unsafe_hash=True)


_SHARED: Final = 1_024
"""Texts, bytes and numbers that are remembered: strangers choose them."""

Plain = TypeVar("Plain", bound="str | int | bytes")


def shared(plain: Plain) -> Plain:
    """``plain``, or an equal one that is kept already: for what thousands of members have alike.

    Two requests that say the same bring two objects, and each member would keep its own.
    """
    one: Plain = _shared(plain)
    return one


@lru_cache(_SHARED, typed=True)
def _shared(plain: Any) -> Any:
    return plain


__all__ = ["shared", "value"]
