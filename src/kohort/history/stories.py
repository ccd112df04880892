"""Facts as lines for people: the story of a group or of a member.

In: recorded facts. Out: one line each, with the time first; of bytes only the number is shown. Must
not know: checks.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from enum import Enum
from typing import Any, Final

from kohort.model.history_record import AnyFact, Recorded
from kohort.model.ids import MemberId, TopicPartition
from kohort.model.instants import MICROS_PER_SECOND

_MOST_ITEMS: Final = 6
_HIDDEN: Final = frozenset({"group_id", "at", "connection", "correlation_id"})


def line(recorded: Recorded) -> str:
    """One fact as one line."""
    seconds = recorded.at / MICROS_PER_SECOND
    life = "" if recorded.incarnation == 1 else f"/{recorded.incarnation}"
    return f"{seconds:12.6f}  {recorded.source}{life}: {_words(recorded.fact)}"


def mentions(fact: AnyFact, member_id: MemberId) -> bool:
    """Whether a fact names this member."""
    if getattr(fact, "member_id", None) == member_id:
        return True
    return member_id in getattr(fact, "member_ids", ())


def _words(fact: Any) -> str:
    said = []
    for spec in fields(fact):
        value = getattr(fact, spec.name)
        default = spec.default if spec.default is not MISSING else None
        if spec.name not in _HIDDEN and value != default and value not in ("", ()):
            said.append(f"{spec.name}={_show(value)}")
    return f"{type(fact).__name__} {' '.join(said)}".rstrip()


def _show(value: Any) -> str:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, TopicPartition):
        return str(value)
    if isinstance(value, tuple):
        shown = [_show(item) for item in value[:_MOST_ITEMS]]
        if len(value) > _MOST_ITEMS:
            shown.append(f"and {len(value) - _MOST_ITEMS} more")
        return f"({', '.join(shown)})"
    if hasattr(value, "__dataclass_fields__"):
        return f"[{_words(value)}]"
    return str(value)
