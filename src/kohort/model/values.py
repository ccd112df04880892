"""Values that are made by the million: frozen for the type checker, cheap to make at run time.

A frozen dataclass sets each field through ``object.__setattr__``, which makes it three times as
dear to construct as one that is not frozen. ``value`` stands in for ``dataclass``: mypy reads it as
that and refuses assignments, at run time the class has the same fields, equality, hash and slots,
but nobody stops who assigns all the same. docs/adr/0029 has the numbers.

Values are made by keywords. A few, of which every commit makes some, may be made by position as
well (``kw_only=False``): that costs less than half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    from dataclasses import dataclass

    def value(*, frozen: bool, slots: bool, kw_only: bool) -> Any:
        """A decorator as ``dataclass(...)`` gives, which takes only what is written here."""
        if not (frozen and slots):
            raise TypeError("a value is frozen and has slots")
        return dataclass(slots=True, kw_only=kw_only, unsafe_hash=True)


__all__ = ["value"]
