"""Records in lists: when a list is handed out, and which commits cover it."""

from __future__ import annotations

import threading

import pytest
from tests.client.one_consumer import TP0, TP1, committed, make, offsets, write
from tests.waiting import until

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker


def test_lists_are_full_while_records_are_there(consumer: Consumer) -> None:
    batches = consumer.batches(60, 30)
    lists = [next(batches) for _ in range(3)]
    lists.append(next(consumer.batches(60, 1)))
    assert [len(each) for each in lists] == [60, 60, 60, 20]
    records = [record for each in lists for record in each]
    assert offsets(records, 0) == offsets(records, 1) == list(range(100))


def test_records_wait_for_others(consumer: Consumer, broker: EmbeddedBroker) -> None:
    batches = consumer.batches(200, 30)
    assert len(next(batches)) == 200
    later = threading.Timer(0.3, write, (broker, (1, b"second")))
    later.start()
    write(broker, (0, b"first"))
    two = next(consumer.batches(2, 30))
    later.join()
    assert sorted(record.value() or b"" for record in two) == [b"first", b"second"]
    write(broker, (0, b"third"))
    assert [record.value() for record in next(consumer.batches(2, 0.1))] == [b"third"]


def test_a_commit_covers_the_lists_that_were_handed_out(
    consumer: Consumer, broker: EmbeddedBroker
) -> None:
    records = next(consumer.batches(30, 0.5))
    consumer.commit()
    counts = {tp: len(offsets(records, tp.partition)) for tp in (TP0, TP1)}
    assert committed(broker) == counts


def test_an_exception_leaves_the_last_list_uncommitted(broker: EmbeddedBroker) -> None:
    with pytest.raises(RuntimeError), make(broker) as consumer:  # noqa: PT012
        consumer.subscribe(["t"])
        for _ in consumer.batches(50, 0.5):
            raise RuntimeError("processing failed")
    assert sum(committed(broker).values()) == 0
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        batches = consumer.batches(50, 30)
        handed = sum(len(next(batches)) for _ in range(4))
    assert handed == 200
    assert committed(broker) == {TP0: 100, TP1: 100}


def test_records_of_a_partition_that_moves_are_handed_out_by_its_next_owner_only(
    broker: EmbeddedBroker,
) -> None:
    read: dict[str, list[tuple[int | None, int | None]]] = {}

    def reads(name: str, consumer: Consumer, most: int) -> threading.Thread:
        def run() -> None:
            records = next(consumer.batches(most, 60))
            read[name] = [(record.partition(), record.offset()) for record in records]

        consumer.subscribe(["t"])
        thread = threading.Thread(target=run)
        thread.start()
        return thread

    with make(broker) as first, make(broker) as second:
        threads = [reads("first", first, 250)]
        until(lambda: len(first._loop.buffer) == 200, "the first consumer gathers everything")
        threads.append(reads("second", second, 100))
        until(second.assignment, "a partition moved")
        (stays,) = first.assignment()
        (moved,) = second.assignment()
        write(broker, *[(stays.partition, b"more")] * 150)
        for thread in threads:
            thread.join(40)
            assert not thread.is_alive()
    assert read["first"] == [(stays.partition, offset) for offset in range(250)]
    assert read["second"] == [(moved.partition, offset) for offset in range(100)]
