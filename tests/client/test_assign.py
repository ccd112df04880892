"""Partitions that the application chooses itself, without a membership."""

from __future__ import annotations

import asyncio

import confluent_kafka
import pytest
from tests.client.one_consumer import TP0, TP1, committed, make, offsets, read, write
from tests.client.stage import QUICK
from tests.waiting import until

from kohort import AsyncConsumer, Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.errors import NoOffset, WrongUse
from kohort.model.errors import ConfigError
from kohort.model.positions import Position


def members(broker: EmbeddedBroker) -> int:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        groups = {listing.group_id for listing in admin.list_groups()}
        return len(admin.describe_group("g").members) if "g" in groups else 0


def test_assigned_partitions_are_read_from_the_start_and_no_other(broker: EmbeddedBroker) -> None:
    with make(broker) as consumer:
        consumer.assign([TP0])
        assert consumer.assignment() == {TP0}
        assert offsets(read(consumer, 100), 0) == list(range(100))
        assert consumer.poll(0.1) is None
        assert members(broker) == 0
        assert consumer.status().owned == {TP0}
        assert consumer.status().why == "assign() reads partitions without a membership"
        consumer.assign([])
        assert consumer.status().why == "not subscribed yet"
    assert committed(broker) == {TP0: 100}, "closing commits"


def test_reading_goes_on_at_committed_offsets(broker: EmbeddedBroker) -> None:
    with make(broker, enable_auto_commit=False) as consumer:
        consumer.assign([TP0, ("t", 1)])
        read(consumer, 200)
        consumer.commit({TP0: 95, TP1: 98})
        assert consumer.committed([TP0]) == {TP0: Position(95)}
    with make(broker) as consumer:
        consumer.assign([TP0, TP1])
        records = read(consumer, 7)
        assert (offsets(records, 0), offsets(records, 1)) == ([95, 96, 97, 98, 99], [98, 99])


def test_a_new_assignment_keeps_positions_and_commits_the_others(broker: EmbeddedBroker) -> None:
    with make(broker) as consumer:
        consumer.assign([TP0])
        consumer.seek(TP0, 40)
        assert offsets(read(consumer, 10), 0) == list(range(40, 50))
        consumer.assign([TP0, TP1])
        assert consumer.position(TP0) == 50
        records = read(consumer, 150)
        assert offsets(records, 0) == list(range(50, 100))
        assert offsets(records, 1) == list(range(100))
        consumer.assign([TP1])
        assert committed(broker)[TP0] == 100
        write(broker, (0, b"nobody reads this"), (1, b"this is read"))
        assert [record.value() for record in read(consumer, 1)] == [b"this is read"]
        consumer.assign([])
        assert consumer.assignment() == frozenset()
        with pytest.raises(WrongUse, match="subscribe"):
            consumer.poll(0)
    assert committed(broker) == {TP0: 100, TP1: 101}


def test_positions_logs_and_pauses_work_at_once(broker: EmbeddedBroker) -> None:
    with make(broker) as consumer:
        consumer.assign([TP0, TP1])
        assert consumer.position(TP1) == 0
        consumer.seek_to_end([TP1])
        consumer.pause([TP0])
        assert consumer.poll(0.2) is None
        assert consumer.lag() == {TP0: 100, TP1: 0}
        consumer.resume([TP0])
        assert offsets(next(consumer.batches(100, 1)), 0) == list(range(100))


def test_missing_topics_and_partitions_are_warned_of_and_read_once_they_exist(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with make(broker) as consumer:
        consumer.assign([TP0, ("missing", 0), ("t", 7)])
        assert len(read(consumer, 100)) == 100
        until(lambda: (consumer.poll(0), "t-7" in caplog.text)[1], "the warning of the partition")
        assert "t-7: there is no such partition, topic t has 2" in caplog.text
        assert "topic missing does not exist" in caplog.text
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("missing", 1)
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("missing", b"late")
        producer.flush(20)
        assert [record.value() for record in read(consumer, 1)] == [b"late"]


def test_without_a_group_id_nothing_is_committed(broker: EmbeddedBroker) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest"}
    for _ in range(2):
        with Consumer(settings) as consumer:
            consumer.assign([TP0])
            assert len(read(consumer, 100)) == 100
            for call in (consumer.commit, lambda: consumer.committed([TP0])):
                with pytest.raises(WrongUse, match=r"needs the setting group\.id"):
                    call()
            with pytest.raises(WrongUse, match=r"group\.id"):
                consumer.subscribe(["t"])
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.list_groups() == []
    with Consumer({**settings, "auto.offset.reset": "none"}) as consumer:
        consumer.assign([TP0])
        with pytest.raises(NoOffset):
            until(lambda: consumer.poll(0.1), "the failure")
        consumer.seek(TP0, 99)
        assert offsets(read(consumer, 1), 0) == [99]
    with pytest.raises(ConfigError, match=r"kohort\.history\.file needs group\.id"):
        Consumer({**settings, "kohort.history.file": "h"})


def test_a_consumer_is_subscribed_or_assigned(broker: EmbeddedBroker) -> None:
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(WrongUse, match="unsubscribe"):
            consumer.assign([TP0])
        consumer.unsubscribe()
        consumer.assign([TP0])
        with pytest.raises(WrongUse, match=r"assign\(\[\]\) first"):
            consumer.subscribe(["t"])
        with pytest.raises(WrongUse, match="subscribe"):
            consumer.enforce_rebalance("a test")
        with pytest.raises(WrongUse, match="subscribe"):
            consumer.drain()
        consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        consumer.subscribe(["t"])
        until(lambda: consumer.poll(0.05) is not None, "records as a member")
        assert consumer.assignment() == {TP0, TP1}


def test_an_exception_leaves_the_last_records_uncommitted(broker: EmbeddedBroker) -> None:
    with pytest.raises(RuntimeError), make(broker) as consumer:  # noqa: PT012
        consumer.assign([TP0])
        read(consumer, 10)
        raise RuntimeError("processing failed")
    assert sum(committed(broker).values()) == 0


def test_assigning_with_asyncio(broker: EmbeddedBroker) -> None:
    async def piece() -> None:
        given = {**QUICK, "bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
        async with AsyncConsumer(given) as consumer:
            await consumer.assign([TP0])
            records = await consumer.consume(10, 20)
            assert records[0].offset() == 0
            await consumer.assign([TP1])
            assert await consumer.position(TP1) == 0
            assert consumer.assignment() == {TP1}
            await consumer.unsubscribe()
            assert consumer.assignment() == frozenset()

    asyncio.run(piece())
