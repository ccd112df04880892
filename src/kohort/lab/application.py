"""An application that consumes records: it polls, processes, flushes and restores state.

In: effects of the consumer's core, and the records of the topics. Out: events for the core, facts
about deliveries and callbacks. Callbacks run inside polls, and a batch is processed between two
polls. Meanwhile the application does nothing else, but the member goes on. Must not know:
connections, faults.

No fault of the world stops the delivery of records. A consumer that is cut off from its coordinator
goes on reading until it stops itself, which is the worst case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final, assert_never

from kohort.consumer.core import ConsumerCore
from kohort.consumer.effects import (
    ForApplication,
    Idle,
    RunCallback,
    StartReading,
    StopReading,
    Trouble,
)
from kohort.consumer.events import (
    Application as ApplicationEvent,
)
from kohort.consumer.events import (
    CallbackDone,
    Drain,
    OutOfRange,
    Polled,
    ReportWarm,
    Seek,
    Stopped,
    Subscribe,
    Unsubscribe,
)
from kohort.consumer.fencing import Verdict, is_sure, judge
from kohort.consumer.ownership_effects import Discard, Prepare
from kohort.engine.consumer_driver import ConsumerDriver
from kohort.engine.member_outputs import Committed, Output
from kohort.lab.plan import Behaviour
from kohort.lab.scheduler import Process, Scheduler
from kohort.lab.topics import TopicBook
from kohort.member.requests import RequestId
from kohort.model.client_facts import (
    CallbackEnded,
    CallbackKind,
    CallbackStarted,
    PollReturned,
    PositionSet,
    RecordsDelivered,
    Subscribed,
)
from kohort.model.errors import ErrorCode
from kohort.model.ids import NO_MEMBER, GroupId, MemberId, Token, TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, MICROS_PER_SECOND, Instant
from kohort.model.positions import Position

_TOUCH_MICROS: Final = MICROS_PER_SECOND
"""The shortest time between two polls that the member learns of."""
_LONGEST_BATCH: Final = 4.0
"""The longest batch, as a multiple of the mean; an action makes longer ones."""


class Consuming:
    """The application of one life of a pod.

    Args:
        scheduler: the time.
        process: the pod's.
        driver: the consumer.
        carry: carries out the outputs of the driver.
        behaviour: the settings of the consumer and the times of the application.
        random: the generator of batch times.
        topics: the topics of the world.
        state: partitions with local state; kept between processes if state survives.
        record: takes facts.
        ended: called when the consumer is closed.
        failed: called when the consumer failed for good; most applications end then.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        process: Process,
        driver: ConsumerDriver[ConsumerCore],
        *,
        carry: Callable[[list[Output]], None],
        behaviour: Behaviour,
        random: Random,
        topics: TopicBook,
        state: set[TopicPartition],
        record: Callable[[Any], None],
        ended: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        self._scheduler = scheduler
        self._process = process
        self._driver = driver
        self._core = driver.core
        self._carry = carry
        self._behaviour = behaviour
        self._random = random
        self._topics = topics
        self._state = state
        self._record = record
        self._ended = ended
        self._failed = failed
        self._group_id = GroupId(driver.member.core.config.group_id)
        self._reading: dict[TopicPartition, int] = {}
        """The next offset of each partition that is being read."""
        self._order: list[TopicPartition] = []
        self._restoring: dict[TopicPartition, int] = {}
        """The start of each partition while its local state is being restored."""
        self._paused: set[TopicPartition] = set()
        self._token = Token(0)
        """The token of the last unsubscription."""
        self._told: set[TopicPartition] = set()
        """The assigned partitions, as far as the callbacks of the application say."""
        self._member_id = NO_MEMBER
        self._blocked = False
        self._working = False
        self._next_poll: int | None = None
        self._touched = Instant(0)
        self._next_batch_ms: int | None = None
        self._closing = ""
        self._draining = False
        self._last_commit: RequestId | None = None
        self.trouble: list[str] = []

    # -- requests of the operator ------------------------------------------------------------------

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Subscribe to these topics in place of the previous ones."""
        self._record(Subscribed(group_id=self._group_id, topics=topics))
        self._say(Subscribe(topics=frozenset(topics)))
        self._poll_soon()

    def close(self, *, leave: bool) -> None:
        """Close the consumer at the next poll; without ``leave`` it only commits."""
        self._closing = self._closing or ("leave" if leave else "go")
        self._poll_soon()

    def drain(self) -> None:
        """Leave the group when it has taken everything away; read records until then."""
        self._draining = True
        self._say(Drain())

    def be_slow(self, batch_ms: int) -> None:
        """Take this long for the next batch."""
        self._next_batch_ms = batch_ms

    def nudge(self) -> None:
        """A waiting poll carries out the new effects of the core, if there are any."""
        if self._driver.due:
            self._poll_soon()

    # -- calls between polls ----------------------------------------------------------------------

    def seek(self, to: int) -> None:
        """Read every assigned partition from an offset on, or from its end if that comes first.

        The core must ignore a seek in a partition that the member does not own, so one is tried.
        """
        topics = frozenset(tp.topic for tp in self._told)
        mine = self._told | self._core.ownership.owned.keys()
        foreign = sorted(self._topics.all_of(topics) - mine)
        for tp in foreign[:1]:
            self._say(Seek(partition=tp, position=Position(to)))
        for tp in sorted(self._told):
            end = self._topics.end(tp, self._scheduler.now)
            offset = min(to, end or 0)
            self._say(Seek(partition=tp, position=Position(offset)))
            pending = self._driver.drop_start(tp)
            self._position_set(tp, offset, sought=True)
            if pending or tp in self._reading or tp in self._restoring:
                self._restoring.pop(tp, None)
                self._read(tp, offset, sought=True)
        self._poll_soon()

    def commit(self) -> None:
        """Commit the positions, without waiting for the answer."""
        if positions := self._positions(self._reading):
            self._carry(self._driver.commit(positions, self._scheduler.now)[1])

    def pause(self, for_ms: int) -> None:
        """Hand out no records of the assigned partitions for some time."""
        self._paused = set(self._told)
        self._scheduler.after(for_ms, self._process, self._paused.clear)

    def unsubscribe(self, topics: tuple[str, ...], again_ms: int) -> None:
        """Leave the group, and subscribe again later, whether the group has answered or not."""
        self._token = Token(self._token + 1)
        self._say(Unsubscribe(token=self._token))
        self._scheduler.after(again_ms, self._process, self._subscribe_again, topics)

    def _subscribe_again(self, topics: tuple[str, ...]) -> None:
        if not self._closing:
            self.subscribe(topics)

    def reads(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether all of these are being read, or wait for their local state."""
        return all(tp in self._reading or tp in self._restoring for tp in partitions)

    # -- polling ----------------------------------------------------------------------------------

    def _poll_soon(self) -> None:
        if not self._blocked and not self._working:
            look = self._behaviour.look_ms * MICROS_PER_MILLI
            self._plan(self._scheduler.now + (self._random.randrange(look) if look else 0))

    def _plan(self, when: int) -> None:
        if self._next_poll is None or when < self._next_poll:
            self._next_poll = when
            self._scheduler.at(when, self._process, self._poll, when)

    def _poll(self, planned: int) -> None:
        if self._next_poll != planned or self._blocked:
            return
        self._next_poll = None
        self._working = True
        try:
            self._go_on()
        finally:
            self._working = False

    def _go_on(self) -> None:
        """One poll, or the rest of a poll after a callback."""
        self._touch()
        if not self._work_off():
            return
        if self._draining and self._core.ownership.drained:
            self._closing = self._closing or "leave"
        if self._closing:
            self._go()
            if not self._work_off() or self._closing == "gone":
                return
            self._plan(self._scheduler.now + self._behaviour.idle_ms * MICROS_PER_MILLI)
            return
        taken = self._take_records()
        self._record(PollReturned(group_id=self._group_id, records=taken))
        wait = self._batch_micros() if taken else self._behaviour.idle_ms * MICROS_PER_MILLI
        if taken:
            self._blocked = True
            self._scheduler.at(self._scheduler.now + wait, self._process, self._batch_done)
        else:
            self._plan(self._scheduler.now + wait)

    def _batch_done(self) -> None:
        self._blocked = False
        self._poll_soon()

    def _batch_micros(self) -> int:
        slow, self._next_batch_ms = self._next_batch_ms, None
        if slow is not None:
            return slow * MICROS_PER_MILLI
        mean = self._behaviour.batch_ms * MICROS_PER_MILLI
        return int(min(self._random.expovariate(1.0), _LONGEST_BATCH) * mean) if mean else 0

    def _touch(self) -> None:
        now = self._scheduler.now
        commit_at = self._core.commit_due_at
        if commit_at is not None and commit_at <= now:
            self._touched = now
            self._say(Polled(positions=self._positions(self._reading)))
        elif now - self._touched >= _TOUCH_MICROS:
            self._touched = now
            self._say(Polled())

    def _positions(self, partitions: Any) -> dict[TopicPartition, Position]:
        return {tp: Position(self._reading[tp]) for tp in partitions if tp in self._reading}

    def _take_records(self) -> int:
        """Deliver the available records, one partition after the other."""
        if not self._sure():
            return 0
        now, left = self._scheduler.now, self._behaviour.max_poll_records
        whole = left
        paused = self._paused
        for tp in self._order:
            if tp in paused:
                continue
            first = self._reading[tp]
            end = self._topics.end(tp, now)
            count = min(left, end - first) if end is not None else 0
            if count < 0:
                self._say(OutOfRange(partition=tp, offset=first))
            if count <= 0:
                continue
            left -= count
            self._reading[tp] = first + count
            self._record(
                RecordsDelivered(
                    group_id=self._group_id, partition=tp, first=first, last=first + count - 1
                )
            )
            if not left:
                break
        if self._order:
            self._order.append(self._order.pop(0))
        return whole - left

    # -- effects of the core ----------------------------------------------------------------------

    def _work_off(self) -> bool:
        """Carry out the effects of the core in order; False while a callback is running."""
        due = self._driver.due
        while due:
            # A closing consumer does not wait: its listener is called for a loss, as in PollLoop.
            verdict = judge(
                due[0],
                sure=self._sure(),
                void_before=self._core.void_before,
                closing=bool(self._closing),
            )
            if verdict is Verdict.WAIT:
                break
            if not self._carry_out(due.popleft(), verdict):
                return False
        return True

    def _sure(self) -> bool:
        return is_sure(self._driver.sure_until, self._scheduler.now)

    def _carry_out(self, effect: ForApplication, verdict: Verdict) -> bool:
        match effect:
            case StopReading():
                kept = effect.partitions & self._core.staying
                positions = self._positions(effect.partitions - kept)
                self._forget(effect.partitions - kept)
                self._say(Stopped(step=effect.step, positions=positions, kept=kept))
            case StartReading():
                self._start(effect)
            case RunCallback():
                return self._call_back(effect, lost=verdict is Verdict.TELL_LOSS)
            case Prepare():
                self._prepare(effect.resources)
            case Discard():
                pass  # the copies are kept: they cost nothing here
            case Trouble():
                self.trouble.append(effect.message)
                if effect.error is not ErrorCode.NONE:
                    self._failed()
            case Idle():
                if self._closing and effect.token == self._token:
                    self._closing = "gone"
                    self._ended()
            case _:
                assert_never(effect)
        return True

    def _forget(self, partitions: frozenset[TopicPartition]) -> None:
        for tp in partitions:
            self._reading.pop(tp, None)
            self._restoring.pop(tp, None)
        self._order = [tp for tp in self._order if tp in self._reading]

    def _start(self, effect: StartReading) -> None:
        for tp, position in sorted(effect.starts.items()):
            behaviour = self._behaviour
            warm = tp in self._state
            wait_ms = behaviour.restore_warm_ms if warm else behaviour.restore_cold_ms
            if wait_ms and tp not in self._reading:
                self._restoring[tp] = position.offset
                self._scheduler.after(wait_ms, self._process, self._restored, tp, position.offset)
            else:
                self._read(tp, position.offset)

    def _prepare(self, partitions: frozenset[TopicPartition]) -> None:
        """Restore local state beside the work, then tell the group."""
        cold = partitions - self._state
        wait_ms = self._behaviour.restore_cold_ms if cold else self._behaviour.restore_warm_ms
        self._scheduler.after(wait_ms, self._process, self._prepared, partitions)

    def _prepared(self, partitions: frozenset[TopicPartition]) -> None:
        self._state |= partitions
        self._say(ReportWarm(resources=partitions))

    def _restored(self, tp: TopicPartition, offset: int) -> None:
        if self._restoring.get(tp) == offset:
            del self._restoring[tp]
            self._read(tp, offset)
            self._poll_soon()

    def _read(self, tp: TopicPartition, offset: int, *, sought: bool = False) -> None:
        self._state.add(tp)
        self._reading[tp] = offset
        if tp not in self._order:
            self._order.append(tp)
        if not sought:
            self._position_set(tp, offset, sought=False)

    def _position_set(self, tp: TopicPartition, offset: int, *, sought: bool) -> None:
        self._record(
            PositionSet(group_id=self._group_id, partition=tp, offset=offset, sought=sought)
        )

    def _call_back(self, effect: RunCallback, *, lost: bool) -> bool:
        kind, partitions = CallbackKind(effect.kind.value), effect.partitions
        if lost:
            # The membership was lost, or may be lost, before the callback for the change.
            if kind is CallbackKind.ASSIGNED:
                self._say(CallbackDone(step=effect.step))
                return True
            kind = CallbackKind.LOST
        kept: frozenset[TopicPartition] = frozenset()
        if kind is CallbackKind.REVOKED:
            kept = partitions & self._core.staying
        done = CallbackDone(step=effect.step, kept=kept)
        if kind is CallbackKind.ASSIGNED:
            self._told |= partitions
        else:
            # The listener knows no others.
            partitions &= self._told - kept
            if not partitions:
                self._say(done)
                return True
        self._member_id = self._core.ownership.member_id or self._member_id
        told: dict[str, Any] = {
            "group_id": self._group_id,
            "member_id": MemberId(self._member_id),
            "generation_id": effect.generation_id,
            "kind": kind,
            "partitions": tuple(sorted(partitions)),
        }
        self._record(CallbackStarted(**told))
        behaviour = self._behaviour
        took = 0
        if kind is CallbackKind.REVOKED and partitions:
            took = behaviour.flush_ms + behaviour.flush_each_ms * len(partitions)
        if took:
            self._blocked = True
            self._scheduler.after(took, self._process, self._callback_over, done, told)
            return False
        self._called_back(done, told)
        return True

    def _callback_over(self, done: CallbackDone, told: dict[str, Any]) -> None:
        self._blocked = False
        self._working = True
        try:
            self._called_back(done, told)
            self._go_on()
        finally:
            self._working = False

    def _called_back(self, done: CallbackDone, told: dict[str, Any]) -> None:
        self._record(CallbackEnded(**told))
        if told["kind"] is not CallbackKind.ASSIGNED:
            self._told -= set(told["partitions"])
            self._paused -= set(told["partitions"])
        self._say(done)

    # -- the end ----------------------------------------------------------------------------------

    def _go(self) -> None:
        if self._closing == "leave":
            self._closing = "leaving"
            self._token = Token(self._token + 1)
            self._say(Unsubscribe(token=self._token, reason="the pod is being stopped"))
        elif self._closing == "go":
            self._closing = "committing"
            positions = self._positions(self._reading)
            self._last_commit, outputs = self._driver.commit(positions, self._scheduler.now)
            self._carry(outputs)

    def committed(self, answer: Committed) -> None:
        """A commit was answered; the answer to the last commit ends the process."""
        if answer.request_id == self._last_commit:
            self._closing = "gone"
            self._ended()

    def _say(self, event: ApplicationEvent) -> None:
        self._carry(self._driver.handle(event, self._scheduler.now))
