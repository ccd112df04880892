"""A consumer without IO: the consumer's core wired to a member engine, bytes in and bytes out.

In: what the application says (``consumer.events``), what happened to connections, instants. Out:
connection outputs (`Connect`, `Transmit`, `Close`) and facts, returned; and, in ``due``, what the
application has to do, in order. The engine's outputs for its owner become events of the core, and
the core's requests become requests of the engine. Must not know: sockets, threads, librdkafka, who
processes records.

A shell owes it what it owes a member engine (see there), works off ``due`` as far as
``consumer.fencing`` lets it, and hands out records only while the place is sure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, get_args

from kohort.consumer.core import ConsumerCore
from kohort.consumer.effects import (
    CommitOffsets,
    Effect,
    FetchOffsets,
    ForApplication,
    ListOffsets,
)
from kohort.consumer.events import (
    Application,
    CommitAnswered,
    Event,
    OffsetsFetched,
    OffsetsListed,
)
from kohort.consumer.ownership import EmbeddedProtocol, Offer, Tell
from kohort.embedded.consumer import decode_assignment
from kohort.engine import member_outputs as engine
from kohort.engine.member_engine import MemberEngine
from kohort.engine.member_outputs import (
    Answered,
    Close,
    Committed,
    Connect,
    LeaderOf,
    Output,
    RequestError,
    RequestErrorKind,
    Transmit,
)
from kohort.member.effects import Failed, Joined, Left, Lost, Observe, PrepareJoin
from kohort.member.events import OwnerEvent
from kohort.member.requests import RequestId
from kohort.model.client_facts import (
    ClientFact,
    CommitConcluded,
    CommitSent,
    CommittedAsked,
    CommittedTold,
    Outcome,
)
from kohort.model.errors import ErrorCode
from kohort.model.ids import ConnectionId, TopicPartition
from kohort.model.instants import Instant, sooner
from kohort.model.join import JoinProtocol
from kohort.model.positions import EARLIEST, LATEST, Position
from kohort.policies.consumer_groups import join_protocols
from kohort.policies.registry import is_cooperative
from kohort.policies.spec import Assignor
from kohort.wire.messages import k02_list_offsets as k02

ToShell: TypeAlias = Connect | Transmit | Close | Observe
_OF_SHELL = frozenset(get_args(ToShell))

_FATAL = frozenset({RequestErrorKind.UNSUPPORTED, RequestErrorKind.CLOSED})


class ConsumerEngine:
    """One consumer. The shell calls, carries out what is returned, and works off ``due``.

    Args:
        member: the member's engine, used by this object alone from now on.
        core: the consumer's core, likewise.
        observe: takes facts of commits and of what is asked about them.
    """

    __slots__ = ("_core", "_member", "_observe", "_out", "_owner", "_under_way", "due")

    def __init__(
        self,
        member: MemberEngine,
        core: ConsumerCore,
        observe: Callable[[ClientFact], None] = lambda _fact: None,
    ) -> None:
        self._member = member
        self._core = core
        self._observe = observe
        self._under_way: dict[RequestId, Callable[[Output], Event]] = {}
        self._out: list[ToShell] = []
        self._owner: deque[Output] = deque()
        self.due: deque[ForApplication] = deque()
        """What the application has to do, in order."""

    @property
    def member(self) -> MemberEngine:
        """The member, for reading only."""
        return self._member

    @property
    def core(self) -> ConsumerCore:
        """The core, for reading only."""
        return self._core

    @property
    def sure_until(self) -> Instant | None:
        """Until when the place is surely held; what ``consumer.fencing`` goes by."""
        return self._member.sure_until

    # -- the application --------------------------------------------------------------------------

    def handle(self, event: Application, now: Instant) -> list[ToShell]:
        """Take an event of the application."""
        self._carry(self._core.handle(event, now), now)
        return self._settle(now)

    def tell(self, event: OwnerEvent, now: Instant) -> list[ToShell]:
        """Hand an event straight to the member: RequestRejoin, Stalled, Leave."""
        self._take(self._member.handle(event, now))
        return self._settle(now)

    # -- the world --------------------------------------------------------------------------------

    def connected(self, conn: ConnectionId, now: Instant) -> list[ToShell]:
        """The shell opened ``conn``."""
        self._take(self._member.connected(conn, now))
        return self._settle(now)

    def received(self, conn: ConnectionId, data: bytes, now: Instant) -> list[ToShell]:
        """The shell read ``data``."""
        if outputs := self._member.received(conn, data, now):
            self._take(outputs)
        return self._settle(now)

    def lost(self, conn: ConnectionId, now: Instant, reason: str = "") -> list[ToShell]:
        """``conn`` ended, broke, or could not be opened."""
        self._take(self._member.lost(conn, now, reason))
        return self._settle(now)

    def advance(self, now: Instant) -> list[ToShell]:
        """Let deadlines pass; early or twice is harmless."""
        self._take(self._member.advance(now))
        at = self._core.next_deadline()
        if at is not None and at <= now:
            self._carry(self._core.advance(now), now)
        return self._settle(now)

    def next_deadline(self) -> Instant | None:
        """When ``advance`` is due next."""
        return sooner(self._core.next_deadline(), self._member.next_deadline())

    def close(self, now: Instant) -> list[ToShell]:
        """Close every connection, for good."""
        self._take(self._member.close(now))
        return self._settle(now)

    def check(self) -> None:
        """Assert what always holds; raises InvariantViolation."""
        self._member.check()
        self._core.check()

    # -- inside -----------------------------------------------------------------------------------

    def _settle(self, now: Instant) -> list[ToShell]:
        while self._owner:
            event = self._event(self._owner.popleft())
            if event is not None:
                self._carry(self._core.handle(event, now), now)
        out = self._out
        if not out:
            return []
        self._out = []
        return out

    def _take(self, outputs: Iterable[Output]) -> None:
        """Connections first, in order; then what concerns the owner, in order."""
        for output in outputs:
            if type(output) in _OF_SHELL:
                self._out.append(output)  # type: ignore[arg-type] # as the set says
            else:
                self._owner.append(output)

    def _event(self, output: Output) -> Event | None:
        match output:
            case PrepareJoin() | Joined() | Lost() | Failed() | Left():
                return output
            case Answered() | Committed() | engine.OffsetsFetched():
                then = self._under_way.pop(output.request_id, None)
                return then(output) if then is not None else None
            case _:
                return None

    def _carry(self, effects: list[Effect], now: Instant) -> None:
        for effect in effects:
            match effect:
                case Tell():  # first, since every poll is one
                    self._take(self._member.handle(effect.event, now))
                case CommitOffsets():
                    self._commit(effect, now)
                case FetchOffsets():
                    self._fetch(effect, now)
                case ListOffsets():
                    for partition in sorted(effect.partitions):
                        self._list(effect, partition, now)
                case _:
                    self.due.append(effect)

    def _commit(self, effect: CommitOffsets, now: Instant) -> None:
        group_id = self._member.config.group_id
        self._observe(
            CommitSent(
                group_id=group_id,
                request=effect.request,
                offsets=tuple(sorted((tp, p.offset) for tp, p in effect.offsets.items())),
                member_id=self._member.member_id,
                generation_id=self._member.generation_id,
            )
        )
        request_id, outputs = self._member.commit(effect.offsets, now)

        def then(output: Output) -> Event:
            error = _error(output)
            self._observe(
                CommitConcluded(
                    group_id=group_id,
                    request=effect.request,
                    outcome=_outcome(error),
                    refused=tuple(sorted(output.refused)) if isinstance(output, Committed) else (),
                )
            )
            return CommitAnswered(
                request=effect.request,
                refused=output.refused if isinstance(output, Committed) else {},
                failure=None if error is None else error.message,
                rebalancing=error is not None and error.kind is RequestErrorKind.REBALANCING,
                place_lost=error is not None and error.kind is RequestErrorKind.MEMBERSHIP,
            )

        self._under_way[request_id] = then
        self._take(outputs)

    def _fetch(self, effect: FetchOffsets, now: Instant) -> None:
        wanted = tuple(sorted(effect.partitions))
        group_id = self._member.config.group_id
        self._observe(CommittedAsked(group_id=group_id, request=effect.request, partitions=wanted))
        request_id, outputs = self._member.fetch_offsets(wanted, now)

        def then(output: Output) -> Event:
            offsets: dict[TopicPartition, Position | None] = {}
            fatal = None if (error := _error(output)) is None else _fatal(error)
            refused: Mapping[TopicPartition, ErrorCode] = {}
            if error is None and isinstance(output, engine.OffsetsFetched):
                refused = output.refused
                for tp in wanted:
                    offsets[tp] = output.offsets.get(tp)
            for tp, code in sorted(refused.items()):
                fatal = fatal or (None if code.retriable else f"offset of {tp}: {code.name}")
            failed = effect.partitions if error is not None or refused else frozenset()
            told = tuple((tp, p.offset if p else None) for tp, p in offsets.items())
            self._observe(
                CommittedTold(
                    group_id=group_id,
                    request=effect.request,
                    outcome=Outcome.UNKNOWN if failed else Outcome.OK,
                    offsets=() if failed else told,
                )
            )
            return OffsetsFetched(
                request=effect.request,
                offsets={} if failed else offsets,
                failed=failed,
                fatal=fatal,
            )

        self._under_way[request_id] = then
        self._take(outputs)

    def _list(self, effect: ListOffsets, partition: TopicPartition, now: Instant) -> None:
        question = k02.ListOffsetsPartition(
            partition_index=partition.partition, timestamp=EARLIEST if effect.earliest else LATEST
        )
        topic = k02.ListOffsetsTopic(name=partition.topic, partitions=[question])
        message = k02.ListOffsetsRequest(replica_id=-1, topics=[topic])
        where = LeaderOf(partition=partition)
        request_id, outputs = self._member.request(where, message, now)

        def then(output: Output) -> Event:
            position: Position | None = None
            fatal = None if (error := _error(output)) is None else _fatal(error)
            if isinstance(output, Answered) and output.message is not None:
                found = output.message.topics[0].partitions[0]
                code = ErrorCode.of(found.error_code)
                if code is ErrorCode.NONE:
                    position = Position(found.offset, found.leader_epoch)
                elif not code.retriable:
                    fatal = f"offset of {partition}: {code.name}"
            return OffsetsListed(
                request=effect.request,
                offsets={} if position is None else {partition: position},
                failed=frozenset({partition}) if position is None else frozenset(),
                fatal=fatal,
            )

        self._under_way[request_id] = then
        self._take(outputs)


def consumer_protocol(
    assignors: tuple[Assignor, ...], rack_id: str | None = None
) -> EmbeddedProtocol:
    """What a consumer with these assignors offers, and how it reads assignments."""

    def offer(value: Offer) -> tuple[JoinProtocol, ...]:
        return join_protocols(
            assignors,
            value.topics,
            owned=value.owned,
            previous=value.previous,
            generation_id=value.generation_id,
            rack_id=rack_id,
        )

    return EmbeddedProtocol(
        offer=offer,
        read_assignment=decode_assignment,
        is_cooperative=is_cooperative,
    )


def _error(output: Output) -> RequestError | None:
    if isinstance(output, Answered | Committed | engine.OffsetsFetched):
        return output.error
    return None


def _outcome(error: RequestError | None) -> Outcome:
    """What is known: a commit that was refused once may have been accepted at an earlier try."""
    if error is None:
        return Outcome.OK
    return Outcome.FAILED if error.kind is RequestErrorKind.UNSUPPORTED else Outcome.UNKNOWN


def _fatal(error: RequestError) -> str | None:
    return error.message if error.kind in _FATAL else None
