"""A repeated heartbeat takes a short way, with the same answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import hypothesis.strategies as st
from hypothesis import given
from tests.engine.coordinator_bench import Bench, Client, commit_request, stable

from kohort.engine.coordinator_connection import MAX_HEARTBEAT_SIZE
from kohort.engine.coordinator_engine import CoordinatorEngine
from kohort.engine.coordinator_outputs import Observed, Output
from kohort.engine.coordinator_recording import RecordingCoordinatorEngine
from kohort.model.errors import ErrorCode
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest


class LongWayEngine(CoordinatorEngine):
    """Reads every heartbeat in full."""

    _kept_apis = frozenset()


class LongWay(Bench):
    def make_engine(self, *args: Any, **more: Any) -> CoordinatorEngine:
        return LongWayEngine(*args, **more)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("beat"), st.integers(0, 2), st.integers(0, 2)),
        st.tuples(st.just("torn beat"), st.integers(0, 2), st.integers(0, 60)),
        st.tuples(st.just("two beats"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("wait"), st.just(0), st.integers(0, 12_000)),
        st.tuples(st.just("join"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("sync"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("commit"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("lose"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("write"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


def play(bench: Bench, steps: list[tuple[str, int, int]], version: int) -> list[str]:
    """Play the same steps on any bench; returns all visible results."""
    seats = [stable(bench, f"g{n}", Heartbeat=version) for n in range(3)]
    for what, who, number in steps:
        client, member_id = seats[who]
        if what == "wait":
            bench.wait(number)
        elif what == "write":
            bench.written()
        elif what == "lose":
            bench.carry_out(bench.engine.lost(client.conn, bench.now))
            seats[who] = bench.client(f"c{len(bench.clients)}", Heartbeat=version), member_id
        else:
            say(client, member_id, f"g{who}", what, number)
        bench.journal.append(f"due {bench.engine.next_deadline()}")
    return bench.journal


def say(client: Client, member_id: str, group: str, what: str, number: int) -> None:
    beat = HeartbeatRequest(group_id=group, generation_id=1 + number % 2, member_id=member_id)
    match what:
        case "beat":
            client.send("Heartbeat", beat)
        case "torn beat":
            frame = client.frame("Heartbeat", beat)
            client.push(frame[:number])
            client.push(frame[number:])
        case "two beats":
            client.push(client.frame("Heartbeat", beat) + client.frame("Heartbeat", beat))
        case "join":
            client.join(group, member_id)
        case "sync":
            client.sync(group, 2, member_id, {member_id: b"again"})
        case "commit":
            client.send("OffsetCommit", commit_request(group_id=group))
        case _:
            raise AssertionError(what)


@given(steps=STEPS, version=st.integers(0, 4))
def test_the_short_way_and_the_long_way_give_the_same_results(
    steps: list[tuple[str, int, int]], version: int
) -> None:
    assert play(Bench(), steps, version) == play(LongWay(), steps, version)


def short_ways(bench: Bench, monkeypatch: Any) -> list[bool]:
    """For each heartbeat that may be known: whether it took the short way."""
    taken: list[bool] = []
    plain = CoordinatorEngine._beat_again

    def noted(self: CoordinatorEngine, *args: Any) -> Any:
        output = plain(self, *args)
        taken.append(output is not None)
        return output

    monkeypatch.setattr(CoordinatorEngine, "_beat_again", noted)
    return taken


def test_the_second_heartbeat_takes_the_short_way_and_so_does_one_after_a_commit(
    monkeypatch: Any,
) -> None:
    bench = Bench()
    client, member_id = stable(bench)
    taken = short_ways(bench, monkeypatch)
    assert client.beat("g", 1, member_id) == ErrorCode.NONE
    assert client.beat("g", 1, member_id) == ErrorCode.NONE
    client.send(
        "OffsetCommit", commit_request(member_id=member_id, generation_id_or_member_epoch=1)
    )
    bench.written()
    assert client.beat("g", 1, member_id) == ErrorCode.NONE
    assert taken == [True, True]


def test_a_known_heartbeat_extends_the_session_and_reports_a_rebalance(monkeypatch: Any) -> None:
    bench = Bench()
    client, member_id = stable(bench)
    taken = short_ways(bench, monkeypatch)
    for _ in range(4):
        bench.wait(6_000)
        assert client.beat("g", 1, member_id) == ErrorCode.NONE
    newcomer = bench.client("n")
    newcomer.enter("g")
    assert client.beat("g", 1, member_id) == ErrorCode.REBALANCE_IN_PROGRESS
    bench.wait(61_000)
    assert client.beat("g", 1, member_id) == ErrorCode.UNKNOWN_MEMBER_ID
    assert taken == [True] * 4 + [False]


def test_a_heartbeat_waits_behind_an_unanswered_request(monkeypatch: Any) -> None:
    bench = Bench()
    client, member_id = stable(bench)
    client.beat("g", 1, member_id)
    taken = short_ways(bench, monkeypatch)
    client.send(
        "OffsetCommit", commit_request(member_id=member_id, generation_id_or_member_epoch=1)
    )
    before = len(client.answers)
    client.send("Heartbeat", HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id))
    assert len(client.answers) == before
    bench.written()
    assert [type(a).__name__ for a in client.answers[before:]] == [
        "OffsetCommitResponse",
        "HeartbeatResponse",
    ]
    assert taken == []


def test_a_long_heartbeat_is_read_in_full_every_time(monkeypatch: Any) -> None:
    bench = Bench()
    group = "g" * MAX_HEARTBEAT_SIZE
    client, member_id = stable(bench, group)
    taken = short_ways(bench, monkeypatch)
    assert [client.beat(group, 1, member_id) for _ in range(3)] == [0, 0, 0]
    assert taken == []


class Recorded(Bench):
    """Keeps every fact that its engine reports."""

    kind: ClassVar[type[RecordingCoordinatorEngine]] = RecordingCoordinatorEngine

    def make_engine(self, *args: Any, **more: Any) -> CoordinatorEngine:
        self.told: list[Observed] = []
        return self.kind(*args, **more)

    def carry_out(self, outputs: Iterable[Output]) -> None:
        outputs = list(outputs)
        self.told += [output for output in outputs if isinstance(output, Observed)]
        super().carry_out(outputs)


class LongWayRecordingEngine(RecordingCoordinatorEngine):
    _kept_apis = frozenset()


class RecordedTheLongWay(Recorded):
    kind: ClassVar[type[RecordingCoordinatorEngine]] = LongWayRecordingEngine


@given(steps=STEPS, version=st.integers(0, 4))
def test_the_short_way_and_the_long_way_record_the_same_facts(
    steps: list[tuple[str, int, int]], version: int
) -> None:
    short, long = Recorded(), RecordedTheLongWay()
    assert play(short, steps, version) == play(long, steps, version)
    assert short.told == long.told


def test_a_recording_engine_records_every_heartbeat(monkeypatch: Any) -> None:
    bench = Recorded()
    client, member_id = stable(bench)
    taken: list[bool] = []
    plain = RecordingCoordinatorEngine._beat_again

    def noted(self: RecordingCoordinatorEngine, *args: Any) -> Any:
        output = plain(self, *args)
        taken.append(output is not None)
        return output

    monkeypatch.setattr(RecordingCoordinatorEngine, "_beat_again", noted)
    before = bench.facts.count("RequestReceived")
    for _ in range(3):
        client.beat("g", 1, member_id)
    assert bench.facts.count("RequestReceived") == before + 3
    assert taken == [True, True]
