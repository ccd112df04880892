"""Records through librdkafka, against the small broker that librdkafka has built in."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest

from kohort.client.config import parse_client_settings
from kohort.client.errors import Closed, WrongUse
from kohort.client.fetching import record_fetcher as fetching
from kohort.client.fetching.record_fetcher import FetchProblem, ProblemKind, RecordFetcher
from kohort.client.librdkafka_log import LibrdkafkaLog
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

RECORDS = 1_000
TP0, TP1, TP2 = (TopicPartition("t", n) for n in range(3))


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with the topic t: four partitions of a thousand records each."""
    producer = confluent_kafka.Producer(
        {"test.mock.num.brokers": 1, "log_level": 0, "enable.idempotence": True}
    )
    brokers = producer.list_topics(timeout=10).brokers.values()
    for n in range(4 * RECORDS):
        producer.produce("t", b"%d" % (n // 4), partition=n % 4)
    assert producer.flush(30) == 0
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    producer.flush()  # the broker lives as long as its producer does


@pytest.fixture
def fetcher(bootstrap: str) -> Iterator[RecordFetcher]:
    made = RecordFetcher(parse_client_settings(bootstrap_servers=bootstrap, fetch_max_wait_ms=10))
    yield made
    made.close()


def take_until(
    fetcher: RecordFetcher, enough: Callable[[list[tuple[int, int]]], bool], at_once: int = 100
) -> list[tuple[int, int]]:
    """(partition, offset) of this many records, in order."""
    taken: list[tuple[int, int]] = []
    deadline = time.monotonic() + 20
    while not enough(taken):
        assert time.monotonic() < deadline, f"only {len(taken)} records came"
        for message in fetcher.take(at_once, 0.1):
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            taken.append((partition, offset))
    return taken


def offsets(taken: list[tuple[int, int]], partition: int) -> list[int]:
    return [offset for at, offset in taken if at == partition]


def test_fetcher_reads_from_the_given_start_and_knows_its_position(fetcher: RecordFetcher) -> None:
    fetcher.add({TP0: Position(10), TP1: Position(990)})
    assert fetcher.positions([TP0, TP1]) == {TP0: Position(10), TP1: Position(990)}
    taken = take_until(fetcher, lambda got: len(got) == 990 + 10)
    assert offsets(taken, 0) == list(range(10, 1_000))
    assert offsets(taken, 1) == list(range(990, 1_000))
    stands = fetcher.positions([TP0, TP1])
    assert stands[TP0].offset == stands[TP1].offset == 1_000
    assert stands[TP0].leader_epoch >= 0


def test_partitions_that_stay_are_not_interrupted_when_others_are_added_and_removed(
    fetcher: RecordFetcher,
) -> None:
    fetcher.add({TP0: Position(0)})
    taken = take_until(fetcher, lambda got: len(got) >= 50, at_once=50)
    for round_ in range(20):
        fetcher.add({TP1: Position(round_)})
        taken += take_until(fetcher, lambda got: bool(offsets(got, 0)), at_once=20)
        fetcher.remove([TP1])
    taken += take_until(fetcher, lambda got: got[-1:] == [(0, RECORDS - 1)])
    assert offsets(taken, 0) == list(range(RECORDS))


@pytest.mark.slow
def test_no_record_of_a_removed_partition_is_returned(fetcher: RecordFetcher) -> None:
    fetcher.add({TP0: Position(0), TP1: Position(0)})
    for start in range(100, 160):
        take_until(fetcher, bool, at_once=7)
        stood = fetcher.remove([TP0])[TP0]
        late = [message.offset() for message in fetcher.take(50, 0) if message.partition() == 0]
        assert not late, f"records {late} of t-0 after its removal at {stood}"
        fetcher.add({TP0: Position(start)})
        first = offsets(take_until(fetcher, lambda got: bool(offsets(got, 0)), at_once=1), 0)[0]
        assert first == start
        fetcher.seek({TP1: Position(0)})


def test_remove_returns_the_positions(fetcher: RecordFetcher) -> None:
    fetcher.add({TP0: Position(0), TP1: Position(5)})
    fetcher.pause([TP1])
    taken = take_until(fetcher, lambda got: len(got) >= 100)
    stood = fetcher.remove([TP0, TP1, TP2])
    assert stood[TP0].offset == offsets(taken, 0)[-1] + 1
    assert stood[TP1] == Position(5)
    assert not fetcher.partitions


def test_a_pause_holds_through_a_seek_and_ends_with_the_assignment(fetcher: RecordFetcher) -> None:
    fetcher.add({TP0: Position(0), TP1: Position(0)})
    fetcher.pause([TP0])
    fetcher.seek({TP0: Position(500)})
    taken = take_until(fetcher, lambda got: len(got) == RECORDS)
    assert not offsets(taken, 0)
    assert fetcher.paused == {TP0}
    fetcher.remove([TP0])
    fetcher.add({TP0: Position(7)})
    assert take_until(fetcher, bool, at_once=1) == [(0, 7)]


def test_resume_continues_at_the_position_of_the_pause(fetcher: RecordFetcher) -> None:
    fetcher.add({TP0: Position(0)})
    before = take_until(fetcher, lambda got: len(got) >= 10, at_once=10)
    fetcher.pause([TP0])
    assert fetcher.take(10, 0.05) == []
    fetcher.resume([TP0])
    after = take_until(fetcher, lambda got: len(got) >= 10, at_once=10)
    assert offsets(before + after, 0) == list(range(len(before) + len(after)))


def test_seek_right_after_adding(fetcher: RecordFetcher) -> None:
    fetcher.add({TP0: Position(0)})
    fetcher.seek({TP0: Position(600)})
    assert fetcher.positions([TP0]) == {TP0: Position(600)}
    assert take_until(fetcher, bool, at_once=1) == [(0, 600)]


def test_offset_out_of_range_is_reported_and_a_seek_revives_the_partition(
    fetcher: RecordFetcher,
) -> None:
    fetcher.add({TP0: Position(70_000)})
    problems: list[FetchProblem] = []
    deadline = time.monotonic() + 10
    while not problems and time.monotonic() < deadline:
        assert fetcher.take(10, 0.1) == []
        problems = fetcher.problems()
    assert [(p.kind, p.partition, p.offset) for p in problems] == [
        (ProblemKind.OUT_OF_RANGE, TP0, 70_000)
    ]
    assert fetcher.problems() == []
    fetcher.seek({TP0: Position(3)})
    assert take_until(fetcher, bool, at_once=1) == [(0, 3)]


def test_wrong_use_is_an_error_and_changes_nothing(fetcher: RecordFetcher) -> None:
    fetcher.add({TP0: Position(0)})
    with pytest.raises(WrongUse, match="already being read: t-0"):
        fetcher.add({TP0: Position(1), TP1: Position(1)})
    with pytest.raises(WrongUse, match="not being read: t-1; being read: t-0"):
        fetcher.seek({TP1: Position(1)})
    with pytest.raises(WrongUse, match="not being read: t-2"):
        fetcher.pause([TP2])
    assert set(fetcher.partitions) == {TP0}


def test_closed_fetcher_raises_closed(bootstrap: str) -> None:
    fetcher = RecordFetcher(parse_client_settings(bootstrap_servers=bootstrap, group_id="g"))
    fetcher.close()
    fetcher.close()
    with pytest.raises(Closed):
        fetcher.take(1, 0)


class Standstill:
    """A consumer of librdkafka with a close that waits until it is released."""

    def __init__(self) -> None:
        self.released, self.ended = threading.Event(), threading.Event()

    def close(self) -> None:
        self.released.wait(30)
        self.ended.set()


def test_a_close_returns_although_librdkafka_never_ends(
    fetcher: RecordFetcher, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    usual, standstill = fetcher._consumer, Standstill()
    monkeypatch.setattr(fetching, "END_S", 0.05)
    monkeypatch.setattr(fetcher, "_consumer", standstill)
    fetcher.close()
    assert not standstill.ended.is_set()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "librdkafka has not ended after" in caplog.text
    with pytest.raises(Closed):
        fetcher.take(1, 0.0)
    standstill.released.set()
    assert standstill.ended.wait(10)
    usual.close()


def test_a_setting_that_librdkafka_refuses() -> None:
    with pytest.raises(ConfigError, match="librdkafka refuses"):
        RecordFetcher(parse_client_settings(bootstrap_servers="a:1", debug="nonsense"))


def test_a_connection_that_fails_is_one_warning_of_librdkafka_and_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    sparing, form = LibrdkafkaLog(), "%s [%s] %s"
    for _ in range(2):
        sparing.log(logging.ERROR, form, "FAIL", "client", "[thrd:a:1/1]: connection refused")
    sparing.log(logging.ERROR, form, "CRC", "client", "[thrd:a:1/1]: damaged")
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
