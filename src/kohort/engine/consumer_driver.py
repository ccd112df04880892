"""The driver of one group member: a consumer's core wired to a member engine, without IO.

In: events of the application, bytes, instants. Out: connection outputs (`Connect`, `Transmit`,
`Close`) and completions (`Answered`, `Committed`, `OffsetsFetched`) are returned; the work of the
application is in ``due``, in order; facts go to ``observe``. Must not know: sockets, threads,
librdkafka, the processing of records.

The lab, the blocking consumer and GroupMembership run this driver. A shell owes it what it owes a
member engine (see there), carries out ``due`` as ``consumer.fencing`` permits, and hands out
records only before ``sure_until``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Generic, Protocol, TypeVar, get_args

from kohort.consumer.effects import CommitOffsets, FetchOffsets, ListOffsets, StartReading
from kohort.consumer.embedded_protocol import EmbeddedProtocol, R
from kohort.consumer.events import Event
from kohort.consumer.ownership_effects import Tell
from kohort.engine import driver_answers as answers
from kohort.engine import member_outputs as engine
from kohort.engine.connections import Bytes, Loss
from kohort.engine.member_engine import MemberEngine
from kohort.engine.member_offsets import list_request
from kohort.engine.member_outputs import (
    Answered,
    Close,
    Committed,
    Connect,
    LeadersOf,
    Output,
    RequestError,
    Transmit,
    Unserved,
    Where,
)
from kohort.member.effects import Failed, Joined, Left, Lost, Observe, PrepareJoin
from kohort.member.events import OwnerEvent, Stalled
from kohort.member.requests import RequestId
from kohort.model.client_facts import (
    ClientFact,
    CommitConcluded,
    CommitSent,
    CommittedAsked,
    CommittedTold,
    Outcome,
)
from kohort.model.ids import ConnectionId, GroupId, ProtocolType, TopicPartition
from kohort.model.instants import Instant, Millis, sooner
from kohort.model.member_facts import MemberFact
from kohort.model.positions import EARLIEST, LATEST, Position
from kohort.policies.consumer_groups import ConsumerAssigner
from kohort.wire.messages.k02_list_offsets import ListOffsetsRequest

_CONNECTIONS = frozenset({Connect, Transmit, Close})
_FOR_MEMBER = frozenset(get_args(OwnerEvent))

_ALWAYS: Final = Instant(2**62)
"""Until when partitions are sure that no group can take away."""

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1


class Core(Protocol):
    """A core that the driver runs: `ConsumerCore` and `MembershipCore` fit."""

    def handle(self, event: Any, now: Instant) -> Iterable[Any]:
        """Take an event; return effects in the order to carry them out."""
        ...

    def advance(self, now: Instant) -> Iterable[Any]:
        """Do everything that is due."""
        ...

    def next_deadline(self) -> Instant | None:
        """The next instant for ``advance``."""
        ...

    def check(self) -> None:
        """Assert the invariants."""
        ...

    @property
    def without_group(self) -> bool:
        """Whether the resources are owned without a membership."""
        ...


C = TypeVar("C", bound=Core)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProtocol(Generic[R]):
    """The kind of a group: the protocol type, the bytes inside it, and the leader's assigner."""

    type: ProtocolType
    embedded: EmbeddedProtocol[R]
    assigner: ConsumerAssigner


class ConsumerDriver(Generic[C]):
    """One member of one group. Every method returns outputs, to be carried out in order.

    Args:
        member: the member's engine; the driver is its only user.
        core: the core that decides; the driver is its only user.
        isolation_level: for lookups of offsets: `READ_UNCOMMITTED` or `READ_COMMITTED`.
        observe: takes facts about the member, about commits and about committed offsets.
        has_commits: whether there is a group with committed offsets to ask for.
    """

    __slots__ = (
        "_group_id",
        "_has_commits",
        "_isolation_level",
        "_numbers",
        "_observe",
        "_out",
        "_outputs",
        "_under_way",
        "core",
        "due",
        "member",
        "sure_until",
        "unserved",
    )

    def __init__(
        self,
        member: MemberEngine,
        core: C,
        *,
        isolation_level: int = READ_UNCOMMITTED,
        observe: Callable[[ClientFact | MemberFact], None] = lambda _fact: None,
        has_commits: bool = True,
    ) -> None:
        self.member = member
        """For reading only."""
        self.core = core
        """For reading only."""
        self._group_id = GroupId(member.core.config.group_id)
        self._isolation_level = isolation_level
        self._numbers = count(1)
        """Of commits and fetches in facts."""
        self._observe = observe
        self._has_commits = has_commits
        self._under_way: dict[RequestId, Callable[[Any], Event | None]] = {}
        """Readers of answers that become events of the core or facts."""
        self._out: list[Output] = []
        self._outputs: deque[Output] = deque()
        """Outputs of the member engine that were not handled yet."""
        self.due: deque[Any] = deque()
        """The work of the application, in order. Another thread may take it from the left."""
        self.unserved: RequestError | None = None
        """Why no node serves this member; the shell tells and clears this."""
        self.sure_until: Instant | None = None
        """The membership is sure before this instant; None without one. See ``fencing``."""

    # -- the application --------------------------------------------------------------------------

    def handle(self, event: Any, now: Instant) -> list[Output]:
        """Take an event for the core, or an ``OwnerEvent`` for the member: Stalled, Polled."""
        if type(event) in _FOR_MEMBER:
            self._take(self.member.handle(event, now))
        else:
            self._carry(self.core.handle(event, now), now)
        return self._settle(now)

    def commit(
        self, offsets: Mapping[TopicPartition, Position], now: Instant
    ) -> tuple[RequestId, list[Output]]:
        """Commit offsets for the application; one ``Committed`` answers."""
        request_id = self._commit(
            offsets, now, then=lambda answer: answers.accepted(offsets, answer)
        )
        return request_id, self._settle(now)

    def drop_start(self, partition: TopicPartition) -> bool:
        """Take a partition out of every start in ``due``; whether there was one.

        A seek calls this: the seek replaces a start that the application has not come to yet.
        """
        pending = [self.due.popleft() for _ in range(len(self.due))]  # another thread may append
        found = False
        for index, effect in enumerate(pending):
            if isinstance(effect, StartReading) and partition in effect.starts:
                found = True
                rest = {tp: at for tp, at in effect.starts.items() if tp != partition}
                pending[index] = StartReading(starts=rest)
        self.due.extendleft(reversed(pending))
        return found

    def fetch_offsets(
        self, partitions: Collection[TopicPartition], now: Instant
    ) -> tuple[RequestId, list[Output]]:
        """Fetch the group's committed offsets; one ``OffsetsFetched`` answers."""
        request_id, outputs = self.member.fetch_offsets(partitions, now)
        self._take(outputs)
        return request_id, self._settle(now)

    def request(
        self, where: Where, message: Any, now: Instant, *, timeout_ms: Millis | None = None
    ) -> tuple[RequestId, list[Output]]:
        """Send any other request; one ``Answered`` answers."""
        request_id, outputs = self.member.request(where, message, now, timeout_ms=timeout_ms)
        self._take(outputs)
        return request_id, self._settle(now)

    def request_leaders(
        self, request_class: type, where: LeadersOf, now: Instant, *, timeout_ms: Millis
    ) -> tuple[RequestId, list[Output]]:
        """Send a request to each leader of some partitions; each answers by an ``Answered``."""
        member = self.member
        request_id, outputs = member.request_leaders(
            request_class, where, now, timeout_ms=timeout_ms
        )
        self._take(outputs)
        return request_id, self._settle(now)

    # -- the world --------------------------------------------------------------------------------

    def connected(self, conn: ConnectionId, now: Instant) -> list[Output]:
        """The shell opened ``conn``."""
        self._take(self.member.connected(conn, now))
        return self._settle(now)

    def received(self, conn: ConnectionId, data: Bytes, now: Instant) -> list[Output]:
        """The shell read ``data``."""
        if outputs := self.member.received(conn, data, now):
            self._take(outputs)
        return self._settle(now)

    def lost(
        self, conn: ConnectionId, now: Instant, reason: str = "", loss: Loss = Loss.BROKEN
    ) -> list[Output]:
        """``conn`` ended, broke, or could not be opened; ``reason`` is for messages."""
        self._take(self.member.lost(conn, now, reason, loss))
        return self._settle(now)

    def stalled(self, micros: int, now: Instant) -> list[Output]:
        """The process was asleep for so long."""
        return self.handle(Stalled(micros=micros), now)

    def advance(self, now: Instant) -> list[Output]:
        """Do everything that is due; an early or second call is harmless."""
        self._take(self.member.advance(now))
        at = self.core.next_deadline()
        if at is not None and at <= now:
            self._carry(self.core.advance(now), now)
        return self._settle(now)

    def next_deadline(self) -> Instant | None:
        """The next instant for ``advance``."""
        return sooner(self.core.next_deadline(), self.member.next_deadline())

    def close(self, now: Instant) -> list[Output]:
        """Close every connection for good."""
        self._take(self.member.close(now))
        return self._settle(now)

    def check(self) -> None:
        """Assert the invariants; raises InvariantViolation."""
        self.member.check()
        self.core.check()

    # -- outputs of the member engine -------------------------------------------------------------

    def _take(self, outputs: Iterable[Output]) -> None:
        """Connections first, in order; then everything else, in order."""
        for output in outputs:
            if type(output) in _CONNECTIONS:
                self._out.append(output)
            else:
                self._outputs.append(output)

    def _settle(self, now: Instant) -> list[Output]:
        while self._outputs:
            event = self._event(self._outputs.popleft())
            if event is not None:
                self._carry(self.core.handle(event, now), now)
        self.sure_until = _ALWAYS if self.core.without_group else self.member.core.sure_until
        out = self._out
        if not out:
            return []
        self._out = []
        return out

    def _event(self, output: Output) -> Event | None:
        """The event of an output for the core; completions of the application leave from here."""
        match output:
            case PrepareJoin() | Joined() | Lost() | Failed() | Left():
                if type(output) is Joined:
                    self.unserved = None
                return output
            case Observe():
                self._observe(output.fact)
            case Unserved():
                self.unserved = output.error
            case Answered() | Committed() | engine.OffsetsFetched():
                then = self._under_way.pop(output.request_id, None)
                if then is None or isinstance(output, Committed):  # the shell logs failed commits
                    self._out.append(output)
                return None if then is None else then(output)
            case _:
                pass
        return None

    # -- effects of the core ----------------------------------------------------------------------

    def _carry(self, effects: Iterable[Any], now: Instant) -> None:
        for effect in effects:
            match effect:
                case Tell():  # first, because every poll is one
                    self._take(self.member.handle(effect.event, now))
                case CommitOffsets():
                    self._commit(effect.offsets, now, then=answers.commit_answer(effect))
                case FetchOffsets():
                    self._fetch(effect, now)
                case ListOffsets():
                    self._list(effect, now)
                case _:
                    self.due.append(effect)

    def _commit(
        self,
        offsets: Mapping[TopicPartition, Position],
        now: Instant,
        *,
        then: Callable[[Committed], Event | None],
    ) -> RequestId:
        number = next(self._numbers)
        self._observe(
            CommitSent(
                group_id=self._group_id,
                request=number,
                offsets=tuple(sorted((tp, p.offset) for tp, p in offsets.items())),
                member_id=self.member.core.member_id,
                generation_id=self.member.core.synced_generation_id,
            )
        )
        request_id, outputs = self.member.commit(offsets, now)

        def concluded(answer: Committed) -> Event | None:
            self._observe(
                CommitConcluded(
                    group_id=self._group_id,
                    request=number,
                    outcome=answers.outcome(answer.error),
                    refused=tuple(sorted(answer.refused)),
                )
            )
            return then(answer)

        self._under_way[request_id] = concluded
        self._take(outputs)
        return request_id

    def _fetch(self, effect: FetchOffsets, now: Instant) -> None:
        wanted = tuple(sorted(effect.partitions))
        if not self._has_commits:
            request_id = RequestId(-next(self._numbers))
            self._under_way[request_id] = lambda answer: answers.offsets_fetched(effect, answer)
            nothing = dict.fromkeys(wanted)
            self._outputs.append(engine.OffsetsFetched(request_id=request_id, offsets=nothing))
            return
        number = next(self._numbers)
        self._observe(CommittedAsked(group_id=self._group_id, request=number, partitions=wanted))
        request_id, outputs = self.member.fetch_offsets(wanted, now)

        def then(answer: engine.OffsetsFetched) -> Event:
            found = answers.offsets_fetched(effect, answer)
            self._observe(
                CommittedTold(
                    group_id=self._group_id,
                    request=number,
                    outcome=Outcome.UNKNOWN if found.failed else Outcome.OK,
                    offsets=tuple((tp, p.offset if p else None) for tp, p in found.offsets.items()),
                )
            )
            return found

        self._under_way[request_id] = then
        self._take(outputs)

    def _list(self, effect: ListOffsets, now: Instant) -> None:
        timestamp = EARLIEST if effect.earliest else LATEST
        where = LeadersOf(
            partitions=tuple(sorted(effect.partitions)),
            build=lambda mine, version: list_request(mine, timestamp, self._isolation_level),
        )
        request_id, outputs = self.member.request_leaders(ListOffsetsRequest, where, now)
        left = set(effect.partitions)

        def then(answer: Answered) -> Event:
            left.difference_update(answer.partitions)
            if left:  # other leaders have not answered yet
                self._under_way[request_id] = then
            return answers.offsets_listed(effect, answer)

        self._under_way[request_id] = then
        self._take(outputs)
