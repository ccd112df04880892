"""Records that fail: pauses with an end, retries with back-off, dead letters."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from itertools import pairwise

import pytest
from tests.client.one_consumer import TP0, TP1, committed, make, write
from tests.client.stage import QUICK
from tests.waiting import until

from kohort import AsyncConsumer, Consumer, DeadLetters
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.errors import Closed, WrongUse
from kohort.client.producing import DeliveryFailed
from kohort.model.ids import TopicPartition


def test_a_partition_pauses_for_a_time_while_others_flow(consumer: Consumer) -> None:
    until(lambda: consumer.poll(0.1) is not None, "the assignment")
    begun = time.monotonic()
    consumer.pause_until([TP0], 0.3)
    places: Counter[int | None] = Counter()
    first_again = 0.0
    while places[0] == 0 or places[1] < 100 - 1:
        record = consumer.poll(5)
        assert record is not None
        places[record.partition()] += 1
        if record.partition() == 0 and not first_again:
            first_again = time.monotonic()
    assert first_again - begun >= 0.3
    assert consumer.paused() == frozenset()


def test_resume_ends_such_a_pause_and_a_longer_one_replaces_it(consumer: Consumer) -> None:
    until(lambda: consumer.poll(0.1) is not None, "the assignment")
    consumer.pause_until([TP0, TP1], 0.01)
    consumer.pause_until([TP0, TP1], 600)
    until(lambda: consumer.poll(0.02) is None, "nothing comes")
    assert consumer.poll(0.1) is None
    assert consumer.paused() == {TP0, TP1}
    consumer.resume([TP0, TP1])
    assert consumer.poll(5) is not None
    with pytest.raises(WrongUse, match="not assigned"):
        consumer.pause_until([TopicPartition("t", 7)], 1)


def test_a_timed_pause_ends_with_the_assignment_and_its_end_resumes_nothing_later(
    consumer: Consumer,
) -> None:
    until(lambda: consumer.poll(0.1) is not None, "the assignment")
    consumer.pause_until([TP0], 1.0)
    over = time.monotonic() + 1.0
    consumer.unsubscribe()
    consumer.subscribe(["t"])
    until(lambda: (consumer.poll(0.05), TP0 in consumer.assignment())[1], "the next assignment")
    assert consumer.paused() == frozenset()
    consumer.pause([TP0])
    until(lambda: (consumer.poll(0.05), time.monotonic() > over)[1], "the end of the first pause")
    consumer.poll(0.05)
    assert consumer.paused() == {TP0}


def test_a_record_comes_again_after_longer_and_longer_waits(
    consumer: Consumer, broker: EmbeddedBroker
) -> None:
    tries: list[float] = []
    read: Counter[tuple[int, int]] = Counter()
    while read.total() < 200:
        record = consumer.poll(5)
        assert record is not None
        place = (record.partition() or 0, record.offset() or 0)
        if place == (0, 50):
            tries.append(time.monotonic())
            if consumer.retry(record, 3, backoff=0.05, backoff_max=0.1):
                continue
        read[place] += 1
    assert len(tries) == 4
    waits = [after - before for before, after in pairwise(tries)]
    assert all(wait >= least for wait, least in zip(waits, [0.05, 0.1, 0.1], strict=True))
    assert max(read.values()) == 1
    assert not consumer.paused()


def test_no_commit_covers_a_record_that_waits(broker: EmbeddedBroker) -> None:
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        handled = 0
        while handled < 199:
            record = consumer.poll(5)
            assert record is not None
            if (record.partition(), record.offset()) == (1, 99):
                consumer.retry(record, backoff=600, backoff_max=600)
            else:
                handled += 1
    assert committed(broker) == {TP0: 100, TP1: 99}


def test_another_record_is_counted_anew(consumer: Consumer) -> None:
    until(lambda: consumer.poll(0.1) is not None, "the assignment")
    consumer.pause([TP1])
    consumer.seek(TP0, 10)
    for offset, comes_again in ((10, True), (10, True), (10, False), (11, True), (11, True)):
        record = consumer.poll(5)
        assert record is not None
        assert record.offset() == offset
        assert consumer.retry(record, 2, backoff=0) is comes_again


def test_a_wait_of_more_than_a_week_is_refused_and_nothing_pauses(consumer: Consumer) -> None:
    record = consumer.poll(20)
    assert record is not None
    for name, wait in (("backoff", math.inf), ("backoff", 1e9), ("backoff_max", math.inf)):
        with pytest.raises(WrongUse, match=rf"{name} is .*, expected at most 604800 seconds"):
            consumer.retry(record, backoff=wait if name == "backoff" else 1, backoff_max=wait)
    with pytest.raises(WrongUse, match=r"seconds is inf, .*pause\(\) pauses partitions until"):
        consumer.pause_until([TP0, TP1], math.inf)
    assert consumer.paused() == frozenset()


def test_a_record_of_a_partition_that_went_away_is_left_to_its_next_owner(
    broker: EmbeddedBroker,
) -> None:
    with make(broker) as consumer:
        consumer.subscribe(["t"])
        record = consumer.poll(20)
        assert record is not None
        consumer.unsubscribe()
        assert consumer.retry(record)


def test_retries_with_asyncio(broker: EmbeddedBroker) -> None:
    async def piece() -> None:
        given = {**QUICK, "bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
        async with AsyncConsumer(given) as consumer:
            consumer.subscribe(["t"])
            record = await consumer.poll(20)
            assert record is not None
            consumer.pause_until([TP0, TP1], 0.2)
            begun = time.monotonic()
            assert consumer.retry(record, backoff=0.1)
            again = await consumer.poll(20)
            assert again is not None
            assert (again.partition(), again.offset()) == (record.partition(), record.offset())
            assert 0.1 <= time.monotonic() - begun < 20

    asyncio.run(piece())


def test_a_dead_letter_has_the_record_and_its_history(broker: EmbeddedBroker) -> None:
    address = broker.bootstrap_servers
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic("dead", 1)
    write(broker, (0, b"broken"))
    settings = {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer, DeadLetters(settings, "dead") as letters:
        consumer.subscribe(["t"])
        until(lambda: consumer.poll(0.1) is not None, "the assignment")
        consumer.seek(TP0, 100)
        consumer.pause([TP1])
        record = consumer.poll(20)
        assert record is not None
        letters.send(record, ValueError("no number"))
        kind, at = record.timestamp()
    with Consumer({**settings, "group.id": "h"}) as reader:
        reader.subscribe(["dead"])
        letter = reader.poll(20)
        assert letter is not None
    assert (letter.key(), letter.value()) == (b"k", b"broken")
    assert letter.timestamp() == (kind, at)
    assert dict(letter.headers() or ()) == {
        "kohort.errors.topic": b"t",
        "kohort.errors.partition": b"0",
        "kohort.errors.offset": b"100",
        "kohort.errors.exception.class.name": b"builtins.ValueError",
        "kohort.errors.exception.message": b"no number",
    }


def test_a_letter_that_is_refused_raises(broker: EmbeddedBroker, consumer: Consumer) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    with Admin(settings) as admin:
        admin.create_topic("small", 1, 1, {"max.message.bytes": "100"})
    record = consumer.poll(20)
    assert record is not None
    with (
        DeadLetters(settings, "small") as letters,
        pytest.raises(DeliveryFailed, match="did not reach small"),
    ):
        letters.send(record, ValueError("x" * 1_000))


def test_a_letter_is_written_whatever_the_exception_says(
    broker: EmbeddedBroker, consumer: Consumer
) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest"}
    with Admin(settings) as admin:
        admin.create_topic("odd", 1, 1)
    record = consumer.poll(20)
    assert record is not None
    letters = DeadLetters(settings, "odd")
    with letters:
        letters.send(record, ValueError("\udcff" + "x" * 100_000))
        with pytest.raises(TypeError, match="record is 'text', expected a record"):
            letters.send("text", ValueError("no"))  # type: ignore[arg-type]
    letters.close()
    with pytest.raises(Closed, match="these dead letters were closed"):
        letters.send(record, ValueError("no"))
    with Consumer(settings) as reader:
        reader.assign([("odd", 0)])
        letter = reader.poll(20)
    assert letter is not None
    message = dict(letter.headers() or ())["kohort.errors.exception.message"]
    assert message == b"\\udcff" + b"x" * 8_191
