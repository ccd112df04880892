"""A pod: runs consumer processes, one after the other.

In: events of connections, actions of operators, faults. Out: bytes, facts. Each process has a new
consumer. The consumer knows only what the coordinator tells it, and finds the local state of the
previous process if that survives. Must not know: other pods, the meaning of bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from kohort.consumer.core import ConsumerCore
from kohort.engine.connections import ConnectionSettings, EngineSettings
from kohort.engine.consumer_driver import ConsumerDriver
from kohort.engine.consumer_protocol import consumer_protocol
from kohort.engine.member_engine import MemberEngine
from kohort.engine.member_outputs import Close, Committed, Connect, Output, Transmit
from kohort.engine.member_recording import RequestNotes
from kohort.lab.application import Consuming
from kohort.lab.leaders import HOST, PORT
from kohort.lab.network import Line, Network
from kohort.lab.plan import Behaviour, PodPlan
from kohort.lab.scheduler import Alarm, Process, Scheduler
from kohort.lab.topics import TopicBook
from kohort.member.config import MemberConfig
from kohort.member.events import RequestRejoin, Stalled
from kohort.model.client_facts import (
    NetworkCut,
    NetworkHealed,
    ProcessKilled,
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
    ProcessStopped,
)
from kohort.model.consumer_config import ConsumerConfig, OffsetReset
from kohort.model.ids import ConnectionId, GroupId, GroupInstanceId, TopicPartition
from kohort.model.instants import Instant, Millis
from kohort.policies.connect_rule import ConnectRuleAssigner
from kohort.policies.consumer_groups import ConsumerAssigner
from kohort.policies.losses import identity_of
from kohort.policies.registry import assignors

_CLOSING_MS: Final = 5_000
"""A member that is not drained yet leaves this long before the kill."""

_CRASH_LOOP_MS: Final = 5_000
"""The time between the failure of an application and its next start."""

_STALL_MICROS: Final = 2_000_000
"""A process that was paused longer tells its member so, as ClientLoop does."""

_NEVER_MS: Final = (1 << 31) - 1


class Pod:
    """One pod, with all its processes.

    Args:
        scheduler: the time.
        plan: the name and the behaviour of the pod.
        group_id: the group.
        random: the generator of all choices.
        network: opens and closes connections.
        topics: the topics of the world.
        record: takes facts, with the name of the pod and the number of the process.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        plan: PodPlan,
        *,
        group_id: str,
        random: Random,
        network: Network,
        topics: TopicBook,
        record: Callable[[str, int, Any], None],
    ) -> None:
        self.process = Process(plan.name)
        self.hears = True
        """Whether bytes from the broker reach this pod."""
        self.speaks = True
        """Whether bytes of this pod reach the broker."""
        self.up = False
        self.stays_down = False
        """Whether the pod is never started again."""
        self.incarnation = 0
        self.behaviour: Behaviour = plan.behaviour
        self._instance_id = GroupInstanceId(plan.instance_id) if plan.instance_id else None
        self.subscription = plan.behaviour.topics
        self.driver: ConsumerDriver[ConsumerCore]
        self.application: Consuming
        self._scheduler = scheduler
        self._group_id = GroupId(group_id)
        self._random = random
        self._network = network
        self._topics = topics
        self._sink = record
        self._lines: dict[ConnectionId, Line] = {}
        self._state: set[TopicPartition] = set()
        self._alarm = Alarm(scheduler, self.process, self._advance)
        self._paused_at = Instant(0)
        self._back_after_ms: int | None = None
        self._leaves = True

    @property
    def name(self) -> str:
        """The pod's name."""
        return self.process.name

    @property
    def healthy(self) -> bool:
        """Whether the process runs and can reach its coordinator."""
        return self.up and not self.process.paused and self.hears and self.speaks

    # -- lives ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a new process, unless one is running."""
        if self.up or self.stays_down:
            return
        self.up = True
        self.incarnation += 1
        behaviour = self.behaviour
        if not behaviour.state_survives:
            self._state.clear()
        self._record(
            ProcessStarted(
                group_id=self._group_id,
                client_id=self.name,
                group_instance_id=self._instance_id,
                session_timeout_ms=Millis(behaviour.session_timeout_ms),
                self_fencing=True,
                auto_commit=behaviour.auto_commit_interval_ms is not None,
            )
        )
        self.driver = self._new_driver()
        self.application = Consuming(
            self._scheduler,
            self.process,
            self.driver,
            carry=self._carry,
            behaviour=behaviour,
            random=self._random,
            topics=self._topics,
            state=self._state,
            record=self._record,
            ended=self._closed,
            failed=self._failed,
        )
        self.application.subscribe(self.subscription)

    def _new_driver(self) -> ConsumerDriver[ConsumerCore]:
        behaviour = self.behaviour
        auto = behaviour.auto_commit_interval_ms
        protocol = consumer_protocol(
            assignors(behaviour.strategy),
            assigner=ConnectRuleAssigner(Millis(behaviour.scheduled_rebalance_max_delay_ms))
            if behaviour.connect_rule
            else ConsumerAssigner(behaviour.resolution),
            identity=identity_of(self.name) if behaviour.identity else None,
            stateful=behaviour.stateful,
        )
        member = MemberEngine(
            MemberConfig(
                group_id=self._group_id,
                group_instance_id=self._instance_id,
                session_timeout_ms=Millis(behaviour.session_timeout_ms),
                heartbeat_interval_ms=Millis(behaviour.heartbeat_interval_ms),
                rebalance_timeout_ms=Millis(behaviour.max_poll_interval_ms),
                max_poll_interval_ms=Millis(behaviour.max_poll_interval_ms),
                request_timeout_ms=Millis(behaviour.request_timeout_ms),
            ),
            [(HOST, PORT)],
            entropy=self._random,
            assigner=protocol.assigner,
            settings=EngineSettings(
                connections=ConnectionSettings(
                    client_id=self.name, notes=RequestNotes(self._group_id, self._record)
                ),
                metadata_max_age_ms=Millis(behaviour.metadata_max_age_ms),
            ),
        )
        core = ConsumerCore(
            ConsumerConfig(
                enable_auto_commit=auto is not None,
                auto_commit_interval_ms=Millis(auto or _NEVER_MS),
                auto_offset_reset=OffsetReset.EARLIEST,
            ),
            protocol.embedded,
        )
        return ConsumerDriver(member, core, observe=self._record)

    def keep_up(self) -> None:
        """Keep the pod up: start it if it is down, and again after a process has ended."""
        if self._back_after_ms is None:
            self._back_after_ms = 0
        self.start()

    def stop(self, *, leave: bool, drain: bool = False, back_after_ms: int | None) -> None:
        """Ask the process to end; kill it if the end takes too long."""
        if not self.up:
            self.return_after(back_after_ms)
            return
        self._back_after_ms, self._leaves = back_after_ms, leave
        # Not an event of the process: a paused process is killed too.
        grace_ms = self.behaviour.grace_ms
        self._scheduler.after(grace_ms, None, self._grace_over, self.incarnation)
        if drain:
            self.application.drain()
            close = partial(self.application.close, leave=leave)
            self._scheduler.after(max(0, grace_ms - _CLOSING_MS), self.process, close)
        else:
            self.application.close(leave=leave)

    def _closed(self) -> None:
        """The consumer was closed: end the process after this event."""
        self._scheduler.at(self._scheduler.now, self.process, self._exit)

    def _exit(self) -> None:
        ended = ProcessStopped if self._leaves else ProcessKilled
        self._record(ended(group_id=self._group_id, member_id=self.driver.member.core.member_id))
        self._end(silent=False)
        self.return_after(self._back_after_ms)

    def _failed(self) -> None:
        """The application gave up; a supervisor starts it again later."""
        self._scheduler.at(self._scheduler.now, self.process, self._crash)

    def _crash(self) -> None:
        self.kill(node_lost=False, back_after_ms=_CRASH_LOOP_MS)

    def _grace_over(self, incarnation: int) -> None:
        if self.up and incarnation == self.incarnation:
            self.kill(node_lost=False, back_after_ms=self._back_after_ms)

    def kill(self, *, node_lost: bool, back_after_ms: int | None) -> None:
        """End the process at once; with ``node_lost`` its connections stay half open."""
        if self.up:
            member_id = self.driver.member.core.member_id
            self._record(ProcessKilled(group_id=self._group_id, member_id=member_id))
            self._end(silent=node_lost)
        self.return_after(back_after_ms)

    def return_after(self, millis: int | None) -> None:
        """Start again later; never if ``millis`` is None."""
        if millis is not None:
            self._scheduler.after(millis, None, self.start)

    def _end(self, *, silent: bool) -> None:
        self.up = False
        self.process.end_life()
        self._network.client_died(self, silent=silent)
        self._lines.clear()
        self._alarm.clear()

    # -- pauses and cuts --------------------------------------------------------------------------

    def pause(self) -> None:
        """Pause the process."""
        if self.up and not self.process.paused:
            self.process.paused = True
            self._paused_at = self._scheduler.now
            self._record(ProcessPaused(group_id=self._group_id))

    def resume(self) -> None:
        """Resume the process."""
        if not self.up or not self.process.paused:
            return
        self._record(ProcessResumed(group_id=self._group_id))
        self.process.paused = False
        asleep = self._scheduler.now - self._paused_at
        if asleep > _STALL_MICROS:
            self._carry(self.driver.handle(Stalled(micros=asleep), self._scheduler.now))
        self._scheduler.resume(self.process)

    def cut(self, *, speaks: bool, hears: bool) -> None:
        """Cut the directions that are False; the others pass, first the bytes that were held."""
        self.speaks, self.hears = speaks, hears
        self._network.healed(self)
        self._record(NetworkCut(group_id=self._group_id))

    def heal(self) -> None:
        """Open both directions; held bytes go first."""
        if not (self.speaks and self.hears):
            self.speaks = self.hears = True
            self._record(NetworkHealed(group_id=self._group_id))
            self._network.healed(self)

    # -- calls of the application -----------------------------------------------------------------

    def rejoin(self) -> None:
        """The application asks for a rebalance."""
        if self.up:
            event = RequestRejoin(reason="an operator asked for it")
            self._carry(self.driver.handle(event, self._scheduler.now))

    def resubscribe(self, topics: tuple[str, ...]) -> None:
        """The application subscribes to other topics, also after a restart."""
        self.subscription = topics
        if self.up:
            self.application.subscribe(topics)

    def unsubscribe(self, again_ms: int) -> None:
        """The application unsubscribes, and subscribes again later."""
        if self.up:
            self.application.unsubscribe(self.subscription, again_ms)

    # -- the network ------------------------------------------------------------------------------

    def line_opened(self, line: Line) -> None:
        """A connection is open."""
        self._carry(self.driver.connected(line.local, self._scheduler.now))

    def line_received(self, line: Line, data: bytes) -> None:
        """Bytes came."""
        self._carry(self.driver.received(line.local, data, self._scheduler.now))

    def line_lost(self, line: Line, reason: str) -> None:
        """A connection is gone."""
        self._lines.pop(line.local, None)
        self._carry(self.driver.lost(line.local, self._scheduler.now, reason))

    # -- the turn ---------------------------------------------------------------------------------

    def _carry(self, outputs: list[Output]) -> None:
        network = self._network
        for output in outputs:
            if type(output) is Transmit:
                line = self._lines.get(output.conn)
                if line is not None:
                    network.send_up(line, output.data)
            elif type(output) is Connect:
                self._lines[output.conn] = network.connect(self, output.conn, output.port)
            elif type(output) is Close:
                line = self._lines.pop(output.conn, None)
                if line is not None:
                    network.close(line)
            elif type(output) is Committed:
                self.application.committed(output)
        self.application.nudge()
        self._alarm.set(self.driver.next_deadline())

    def _advance(self) -> None:
        self._carry(self.driver.advance(self._scheduler.now))

    def _record(self, fact: Any) -> None:
        self._sink(self.name, self.incarnation, fact)
