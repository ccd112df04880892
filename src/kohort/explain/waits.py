"""The times at which members joined, and the members that the coordinator waited for.

In: the events of one round, in their order. Out: `Join` and `Waited` values. Must not know: the
lines, the rebalance that comes of a round.

The coordinator ends the wait when the last member has joined or was removed. So the coordinator
waited for the member that joined, left or expired in the moment of the end. kohort's history has
each join: there this member is measured. A broker's log has only the joins of new members: there
the same moment makes the member likely.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from kohort.explain.amounts import Known
from kohort.explain.events import Event, Kind
from kohort.explain.rebalances import Ending, Join, Rebalance, Waited

_ENDINGS: Final = {
    Kind.REJOINED: Ending.LAST,
    Kind.MEMBER_JOINS: Ending.LAST,
    Kind.NEW_MEMBER: Ending.LAST,
    Kind.EXPIRED: Ending.EXPIRED,
    Kind.LEFT: Ending.LEFT,
}
OF_ROUNDS: Final = frozenset({*_ENDINGS, Kind.REMOVED_LATE, Kind.LEADER_REPLACED, Kind.DELIVERED})
"""Kinds of events about the members of a round."""
_MOMENT_S: Final = 0.1
"""The coordinator ends a wait within this time after the last member."""
_MOST: Final = 5
_MOST_JOINS: Final = 100_000
"""The number of joins that all groups keep together: the joins of the last rounds."""
_MOST_OF_ROUND: Final = 1_000
JoinTold: TypeAlias = tuple[float | None, float | None, Ending | None, float | None]
"""When a member joined and had its assignment, how and when it ended: values of a `Join`. A log has
millions, and a tuple is made in a tenth of the time."""
_UNKNOWN: Final[JoinTold] = (None, None, None, None)


class Rounds:
    """The joins of the last rounds of all groups: the oldest rounds are dropped."""

    def __init__(self) -> None:
        self._rounds: deque[dict[str, JoinTold]] = deque()
        self._kept = 0

    def begin(self) -> dict[str, JoinTold]:
        """The joins of a new round, by member: none yet."""
        joins: dict[str, JoinTold] = {}
        self._rounds.append(joins)
        self._take()
        return joins

    def note(self, joins: dict[str, JoinTold], member: str, told: JoinTold) -> None:
        """Keep the times of one member of a round."""
        if member not in joins:
            if len(joins) >= _MOST_OF_ROUND:
                return
            self._take()
        joins[member] = told

    def _take(self) -> None:
        self._kept += 1
        while self._kept > _MOST_JOINS and len(self._rounds) > 1:
            old = self._rounds.popleft()
            self._kept -= 1 + len(old)
            old.clear()


@dataclass(slots=True)
class Waits:
    """Follows one round.

    Attributes:
        joins: the joins that the sources tell, by member.
    """

    rounds: Rounds
    joins: dict[str, JoinTold] = field(init=False)
    _last: Event | None = None
    _dropped: list[Waited] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.joins = self.rounds.begin()

    def feed(self, event: Event, *, under_way: bool = True) -> None:
        """Take the next event; its kind is in `OF_ROUNDS`.

        Args:
            event: the event.
            under_way: whether the leader has not assigned yet.
        """
        if event.kind is Kind.DELIVERED:
            self._delivered(event)
        elif not under_way:
            return
        elif event.kind is Kind.REMOVED_LATE:
            self._drop(*names_in(event.details.get("list", "")))
        elif event.kind is Kind.LEADER_REPLACED:
            self._drop(event.instance or event.member)
        else:
            self._last = event
            ending = _ENDINGS[event.kind]
            self._note(event, None if ending is Ending.LAST else ending)

    def begun_by(self, member: str, at: float | None, ending: Ending | None) -> None:
        """The round began with the JoinGroup of this member, or with its end."""
        if member and at is not None:
            told: JoinTold = (at, None, None, None) if ending is None else (None, None, ending, at)
            self.rounds.note(self.joins, member, told)

    def _delivered(self, event: Event) -> None:
        name = event.instance or event.member
        known = self.joins.get(name)
        if known is not None and known[1] is None:
            self.joins[name] = known[0], event.at, known[2], known[3]

    def _note(self, event: Event, ending: Ending | None) -> None:
        name = event.instance or event.member
        if not name or event.at is None:
            return
        if ending is None:
            self.rounds.note(self.joins, name, (event.at, None, None, None))
        else:
            known = self.joins.get(name, _UNKNOWN)
            self.rounds.note(self.joins, name, (known[0], known[1], ending, event.at))

    def _drop(self, *names: str) -> None:
        known = {each.member for each in self._dropped}
        for name in names:
            if name and name not in known and len(self._dropped) < _MOST:
                self._dropped.append(Waited(name, Ending.DROPPED, Known.MEASURED))
            if name:
                self.rounds.note(self.joins, name, (None, None, Ending.DROPPED, None))

    def ended(self, at: float | None, begun_by: str) -> tuple[Waited, ...]:
        """The members that the coordinator waited for until this time; empty if none is known.

        Args:
            at: the end of the wait.
            begun_by: the member that began the round. If no member came later, none is known.
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


def joins_of(told: Mapping[str, JoinTold]) -> tuple[Join, ...]:
    """The joins of a round, in their order."""
    return in_order(
        [
            Join(member=member, asked=asked, assigned=assigned, ending=ending, gone=gone)
            for member, (asked, assigned, ending, gone) in told.items()
        ]
    )


def in_order(joins: Iterable[Join]) -> tuple[Join, ...]:
    """The members in the order in which the wait for each of them ended."""
    joins = tuple(joins)
    if len(joins) < 2:
        return joins

    def end(join: Join) -> float:
        times = (join.asked, join.gone, join.joined)
        return next((at for at in times if at is not None), float("inf"))

    return tuple(sorted(joins, key=end))


def earlier(join: Join, seconds: float) -> Join:
    """The join with all times earlier by this many seconds."""

    def moved(at: float | None) -> float | None:
        return None if at is None else at - seconds

    return replace(
        join,
        noticed=moved(join.noticed),
        asked=moved(join.asked),
        joined=moved(join.joined),
        assigned=moved(join.assigned),
        gone=moved(join.gone),
    )


def joins_of_clients(told: Iterable[Rebalance]) -> list[Join]:
    """The joins in the rows of several clients about one rebalance."""
    return [
        Join(
            member=each.instance or each.member or each.client,
            noticed=each.began,
            asked=each.asked,
            joined=each.joined,
            assigned=each.assigned,
        )
        for each in told
        if each.instance or each.member or each.client
    ]


def with_clients_joins(joins: Iterable[Join], told: Iterable[Join]) -> tuple[Join, ...]:
    """The joins of a coordinator, completed by those of clients.

    A coordinator's times go first: clients have clocks of their own.
    """
    found = {each.member: each for each in joins}
    for each in told:
        known = found.get(each.member)
        found[each.member] = (
            each
            if known is None
            else replace(
                known,
                noticed=each.noticed,
                asked=each.asked if known.asked is None else known.asked,
                assigned=each.assigned if known.assigned is None else known.assigned,
            )
        )
    return in_order(found.values())


def names_in(listed: str) -> list[str]:
    """The members in a list as Scala, Java or Python writes it."""
    inner = listed[listed.find("(") + 1 :] if listed.endswith(")") else listed
    return [name.strip(" '\"") for name in inner.strip("()[]{}").split(", ")]
