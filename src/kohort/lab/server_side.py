"""A model of KIP-848, where the coordinator assigns, for the comparison of policies.

In: a plan. Out: the facts from which costs are computed. Processes act as Kafka's Java consumer
does, but there are no messages: requests and answers take no time. Must not know: scenarios, the
computation of costs, the engines.

The model delivers no records and counts no duplicates. A process is ready for a callback unless
another one or a slow batch is running. Epochs count as generations; there are no common rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

from kohort.lab.actions import Action, KillPod, SlowApplication, StartPod, StopPod
from kohort.lab.plan import Plan, PodPlan
from kohort.lab.scheduler import Process, Scheduler
from kohort.lab.server_side_group import Partitions, ServerSideGroup
from kohort.model.client_facts import (
    CallbackEnded,
    CallbackKind,
    CallbackStarted,
    PositionSet,
    ProcessKilled,
    ProcessStarted,
    ProcessStopped,
)
from kohort.model.errors import ConfigError
from kohort.model.history_record import AnyFact, Recorded
from kohort.model.ids import GenerationId, GroupId, GroupInstanceId, MemberId, TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, Instant, Millis
from kohort.model.member_facts import PollIntervalExceeded

_FETCH_MS: Final = 2
"""The time in which a new owner learns the committed offset of a partition."""
_REFUSED_MS: Final = 5_000
"""The time until a refused static process tries again."""


@dataclass(slots=True, kw_only=True)
class _Pod:
    """A pod's processes, one after the other, with Kafka's Java consumer in each."""

    plan: PodPlan
    world: ServerSideWorld
    random: Random
    process: Process
    incarnation: int = 0
    up: bool = False
    key: str = ""
    owned: dict[TopicPartition, Instant] = field(default_factory=dict)
    """When the process got each of its partitions."""
    wanted: Partitions = frozenset()
    state: set[TopicPartition] = field(default_factory=set)
    blocked: bool = False
    """Whether a callback or a slow batch is running."""
    closing: bool = False
    overdue: bool = False
    """Whether a slow batch outlasted the poll interval, so that the member left."""
    back_after_ms: int | None = None
    due: int = 0
    """The number of the newest planned heartbeat; older ones are not sent."""

    def start(self) -> None:
        """Start a process, unless one is running; it joins at once."""
        if self.up:
            return
        self.up, self.blocked, self.closing, self.overdue = True, False, False, False
        self.incarnation += 1
        self.owned, self.wanted = {}, frozenset()
        instance, behaviour = self.plan.instance_id, self.plan.behaviour
        self.key = instance or f"{self.random.getrandbits(128):032x}"
        if not behaviour.state_survives:
            self.state.clear()
        self._record(
            ProcessStarted(
                group_id=self.world.group_id,
                client_id=self.plan.name,
                group_instance_id=GroupInstanceId(instance) if instance else None,
                session_timeout_ms=Millis(behaviour.session_timeout_ms),
            )
        )
        self._join()

    def stop(self, back_after_ms: int | None) -> None:
        """Ask the process to close its consumer and to end; kill it after the grace period."""
        self.back_after_ms = back_after_ms
        if not self.up:
            self._return()
            return
        grace_ms = self.plan.behaviour.grace_ms
        self.world.scheduler.after(grace_ms, self.process, self.kill, back_after_ms)
        self.closing = True
        self._go_on()

    def kill(self, back_after_ms: int | None) -> None:
        """End the process at once; the coordinator learns it when the session is over."""
        self.back_after_ms = back_after_ms
        if self.up:
            self._end(ProcessKilled)
        else:
            self._return()

    def be_slow(self, batch_ms: int) -> None:
        """A batch begins that takes this long; the member leaves if the next poll is overdue."""
        if not self.up:
            return
        limit_ms = self.plan.behaviour.max_poll_interval_ms
        self.blocked = True
        if batch_ms > limit_ms:
            self._after(limit_ms, self._out_of_time)
        self._after(batch_ms, self._batch_over)

    # -- heartbeats -------------------------------------------------------------------------------

    def _join(self) -> None:
        if self.world.group.admits(self.key):
            self._beat(frozenset())
        else:
            self._after(_REFUSED_MS, self._join)

    def _beat(self, owned: Partitions | None = None) -> None:
        """Send a heartbeat; the next one follows an interval later, or when something is done."""
        world, behaviour = self.world, self.plan.behaviour
        now = world.scheduler.now
        self.wanted = world.group.beat(self.key, now, owned)
        session = behaviour.session_timeout_ms
        world.scheduler.after(session, None, world.group.expire, self.key, now)
        self.due += 1
        self._after(behaviour.heartbeat_interval_ms, self._beat_again, self.due)
        self._go_on()

    def _beat_again(self, due: int) -> None:
        if due == self.due and not self.overdue:
            self._beat()

    # -- callbacks --------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Take the next step towards the wanted assignment, or towards the end."""
        if self.blocked:
            return
        wanted = frozenset() if self.closing else self.wanted
        surplus = self.owned.keys() - wanted
        if surplus:
            behaviour = self.plan.behaviour
            self._tell(CallbackStarted, CallbackKind.REVOKED, surplus)
            self.blocked = True
            took = behaviour.flush_ms + behaviour.flush_each_ms * len(surplus)
            self._after(took, self._revoked, surplus)
        elif self.closing:
            self.world.group.leave(self.key, for_now=self.plan.instance_id is not None)
            self._end(ProcessStopped)
        elif wanted != self.owned.keys():
            self._acquire(wanted - self.owned.keys())
            self._beat(frozenset(self.owned))

    def _revoked(self, surplus: Partitions) -> None:
        self._tell(CallbackEnded, CallbackKind.REVOKED, surplus)
        self.owned = {tp: since for tp, since in self.owned.items() if tp not in surplus}
        self.blocked = False
        if not self.closing:
            self._acquire(self.wanted - self.owned.keys())
            self._beat(frozenset(self.owned))
        else:
            self._go_on()

    def _acquire(self, more: Partitions) -> None:
        if not more:
            return
        behaviour, now = self.plan.behaviour, self.world.scheduler.now
        self._tell(CallbackStarted, CallbackKind.ASSIGNED, more)
        self._tell(CallbackEnded, CallbackKind.ASSIGNED, more)
        for tp in sorted(more):
            self.owned[tp] = now
            warm = tp in self.state
            wait = behaviour.restore_warm_ms if warm else behaviour.restore_cold_ms
            self._after(_FETCH_MS + wait, self._restored, tp, now)

    def _restored(self, tp: TopicPartition, since: Instant) -> None:
        if self.owned.get(tp) == since:
            self.state.add(tp)
            self._record(PositionSet(group_id=self.world.group_id, partition=tp, offset=0))

    # -- slow batches and ends --------------------------------------------------------------------

    def _out_of_time(self) -> None:
        self.overdue = True
        self._record(
            PollIntervalExceeded(
                at=self.world.scheduler.now,
                group_id=self.world.group_id,
                member_id=MemberId(self.key),
                generation_id=GenerationId(self.world.group.epoch),
                limit_ms=Millis(self.plan.behaviour.max_poll_interval_ms),
            )
        )
        self.world.group.leave(self.key, for_now=self.plan.instance_id is not None)

    def _batch_over(self) -> None:
        self.blocked = False
        if not self.overdue:
            self._go_on()
            return
        self.overdue = False
        self._tell(CallbackStarted, CallbackKind.LOST, self.owned.keys())
        self._tell(CallbackEnded, CallbackKind.LOST, self.owned.keys())
        self.owned = {}
        self._join()

    def _end(self, fact: type[ProcessStopped | ProcessKilled]) -> None:
        self._record(fact(group_id=self.world.group_id, member_id=MemberId(self.key)))
        self.up = False
        self.process.end_life()
        self._return()

    def _return(self) -> None:
        if self.back_after_ms is not None:
            self.world.scheduler.after(self.back_after_ms, None, self.start)

    def _after(self, millis: int, what: Callable[..., None], *arguments: object) -> None:
        self.world.scheduler.after(millis, self.process, what, *arguments)

    def _tell(
        self,
        fact: type[CallbackStarted | CallbackEnded],
        kind: CallbackKind,
        partitions: Partitions,
    ) -> None:
        self._record(
            fact(
                group_id=self.world.group_id,
                member_id=MemberId(self.key),
                generation_id=GenerationId(self.world.group.epoch),
                kind=kind,
                partitions=tuple(sorted(partitions)),
            )
        )

    def _record(self, fact: AnyFact) -> None:
        self.world.record(self.plan.name, self.incarnation, fact)


class ServerSideWorld:
    """One run of a plan.

    Raises:
        ConfigError: an action that the model does not have.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.scheduler = Scheduler()
        self.history: list[Recorded] = []
        self.group_id = GroupId(plan.group_id)
        self.group = ServerSideGroup(
            plan.group_id, plan.partitions, partial(self.record, "broker", 1)
        )
        self._pods = {
            pod.name: _Pod(
                plan=pod,
                world=self,
                random=Random(f"{plan.seed}/pod {pod.name}"),
                process=Process(pod.name),
            )
            for pod in plan.pods
        }
        for pod in plan.pods:
            if pod.start_ms is not None:
                self.scheduler.after(pod.start_ms, None, self._pods[pod.name].start)
        for action in plan.actions:
            self.scheduler.after(action.at_ms, None, self._do, action)

    def run(self) -> None:
        """Run to the plan's end."""
        self.scheduler.run(Instant(self.plan.duration_ms * MICROS_PER_MILLI))

    def record(self, source: str, incarnation: int, fact: AnyFact) -> None:
        """Record a fact."""
        sequence, now = len(self.history) + 1, self.scheduler.now
        self.history.append(
            Recorded(sequence=sequence, at=now, incarnation=incarnation, source=source, fact=fact)
        )

    def _do(self, action: Action) -> None:
        match action:
            case StartPod():
                self._pods[action.pod].start()
            case StopPod():
                self._pods[action.pod].stop(action.back_after_ms)
            case KillPod():
                self._pods[action.pod].kill(action.back_after_ms)
            case SlowApplication():
                self._pods[action.pod].be_slow(action.batch_ms)
            case _:
                raise ConfigError(f"the model of KIP-848 has no {type(action).__name__}")
