"""Membership in a consumer group without consuming: who owns which partitions, and commits.

In come topics and the owner's decisions (release, commit, touch); out goes a snapshot of what is
owned, which may be read from any thread. Heartbeats and joins run on the loop's thread, so the
owner may work for as long as ``max.poll.interval.ms`` between two touches. Spark's driver is such
an owner. Must not know: records, librdkafka.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

from kohort.client.client_loop import monotonic_now
from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.errors import (
    ClientError,
    Closed,
    Fenced,
    RequestFailed,
    RequestTimedOut,
    WrongUse,
)
from kohort.client.group_link import GroupLink, MemberOutput, Then, commit_error, embedded_protocol
from kohort.consumer.ownership import (
    Complain,
    GiveUp,
    LoseAll,
    Ownership,
    OwnershipEffect,
    Take,
    Tell,
)
from kohort.engine.member_outputs import Output
from kohort.member.effects import Failed, Joined, Left, Lost, Observe, PrepareJoin
from kohort.member.events import (
    Join,
    Leave,
    Polled,
    RequestRejoin,
)
from kohort.member.states import MemberState
from kohort.model.errors import ErrorCode
from kohort.model.ids import NO_GENERATION, GenerationId, TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, Instant
from kohort.model.positions import Position

LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSnapshot:
    """What a membership knows at one moment.

    Attributes:
        state: the member's state, see ``MemberState``.
        generation: of the assignment applied last; -1 before the first and after a loss.
        member: the member id; empty before the first join.
        owned: assigned to this member and not given up yet, ``revoking`` included.
        revoking: to be released by the owner, as soon as it can.
        acquired: for each partition owned, the generation that brought it.
        assignments: how many assignments have been applied; 0 before the first.
        confirmations: grows with each heartbeat, commit or join that the coordinator confirmed.
        confirmed_at: when the last of these was sent, on the monotonic clock; None without a place.
        confirmed: whether that is less than the session timeout ago: the place is surely held.
    """

    state: MemberState = MemberState.UNJOINED
    generation: int = NO_GENERATION
    member: str = ""
    owned: frozenset[TopicPartition] = frozenset()
    revoking: frozenset[TopicPartition] = frozenset()
    acquired: Mapping[TopicPartition, GenerationId] = field(default_factory=dict)
    assignments: int = 0
    confirmations: int = 0
    confirmed_at: Instant | None = None
    confirmed: bool = False


class GroupMembership:
    """A place in a consumer group, held by a thread; a context manager that leaves at the end.

    Args:
        topics: what the member wants partitions of.
        settings: a ``ClientSettings``, or names and values as ``parse_client_settings`` takes them.
        more: further settings; ``bootstrap_servers`` and ``group_id`` are needed.

    All methods may be called from any thread. Nothing is sent before ``join``.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(
        self,
        topics: Iterable[str],
        settings: ClientSettings | Mapping[str, object] | None = None,
        /,
        **more: object,
    ) -> None:
        if not isinstance(settings, ClientSettings):
            settings = parse_client_settings(settings, **more)
        self._settings = settings
        self._topics = frozenset(topics)
        self._desk: _Desk | None = None
        self._closed = False
        embedded_protocol(settings)  # an unknown assignor is said now, not at the join
        _ = settings.bootstrap

    def __enter__(self) -> GroupMembership:
        self.join()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()

    def join(self) -> None:
        """Begin to join, in the background. Calling it again changes nothing.

        Raises:
            Closed: the group was left already.
        """
        if self._closed:
            raise Closed("this membership was left; make a new one")
        if self._desk is None:
            self._desk = _Desk(self._settings, self._topics)

    def touch(self) -> None:
        """Say that the owner is alive; needed every ``max.poll.interval.ms``."""
        if self._desk is not None and not self._closed:
            self._desk.link.tell(Polled())

    def snapshot(self) -> MembershipSnapshot:
        """The present state; empty before ``join``.

        Raises:
            Fenced: another process has this ``group.instance.id``.
            RequestFailed: the coordinator refuses this member for good.
            Closed: the membership broke down.
        """
        if self._desk is None:
            return MembershipSnapshot()
        return self._desk.snapshot()

    def wait_for_change(self, seen: MembershipSnapshot, timeout_s: float) -> MembershipSnapshot:
        """Wait until generation, ``owned`` or ``revoking`` differ from ``seen``, or time is over.

        Raises:
            ClientError: as ``snapshot``.
        """
        if self._desk is None:
            raise WrongUse("join() first: there is nothing to wait for")
        return self._desk.wait(seen, timeout_s)

    def confirmed(self) -> bool:
        """Whether the coordinator confirmed the place less than a session timeout ago."""
        return self._desk is not None and self._desk.snapshot().confirmed

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Give up partitions that are being revoked; commit them before.

        Others may get them as soon as this returns. Partitions that are not owned are ignored.

        Raises:
            Closed: the group was left.
        """
        desk = self._joined()
        self._result(desk.release(frozenset(partitions)))

    def request_rejoin(self, reason: str) -> None:
        """Ask for a rebalance (KIP-568); no effect while one is running.

        Raises:
            Closed: the group was left.
        """
        self._joined().link.tell(RequestRejoin(reason=reason))

    def commit(self, offsets: Mapping[TopicPartition, int | Position]) -> None:
        """Commit next offsets, fenced by generation and member id.

        Raises:
            CommitFailed: the place was lost: the partitions may be somebody else's.
            RebalanceInProgress, RequestTimedOut, BrokerUnreachable: try again.
            RequestFailed: a partition was refused; the others are committed.
        """
        if not offsets:
            return
        desk = self._joined()
        wanted = {tp: Position(p) if isinstance(p, int) else p for tp, p in offsets.items()}
        link = desk.link

        def ask(now: Instant, then: Then) -> list[Output]:
            return link.ask_commit(wanted, now, then)

        refused = self._result(link.asked(ask, dict))
        error = commit_error(refused, link.group_id)
        if error is not None:
            raise error

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's committed offsets; partitions without one are missing.

        Raises:
            RequestTimedOut, BrokerUnreachable, RequestFailed: as they say.
        """
        wanted = frozenset(partitions)
        if not wanted:
            return {}
        link = self._joined().link

        def ask(now: Instant, then: Then) -> list[Output]:
            return link.ask_committed(wanted, now, then)

        found: dict[TopicPartition, Position] = self._result(link.asked(ask, dict))
        return {tp: position.offset for tp, position in found.items()}

    def leave(self, timeout_s: float = 30.0) -> None:
        """Leave the group and end the thread; harmless when it never joined or left before.

        What is still owned is given up as it is: commit before.
        """
        if self._closed:
            return
        self._closed = True
        if self._desk is not None:
            self._desk.leave(timeout_s)

    def _joined(self) -> _Desk:
        if self._closed:
            raise Closed("this membership was left; make a new one")
        if self._desk is None:
            raise WrongUse("join() first: this member is in no group yet")
        return self._desk

    def _result(self, future: Future[Any]) -> Any:
        timeout_s = self._settings.default_api_timeout_ms / 1_000
        try:
            return future.result(timeout_s)
        except FutureTimeout:
            raise RequestTimedOut(
                f"group {self._settings.group_id}: no answer within {timeout_s:g} s "
                "(default.api.timeout.ms)"
            ) from None


class _Desk:
    """The seat on the loop's thread: ownership, and the snapshot that others read."""

    def __init__(self, settings: ClientSettings, topics: frozenset[str]) -> None:
        self._session_micros = settings.session_timeout_ms * MICROS_PER_MILLI
        self._ownership = Ownership(embedded_protocol(settings))
        self._ownership.subscribe(topics)
        self._changed = threading.Condition()
        self._snapshot = MembershipSnapshot()
        self._error: ClientError | None = None
        self._assignments = 0
        self._confirmations = 0
        self._leaving = False
        self._left = threading.Event()
        self.link = GroupLink(settings, self)
        self.link.tell(Join())

    # -- from any thread --------------------------------------------------------------------------

    def snapshot(self) -> MembershipSnapshot:
        """The present state, with ``confirmed`` as of now."""
        error, seen = self._error, self._snapshot
        if error is not None:
            raise error
        return self._dated(seen)

    def wait(self, seen: MembershipSnapshot, timeout_s: float) -> MembershipSnapshot:
        """Wait for a change of generation or partitions."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._error is not None or _ownership_differs(self._snapshot, seen),
                timeout_s,
            )
        return self.snapshot()

    def release(self, partitions: frozenset[TopicPartition]) -> Future[None]:
        """Give up partitions, on the loop's thread."""

        def order(now: Instant) -> tuple[None, list[Output]]:
            outputs = self._carry(self._ownership.released(partitions), now)
            self._publish()
            return None, outputs

        return self.link.call(order)

    def leave(self, timeout_s: float) -> None:
        """Leave, wait for the answer, end the thread."""

        def order(now: Instant) -> list[Output]:
            self._leaving = True
            return self.link.engine.handle(Leave(), now)

        try:
            self.link.post(order)
            if not self._left.wait(timeout_s):
                LOG.warning("group %s: no answer to LeaveGroup in time", self.link.group_id)
        except Closed:
            pass
        self.link.stop(timeout_s)

    # -- the seat ---------------------------------------------------------------------------------

    def member_says(self, output: MemberOutput, now: Instant) -> list[Output]:
        """Keep the books."""
        outputs: list[Output] = []
        match output:
            case PrepareJoin() if not self._leaving:
                outputs = self._carry(self._ownership.prepare_join(output), now)
            case Joined() if not self._leaving:
                self._assignments += 1
                outputs = self._carry(self._ownership.joined(output), now)
            case Lost():
                LOG.warning("group %s: place lost: %s", self.link.group_id, output.reason)
                # Who only holds a membership is not asked; a fence keeps what it still does out.
                lost = [*self._ownership.lost(output), *self._ownership.let_go()]
                outputs = self._carry(lost, now)
            case Failed():
                self._error = failure(output, self.link.group_id)
            case Left():
                self._ownership.left()
                self._left.set()
            case Observe():
                LOG.debug("group %s: %s", self.link.group_id, output.fact)
            case _:
                pass
        self._publish()
        return outputs

    def advance(self, now: Instant) -> list[Output]:
        """Publish confirmations."""
        del now
        self._publish()
        return []

    def next_deadline(self) -> Instant | None:
        """Nothing is due by itself."""
        return None

    def broken(self, error: BaseException) -> None:
        """The thread is gone."""
        self._error = Closed(f"the membership's thread ended because of a bug: {error!r}")
        self._left.set()
        with self._changed:
            self._changed.notify_all()

    def _carry(self, effects: list[OwnershipEffect], now: Instant) -> list[Output]:
        outputs: list[Output] = []
        for effect in effects:
            match effect:
                case Tell():
                    outputs += self.link.engine.handle(effect.event, now)
                case Complain():
                    self._error = WrongUse(effect.message)
                case GiveUp() | Take() | LoseAll():
                    LOG.info("group %s: %s", self.link.group_id, effect)
        return outputs

    def _publish(self) -> None:
        engine, ownership = self.link.engine, self._ownership
        acquired = ownership.owned
        confirmed_at = engine.last_confirmed
        if confirmed_at is not None and confirmed_at != self._snapshot.confirmed_at:
            self._confirmations += 1
        new = MembershipSnapshot(
            state=engine.state,
            generation=ownership.generation_id,
            member=engine.member_id,
            owned=frozenset(acquired),
            revoking=ownership.releasing,
            acquired=acquired,
            assignments=self._assignments,
            confirmations=self._confirmations,
            confirmed_at=confirmed_at,
        )
        if new != self._snapshot or self._error is not None:
            with self._changed:
                self._snapshot = new
                self._changed.notify_all()

    def _dated(self, seen: MembershipSnapshot) -> MembershipSnapshot:
        if seen.confirmed_at is None:
            return seen
        fresh = monotonic_now() - seen.confirmed_at < self._session_micros
        if fresh == seen.confirmed:
            return seen
        values = {name: getattr(seen, name) for name in MembershipSnapshot.__slots__}
        return MembershipSnapshot(**{**values, "confirmed": fresh})


def _ownership_differs(now: MembershipSnapshot, seen: MembershipSnapshot) -> bool:
    return (
        now.generation != seen.generation
        or now.owned != seen.owned
        or now.revoking != seen.revoking
    )


def failure(output: Failed, group_id: str) -> ClientError:
    """The exception for a member that cannot go on."""
    if output.error is ErrorCode.FENCED_INSTANCE_ID:
        return Fenced(f"group {group_id}: {output.message}")
    return RequestFailed(output.error, f"group {group_id}", output.message)
