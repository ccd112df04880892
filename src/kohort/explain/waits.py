"""Members that a coordinator waited for while the members of a group joined.

In: the events of one round, in their order. Out: `Waited` values. Must not know: other rounds.

The coordinator ends the wait when the last member has joined, or was removed. So a member that
joined, left or expired in the moment of the end is the one that was waited for. kohort's history
has each join: there it is measured. A broker's log has joins of new members only: there the end in
the same moment bounds it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kohort.explain.amounts import Known
from kohort.explain.events import Event, Kind
from kohort.explain.rebalances import Ending, Waited

_ENDINGS: Final = {
    Kind.REJOINED: Ending.LAST,
    Kind.MEMBER_JOINS: Ending.LAST,
    Kind.NEW_MEMBER: Ending.LAST,
    Kind.EXPIRED: Ending.EXPIRED,
    Kind.LEFT: Ending.LEFT,
}
ENDS_WAITS: Final = frozenset({*_ENDINGS, Kind.REMOVED_LATE, Kind.LEADER_REPLACED})
"""Kinds of events that end a wait for members."""
_MOMENT_S: Final = 0.1
"""The coordinator ends a wait so soon after the last member."""
_MOST: Final = 5


@dataclass(slots=True)
class Waits:
    """Follows one round."""

    _last: Event | None = None
    _dropped: list[Waited] = field(default_factory=list)

    def feed(self, event: Event) -> None:
        """Take the next event of the round; its kind is in `ENDS_WAITS`."""
        if event.kind is Kind.REMOVED_LATE:
            self._drop(*names_in(event.details.get("list", "")))
        elif event.kind is Kind.LEADER_REPLACED:
            self._drop(event.instance or event.member)
        else:
            self._last = event

    def _drop(self, *names: str) -> None:
        known = {each.member for each in self._dropped}
        for name in names:
            if name and name not in known and len(self._dropped) < _MOST:
                self._dropped.append(Waited(name, Ending.DROPPED, Known.MEASURED))

    def ended(self, at: float | None, begun_by: str) -> tuple[Waited, ...]:
        """The members that the coordinator waited for until this time; empty if none is known.

        Args:
            at: the end of the wait.
            begun_by: the member that began the round. If nobody came behind it, nobody is known.
        """
        if self._dropped:
            return tuple(self._dropped)
        last = self._last
        if last is None or at is None or last.at is None or not 0 <= at - last.at <= _MOMENT_S:
            return ()
        ending, name = _ENDINGS[last.kind], last.instance or last.member
        measured = last.kind is Kind.REJOINED
        if not name or (last.member == begun_by and not measured):
            return ()
        return (Waited(name, ending, Known.MEASURED if measured else Known.BOUNDED),)


def names_in(listed: str) -> list[str]:
    """The members in a list as Scala, Java or Python writes it."""
    inner = listed[listed.find("(") + 1 :] if listed.endswith(")") else listed
    return [name.strip(" '\"") for name in inner.strip("()[]{}").split(", ")]
