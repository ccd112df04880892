"""Scenes of `poll_arrow` that must end the same on every broker, and helpers for its tests."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import confluent_kafka
from tests.client.stage import QUICK, topic
from tests.waiting import until

from kohort import AsyncConsumer, Consumer
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 2

Row = tuple[Any, ...]
FIRST_MS = int(time.time()) * 1_000 - 3_600_000
"""The time of the first record. Kafka deletes records that are older than a week at any time."""


def consumer(bootstrap: str, **more: object) -> Consumer:
    given = {**QUICK, "bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex}
    return Consumer({**given, **{name.replace("_", "."): value for name, value in more.items()}})


def fill(bootstrap: str, name: str, codec: str, count: int) -> None:
    """Records with and without keys, values and headers, at chosen times."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 50,
            "log_level": 0,
        }
    )
    for n in range(count):
        headers: Any = [("h", b"%d" % n), ("h", None), ("ü", b"")] if n % 3 == 0 else None
        producer.produce(
            name,
            key=None if n % 5 == 0 else b"k%d" % n,
            value=None if n % 7 == 0 else b"v" * (n % 200),
            partition=n % PARTITIONS,
            timestamp=FIRST_MS + n * 1_001,
            headers=headers,
        )
    assert producer.flush(30) == 0


def rows_by_poll(reader: Consumer, count: int) -> list[Row]:
    found: list[Row] = []
    deadline = time.monotonic() + 30
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} records came"
        for record in reader.consume(1_000, 0.1):
            kind, at = record.timestamp()
            headers = record.headers()
            place = (record.topic(), record.partition(), record.offset())
            told = None if headers is None else [tuple(pair) for pair in headers]
            found.append((*place, record.key(), record.value(), at, kind - 1, told))
    return sorted(found)


def rows_of(batch: Any) -> list[Row]:
    """The rows of a record batch, as `rows_by_poll` tells them."""
    found = []
    for row in batch.to_pylist():
        at = round(row["timestamp"].timestamp() * 1_000)
        headers = row["headers"]
        told = None if headers is None else [(pair["key"], pair["value"]) for pair in headers]
        place = (row["topic"], row["partition"], row["offset"])
        found.append((*place, row["key"], row["value"], at, row["timestampType"], told))
    return found


def rows_by_arrow(reader: Consumer, count: int, most: int = 100_000) -> list[Row]:
    """So many rows; those of a partition come in order."""
    found: list[Row] = []
    last: dict[int, int] = {}
    deadline = time.monotonic() + 30
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} rows came"
        batch = reader.poll_arrow(0.1, most)
        if batch is None:
            continue
        assert 0 < batch.num_rows <= most
        for row in rows_of(batch):
            assert last.get(row[1], -1) < row[2]
            last[row[1]] = row[2]
            found.append(row)
    return sorted(found)


async def values_by_arrow(settings: dict[str, Any], topic: str, count: int) -> list[int]:
    """The values of this many records, as numbers, read on an event loop and committed."""
    found: list[int] = []
    async with asyncio.timeout(30), AsyncConsumer(settings | {"group.id": f"c-{topic}"}) as reader:
        reader.subscribe([topic])
        while len(found) < count:
            if (batch := await reader.poll_arrow(1)) is not None:
                found += map(int, batch.column("value").to_pylist())
        await reader.commit()
    return found


def columns_equal_records(bootstrap: str) -> None:
    """For each codec, ``poll_arrow`` gives what ``poll`` gives, in large and in small batches."""
    with topic(bootstrap, PARTITIONS) as name:
        for codec in CODECS:
            fill(bootstrap, name, codec, 100)
        wanted = 100 * len(CODECS)
        with consumer(bootstrap) as reader:
            reader.subscribe([name])
            records = rows_by_poll(reader, wanted)
        for most in (100_000, 7):
            with consumer(bootstrap) as reader:
                reader.subscribe([name])
                assert rows_by_arrow(reader, wanted, most) == records


def aborted_records_are_skipped(bootstrap: str) -> None:
    """With read_committed, records of aborted transactions are skipped, as ``poll`` does."""
    with topic(bootstrap, PARTITIONS) as name:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0}
        )
        producer.init_transactions(30)
        for turn in range(4):
            producer.begin_transaction()
            for n in range(20):
                producer.produce(name, b"%d-%d" % (turn, n), partition=n % PARTITIONS)
            assert producer.flush(30) == 0  # an abort drops records that were not sent
            if turn % 2:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
        with consumer(bootstrap, isolation_level="read_committed") as reader:
            reader.subscribe([name])
            seen = rows_by_arrow(reader, 40)
            # Positions pass the markers of the last, aborted transaction, too.
            ends = reader.end_offsets(list(reader.assignment()))

            def poll() -> None:
                assert reader.poll_arrow(0.1) is None

            until(
                lambda: {tp: reader.position(tp) for tp in ends} == ends,
                "positions behind the last markers",
                between=poll,
            )
        assert {row[4][:1] for row in seen} == {b"0", b"2"}
        with consumer(bootstrap) as reader:
            reader.subscribe([name])
            assert len(rows_by_arrow(reader, 80)) == 80


def a_position_of_a_lost_epoch_is_out_of_range(bootstrap: str) -> None:
    """The log has no record of the epoch that the committed position names: it was cut."""
    with topic(bootstrap, PARTITIONS) as name:
        fill(bootstrap, name, "none", 20)
        group: dict[str, Any] = {"group_id": f"g-{name}", "enable_auto_commit": False}
        with consumer(bootstrap, **group) as writer:
            writer.subscribe([name])
            rows_by_arrow(writer, 20)
            writer.commit()
            assert rows_by_arrow_after_restart(bootstrap, name, group) == 0
            writer.commit({TopicPartition(name, 0): Position(5, leader_epoch=999)})
        assert rows_by_arrow_after_restart(bootstrap, name, group) == 10


def rows_by_arrow_after_restart(bootstrap: str, name: str, group: dict[str, Any]) -> int:
    """The rows of partition 0, from the committed position to the end."""
    with consumer(bootstrap, **group) as reader:
        reader.assign([TopicPartition(name, 0)])
        count, deadline = 0, time.monotonic() + 20
        while not count or any(reader.lag().values()):
            if (batch := reader.poll_arrow(0.5)) is not None:
                count += batch.num_rows
            elif not any(reader.lag().values()):
                return count
            assert time.monotonic() < deadline
    return count


def place(row: Row) -> tuple[TopicPartition, int]:
    return TopicPartition(row[0], row[1]), row[2]
