"""AsyncConsumer on the embedded broker: records, rebalances, cancellation, listeners."""

from __future__ import annotations

import asyncio
import inspect
import linecache
import random
import re
import sys
import threading
from asyncio import format_helpers
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any
from unittest.mock import patch

import pytest
from tests.client.one_consumer import TP0, TP1, committed, make, write
from tests.client.stage import QUICK
from tests.waiting import until

from kohort import AsyncConsumer, Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.errors import NoOffset, RequestTimedOut, WrongUse
from kohort.client.listeners import RebalanceListener
from kohort.client.records import Deserializer
from kohort.model.ids import TopicPartition

EVERYTHING = Counter({(p, n): 1 for p in (0, 1) for n in range(100)})


def make_async(
    broker: EmbeddedBroker, deserializer: Deserializer[Any] | None = None, **more: object
) -> AsyncConsumer[Any, Any]:
    given = {**QUICK, "bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
    return AsyncConsumer(
        {**given, **{name.replace("_", "."): value for name, value in more.items()}},
        value_deserializer=deserializer,
    )


def play(piece: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine; a task that is left over or an exception that nobody saw is a failure."""
    complaints: list[str] = []

    async def watched() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: complaints.append(str(context)))
        async with asyncio.timeout(200):  # one test cuts a thousand calls
            await piece()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others

    # Debug mode keeps the stack that made each future, which costs more than the tests themselves.
    with (
        patch.object(sys, "tracebacklimit", 1, create=True),
        patch.object(linecache, "checkcache", lambda _name=None: None),
        patch.object(format_helpers, "extract_stack", lambda _frame=None, _limit=None: None),
    ):
        asyncio.run(watched(), debug=True)
    assert not complaints


async def soon(condition: Callable[[], object], what: str) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - conditions of any kind
            await asyncio.sleep(0.01)


async def read(consumer: AsyncConsumer, count: int) -> list[tuple[int, int]]:
    places: list[tuple[int, int]] = []
    while len(places) < count:
        records = await consumer.consume(count - len(places), 5)
        assert records, f"only {len(places)} of {count} records came"
        places += [(r.partition() or 0, r.offset() or 0) for r in records]
    return places


def test_it_has_every_method_of_consumer_with_the_same_parameters() -> None:
    different = {"subscribe", "commit"}  # functions as **callbacks; no asynchronous=True
    for name, method in inspect.getmembers(Consumer, inspect.isfunction):
        if name.startswith("_"):
            continue
        mine = getattr(AsyncConsumer, name)
        if name not in different:
            theirs = inspect.signature(method).parameters
            assert "Question" not in str(inspect.signature(method)), name
            assert [*inspect.signature(mine).parameters] == [*theirs], name


def test_iteration_reads_every_record_and_closing_commits(broker: EmbeddedBroker) -> None:
    async def piece() -> None:
        seen: Counter[tuple[int, int]] = Counter()
        async with make_async(broker) as consumer:
            consumer.subscribe(["t"])
            async for record in consumer:
                seen[record.partition() or 0, record.offset() or 0] += 1
                if seen.total() == 200:
                    break
            assert consumer.assignment() == {TP0, TP1}
            assert consumer.status().generation == 1
            assert consumer.metrics()["records-consumed-total"] == 200
        assert seen == EVERYTHING

    play(piece)
    assert committed(broker) == {TP0: 100, TP1: 100}


def test_records_that_come_later_wake_a_poll_that_waits(broker: EmbeddedBroker) -> None:
    async def piece() -> None:
        async with make_async(broker) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 200)
            for number in range(5):
                waiting = asyncio.create_task(consumer.poll(30))
                await asyncio.sleep(0)
                await asyncio.to_thread(write, broker, (0, b"later %d" % number))
                record = await waiting
                assert record is not None
                assert record.value() == b"later %d" % number
            assert await consumer.poll(0) is None

    play(piece)


def test_consumers_of_both_kinds_share_a_group(broker: EmbeddedBroker) -> None:
    other = make(broker)
    ended = threading.Event()

    def poll_on() -> None:
        while not ended.is_set():
            other.poll(0.05)

    async def piece() -> None:
        async with make_async(broker) as consumer:
            consumer.subscribe(["t"])
            await soon_polling(consumer, lambda: consumer.assignment() == {TP0, TP1})
            other.subscribe(["t"])
            thread = threading.Thread(target=poll_on)
            thread.start()
            try:
                await soon_polling(consumer, lambda: len(other.assignment()) == 1)
                await soon_polling(consumer, lambda: len(consumer.assignment()) == 1)
                assert consumer.assignment() | other.assignment() == {TP0, TP1}
            finally:
                ended.set()
                await asyncio.to_thread(thread.join)
                await asyncio.to_thread(other.close)
            await soon_polling(consumer, lambda: consumer.assignment() == {TP0, TP1})

    play(piece)


async def soon_polling(consumer: AsyncConsumer, condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await consumer.poll(0.05)


def test_polls_that_are_cancelled_lose_and_repeat_no_record(broker: EmbeddedBroker) -> None:
    chance = random.Random(20)

    async def piece() -> None:
        seen: Counter[tuple[int, int]] = Counter()
        cancelled = 0
        async with make_async(broker) as consumer:
            consumer.subscribe(["t"])
            async with asyncio.timeout(30):
                while seen.total() < 200:
                    poll = asyncio.create_task(consumer.poll(1))
                    for _ in range(chance.randrange(4)):
                        await asyncio.sleep(0)
                    if chance.random() < 0.5:
                        poll.cancel()
                    await asyncio.wait([poll])
                    if poll.cancelled():
                        cancelled += 1
                    elif record := poll.result():
                        seen[record.partition() or 0, record.offset() or 0] += 1
            assert await consumer.poll(0.1) is None
        assert seen == EVERYTHING
        assert cancelled

    play(piece)


def test_a_commit_that_is_cancelled_is_carried_out(broker: EmbeddedBroker) -> None:
    async def piece() -> None:
        async with make_async(broker, enable_auto_commit=False) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 1)
            commit = asyncio.create_task(consumer.commit({TP0: 7}))
            await asyncio.sleep(0)
            commit.cancel()
            await asyncio.wait([commit])
            assert commit.cancelled()
            await asyncio.to_thread(until, lambda: committed(broker) == {TP0: 7}, "the commit")

    play(piece)


def test_coroutines_of_a_listener_are_awaited_and_may_commit(broker: EmbeddedBroker) -> None:
    told: list[tuple[str, list[TopicPartition]]] = []

    class Listener(RebalanceListener):
        async def on_partitions_assigned(self, consumer: Any, partitions: Any) -> None:
            await asyncio.sleep(0.01)
            for partition in partitions:
                consumer.seek(partition, 90)
            told.append(("assigned", list(partitions)))

        async def on_partitions_revoked(self, consumer: Any, partitions: Any) -> None:
            await consumer.commit(dict.fromkeys(partitions, 95))
            told.append(("revoked", list(partitions)))

    async def piece() -> None:
        async with make_async(broker, enable_auto_commit=False) as consumer:
            consumer.subscribe(["t"], Listener())
            assert sorted(await read(consumer, 20)) == [
                (p, n) for p in (0, 1) for n in range(90, 100)
            ]
            await consumer.unsubscribe()
            assert consumer.assignment() == frozenset()

    play(piece)
    assert told == [("assigned", [TP0, TP1]), ("revoked", [TP0, TP1])]
    assert committed(broker) == {TP0: 95, TP1: 95}


def test_a_cancelled_poll_does_not_interrupt_its_listener(broker: EmbeddedBroker) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def on_assign(_consumer: Any, _partitions: Any) -> None:
        begun.set()
        await go.wait()
        ended.append("assigned")

    async def piece() -> None:
        async with make_async(broker) as consumer:
            consumer.subscribe(["t"], on_assign=on_assign)
            poll = asyncio.create_task(consumer.poll(30))
            await begun.wait()
            poll.cancel()
            await asyncio.wait([poll])
            assert poll.cancelled()
            assert not ended
            again = asyncio.create_task(consumer.poll(30))
            await asyncio.sleep(0.05)
            assert not again.done(), "the next poll waits for the listener, too"
            go.set()
            assert await again is not None
            assert ended == ["assigned"]

    play(piece)


def test_an_exception_of_a_listener_reaches_the_poll_and_changes_no_assignment(
    broker: EmbeddedBroker,
) -> None:
    async def on_assign(_consumer: Any, _partitions: Any) -> None:
        raise RuntimeError("no room")

    async def piece() -> None:
        async with make_async(broker) as consumer:
            consumer.subscribe(["t"], on_assign=on_assign)
            with pytest.raises(RuntimeError, match="no room"):
                await consumer.poll(30)
            assert consumer.assignment() == {TP0, TP1}
            assert len(await read(consumer, 200)) == 200

    play(piece)


def test_one_task_polls_at_a_time_and_a_listener_does_not(broker: EmbeddedBroker) -> None:
    refused: list[BaseException] = []

    async def on_assign(consumer: Any, _partitions: Any) -> None:
        for call in (consumer.poll, consumer.unsubscribe, consumer.close):
            try:
                await call()
            except WrongUse as error:
                refused.append(error)

    async def piece() -> None:
        async with make_async(broker) as consumer:
            consumer.subscribe(["t"], on_assign=on_assign)
            first = asyncio.create_task(consumer.poll(30))
            await asyncio.sleep(0)
            with pytest.raises(WrongUse, match="another task polls"):
                await consumer.poll()
            assert await first is not None
            assert len(refused) == 3
            # Other calls of other tasks are welcome while one polls.
            waiting = asyncio.create_task(consumer.consume(500, 1))
            await consumer.commit()
            await consumer.end_offsets([TP0])
            await waiting

    play(piece)


def test_a_coroutine_as_a_listener_of_a_blocking_consumer_is_refused(
    broker: EmbeddedBroker,
) -> None:
    async def on_assign(_consumer: Any, _partitions: Any) -> None:
        raise AssertionError("never run")

    with make(broker) as consumer:
        consumer.subscribe(["t"], on_assign=on_assign)
        with pytest.raises(WrongUse, match="use AsyncConsumer"):
            until(lambda: consumer.poll(0.1), "the refusal")
        assert consumer.assignment() == {TP0, TP1}


def test_heartbeats_go_on_while_the_application_awaits_other_things(
    broker: EmbeddedBroker,
) -> None:
    async def piece() -> None:
        async with make_async(broker, heartbeat_interval_ms=50) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 1)
            member, beats = consumer._driver.driver.member, set()
            threads = {t.name for t in threading.enumerate()}

            def beaten() -> bool:
                beats.add(member.core.last_confirmed)
                return len(beats) >= 10

            await soon(beaten, "ten heartbeats without a poll")
            assert not any(name.startswith("kohort-member") for name in threads)
            assert consumer.status().generation == 1

    play(piece)


def test_a_consumer_that_does_not_poll_leaves_and_comes_back(broker: EmbeddedBroker) -> None:
    async def piece() -> None:
        async with make_async(broker, max_poll_interval_ms=300) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 1)
            member = consumer._driver.driver.member
            await soon(lambda: member.core.poll_expired, "the end of the poll interval")
            await soon_polling(consumer, lambda: consumer.status().generation > 1)
            assert await consumer.poll(5) is not None

    play(piece)


def test_positions_logs_and_pauses(broker: EmbeddedBroker) -> None:
    async def piece() -> None:
        async with make_async(broker, max_poll_records=10) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 1)
            assert await consumer.partitions_for("t") == [TP0, TP1]
            assert await consumer.beginning_offsets([TP0]) == {TP0: 0}
            assert await consumer.end_offsets([TP0, ("t", 1)]) == {TP0: 100, TP1: 100}
            found = await consumer.offsets_for_times({TP0: 0})
            assert found[TP0] is not None
            await consumer.seek_to_end()
            assert await consumer.lag() == {TP0: 0, TP1: 0}
            await consumer.seek_to_beginning([TP0])
            assert await consumer.position(TP0) == 0
            assert await consumer.lag([TP0]) == {TP0: 100}
            consumer.pause([TP0])
            assert consumer.paused() == {TP0}
            assert await consumer.poll(0.2) is None
            consumer.resume([TP0])
            assert await read(consumer, 100) == [(0, n) for n in range(100)]
            with pytest.raises(WrongUse, match="not assigned"):
                await consumer.position(TopicPartition("t", 7))
            with pytest.raises(WrongUse, match="not assigned"):
                await consumer.seek_to_end([TopicPartition("t", 7)])

    play(piece)


def test_a_partition_without_a_start(broker: EmbeddedBroker) -> None:
    async def piece() -> None:
        async with make_async(broker, auto_offset_reset="none") as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(NoOffset):
                await consumer.poll(30)
            with pytest.raises(NoOffset):
                await consumer.position(TP0)
            consumer.seek(TP0, 99)
            assert await read(consumer, 1) == [(0, 99)]

    play(piece)


def test_batches_patterns_and_drains(broker: EmbeddedBroker) -> None:
    async def piece() -> None:
        async with make_async(broker) as consumer:
            consumer.subscribe(re.compile("t|u"))
            sizes = []
            async for batch in consumer.batches(60, 0.3):
                sizes.append(len(batch))
                if sum(sizes) == 200:
                    break
            assert max(sizes) == 60
            assert consumer.subscription() == {"t"}
            consumer.enforce_rebalance("a test")
            await soon_polling(consumer, lambda: consumer.status().generation > 1)
            consumer.drain()
            async for _ in consumer:
                raise AssertionError("no record is left")
            assert consumer.drained
            assert consumer.waits() == ()

    play(piece)


def test_without_an_event_loop_and_without_a_broker() -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:9", "group.id": "g"}
    consumer = AsyncConsumer(nowhere)
    with pytest.raises(WrongUse, match="no event loop is running"):
        consumer.subscribe(["t"])

    async def piece() -> None:
        await consumer.close()
        async with AsyncConsumer(nowhere, default_api_timeout_ms=300) as other:
            other.subscribe(["t"])
            assert await other.poll(0.2) is None
            with pytest.raises(RequestTimedOut):
                await other.committed([TP0])

    play(piece)
