"""`Consumer.poll_arrow` on the embedded broker: columns, positions, seeks, pauses, rebalances."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from tests.client import columns
from tests.client.columns import rows_by_arrow
from tests.client.one_consumer import TP0, TP1, committed, make, read, write
from tests.client.test_async_consumer import make_async, play, soon
from tests.waiting import until

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.errors import FetchFailed, NoOffset, WrongUse
from kohort.client.fetching import column_fetcher, range_fetching
from kohort.fetch import columns as decoding
from kohort.fetch import numpy_decoder
from kohort.fetch.requests import Place, fetch_request
from kohort.model.ids import TopicPartition


def places(rows: list[columns.Row]) -> list[tuple[int, int]]:
    return [(row[1], row[2]) for row in rows]


EVERYTHING = [(p, n) for p in (0, 1) for n in range(100)]


@pytest.mark.slow
def test_columns_equal_the_records_of_poll_for_each_codec(kohort_broker: EmbeddedBroker) -> None:
    columns.columns_equal_records(kohort_broker.bootstrap_servers)


def test_closing_commits_exactly_what_was_returned(broker: EmbeddedBroker) -> None:
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        seen = rows_by_arrow(consumer, 130, 13)
        counts = {tp: sum(row[1] == tp.partition for row in seen) for tp in (TP0, TP1)}
        assert {tp: consumer.position(tp) for tp in counts} == counts
    assert committed(broker) == {tp: count for tp, count in counts.items() if count}
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        rest = rows_by_arrow(consumer, 200 - len(seen))
    assert places(sorted(seen + rest)) == EVERYTHING


def test_an_exception_leaves_the_last_batch_uncommitted(broker: EmbeddedBroker) -> None:
    def process() -> None:
        with make(broker) as consumer:
            consumer.subscribe(["t"])
            rows_by_arrow(consumer, 10, 10)
            raise LookupError

    with pytest.raises(LookupError):
        process()
    assert committed(broker) == {}


def test_the_first_call_goes_on_where_poll_stands(broker: EmbeddedBroker) -> None:
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        first = [(r.partition() or 0, r.offset() or 0) for r in read(consumer, 30)]
        consumer.pause([TP1])
        paused = [p for p in first if p[0] == 1]
        rows = places(rows_by_arrow(consumer, 100 - (30 - len(paused)), 9))
        assert {p for p, _ in rows} == {0}
        assert consumer.paused() == {TP1}
        consumer.resume([TP1])
        rows += places(rows_by_arrow(consumer, 100 - len(paused)))
        assert sorted(first + rows) == EVERYTHING


@pytest.mark.parametrize("way", ["poll", "consume", "iteration", "batches"])
def test_records_follow_columns_and_columns_follow_records(
    broker: EmbeddedBroker, way: str
) -> None:
    """Positions and pauses stay with each change; nothing is lost, and nothing comes twice."""
    seen: list[tuple[int, int]] = []
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        for _ in range(2):
            seen += places(rows_by_arrow(consumer, 20, 7))
            consumer.pause([TP1])
            records: list[Any] = []
            while len(records) < 10:
                match way:
                    case "poll":
                        records.append(consumer.poll(5))
                    case "consume":
                        records += consumer.consume(10 - len(records), 5)
                    case "iteration":
                        records.append(next(iter(consumer)))
                    case _:
                        records += next(iter(consumer.batches(10 - len(records), 0.1)))
            assert {record.partition() for record in records} == {0}
            assert consumer.paused() == {TP1}
            consumer.resume([TP1])
            seen += [(record.partition(), record.offset()) for record in records]
        seen += places(rows_by_arrow(consumer, 200 - len(seen)))
        assert consumer.poll(0.2) is None
    assert sorted(seen) == EVERYTHING
    assert len(seen) == 200
    assert committed(broker) == {TP0: 100, TP1: 100}


@pytest.mark.parametrize("offset", [0, 57, 99])
def test_a_seek_drops_what_was_decoded(broker: EmbeddedBroker, offset: int) -> None:
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        rows_by_arrow(consumer, 10, 10)
        consumer.pause([TP1])
        consumer.seek(TP0, offset)
        assert consumer.position(TP0) == offset
        rows = places(rows_by_arrow(consumer, 100 - offset, 8))
        assert rows == [(0, n) for n in range(offset, 100)]


def test_a_paused_partition_hands_out_nothing_and_loses_nothing(broker: EmbeddedBroker) -> None:
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        rows = rows_by_arrow(consumer, 2, 1)
        consumer.pause([TP0, TP1])
        assert consumer.poll_arrow(0.1) is None
        consumer.resume([TP0])
        rows += rows_by_arrow(consumer, 100 - sum(row[1] == 0 for row in rows))
        assert consumer.poll_arrow(0.1) is None
        consumer.resume([TP1])
        rows += rows_by_arrow(consumer, 200 - len(rows))
        assert places(sorted(rows)) == EVERYTHING


def test_revoked_partitions_hand_out_nothing_after_the_listener(broker: EmbeddedBroker) -> None:
    """Two consumers share the topic: each record comes once, and never after its revocation."""
    revoked: set[TopicPartition] = set()
    first, second = make(broker), make(broker)
    with first, second:
        first.subscribe(["t"], on_revoke=lambda _, gone: revoked.update(gone))
        rows = rows_by_arrow(first, 5, 5)
        second.subscribe(["t"])
        others: list[columns.Row] = []

        def turn() -> bool:
            for consumer in (first, second):
                before = frozenset(revoked)
                batch = consumer.poll_arrow(0.02, 3)
                if batch is not None:
                    new = columns.rows_of(batch)
                    if consumer is first and before:
                        assert {columns.place(row)[0] for row in new}.isdisjoint(before)
                    (rows if consumer is first else others).extend(new)
            return len(rows) + len(others) >= 200 and bool(second.assignment())

        until(turn, "everything was read by the two")
        assert len(revoked) == 1
        assert {columns.place(row)[0] for row in others} == revoked
        assert places(sorted(rows + others)) == EVERYTHING


def test_an_offset_outside_the_log_follows_auto_offset_reset(broker: EmbeddedBroker) -> None:
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        rows_by_arrow(consumer, 200)
        consumer.seek(TP0, 5_000)
        assert places(rows_by_arrow(consumer, 100)) == [(0, n) for n in range(100)]
    with make(broker, auto_offset_reset="none", group_id="h") as consumer:
        consumer.assign([TP0])
        consumer.seek(TP0, 5_000)
        with pytest.raises(NoOffset):
            until(lambda: consumer.poll_arrow(0.1), "an error")


def test_new_records_come(broker: EmbeddedBroker) -> None:
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        rows_by_arrow(consumer, 200)
        assert consumer.poll_arrow(0.05) is None
        write(broker, (0, b"new"))
        assert [row[4] for row in rows_by_arrow(consumer, 1)] == [b"new"]
        assert consumer.metrics()["records-consumed-total"] == 201


def test_a_damaged_batch_is_an_error_after_the_records_before_it(
    kohort_broker_factory: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    """The damage is on the broker's disk; a seek passes it, and other partitions go on."""
    broker = kohort_broker_factory(str(tmp_path))
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t", 2, 1)
    for value in (b"before", b"damaged", b"behind"):
        write(broker, (0, value), (1, value))
    (log,) = tmp_path.glob("**/t-0/*.log")
    with log.open("r+b") as file:
        file.seek(log.read_bytes().index(b"damaged"))
        file.write(b"D")
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        seen: list[columns.Row] = []
        errors: list[str] = []
        while len(errors) < 2 or len(seen) < 4:
            try:
                batch = consumer.poll_arrow(5)
            except FetchFailed as error:
                errors.append(str(error))
                assert consumer.position(TP0) <= 1
            else:
                assert batch is not None
                seen += columns.rows_of(batch)
        assert "t-0: the batch at offset 1 cannot be read" in errors[0]
        assert consumer.position(TP0) == 1
        consumer.seek(TP0, 2)
        seen += rows_by_arrow(consumer, 1)
    assert places(sorted(seen)) == [(0, 0), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_the_memory_of_a_slow_consumer_is_bounded(broker: EmbeddedBroker) -> None:
    """At most ``queued.max.messages.kbytes`` wait, and one batch that did not fit."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 1, "log_level": 0}
    )
    for n in range(160):
        producer.produce("t", bytes(20_000), partition=n % 2)
    assert producer.flush(30) == 0
    limit = 256 << 10
    settings = {"max_partition_fetch_bytes": 128 << 10, "queued_max_messages_kbytes": limit >> 10}
    with make(broker, **settings) as consumer:
        consumer.subscribe(["t"])
        rows_by_arrow(consumer, 1, 1)
        assert consumer._columns is not None
        reader, most = consumer._columns._reader, 0
        for _ in range(50):
            time.sleep(0.002)
            most = max(most, reader.buffered)
        assert 0 < most <= limit + 20_200
        assert len(rows_by_arrow(consumer, 359, 25)) == 359


def test_a_full_partition_does_not_wait_long_behind_one_without_records(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[set[int], int]] = []

    def build(options: Any, places: list[Place], *more: Any, **by_name: Any) -> Any:
        request = fetch_request(options, places, *more, **by_name)
        asked.append(({place.partition.partition for place in places}, request.max_wait_ms))
        return request

    monkeypatch.setattr(range_fetching, "fetch_request", build)
    for _ in range(3):  # batches that one answer each brings
        write(broker, *[(0, b"v" * 50)] * 10)
    small = {"max_partition_fetch_bytes": 300, "queued_max_messages_kbytes": 1}
    with make(broker, **small) as consumer:
        consumer.assign([TP0, TP1])
        consumer.seek(TP1, 100)
        rows_by_arrow(consumer, 1, 1)
        wanted = [({1}, wait) for wait in (10, 20, 40, 80, 160, 200)]
        until(
            lambda: any(asked[at : at + 6] == wanted for at in range(len(asked))),
            "short waits for the partition without records alone",
        )
        rows_by_arrow(consumer, 129, 10)


@pytest.mark.slow
def test_random_seeks_and_pauses_leave_no_gap_and_no_repetition(broker: EmbeddedBroker) -> None:
    """Fetches are small, and many are under way when a partition moves."""
    dice = random.Random(8)
    settings = {"max_partition_fetch_bytes": 1_000, "queued_max_messages_kbytes": 3}
    write(broker, *[(n % 2, b"%d" % n) for n in range(2_000)])
    expected = {TP0: 0, TP1: 0}
    with make(broker, **settings) as consumer:
        consumer.subscribe(["t"])
        rows_by_arrow(consumer, 1, 1)
        consumer.seek(TP0, 0)
        consumer.seek(TP1, 0)
        for _ in range(250):
            place = dice.choice([TP0, TP1])
            match dice.randrange(4):
                case 0:
                    expected[place] = dice.randrange(1_000)
                    consumer.seek(place, expected[place])
                case 1:
                    consumer.pause([place])
                case _:
                    consumer.resume([TP0, TP1])
            paused = consumer.paused()
            batch = consumer.poll_arrow(0.005, dice.choice([1, 3, 40, 1_000]))
            for found, offset in map(columns.place, columns.rows_of(batch) if batch else ()):
                assert found not in paused
                assert offset == expected[found]
                expected[found] += 1
            assert {each: consumer.position(each) for each in expected} == expected


@pytest.mark.slow
def test_the_compiled_decoder_is_loaded_by_a_thread_after_many_rows(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding._Chosen, "decode", staticmethod(numpy_decoder.decode))
    monkeypatch.setattr(column_fetcher, "_LOAD_AFTER", 150)
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        rows = rows_by_arrow(consumer, 100, 10)
        assert not decoding.is_compiled()
        rows += rows_by_arrow(consumer, 200 - len(rows))
        until(decoding.is_compiled, "the compiled decoder is in use", 60)
        write(broker, (0, b"new"))
        assert [row[4] for row in rows_by_arrow(consumer, 1)] == [b"new"]
    assert places(sorted(rows)) == EVERYTHING


def test_assign_without_a_group_reads_columns(broker: EmbeddedBroker) -> None:
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign([TP1])
        consumer.seek(TP1, 90)
        assert places(rows_by_arrow(consumer, 10)) == [(1, n) for n in range(90, 100)]


def test_poll_inside_a_listener_is_refused(broker: EmbeddedBroker) -> None:
    heard: list[str] = []

    def assigned(consumer: Consumer, _: object) -> None:
        with pytest.raises(WrongUse) as caught:
            consumer.poll_arrow(0)
        heard.append(str(caught.value))

    with make(broker) as consumer:
        consumer.subscribe(["t"], on_assign=assigned)
        until(lambda: (consumer.poll_arrow(0.1), heard)[1], "the listener was called")
    assert "a listener calls" in heard[0]


@pytest.mark.slow
def test_without_pyarrow_everything_else_works_and_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["pyarrow"] = sys.modules["numpy"] = None
from kohort import Consumer
consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g")
consumer.subscribe(["t"])
try:
    consumer.poll_arrow(0)
except Exception as error:
    print(type(error).__name__, error)
consumer.close(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("WrongUse poll_arrow() needs the extra arrow")
    assert "pip install 'kohort[arrow]'" in done.stdout


def test_the_event_loop_goes_on_while_columns_are_decoded(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decoder waits for the event loop: on the loop's own thread it would wait for ever."""
    decode, begun, may_end = decoding.to_arrow_counted, threading.Event(), threading.Event()
    waited: list[bool] = []

    def slow(*runs: Any, **more: Any) -> Any:
        begun.set()
        waited.append(may_end.wait(20))
        return decode(*runs, **more)

    monkeypatch.setattr("kohort.client.fetching.column_fetcher.columns.to_arrow_counted", slow)

    async def piece() -> None:
        async with make_async(broker) as consumer:
            consumer.subscribe(["t"])
            poll = asyncio.create_task(consumer.poll_arrow(20))
            await soon(begun.is_set, "the decoder")
            consumer.pause([TP1])
            poll.cancel()
            await asyncio.wait([poll])
            second = asyncio.create_task(consumer.poll_arrow(20))
            await asyncio.sleep(0.01)
            assert not second.done(), "the next call waits for the decoder"
            may_end.set()
            batch = await second
            assert places(columns.rows_of(batch)) == [(0, n) for n in range(100)], "1 is paused"
            consumer.resume([TP1])
            batch = await consumer.poll_arrow(20)
            assert places(columns.rows_of(batch)) == [(1, n) for n in range(100)]

    play(piece)
    assert all(waited)


def test_asyncio_reads_columns_and_a_cancelled_poll_loses_nothing(broker: EmbeddedBroker) -> None:
    dice = random.Random(4)
    rows: list[columns.Row] = []

    async def piece() -> None:
        async with make_async(broker) as consumer:
            consumer.subscribe(["t"])
            record = await consumer.poll(20)
            assert record is not None
            rows.append((record.topic(), record.partition() or 0, record.offset() or 0))
            while len(rows) < 200:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(dice.choice([0, 0.001, 0.01])):
                        batch = await consumer.poll_arrow(5, 5)
                        assert batch is not None
                        rows.extend(columns.rows_of(batch))
            write(broker, (1, b"new"))
            batch = await consumer.poll_arrow(20)
            assert columns.rows_of(batch)[0][4] == b"new"
            assert await consumer.poll_arrow(0.01) is None
            write(broker, (0, b"as a record"))
            again = await consumer.poll(20)
            assert again is not None
            assert again.value() == b"as a record"

    play(piece)
    assert places(sorted(row[:3] for row in rows)) == EVERYTHING
    assert committed(broker) == {TP0: 101, TP1: 101}
