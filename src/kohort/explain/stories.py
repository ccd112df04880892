"""The story of one group: its rebalances, and the events of its members.

In: events of the group, in the order of their times. Out: `Rebalance` values, and a summary with
bounded memory: the last rebalances, and the first events of each kind. Must not know: sentences,
advice.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from kohort.explain.amounts import Stop
from kohort.explain.causes import Cause, Reason, reason_of
from kohort.explain.client_lines import ClientLines
from kohort.explain.events import Event, Kind, Side
from kohort.explain.limits import Limit
from kohort.explain.lines.marks import is_open
from kohort.explain.lines.values import client_of
from kohort.explain.listing import Listing
from kohort.explain.offsets_topic.lag import Lag
from kohort.explain.ownership import Owned, Ownership
from kohort.explain.rebalances import Ending, Rebalance, seconds_between
from kohort.explain.waits import OF_ROUNDS, JoinTold, Rounds, Waits, joins_of

MOST_REBALANCES: Final = 2_000
_REAL_S: Final = 1e9
"""Times since 1970 are larger than this; times of a day or of a simulated world are smaller."""
MOST_CLIENTS: Final = 50_000
"""Names of clients that the stories of all groups keep together."""
_MOST_EXAMPLES: Final = 3
_MOST_LISTS: Final = 10
_MOST_EXPIRED: Final = 1_000
_SOON_S: Final = 1.0
"""A member that left or expired within this time before a rebalance without a reason caused it."""

_CULPRITS: Final = {
    Kind.EXPIRED: Cause.EXPIRED,
    Kind.LEFT: Cause.LEFT,
    Kind.MEMBER_JOINS: Cause.NEW_MEMBER,
    Kind.NEW_MEMBER: Cause.NEW_MEMBER,
}
_BEGUN_BY_JOIN: Final = frozenset(
    {Cause.NEW_MEMBER, Cause.LEADER_REJOINED, Cause.MEMBER_REJOINED, Cause.METADATA}
    | {Cause.TOPICS_CHANGED, Cause.STATIC_CHANGED, Cause.SECOND_ROUND}
)
"""The member of such a rebalance has joined when the rebalance begins."""
_ENDED_BY: Final = {Cause.LEFT: Ending.LEFT, Cause.EXPIRED: Ending.EXPIRED}


@dataclass(slots=True)
class Times:
    """How long a part of the members' work took, or how long it may take. In seconds."""

    least: float
    most: float
    total: float = 0.0
    count: int = 0

    @property
    def mean(self) -> float:
        """The mean; 0 if there is none."""
        return self.total / self.count if self.count else 0.0


@dataclass(slots=True, kw_only=True)
class Story:
    """The story of one group in the logs."""

    group: str
    partition: int | None = None
    first: float | None = None
    last: float | None = None
    dated: bool = False
    total: int = 0
    """Rebalances in all; `rebalances` has the last ones."""
    clients_limit: Limit = field(default_factory=lambda: Limit(MOST_CLIENTS))
    """The limit of the number of names of clients; stories of one explainer share it."""
    rounds: Rounds = field(default_factory=Rounds)
    """The joins that are kept; stories of one explainer share them."""
    rebalances: deque[Rebalance] = field(default_factory=lambda: deque(maxlen=MOST_REBALANCES))
    """Complete when the logs have ended."""
    finished: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=MOST_REBALANCES))
    """The fields of the last rebalances, until the logs end: a log may have a million of them."""
    counts: Counter[Kind] = field(default_factory=Counter)
    causes: Counter[Cause] = field(default_factory=Counter)
    makers: Counter[str] = field(default_factory=Counter)
    history_at: float = -inf
    """The time of the last event of this group in a history of kohort's broker."""
    examples: dict[Kind, list[Event]] = field(default_factory=dict)
    """The first events of each kind."""
    versions: tuple[float, float] | None = None
    """The versions of Kafka that write all these lines: the first and the last."""
    generations: tuple[int, int] | None = None
    """The lowest and the highest generation."""
    joined_clients: Counter[str] = field(default_factory=Counter)
    """New members by client id."""
    left_clients: Counter[str] = field(default_factory=Counter)
    returned: Counter[str] = field(default_factory=Counter)
    """New members with a client id of a member that had left, by client id."""
    owned: list[Owned] = field(default_factory=list)
    times: dict[str, Times] = field(default_factory=dict)
    """By the name of the work: poll, heartbeat, commit; by that of a limit: session, rebalance
    timeout."""
    supported: dict[str, Event] = field(default_factory=dict)
    """The first member that left with a list of assignors, by the list as the broker writes it."""
    returns: list[Stop] = field(default_factory=list)
    """Stops without a rebalance: the owner of the partition came back into its generation."""
    lags: list[Lag] = field(default_factory=list)
    """The lag of the group at some times, if a cluster told the ends of the logs."""
    ownership: Ownership = field(default_factory=Ownership)
    """The owners of partitions, as clients report them."""
    clients: dict[str, str] = field(default_factory=dict)
    """The clients with a line, and the last file of each."""
    listing: Listing = field(default_factory=Listing)
    expired_at: list[float] = field(default_factory=list)
    """The first times at which members expired."""
    too_slow: int = 0
    """Members of KIP-848 that were fenced because they kept partitions."""
    under_way: float | None = None
    """When the last rebalance began, if it had not ended at the end of the coordinator's log."""
    logs_end: float | None = None
    """The last time of all groups in the logs of coordinators."""
    came_back: dict[str, float] = field(default_factory=dict)
    """By client id: the shortest time from an expiry until the client joined again."""
    _expired: dict[str, float] = field(default_factory=dict)
    _wrote: set[tuple[float, float]] = field(default_factory=set)
    """Versions of the lines that have already narrowed `versions`."""
    _open: dict[str, Any] | None = None
    """The fields of the rebalance under way, as the coordinator told them."""
    _waits: Waits | None = None
    """The members that the rebalance under way, or else the last one, waits for."""
    _culprit: Event | None = None
    _of_clients: ClientLines = field(init=False)

    def __post_init__(self) -> None:
        self._of_clients = ClientLines(self.clients_limit, self.clients, self.ownership)

    def feed(self, event: Event) -> None:
        """Take the next event of the group."""
        kind, at, generation = event.kind, event.at, event.generation
        self.counts[kind] += 1
        self.makers[event.maker] += 1
        kept = self.examples.get(kind)
        if kept is None:
            self.examples[kind] = [event]
        elif len(kept) < _MOST_EXAMPLES:
            kept.append(event)
        if at is not None:
            self.first = at if self.first is None or at < self.first else self.first
            self.last = at if self.last is None or at > self.last else self.last
            self.dated |= event.dated
        if event.versions is not None and event.versions not in self._wrote:
            self._wrote.add(event.versions)
            low_version, high_version = self.versions or event.versions
            low_version = max(low_version, event.versions[0])
            self.versions = low_version, min(high_version, event.versions[1])
        if generation is not None:
            low, high = self.generations or (generation, generation)
            if self.generations is None or not low <= generation <= high:
                self.generations = min(low, generation), max(high, generation)
        side = event.side
        if side is Side.BROKER:
            self._feed_broker(kind, event)
        elif side is Side.TOOL:
            self.listing.feed(event)
        elif (ended := self._of_clients.feed(event)) is not None:
            self._keep(ended)

    def timed(self, name: str, seconds: float) -> None:
        """Note how long a part of a member's work took, or may take."""
        found = self.times.get(name)
        if found is None:
            found = self.times[name] = Times(seconds, seconds)
        found.least, found.most = min(found.least, seconds), max(found.most, seconds)
        found.total, found.count = found.total + seconds, found.count + 1

    def finish(self) -> None:
        """Take no more events; complete the rebalances."""
        if self._open is not None and "joined" not in self._open:
            self.under_way = self._open.get("began")
        self._close(None)
        for unfinished in self._of_clients.finish():
            self._keep(unfinished)
        rows = [_rebalance(fields) for fields in self.finished]
        self.rebalances = deque(rows, maxlen=self.finished.maxlen)
        self.finished.clear()

    def keep_last(self, most: int) -> None:
        """From now on, keep only this many rebalances, the last ones."""
        self.finished = deque(self.finished, maxlen=most)

    def replace(self, rebalances: list[Rebalance]) -> None:
        """Take rebalances that were completed with those of other sources."""
        self.total += len(rebalances) - len(self.rebalances)
        self.causes.subtract(each.cause for each in self.rebalances)
        self.causes.update(each.cause for each in rebalances)
        self.causes = +self.causes  # without the causes that no rebalance has any more
        self.rebalances = deque(rebalances, maxlen=MOST_REBALANCES)
        times = [each.ended for each in rebalances if each.ended is not None]
        if times:
            self.dated |= max(times) > _REAL_S
            self.first = min(times) if self.first is None else min(self.first, *times)
            self.last = max(times) if self.last is None else max(self.last, *times)
        numbers = [each.generation for each in rebalances if each.generation is not None]
        if numbers:
            self.generations = min(numbers), max(numbers)

    def count_clients(self, rows: Iterable[Rebalance]) -> None:
        """Count members that came and went in the offsets topic, unless a log tells them."""
        for row in () if self.joined_clients or self.left_clients else rows:
            client = row.client or row.member
            if row.cause is Cause.GONE and self._noted(client):
                self.left_clients[client] += 1
            elif row.cause is Cause.NEW_MEMBER and self._noted(client):
                self._joined(client)

    def _joined(self, client: str) -> None:
        self.joined_clients[client] += 1
        if self.left_clients[client] > self.returned[client]:
            self.returned[client] += 1

    def take(self, other: Story, kinds: Iterable[Kind]) -> None:
        """Count the events of these kinds in another story, too."""
        for kind in kinds:
            if events := other.examples.get(kind):
                self.counts[kind] += other.counts[kind]
                self.examples[kind] = [*events, *self.examples.get(kind, [])][:_MOST_EXAMPLES]

    # -- the coordinator's lines ------------------------------------------------------------------

    def _feed_broker(self, kind: Kind, event: Event) -> None:
        if kind in OF_ROUNDS and self._waits is not None:
            self._waits.feed(event, under_way=self._open is not None)
        if kind in _CULPRITS:
            self._note_culprit(event)
        elif kind is Kind.PREPARING or kind is Kind.EPOCH:
            self._begin(event)
        elif kind is Kind.STABILIZED or kind is Kind.TARGET:
            begun = self._under_way(event)
            begun["joined"], begun["generation"] = event.at, event.generation
            begun["members"] = event.members
            if self._waits is not None:
                begun["waited"] = self._waits.ended(event.at, begun.get("member", ""))
            if kind is Kind.TARGET:
                self._close(event.at)
        elif kind is Kind.ASSIGNED:
            begun = self._under_way(event)
            if event.members is not None:
                begun["members"] = event.members
            begun["generation"], begun["static"] = event.generation, event.static
            self._close(event.at)
        elif kind is Kind.EMPTY:
            self._close(None)

    def _begin(self, event: Event) -> None:
        """A rebalance begins: of a classic group, or of one of KIP-848, where nobody waits."""
        self._close(None)
        begun = self._open = self._begun(event)
        if event.kind is Kind.EPOCH:
            begun["generation"], begun["before"], self._waits = event.generation, None, None
            return
        self._waits = Waits(self.rounds)
        begun["joins"] = self._waits.joins
        if begun["certain"]:
            ending = _ENDED_BY.get(begun["cause"])
            if ending is not None or begun["cause"] in _BEGUN_BY_JOIN:
                self._waits.begun_by(begun["instance"] or begun["member"], event.at, ending)

    def _under_way(self, event: Event) -> dict[str, Any]:
        """The fields of the open rebalance; of a new one if no line told its beginning."""
        if self._open is None:
            self._open = {"side": Side.BROKER, "cause": Cause.UNTOLD, "place": event.place}
            if (likely := self._likely(event)) is not None:
                self._open |= {"cause": likely.cause, "member": likely.member, "certain": False}
                self._open["client"] = client_of(likely.member)
        return self._open

    def _likely(self, event: Event) -> Reason | None:
        """The member that left, expired or joined right before, as the reason of a rebalance."""
        culprit = self._culprit
        if culprit is None or not _soon(culprit, event):
            return None
        cause = Cause.TOO_SLOW if gave_nothing_up(culprit) else _CULPRITS[culprit.kind]
        return Reason(cause, culprit.member, culprit.instance)

    def _note_culprit(self, event: Event) -> None:
        self._culprit = event
        begun = self._open
        if event.kind is Kind.LEFT and begun is not None and begun.get("member") == event.member:
            # The line of the rebalance may come before this one.
            begun["client_reason"] = begun.get("client_reason") or event.reason
            begun["host"] = event.details.get("host", "")
        if (lists := event.details.get("protocols")) and len(self.supported) < _MOST_LISTS:
            self.supported.setdefault(lists, event)
        client = event.client or event.member
        noted = event.kind in {Kind.LEFT, Kind.EXPIRED} and self._noted(client)
        if noted:
            self.left_clients[client] += 1
        if gave_nothing_up(event):
            self.too_slow += 1
        elif event.kind is Kind.EXPIRED and event.at is not None:
            if noted:
                self._expired[client] = event.at
            if len(self.expired_at) < _MOST_EXPIRED:
                self.expired_at.append(event.at)

    def _noted(self, client: str) -> bool:
        """Whether a client in the coordinator's lines is counted by its name."""
        return (
            client in self.joined_clients
            or client in self.left_clients
            or self.clients_limit.take()
        )

    def _begun(self, event: Event) -> dict[str, Any]:
        told = reason_of(event.reason)
        certain, culprit = True, self._culprit
        if told.cause is Cause.UNTOLD and (likely := self._likely(event)) is not None:
            told, certain = likely, False
        if is_open(event.text) and told.member and culprit is not None:
            # The line was cut, perhaps inside of the member id.
            whole = culprit.member if culprit.member.startswith(told.member) else told.member
            told = told._replace(member=whole)
        host = ""
        if told.cause is Cause.LEFT and culprit is not None and culprit.member == told.member:
            host = culprit.details.get("host", "")
            # The Java coordinator writes the client's reason in the line about the member only.
            told = told._replace(client_reason=told.client_reason or culprit.reason)
        of_member = client_of(told.member)
        client = of_member or told.member
        if told.cause is Cause.NEW_MEMBER and self._noted(client):
            self._joined(client)
            if event.at is not None and (gone := self._expired.pop(client, None)) is not None:
                away = event.at - gone
                if away >= 0:  # times of a log may run backwards
                    self.came_back[client] = min(away, self.came_back.get(client, 1e9))
        return {
            "side": Side.BROKER,
            "cause": told.cause,
            "reason": event.reason,
            "member": told.member,
            "instance": told.instance,
            "client": of_member,
            "client_reason": told.client_reason,
            "host": host,
            "certain": certain,
            "before": event.generation,
            "began": event.at,
            "place": event.place,
        }

    def _close(self, assigned: float | None) -> None:
        if self._open is not None:
            self._open["assigned"] = assigned
            self._keep(self._open)
            self._open = None

    def _keep(self, fields: dict[str, Any]) -> None:
        self.total += 1
        self.causes[fields["cause"]] += 1
        self.finished.append(fields)


def _rebalance(fields: dict[str, Any]) -> Rebalance:
    joins: Mapping[str, JoinTold] | None = fields.pop("joins", None)
    return Rebalance(**fields, joins=joins_of(joins)) if joins else Rebalance(**fields)


def gave_nothing_up(event: Event) -> bool:
    """Whether a member of KIP-848 was fenced because it kept partitions, not for its session."""
    return event.kind is Kind.EXPIRED and "ms" in event.details


def _soon(culprit: Event, event: Event) -> bool:
    after = seconds_between(culprit.at, event.at)
    return culprit.at is None or (after is not None and after <= _SOON_S)
