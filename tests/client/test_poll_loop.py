"""Records and callbacks inside poll when the membership is lost or not sure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import MethodType, SimpleNamespace
from typing import Any, cast

import pytest

from kohort.client.config import parse_client_settings
from kohort.client.connections.client_loop import monotonic_now
from kohort.client.connections.driver_thread import DriverThread
from kohort.client.consuming import poll_loop
from kohort.client.consuming.poll_loop import PollLoop
from kohort.client.consuming.slow_call import SlowCall
from kohort.client.consuming.steps import run
from kohort.client.errors import FetchFailed, RequestFailed
from kohort.client.fetching.record_fetcher import FetchProblem, ProblemKind, RecordFetcher
from kohort.consumer.core import ConsumerCore
from kohort.consumer.effects import (
    Callback,
    ForApplication,
    RunCallback,
    StartReading,
    StopReading,
    Trouble,
    TroubleKind,
)
from kohort.consumer.events import CallbackDone, Event, OutOfRange, Seek, Stopped
from kohort.engine.consumer_driver import ConsumerDriver
from kohort.model.errors import ErrorCode
from kohort.model.ids import GenerationId, TopicPartition
from kohort.model.instants import Instant
from kohort.model.positions import Position

P, Q, R = (TopicPartition("t", number) for number in range(3))


def callback(step: int, kind: Callback, *partitions: TopicPartition) -> RunCallback:
    return RunCallback(
        step=step, kind=kind, partitions=frozenset(partitions), generation_id=GenerationId(1)
    )


FAR = Instant(2**62)
PAST = Instant(0)


RECORDS: list[Any] = ["r1", "r2"]
"""No test looks inside."""


class Fetcher:
    """Stands in for librdkafka."""

    def __init__(self) -> None:
        self.denied = ""
        self.records: list[Any] = []
        self.at: dict[TopicPartition, Position] = {}
        self.while_taking: Callable[[], None] = lambda: None
        self.told: list[FetchProblem] = []
        self.partitions: frozenset[TopicPartition] = frozenset()
        self.paused: frozenset[TopicPartition] = frozenset()

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        return dict.fromkeys(partitions, Position(7))

    def bounds(self, partition: TopicPartition) -> None:
        """No fetch has told the end."""

    def add(self, starts: Mapping[TopicPartition, Position]) -> None:
        self.partitions |= starts.keys()
        self.at.update(starts)

    def seek(self, targets: Mapping[TopicPartition, Position]) -> None:
        assert targets.keys() <= self.partitions
        self.at.update(targets)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions -= set(partitions)
        self.paused &= self.partitions

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        assert self.partitions.issuperset(partitions)
        self.paused |= set(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused -= set(partitions)

    def take(self, limit: int, _timeout: float) -> list[Any]:
        self.while_taking()
        taken, self.records = self.records[:limit], self.records[limit:]
        return taken

    def problems(self) -> list[FetchProblem]:
        told, self.told = self.told, []
        return told


class Scene:
    """One poll loop; ``sure_until`` says how long the membership is sure."""

    def __init__(
        self, *due: ForApplication, void_before: int = 0, sure_until: Instant | None = FAR
    ) -> None:
        self.posted: list[Event] = []
        self.heard: list[tuple[Callback, list[TopicPartition]]] = []
        self.core = SimpleNamespace(
            void_before=void_before, busy=False, staying=frozenset(), commit_due_at=None
        )
        self.driver = SimpleNamespace(
            due=deque(due), sure_until=sure_until, core=self.core, unserved=None
        )
        self.driver.drop_start = MethodType(ConsumerDriver.drop_start, self.driver)
        thread = SimpleNamespace(
            driver=self.driver,
            handle=self.posted.append,
            handled=self.posted.append,
            error=None,
            keeper=SimpleNamespace(poller=SlowCall()),
            group_id="g",
        )
        settings = parse_client_settings({"bootstrap.servers": "localhost:1", "group.id": "g"})
        self.fetcher = Fetcher()
        self.loop = PollLoop(
            settings,
            cast("DriverThread[ConsumerCore]", thread),  # stand-ins: no more than poll reads
            cast("RecordFetcher", self.fetcher),
            lambda kind, tps: self.heard.append((kind, [*tps])),
        )
        self.loop.subscribed = True


def told(
    *due: RunCallback, void_before: int
) -> tuple[list[tuple[Callback, list[TopicPartition]]], list[Event]]:
    scene = Scene(*due, void_before=void_before)
    run(scene.loop.working_off(commit=True))
    return [(kind, sorted(tps)) for kind, tps in scene.heard], scene.posted


def test_no_callback_for_an_assignment_under_a_lost_membership_nor_for_its_loss() -> None:
    heard, posted = told(
        callback(1, Callback.ASSIGNED, P), callback(3, Callback.LOST, P), void_before=2
    )
    assert heard == []
    assert posted == [CallbackDone(step=1), CallbackDone(step=3)]


def test_on_lost_has_only_partitions_that_on_assign_had() -> None:
    heard, _ = told(
        callback(4, Callback.ASSIGNED, P), callback(6, Callback.LOST, P, Q), void_before=2
    )
    assert heard == [(Callback.ASSIGNED, [P]), (Callback.LOST, [P])]


def test_revocation_after_the_loss_of_the_membership_calls_on_lost() -> None:
    heard, _ = told(
        callback(4, Callback.ASSIGNED, P, Q), callback(5, Callback.REVOKED, P), void_before=4
    )
    assert heard == [(Callback.ASSIGNED, [P, Q]), (Callback.REVOKED, [P])]
    heard, _ = told(callback(1, Callback.REVOKED, P), void_before=4)
    assert heard == [], "it never heard that it had it"


def test_on_assign_waits_while_the_membership_is_not_sure() -> None:
    """The process slept longer than its session, and the assignment waited."""
    scene = Scene(callback(4, Callback.ASSIGNED, P), sure_until=PAST)
    run(scene.loop.working_off(commit=True))
    assert (scene.heard, scene.posted) == ([], [])
    scene.driver.sure_until = FAR
    run(scene.loop.working_off(commit=True))
    assert scene.heard == [(Callback.ASSIGNED, [P])]


def test_no_callback_for_an_assignment_after_the_membership_was_lost() -> None:
    scene = Scene(callback(4, Callback.ASSIGNED, P), sure_until=PAST)
    run(scene.loop.working_off(commit=True))
    scene.driver.sure_until, scene.core.void_before = None, 5
    scene.driver.due.append(callback(6, Callback.LOST, P))
    run(scene.loop.working_off(commit=True))
    assert scene.heard == []
    assert scene.posted == [CallbackDone(step=4), CallbackDone(step=6)]


def test_on_lost_is_called_at_once_without_a_membership() -> None:
    scene = Scene(callback(4, Callback.ASSIGNED, P))
    run(scene.loop.working_off(commit=True))
    scene.driver.sure_until, scene.core.void_before = None, 5
    scene.driver.due.append(callback(6, Callback.LOST, P))
    run(scene.loop.working_off(commit=True))
    assert scene.heard[1:] == [(Callback.LOST, [P])]


def test_closing_consumer_calls_on_lost_without_waiting_for_the_coordinator() -> None:
    scene = Scene(callback(4, Callback.ASSIGNED, P))
    run(scene.loop.working_off(commit=True))
    scene.driver.sure_until = PAST
    scene.driver.due.extend(
        [callback(5, Callback.ASSIGNED, Q), callback(6, Callback.REVOKED, P, Q)]
    )
    run(scene.loop.working_off(commit=True, closing=True))
    assert scene.heard[1:] == [(Callback.LOST, [P])], "the listener does not know Q"
    assert not scene.driver.due


def test_a_failure_of_a_member_that_leaves_is_logged_and_not_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Leaving needs the coordinator, which refuses the user: poll has raised that already."""
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    trouble = Trouble(kind=TroubleKind.REFUSED, message="refused by the coordinator", error=code)
    scene = Scene(trouble, trouble, callback(6, Callback.LOST))
    with pytest.raises(RequestFailed, match="refused by the coordinator"):
        run(scene.loop.working_off(commit=True))
    scene.driver.due.append(trouble)
    run(scene.loop.working_off(commit=True, closing=True))
    assert "leaving: group g: the broker answered GROUP_AUTHORIZATION_FAILED" in caplog.text


def test_staying_partition_is_neither_stopped_nor_in_on_revoke() -> None:
    scene = Scene(callback(4, Callback.ASSIGNED, P, Q))
    scene.fetcher.partitions = frozenset({P, Q})
    run(scene.loop.working_off(commit=True))
    scene.core.staying = frozenset({P})
    scene.driver.due.extend(
        [
            StopReading(step=5, partitions=frozenset({P, Q})),
            callback(5, Callback.REVOKED, Q),
            StopReading(step=6, partitions=frozenset({P})),
            callback(6, Callback.REVOKED, P),
        ]
    )
    run(scene.loop.working_off(commit=True))
    assert scene.fetcher.partitions == {P}
    assert scene.heard[1:] == [(Callback.REVOKED, [Q])]
    assert scene.loop.assigned == {P}
    kept = frozenset({P})
    assert scene.posted[1:] == [
        Stopped(step=5, positions={Q: Position(7)}, kept=kept),
        CallbackDone(step=5),
        Stopped(step=6, positions={}, kept=kept),
        CallbackDone(step=6, kept=kept),
    ]


def test_loss_covers_partitions_that_were_to_stay() -> None:
    scene = Scene(callback(4, Callback.ASSIGNED, P))
    run(scene.loop.working_off(commit=True))
    scene.core.staying, scene.core.void_before = frozenset({P}), 6
    scene.driver.due.append(callback(5, Callback.REVOKED, P))
    run(scene.loop.working_off(commit=True))
    assert scene.heard[1:] == [(Callback.LOST, [P])]
    assert scene.posted[1:] == [CallbackDone(step=5)]


def test_stopped_partition_is_paused_again_only_if_it_stays_and_was_not_resumed() -> None:
    scene = Scene(callback(4, Callback.ASSIGNED, P, Q, R))
    all_three = frozenset({P, Q, R})
    scene.fetcher.partitions = scene.fetcher.paused = all_three
    scene.driver.due.append(StopReading(step=5, partitions=all_three))
    run(scene.loop.working_off(commit=True))
    scene.loop.reader.resume(frozenset({R}))
    scene.core.staying = frozenset({P, R})
    start = StartReading(starts=dict.fromkeys(sorted(all_three), Position(7)))
    scene.driver.due.extend([callback(5, Callback.REVOKED, P, Q, R), start])
    run(scene.loop.working_off(commit=True))
    assert scene.fetcher.partitions == all_three
    assert scene.fetcher.paused == {P}, "Q was revoked, R was resumed"


def test_records_are_handed_out_only_while_the_membership_is_sure() -> None:
    scene = Scene(sure_until=PAST)
    scene.fetcher.records = [*RECORDS]
    assert not scene.loop.fill(10, 0.02)
    assert not scene.loop.buffer, "no record is fetched either"
    scene.driver.sure_until = FAR
    assert scene.loop.fill(10, 0.02)
    assert list(scene.loop.buffer) == RECORDS
    scene.driver.sure_until = PAST
    assert not scene.loop.fill(10, 0.02), "buffered records stay in the buffer"
    assert list(scene.loop.buffer) == RECORDS


def test_process_that_slept_in_a_fetch_hands_out_no_records_afterwards() -> None:
    scene = Scene()

    def oversleep() -> None:
        scene.driver.sure_until = PAST

    scene.fetcher.records = RECORDS[:1]
    scene.fetcher.while_taking = oversleep
    assert not scene.loop.fill(10, 0.02)
    assert list(scene.loop.buffer) == RECORDS[:1]


def test_poll_looks_again_when_the_membership_ceases_to_be_sure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = monotonic_now()
    monkeypatch.setattr(poll_loop, "monotonic_now", lambda: now)
    scene = Scene(sure_until=Instant(now + 3_000))
    scene.loop.look()
    assert scene.loop.look_at_ns == (now + 3_000) * 1_000


def test_seek_replaces_a_start_that_is_still_in_the_queue() -> None:
    scene = Scene(
        callback(4, Callback.ASSIGNED, P, Q),
        StartReading(starts=dict.fromkeys([P, Q], Position(90))),
    )
    scene.loop.seek(P, Position(5))
    assert scene.posted == [Seek(partition=P, position=Position(5))]
    assert scene.fetcher.at == {P: Position(5)}
    run(scene.loop.working_off(commit=True))
    assert scene.fetcher.at == {P: Position(5), Q: Position(90)}


def test_whether_to_call_the_listener_is_decided_once() -> None:
    """The membership ceases to be sure right after the decision to call on_assign."""
    scene = Scene(callback(4, Callback.ASSIGNED, P))
    moments = iter([FAR, PAST, PAST])

    class Driver:
        due, core = scene.driver.due, scene.core

        @property
        def sure_until(self) -> Instant:
            return next(moments)

    scene.loop._driver = cast("ConsumerDriver[ConsumerCore]", Driver())
    run(scene.loop.working_off(commit=True))
    assert scene.heard == [(Callback.ASSIGNED, [P])]
    assert scene.posted == [CallbackDone(step=4)]


def test_a_partition_that_stopped_hides_no_problem_of_another_partition() -> None:
    scene = Scene()
    scene.fetcher.told = [
        FetchProblem(kind=kind, partition=tp, offset=7, code=0, message="why")
        for tp, kind in (
            (P, ProblemKind.STOPPED),
            (Q, ProblemKind.OUT_OF_RANGE),
            (R, ProblemKind.STOPPED),
        )
    ]
    with pytest.raises(FetchFailed, match=r"t-0 at offset 7 failed: why; fetching t-2 at offset 7"):
        scene.loop.note_problems()
    assert scene.posted == [OutOfRange(partition=Q, offset=7)]
