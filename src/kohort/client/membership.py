"""Membership in a group without consuming: the owned resources, and commits.

In: subscriptions and the owner's decisions (release, commit, touch). Out: a snapshot of the owned
resources, for any thread. Must not know: records, librdkafka.

Heartbeats and joins run on the driver's thread, so the owner may work for as long as
``max.poll.interval.ms`` between two touches. Spark's driver is such an owner.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Generic, Self

from kohort.client import arguments
from kohort.client.arguments import AnyPartition, PartitionLike, PositionLike
from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.connections.client_loop import monotonic_now
from kohort.client.connections.driver_thread import (
    DriverThread,
    group_id_of,
    member_engine,
    protocol_of,
)
from kohort.client.dropping import WeakLink, leave_when_dropped, place_of_caller
from kohort.client.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    ClientError,
    Closed,
    WrongUse,
)
from kohort.client.failures import request_failure, trouble_failure
from kohort.client.status import MemberStatus, StatusKeeper, waits_in
from kohort.consumer.effects import Idle, Trouble
from kohort.consumer.embedded_protocol import R
from kohort.consumer.events import Drain, ReportCold, ReportWarm, Subscribe, Unsubscribe
from kohort.consumer.membership_core import MembershipCore, Released
from kohort.consumer.ownership_effects import Change
from kohort.embedded.deferral import Wait
from kohort.engine.consumer_driver import ConsumerDriver, GroupProtocol
from kohort.engine.member_recording import RequestNotes
from kohort.member.events import Polled, RequestRejoin
from kohort.member.states import MemberState
from kohort.model.ids import NO_GENERATION, GenerationId, TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, Instant

LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSnapshot(Generic[R]):
    """The state of a membership at one moment.

    Attributes:
        state: the member's state, see ``MemberState``.
        generation: the generation of the last applied assignment; -1 before the first one and
            after a loss.
        member: the member id; empty before the first join.
        owned: assigned to this member and not given up yet, ``revoking`` included.
        revoking: the owner releases these as soon as it can.
        preparing: other members own these until ``report_warm``, or until a deadline.
        copies: ``preparing``, and the copies that are warm already and are still wanted.
        acquired: for each owned resource, the generation that brought it.
        assignments: the number of applied assignments.
        confirmations: grows with each heartbeat, commit or join that the coordinator confirmed.
        confirmed_at: when the last of these was sent, on the monotonic clock; None without one.
        confirmed: whether ``confirmed_at`` is less than the session timeout ago: the membership
            is certain.
    """

    state: MemberState = MemberState.UNJOINED
    generation: int = NO_GENERATION
    member: str = ""
    owned: frozenset[R] = frozenset()
    revoking: frozenset[R] = frozenset()
    preparing: frozenset[R] = frozenset()
    copies: frozenset[R] = frozenset()
    acquired: Mapping[R, GenerationId] = field(default_factory=dict)
    assignments: int = 0
    confirmations: int = 0
    confirmed_at: Instant | None = None
    confirmed: bool = False


class Membership(Generic[R]):
    """Membership in a group, held by a thread; a context manager that leaves the group at the end.

    Args:
        topics: the subscription.
        settings: ``bootstrap_servers``, ``group_id``, timeouts.
        protocol: the kind of the group.
        on_change: called on the membership's thread with each change, see `ownership`.

    All methods may be called from any thread. Nothing is sent before ``join``. Methods that need a
    membership raise ``WrongUse`` before ``join`` and ``Closed`` after ``leave``. A member that is
    dropped without ``leave`` leaves when the garbage collector takes it, with a ResourceWarning.

    Raises:
        ConfigError: a setting is wrong.
    """

    _joined = False

    def __init__(
        self,
        topics: Iterable[str],
        settings: ClientSettings,
        protocol: GroupProtocol[R],
        on_change: Callable[[Change[R]], object] = lambda _change: None,
    ) -> None:
        self._topics = arguments.topics(topics)
        self._session_micros = settings.session_timeout_ms * MICROS_PER_MILLI
        self._settings = settings
        keeper = StatusKeeper(lambda _fact: None)
        notes = RequestNotes(group_id_of(settings), keeper.observe)
        self._driver = ConsumerDriver(
            member_engine(settings, protocol, notes),
            MembershipCore(protocol.embedded),
            observe=keeper.observe,
        )
        look = self._link.method("_look")
        self._thread = DriverThread(self._driver, settings, keeper, look)
        self._group_id = self._thread.group_id
        self._on_change = on_change
        self._changed = threading.Condition()
        self._snapshot: MembershipSnapshot[R] = MembershipSnapshot()
        self._error: ClientError | None = None
        self._place = place_of_caller()
        self._closed = False
        self._left = threading.Event()

    def __enter__(self) -> Self:
        self.join()
        return self

    def __exit__(self, *_raised: object) -> None:
        self.leave()

    @cached_property
    def _link(self) -> WeakLink[Self]:
        """The way from the membership's threads to this object."""
        return WeakLink(self)

    def __del__(self) -> None:
        """Leave the group if the application dropped this member; keep the object until then."""
        dropped = self._joined and not (self._closed or self._thread.is_forked)
        # At the end of the process the session runs out: that is no mistake.
        leaves = dropped and not sys.is_finalizing()
        self._link.settle(self if leaves else None)
        if leaves:
            name = f"{type(self).__name__} of group {self._group_id}"
            leave_when_dropped(name, self._place, self.leave)

    def join(self) -> None:
        """Begin to join, in the background. A second call changes nothing.

        Raises:
            Closed: the member left the group before.
        """
        if self._closed:
            raise Closed("this membership was left; make a new one")
        if not self._joined:
            self._joined = True
            self._thread.handle(Subscribe(topics=self._topics))

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscription; the member rejoins in the background if it has joined.

        Owned resources of other topics are taken away first.
        """
        self._topics = arguments.topics(topics)
        if self._joined and not self._closed:
            self._thread.handle(Subscribe(topics=self._topics))

    def touch(self) -> None:
        """Tell the membership that its owner lives; needed every ``max.poll.interval.ms``."""
        if self._joined and not self._closed:
            self._thread.handle(Polled())

    def snapshot(self) -> MembershipSnapshot[R]:
        """The present state; empty before ``join``.

        Raises:
            Fenced: another process has this ``group.instance.id``.
            RequestFailed: the coordinator refuses this member for good.
            AuthenticationFailed: since the last call a login or a certificate was refused.
            BrokerUnreachable: no broker was ever reached, and a request timed out meanwhile.
            Closed: the membership broke down.
        """
        error, seen = self._error, self._snapshot
        if error is not None:
            if isinstance(error, AuthenticationFailed | BrokerUnreachable):
                self._error = None  # the engine tries on
            raise error
        if seen.confirmed_at is None:
            return seen
        return replace(seen, confirmed=monotonic_now() - seen.confirmed_at < self._session_micros)

    def wait_for_change(
        self, seen: MembershipSnapshot[R], timeout_s: float
    ) -> MembershipSnapshot[R]:
        """Wait until the generation or the resources differ from ``seen``, or time is over.

        Raises:
            ClientError: as ``snapshot``.
        """
        self._check_joined()
        with self._changed:
            self._changed.wait_for(
                lambda: self._error is not None or _ownership(self._snapshot) != _ownership(seen),
                timeout_s,
            )
        return self.snapshot()

    def status(self) -> MemberStatus[R]:
        """The state with its reason, owned resources, waits, and the last rebalance."""
        driver = self._driver
        owned = self._snapshot.owned
        return self._thread.keeper.status(driver.member, driver.core.ownership, owned)

    @property
    def settings(self) -> ClientSettings:
        """The settings of this member."""
        return self._settings

    def metrics(self) -> dict[str, float]:
        """Counters, gauges and small histograms by name: those of ``METRICS`` about the group.

        ``assigned-partitions`` counts the owned resources.
        """
        return {
            "assigned-partitions": len(self._snapshot.owned),
            **self._thread.keeper.meter.numbers(monotonic_now()),
        }

    def confirmed(self) -> bool:
        """Whether the coordinator confirmed the membership less than a session timeout ago."""
        return self.snapshot().confirmed

    def release(self, resources: Collection[R]) -> None:
        """Give up resources that are being revoked; commit them before.

        Other members may own them as soon as this returns. Resources that are not owned are
        ignored.
        """
        self._check_joined()
        self._thread.handled(Released(resources=frozenset(resources)))

    def request_rejoin(self, reason: str) -> None:
        """Ask for a rebalance (KIP-568); a running rebalance absorbs the request."""
        arguments.text(reason, "reason")
        self._check_joined()
        self._thread.handle(RequestRejoin(reason=reason))

    def drain(self) -> None:
        """Ask the group to take all resources of this member away; ``leave`` after that.

        The leader assigns nothing to this member any more. The member owns its resources until
        other members get them; then ``drained`` is true. The group does not wait for the return
        of this member (``scheduled.rebalance.max.delay.ms``).
        """
        self._check_joined()
        self._thread.handle(Drain())

    @property
    def drained(self) -> bool:
        """Whether a drain is over: nothing is owned, or the leader knows no drains."""
        return self._driver.core.ownership.drained

    def report_warm(self, resources: Collection[R]) -> None:
        """This process has warm copies of these resources, of other members; see `Prepare`."""
        self._check_joined()
        self._thread.handle(ReportWarm(resources=frozenset(resources)))

    def report_cold(self, resources: Collection[R]) -> None:
        """This process has dropped its copies of these resources."""
        self._check_joined()
        self._thread.handle(ReportCold(resources=frozenset(resources)))

    def leave(self, timeout_s: float = 30.0) -> None:
        """Leave the group and end the thread; harmless before a join or after another call.

        Owned resources are given up without a commit.
        """
        if self._closed:
            return
        self._closed = True
        if self._joined:
            try:
                self._thread.handle(Unsubscribe(reason="the application leaves the group"))
                if not self._left.wait(timeout_s):
                    LOG.warning("group %s: no answer to LeaveGroup in time", self._group_id)
            except Closed:
                pass
        self._thread.stop(timeout_s)

    def _check_joined(self) -> None:
        if self._closed:
            raise Closed("this membership was left; make a new one")
        if not self._joined:
            raise WrongUse("join() first: this member is in no group yet")

    # -- on the membership's thread ---------------------------------------------------------------

    def _look(self) -> None:
        """Handle the driver's work and publish the present state."""
        driver = self._driver
        if self._thread.error is not None:
            self._error = self._thread.error
            self._left.set()
        if driver.unserved is not None:
            self._error = request_failure(driver.unserved, self._group_id)
            driver.unserved = None
        while driver.due:
            match driver.due.popleft():
                case Trouble() as trouble:
                    self._error = trouble_failure(trouble, self._group_id)
                case Idle():
                    self._left.set()
                case change:
                    LOG.info("group %s: %s", self._group_id, change)
                    self._on_change(change)
        new = self._present()
        if new != self._snapshot or self._error is not None:
            with self._changed:
                self._snapshot = new
                self._changed.notify_all()

    def _present(self) -> MembershipSnapshot[R]:
        member, core, seen = self._driver.member, self._driver.core, self._snapshot
        acquired = core.ownership.owned
        confirmed_at = member.core.last_confirmed
        newly = confirmed_at is not None and confirmed_at != seen.confirmed_at
        return MembershipSnapshot(
            state=member.core.state,
            generation=core.ownership.generation_id,
            member=member.core.member_id,
            owned=frozenset(acquired),
            revoking=core.ownership.releasing,
            preparing=core.ownership.preparing,
            copies=core.ownership.copies,
            acquired=acquired,
            assignments=core.assignments,
            confirmations=seen.confirmations + newly,
            confirmed_at=confirmed_at,
        )


class GroupMembership(Membership[TopicPartition]):
    """Membership in a consumer group.

    Args:
        topics: the subscription.
        settings: a ``ClientSettings``, or names and values as ``parse_client_settings`` takes them.
        more: further settings; ``bootstrap_servers`` and ``group_id`` are needed.

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
        settings = parse_client_settings(settings, **more)
        super().__init__(topics, settings, protocol_of(settings))

    def commit(self, offsets: Mapping[AnyPartition, PositionLike]) -> None:
        """Commit next offsets, fenced by generation and member id.

        Raises:
            CommitFailed: the membership was lost: other members may own the partitions.
            RebalanceInProgress, RequestTimedOut, BrokerUnreachable: try again.
            RequestFailed: a partition was refused; the others are committed.
        """
        if not offsets:
            return
        self._check_joined()
        wanted = arguments.offsets(offsets)
        self._thread.wait(self._thread.commit(wanted))

    def waits(self) -> tuple[Wait, ...]:
        """The partitions of lost members that wait, with the time that is left.

        The leader decides (``scheduled.rebalance.max.delay.ms``); its last assignment names them.
        """
        return waits_in(self._driver.core.ownership)

    def committed(self, partitions: Collection[PartitionLike]) -> dict[TopicPartition, int]:
        """The group's committed offsets, without partitions that have none.

        Raises:
            RequestTimedOut, BrokerUnreachable, RequestFailed: as their names say.
        """
        wanted = arguments.partitions(partitions)
        if not wanted:
            return {}
        self._check_joined()
        return {tp: at.offset for tp, at in self._thread.committed(wanted).items()}


def _ownership(snapshot: MembershipSnapshot[R]) -> tuple[object, ...]:
    return snapshot.generation, snapshot.owned, snapshot.revoking, snapshot.preparing
