"""Numbers about a consumer: each name counts its events, and the text forms have them all."""

from __future__ import annotations

import pytest
from tests.client.one_consumer import TP0, TP1, make, read
from tests.tidy.trees import ROOT
from tests.waiting import until

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.errors import DeserializationFailed, RequestFailed
from kohort.client.metrics import LIMITS_MS, METRICS, Kind, MemberMeter, PollMeter, Timing
from kohort.member.states import MemberState
from kohort.model.client_facts import CommitConcluded, CommitSent, Outcome, RequestSent
from kohort.model.ids import GenerationId, GroupId, MemberId, TopicPartition
from kohort.model.instants import MICROS_PER_SECOND, Instant
from kohort.model.member_facts import MemberStateChanged
from kohort.model.positions import Position
from kohort.model.wire_facts import GroupApi

G = GroupId("g")
S = MICROS_PER_SECOND


def names(kinds: set[Kind]) -> set[str]:
    """The names in a mapping, for the metrics of these kinds."""
    found = {metric.name for metric in METRICS if metric.kind in kinds - {Kind.TIMING}}
    for metric in METRICS:
        if metric.kind is Kind.TIMING and Kind.TIMING in kinds:
            found |= {f"{metric.name}-{end}" for end in ("count", "total")}
            found |= {f"{metric.name}-le-{limit}" for limit in LIMITS_MS}
    return found


def test_a_consumer_counts_its_life(broker: EmbeddedBroker) -> None:
    more = {"heartbeat_interval_ms": 100, "enable_auto_commit": False, "max_poll_records": 50}
    with make(broker, **more) as consumer:
        before = consumer.metrics()
        assert before.keys() == names({Kind.COUNTER, Kind.TIMING}) | {"assigned-partitions"}
        assert set(before.values()) == {0}
        consumer.subscribe(["t"])
        read(consumer, 200)
        consumer.commit()
        with pytest.raises(RequestFailed):
            consumer.commit({("no such topic", 0): 1})
        until_lag(consumer, 0)
        until(lambda: consumer.metrics()["heartbeat-response-time-count"] > 0, "a heartbeat")
        found = consumer.metrics()
    averages = {
        f"{m.name}-{end}" for m in METRICS if m.kind is Kind.TIMING for end in ("avg", "max")
    }
    assert found.keys() == names(set(Kind)) | averages
    wanted = {
        "records-consumed-total": 200,
        "bytes-consumed-total": 380,
        "assigned-partitions": 2,
        "rebalance-total": 1,
        "failed-rebalance-total": 0,
        "rebalance-latency-count": 1,
        "commit-total": 2,
        "failed-commit-total": 1,
        "commit-latency-count": 2,
    }
    assert {name: found[name] for name in wanted} == wanted
    assert found["join-total"] >= found["sync-total"] == 1
    assert 0 < found["join-time-avg"] <= found["join-time-max"] < 20_000
    assert 0 < found["last-heartbeat-seconds-ago"] < 20
    assert found["last-rebalance-seconds-ago"] > found["last-poll-seconds-ago"] > 0
    assert 1 <= found["records-per-request-avg"] <= 50
    assert found["time-between-poll-count"] == found["poll-total"] - 1 >= 1
    after = consumer.metrics()
    assert (after["records-consumed-total"], after["assigned-partitions"]) == (200, 0)


def test_records_in_the_buffer_are_not_consumed_yet(broker: EmbeddedBroker) -> None:
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        read(consumer, 2)
        consumer.consume(3)
        assert consumer.metrics()["records-consumed-total"] == 5
        consumer.seek_to_end()
        assert consumer.metrics()["records-consumed-total"] == 5
        consumer.seek(TP0, 90)
        read(consumer, 10)
        assert consumer.metrics()["records-consumed-total"] == 15


def test_a_record_that_cannot_be_deserialized_counts_as_consumed(broker: EmbeddedBroker) -> None:
    def refuse(data: bytes) -> bytes:
        if data == b"50":
            raise ValueError("not this one")
        return data

    with make(broker, value_deserializer=refuse) as consumer:
        consumer.subscribe(["t"])
        refused = read_all(consumer, 200)
        assert (refused, consumer.metrics()["records-consumed-total"]) == (2, 200)


def read_all(consumer: Consumer, count: int) -> int:
    """Read this many records, those included that cannot be deserialized; the number of these."""
    refused = 0
    for _ in range(count):
        try:
            read(consumer, 1)
        except DeserializationFailed:
            refused += 1
    return refused


def test_the_lag_is_that_of_the_partition_that_is_farthest_behind(broker: EmbeddedBroker) -> None:
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        read(consumer, 200)
        until_lag(consumer, 0)
        consumer.pause([TP0, TP1])
        consumer.seek(TP0, 95)
        consumer.seek(TP1, 98)
        until_lag(consumer, 5)
        assert consumer.status().lag == {TP0: 5, TP1: 2}


def until_lag(consumer: Consumer, lag: int) -> None:
    until(
        lambda: (consumer.poll(0.1), consumer.metrics().get("records-lag-max") == lag)[1],
        f"a lag of {lag}",
    )


@pytest.mark.parametrize(
    ("before", "after", "failed"),
    [
        ("unjoined", "preparing", 0),
        ("preparing", "joining", 0),
        ("joining", "syncing", 0),
        ("syncing", "stable", 0),
        ("stable", "preparing", 0),
        ("stable", "unjoined", 0),
        ("joining", "leaving", 0),
        ("leaving", "unjoined", 0),
        ("joining", "unjoined", 1),
        ("joining", "preparing", 1),
        ("syncing", "joining", 1),
        ("preparing", "fenced", 1),
    ],
)
def test_an_attempt_without_an_assignment_is_a_failed_rebalance(
    before: str, after: str, failed: int
) -> None:
    meter = MemberMeter()
    fact = MemberStateChanged(
        at=Instant(0), group_id=G, member_id=MemberId(""), generation_id=GenerationId(1),
        before=MemberState(before), after=MemberState(after), reason="",
    )  # fmt: skip
    meter.observe(fact, Instant(0))
    assert meter.numbers(Instant(0))["failed-rebalance-total"] == failed


def test_a_commit_without_an_answer_failed_and_other_requests_are_not_counted() -> None:
    meter = MemberMeter()
    meter.observe(CommitSent(group_id=G, request=1, offsets=()), Instant(0))
    meter.observe(RequestSent(group_id=G, api=GroupApi.OFFSET_COMMIT, request=1), Instant(0))
    lost = CommitConcluded(group_id=G, request=1, outcome=Outcome.UNKNOWN)
    meter.observe(lost, Instant(3 * S))
    found = meter.numbers(Instant(3 * S))
    assert (found["commit-total"], found["failed-commit-total"]) == (1, 1)
    assert found["commit-latency-max"] == 3_000
    assert found["heartbeat-total"] == found["join-total"] == found["sync-total"] == 0


def test_a_timing_has_buckets_and_forgets_its_maximum() -> None:
    timing = Timing()
    timing.add(10_000, Instant(0))
    timing.add(10_001, Instant(1))
    timing.add(200 * S, Instant(2))
    found = timing.numbers("t", Instant(29 * S))
    assert [found[f"t-le-{limit}"] for limit in LIMITS_MS] == [0, 1, 2, 2, 2, 2]
    assert (found["t-count"], found["t-total"], found["t-max"]) == (3, 200_020.001, 200_000)
    assert found["t-avg"] == pytest.approx(200_020.001 / 3)
    timing.add(5 * S, Instant(31 * S))
    assert timing.numbers("t", Instant(31 * S))["t-max"] == 200_000
    assert timing.numbers("t", Instant(61 * S))["t-max"] == 5_000
    timing.add(4 * S, Instant(61 * S))
    assert timing.numbers("t", Instant(61 * S))["t-max"] == 5_000
    assert timing.numbers("t", Instant(200 * S))["t-max"] == 0
    timing.add(1, Instant(200 * S))
    assert timing.numbers("t", Instant(200 * S))["t-max"] == 0.001


def test_bytes_of_many_records_are_an_estimate_and_of_few_exact() -> None:
    meter = PollMeter()
    meter.took([b"x" * number for number in range(64)])
    assert meter.numbers(0, Instant(0))["bytes-consumed-total"] == 2_016
    meter = PollMeter()
    meter.took([b"four"] * 1_000)
    assert meter.numbers(0, Instant(0))["bytes-consumed-total"] == 4_000
    meter.took([b"x"] * 65)
    assert meter.numbers(0, Instant(0))["bytes-consumed-total"] == 4_065


def test_an_end_stays_known_until_the_next_fetch_tells_another() -> None:
    meter = PollMeter()
    meter.lags({TP0: Position(3), TP1: Position(8)}, {TP0: (0, 10), TP1: (0, 9)}.get)
    assert meter.numbers(0, Instant(0))["records-lag-max"] == 7
    meter.lags({TP0: Position(5), TP1: Position(8)}, {TP1: (0, 9)}.get)
    assert meter.numbers(0, Instant(0))["records-lag-max"] == 5
    meter.lags({TP1: Position(9)}, {TP1: (0, 8)}.get)
    assert meter.numbers(0, Instant(0))["records-lag-max"] == 0
    meter.lags({TP0: Position(5)}, {TP1: (0, 8)}.get)
    assert "records-lag-max" not in meter.numbers(0, Instant(0))


@pytest.mark.parametrize(("partitions", "seconds"), [(1, 1), (200, 1), (1_000, 5)])
def test_lags_of_many_partitions_are_told_less_often(partitions: int, seconds: int) -> None:
    meter = PollMeter()
    places = {TopicPartition("t", n): Position(0) for n in range(partitions)}
    meter.lags(places, lambda tp: (0, 1))
    assert meter.looked(Instant(0))
    assert not meter.looked(Instant(seconds * 1_000_000 - 1))
    assert meter.looked(Instant(seconds * 1_000_000))


def test_the_time_inside_a_poll_is_not_between_polls() -> None:
    meter = PollMeter()
    assert meter.looked(Instant(0))
    meter.goes_on = True
    assert not meter.looked(Instant(S - 1))
    assert meter.looked(Instant(3 * S))
    found = meter.numbers(0, Instant(5 * S))
    assert (found["poll-total"], found["time-between-poll-count"]) == (2, 1)
    assert found["time-between-poll-total"] == pytest.approx(2_000, abs=0.01)
    assert found["last-poll-seconds-ago"] == 2


def test_the_page_has_every_metric() -> None:
    page = (ROOT / "docs/howto/measure-consumers.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    wanted = [f"| `{each.name}` | {each.kind.value} | {each.doc} |" for each in METRICS]
    assert [row for row in rows if row in wanted] == wanted
