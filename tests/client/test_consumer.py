"""One consumer against the embedded broker: reading, seeking, pausing, closing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import confluent_kafka
import pytest
from tests.client.one_consumer import TP0, TP1, make, offsets, read, write
from tests.client.stage import QUICK
from tests.waiting import until

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.errors import (
    Closed,
    DeserializationFailed,
    NoOffset,
    RequestTimedOut,
    WrongUse,
)
from kohort.client.listeners import PartitionsCallback, RebalanceListener
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.testing.ports import free_ports

# -- reading --------------------------------------------------------------------------------------


def test_poll_gives_every_record_in_order(consumer: Consumer) -> None:
    records = read(consumer, 200)
    assert offsets(records, 0) == offsets(records, 1) == list(range(100))
    assert consumer.poll(0.05) is None
    assert consumer.assignment() == {TP0, TP1}
    assert consumer.subscription() == {"t"}


def test_consume_returns_available_records_up_to_the_limit(consumer: Consumer) -> None:
    total = 0
    while total < 200:
        records = consumer.consume(30, 5.0)
        assert 0 < len(records) <= 30
        total += len(records)
    assert consumer.consume(30, 0.05) == []


def test_poll_and_consume_may_be_mixed(consumer: Consumer) -> None:
    records = read(consumer, 3)
    while len(records) < 200:
        records += consumer.consume(7, 5.0)
    assert offsets(records, 0) == list(range(100))


def test_a_consumer_is_an_iterator(consumer: Consumer) -> None:
    seen = []
    for record in consumer:
        seen.append(record)
        if len(seen) == 200:
            break
    assert offsets(seen, 1) == list(range(100))


def test_deserializers_are_applied_except_to_null(broker: EmbeddedBroker) -> None:
    write(broker, (0, b'{"a": 1}'))
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("t", None, key=None, partition=0)
    assert producer.flush(10) == 0
    with make(broker, value_deserializer=json.loads, key_deserializer=bytes.decode) as consumer:
        consumer.subscribe(["t"])
        first = [r for r in read(consumer, 202) if r.partition() == 0]
    values: list[object] = [r.value() for r in first]
    assert values[5] == 5
    assert values[100:] == [{"a": 1}, None]
    key: object = first[100].key()
    assert key == "k"


@pytest.mark.parametrize("at_once", [1, 1_000])
def test_record_that_cannot_be_deserialized_is_raised_and_skipped(
    broker: EmbeddedBroker, at_once: int
) -> None:
    write(broker, (0, b"{"), (0, b"7"))
    with make(broker, value_deserializer=json.loads) as consumer:
        consumer.subscribe(["t"])
        values: list[object] = []
        failures: list[object] = []
        deadline = time.monotonic() + 20
        while len(values) < 201:
            assert time.monotonic() < deadline
            try:
                values += [r.value() for r in consumer.consume(at_once, 0.1)]
            except DeserializationFailed as error:
                failures.append((error.partition, error.offset, error.field, error.data))
    assert failures == [(TP0, 100, "value", b"{")]


def test_records_behind_one_that_cannot_be_deserialized_come_also_after_a_seek(
    broker: EmbeddedBroker,
) -> None:
    with make(broker, value_deserializer=json.loads) as consumer:
        consumer.subscribe(["t"])
        write(broker, (0, b"{"), (0, b"7"), (0, b"8"))
        until(lambda: consumer.poll(0.1) is not None, "the first record")
        assert consumer._loop.buffer
        consumer.seek(TP1, 98)
        consumer.seek(TP0, 100)
        values: list[object] = []

        def read_on() -> bool:
            with suppress(DeserializationFailed):
                values.extend(record.value() for record in consumer.consume(1_000, 0.1))
            return len(values) >= 4

        until(read_on, "98 and 99 of one partition, 7 and 8 of the other one")
        assert sorted(values, key=str) == [7, 8, 98, 99]


# -- positions ------------------------------------------------------------------------------------


def test_position_is_behind_the_last_record_handed_out_not_the_last_one_buffered(
    consumer: Consumer,
) -> None:
    records = read(consumer, 7)
    for partition, tp in enumerate((TP0, TP1)):
        assert consumer.position(tp) == len(offsets(records, partition))


def test_seek_goes_back_and_forth(consumer: Consumer) -> None:
    read(consumer, 150)
    consumer.seek(TP0, 95)
    consumer.seek(TP1, 98)
    assert consumer.position(TP0) == 95
    records = read(consumer, 7)
    assert offsets(records, 0) == list(range(95, 100))
    assert offsets(records, 1) == [98, 99]


def test_seek_inside_on_assign_is_where_reading_starts(broker: EmbeddedBroker) -> None:
    def from_ninety(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            consumer.seek(tp, 90)

    with make(broker) as consumer:
        consumer.subscribe(["t"], on_assign=from_ninety)
        records = read(consumer, 20)
    assert offsets(records, 0) == offsets(records, 1) == list(range(90, 100))


def test_the_position_can_be_asked_for_inside_on_assign(broker: EmbeddedBroker) -> None:
    found: dict[TopicPartition, int] = {}

    def ask(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        found.update({tp: consumer.position(tp) for tp in partitions})

    with make(broker, auto_offset_reset="latest") as consumer:
        consumer.subscribe(["t"], on_assign=ask)
        until(lambda: consumer.poll(0.05) or found, "the listener was told")
    assert found == {TP0: 100, TP1: 100}


def test_paused_partition_returns_no_records_and_continues_at_its_position(
    consumer: Consumer,
) -> None:
    before = read(consumer, 20)
    consumer.pause([TP0])
    assert consumer.paused() == {TP0}
    rest = read(consumer, 100 - len(offsets(before, 1)))
    assert offsets(rest, 0) == []
    assert consumer.poll(0.1) is None
    consumer.resume([TP0])
    after = read(consumer, 100 - len(offsets(before, 0)))
    assert offsets(before + after, 0) == list(range(100))


def test_reading_starts_at_the_end_by_default(broker: EmbeddedBroker) -> None:
    with make(broker, auto_offset_reset="latest") as consumer:
        consumer.subscribe(["t"])
        until(lambda: consumer.poll(0.05) or consumer.assignment(), "partitions are assigned")
        assert consumer.position(TP0) == 100
        write(broker, (0, b"new"))
        assert read(consumer, 1)[0].offset() == 100


def test_missing_offset_is_raised_without_a_reset_policy(broker: EmbeddedBroker) -> None:
    with make(broker, auto_offset_reset="none") as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(NoOffset, match="seek") as caught:
            read(consumer, 1)
        assert caught.value.partitions == {TP0: None, TP1: None}
        consumer.seek(TP0, 99)
        assert read(consumer, 1)[0].offset() == 99


def test_an_offset_beyond_the_log_falls_to_the_policy(broker: EmbeddedBroker) -> None:
    with make(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        read(consumer, 1)
        consumer.commit({TP0: 7_000, TP1: 100})
    with make(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        assert offsets(read(consumer, 100), 0) == list(range(100))


# -- trouble --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fetcher_continues_after_the_broker_restarted(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "kohort", "broker", "--port", str(port), "--data-dir"]
    command += [str(tmp_path), "--set", "group.initial.rebalance.delay.ms=0"]
    address = f"127.0.0.1:{port}"

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with Admin(bootstrap_servers=address) as admin:
            admin.describe_cluster()
        return process

    process = start()
    try:
        with Admin(bootstrap_servers=address) as admin:
            admin.create_topic("t", 2, 1)
        write(address, *[(n % 2, b"x") for n in range(100)])
        with Consumer({**QUICK, "bootstrap.servers": address, "group.id": "g"}) as consumer:
            consumer.subscribe(["t"])
            records = read(consumer, 100)
            consumer.commit()
            process.kill()
            process.wait()
            assert consumer.consume(10, 0.5) == []
            process = start()
            write(address, *[(n % 2, b"y") for n in range(100)])
            records += read(consumer, 100)
        assert offsets(records, 0) == offsets(records, 1) == list(range(100))
    finally:
        process.terminate()
        process.wait()


def test_without_a_broker_polls_are_empty_and_closing_is_bounded() -> None:
    consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g")
    consumer.subscribe(["t"])
    assert consumer.poll(0.2) is None
    with pytest.raises(RequestTimedOut):
        consumer.committed([TP0], timeout=0.2)
    start = time.monotonic()
    consumer.close(timeout=2.0)
    assert time.monotonic() - start < 15


def test_a_consumer_needs_a_broker_and_a_subscription_needs_a_group() -> None:
    with (
        Consumer(bootstrap_servers="127.0.0.1:1") as consumer,
        pytest.raises(WrongUse, match=r"subscribe\(\) needs the setting group\.id"),
    ):
        consumer.subscribe(["t"])
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        Consumer(group_id="g")
    with pytest.raises(ConfigError, match="'nonsense' is unknown"):
        Consumer(
            bootstrap_servers="127.0.0.1:1", group_id="g", partition_assignment_strategy="nonsense"
        )


def test_missing_topic_is_warned_of_and_not_created(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with make(broker, group_id="searching") as consumer:
        consumer.subscribe(["t", "misspelt", "not a name"])
        until(lambda: len(caplog.messages) == 2, "two warnings")
    assert sorted(caplog.messages) == [
        "group searching: no topic can have the name 'not a name': a name has at most 249 letters, "
        "digits, '.', '_' and '-'. Subscribe to another name",
        "group searching: topic misspelt does not exist; it is read once it does, and "
        "`kohort topics create misspelt` makes it",
    ]
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert "misspelt" not in admin.topics()


def test_topic_dropped_and_subscribed_again_between_two_polls_is_not_revoked(
    broker: EmbeddedBroker,
) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("u", 1, 1)
    heard: list[str] = []

    def hears(kind: str) -> PartitionsCallback:
        return lambda _consumer, partitions: heard.append(f"{kind} {sorted(map(str, partitions))}")

    def subscribe(consumer: Consumer, *topics: str) -> None:
        consumer.subscribe(topics, on_assign=hears("assign"), on_revoke=hears("revoke"))

    with make(broker) as consumer:
        subscribe(consumer, "t", "u")
        first = read(consumer, 50)
        consumer.pause([TP1])
        for _ in range(20):
            subscribe(consumer, "u")
            subscribe(consumer, "t", "u")
            first += read(consumer, 1)
        assert consumer.paused() == {TP1}
        consumer.resume([TP1])
        records = first + read(consumer, 200 - len(first))
        assert heard == ["assign ['t-0', 't-1', 'u-0']"]
    assert offsets(records, 0) == offsets(records, 1) == list(range(100))


def test_wrong_use_is_an_error_with_the_right_use(consumer: Consumer) -> None:
    with pytest.raises(WrongUse, match=r"expected a list of names: \['t'\]"):
        consumer.subscribe("t")
    with pytest.raises(WrongUse, match="at least one topic"):
        consumer.subscribe([])
    with pytest.raises(WrongUse, match="not assigned: t-9"):
        consumer.seek(TopicPartition("t", 9), 1)
    with pytest.raises(WrongUse, match="listener or functions"):
        consumer.subscribe(["t"], RebalanceListener(), on_lost=lambda c, ps: None)
    with pytest.raises(WrongUse, match="at least 1"):
        consumer.consume(0)
    for wrong in ("1", None, [1]):
        with pytest.raises(TypeError, match="expected a number of seconds"):
            consumer.poll(wrong)  # type: ignore[arg-type]


def test_a_second_thread_is_refused(consumer: Consumer) -> None:
    started = threading.Event()
    refused: list[str] = []

    def hold(_: Consumer, __: list[TopicPartition]) -> None:
        started.set()
        until(lambda: refused, "the other thread was refused")

    def intrude() -> None:
        started.wait(20)
        try:
            consumer.poll(0)
        except WrongUse as error:
            refused.append(str(error))

    thread = threading.Thread(target=intrude)
    thread.start()
    consumer.subscribe(["t"], on_assign=hold)
    read(consumer, 1)
    thread.join()
    assert "one thread at a time" in refused[0]


def test_closed_consumer_raises_closed_and_a_second_close_is_harmless(consumer: Consumer) -> None:
    consumer.close()
    consumer.close()
    with pytest.raises(Closed):
        consumer.poll(0)
    with pytest.raises(Closed):
        consumer.subscribe(["t"])


def test_iteration_ends_when_the_group_has_taken_everything_away(
    consumer: Consumer, broker: EmbeddedBroker
) -> None:
    """Records are read until the revocation, which commits the positions."""
    mine = read(consumer, 10)
    theirs: list[confluent_kafka.Message] = []
    done = threading.Event()

    def inherit() -> None:
        with make(broker) as heir:
            heir.subscribe(["t"])
            while not done.is_set():
                theirs.extend(heir.consume(50, 0.1))

    thread = threading.Thread(target=inherit)
    thread.start()
    try:
        consumer.drain()
        mine += list(consumer)
        assert consumer.drained
        assert consumer.assignment() == frozenset()
        consumer.close()
        until(lambda: len(mine) + len(theirs) >= 200, "all records are read")
    finally:
        done.set()
        thread.join()
    for partition in (0, 1):
        read_once = [*offsets(mine, partition), *offsets(theirs, partition)]
        assert read_once == list(range(100))


@pytest.mark.timeout(30)
def test_a_handler_of_a_signal_may_drain_while_the_same_thread_is_inside_a_call(
    consumer: Consumer,
) -> None:
    """SIGTERM may interrupt poll while poll holds the locks of the driver's thread."""
    read(consumer, 10)
    thread = consumer._thread
    loop = thread._loop
    assert loop is not None
    before = signal.signal(signal.SIGUSR1, lambda *_: consumer.drain())
    try:
        with thread._starting, loop._lock:
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    until(lambda: consumer.poll(0) is None and consumer.drained, "the drain is over")
