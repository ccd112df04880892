"""Mistakes with an AsyncConsumer: a typed exception says what to do, and commits are as promised.

As test_bad_input.py, for listeners of three kinds (a function, a class, a coroutine), event loops,
threads and forks. Each row reads ten records of partition 0 and does something wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.client.one_consumer import TP0, TP1, committed, write
from tests.client.test_async_consumer import make_async, play, read, soon
from tests.client.test_bad_input import PROCESSED, in_a_child, number
from tests.waiting import until

from kohort import AsyncConsumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.errors import CommitFailed, DeserializationFailed, WrongUse
from kohort.client.listeners import RebalanceListener
from kohort.client.membership import GroupMembership
from kohort.model.ids import TopicPartition


async def _subscribed(consumer: AsyncConsumer, *listener: Any, **callbacks: Any) -> None:
    """Read ten records of partition 0."""
    consumer.subscribe(["t"], *listener, **callbacks)
    async with asyncio.timeout(20):
        while not consumer.assignment():
            await consumer.poll(0.01)
    consumer.pause([TP1])
    consumer.seek(TP0, 0)
    await read(consumer, PROCESSED)


def _raise(*_: object) -> None:
    raise LookupError("the listener's own failure")


async def _raise_later(*_: object) -> None:
    await asyncio.sleep(0)
    _raise()


class Raising(RebalanceListener):
    """A class with a plain method."""

    def on_partitions_revoked(self, consumer: Any, partitions: Any) -> None:
        """Raise."""
        _raise()


class RaisingLater(RebalanceListener):
    """A class with a coroutine."""

    async def on_partitions_revoked(self, consumer: Any, partitions: Any) -> None:
        """Raise."""
        await _raise_later()


async def function_raises(consumer: AsyncConsumer) -> None:
    await _subscribed(consumer, on_revoke=_raise)
    await consumer.unsubscribe()


async def coroutine_raises(consumer: AsyncConsumer) -> None:
    await _subscribed(consumer, on_revoke=_raise_later)
    await consumer.unsubscribe()


async def class_raises(consumer: AsyncConsumer) -> None:
    await _subscribed(consumer, Raising())
    await consumer.unsubscribe()


async def class_raises_later(consumer: AsyncConsumer) -> None:
    await _subscribed(consumer, RaisingLater())
    await consumer.unsubscribe()


async def coroutine_hangs(consumer: AsyncConsumer) -> None:
    """A rebalance awaits the listener, which takes longer than ``max.poll.interval.ms``."""
    ended: list[object] = []

    async def assigned(consumer: AsyncConsumer, partitions: list[object]) -> None:
        if not partitions:
            await soon(lambda: consumer.status().state.name == "UNJOINED", "the poll interval")
            assert "passed without a poll: the listener is in soon (" in consumer.status().why
            ended.append(partitions)
            await consumer.commit({TP0: 99})

    await _subscribed(consumer, on_assign=assigned)
    await consumer.commit()
    consumer.pause([TP0])
    consumer.enforce_rebalance("a test")
    async with asyncio.timeout(20):
        while not ended:
            await consumer.poll(0.1)


async def deserializer_raises(consumer: AsyncConsumer) -> None:
    await _subscribed(consumer)
    await consumer.poll(5)


async def _inside_a_callback(
    consumer: AsyncConsumer, call: Callable[[AsyncConsumer], Awaitable[Any]]
) -> None:
    async def revoked(consumer: AsyncConsumer, _: object) -> None:
        await call(consumer)

    await _subscribed(consumer, on_revoke=revoked)
    await consumer.unsubscribe()


async def close_inside_a_callback(consumer: AsyncConsumer) -> None:
    await _inside_a_callback(consumer, lambda consumer: consumer.close())


async def poll_inside_a_callback(consumer: AsyncConsumer) -> None:
    await _inside_a_callback(consumer, lambda consumer: consumer.poll(0))


async def unsubscribe_inside_a_callback(consumer: AsyncConsumer) -> None:
    await _inside_a_callback(consumer, lambda consumer: consumer.unsubscribe())


async def second_event_loop(consumer: AsyncConsumer) -> None:
    await _subscribed(consumer)
    await asyncio.to_thread(lambda: asyncio.run(consumer.consume(1, 0)))


async def second_event_loop_commits(consumer: AsyncConsumer) -> None:
    await _subscribed(consumer)
    await asyncio.to_thread(lambda: asyncio.run(consumer.commit({TP0: 99})))


async def second_thread(consumer: AsyncConsumer) -> None:
    await _subscribed(consumer)
    await asyncio.to_thread(consumer.seek, TP0, 0)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One mistake."""

    use: Callable[[AsyncConsumer], Awaitable[None]]
    raises: type[Exception]
    says: str


_OTHER_LOOP = r"run_coroutine_threadsafe"
ROWS = [
    Row(use=function_raises, raises=LookupError, says="own failure"),
    Row(use=coroutine_raises, raises=LookupError, says="own failure"),
    Row(use=class_raises, raises=LookupError, says="own failure"),
    Row(use=class_raises_later, raises=LookupError, says="own failure"),
    Row(use=coroutine_hangs, raises=CommitFailed, says=r"raise max\.poll\.interval\.ms"),
    Row(
        use=deserializer_raises,
        raises=DeserializationFailed,
        says=r"t-0 offset 10 .* poll again to go on after it",
    ),
    Row(use=close_inside_a_callback, raises=WrongUse, says="return first"),
    Row(
        use=poll_inside_a_callback, raises=WrongUse, says="its listener does: one at a time|return"
    ),
    Row(use=unsubscribe_inside_a_callback, raises=WrongUse, says="return first"),
    Row(use=second_event_loop, raises=WrongUse, says=_OTHER_LOOP),
    Row(use=second_event_loop_commits, raises=WrongUse, says=_OTHER_LOOP),
    Row(use=second_thread, raises=WrongUse, says="no event loop is running"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.use.__name__)
def test_a_mistake_is_named_and_processed_records_are_committed(
    broker: EmbeddedBroker, row: Row
) -> None:
    more = {"max_poll_interval_ms": 3_000} if row.use is coroutine_hangs else {}

    async def piece() -> None:
        deserializer = number if row.use is deserializer_raises else None
        consumer: AsyncConsumer[Any, Any] = make_async(broker, deserializer, **more)
        with pytest.raises(row.raises, match=row.says):
            await row.use(consumer)
        if row.raises is DeserializationFailed:
            consumer.seek(TP0, PROCESSED)
        await consumer.close()

    play(piece)
    assert committed(broker)[TP0] == PROCESSED


def test_a_function_that_blocks_the_event_loop_costs_the_membership_and_is_told() -> None:
    """Heartbeats wait, too, until the group drops the member: the commit after that fails."""
    lost: list[TopicPartition] = []

    def assigned(consumer: AsyncConsumer, partitions: list[object]) -> None:
        if not partitions:
            with Admin(bootstrap_servers=consumer.settings.bootstrap_servers) as admin:
                until(lambda: not admin.describe_group("g").members, "the end of the session")

    async def piece() -> None:
        consumer = make_async(broker, session_timeout_ms=1_000)
        await _subscribed(
            consumer, on_assign=assigned, on_lost=lambda _, partitions: lost.extend(partitions)
        )
        await consumer.commit()
        consumer.pause([TP0])
        consumer.enforce_rebalance("a test")
        again = 0
        async with asyncio.timeout(20):
            while not lost:
                record = await consumer.poll(0.1)  # may join the group again
                again += record is not None and record.partition() == 0
        await consumer.close()
        assert committed(broker)[TP0] == PROCESSED + again

    with EmbeddedBroker(
        group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=100
    ) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("t", 2, 1)
        write(broker, *[(n % 2, b"%d" % (n // 2)) for n in range(200)])
        play(piece)
        assert lost == [TP0, TP1]


def test_a_close_during_a_rebalance_ends_soon_and_commits(broker: EmbeddedBroker) -> None:
    """The rebalance waits for a member that never joins it."""

    async def piece() -> None:
        consumer = make_async(broker)
        await _subscribed(consumer)
        slow = GroupMembership(
            ["t"],
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            max_poll_interval_ms=60_000,
        )
        with slow:
            async with asyncio.timeout(20):
                while not slow.snapshot().owned:
                    await consumer.poll(0.05)
            consumer.enforce_rebalance("a test")
            async with asyncio.timeout(10):
                await consumer.close()

    play(piece)
    assert committed(broker)[TP0] >= PROCESSED


# From Python 3.12 on, a fork of a process with threads warns.
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_process_cannot_use_a_consumer_and_the_parent_goes_on(
    broker: EmbeddedBroker,
) -> None:
    async def piece() -> None:
        consumer = make_async(broker)
        await _subscribed(consumer)

        def refused(call: Callable[[], Any]) -> None:
            async def run() -> None:
                done = call()
                if asyncio.iscoroutine(done):
                    await done

            with pytest.raises(WrongUse, match=r"before os\.fork\(\): make a new one"):
                asyncio.new_event_loop().run_until_complete(run())

        def child() -> None:
            asyncio.events._set_running_loop(None)  # the parent's, which is running here
            for call in (
                lambda: consumer.poll(0.1),
                lambda: consumer.consume(5, 0.1),
                lambda: anext(consumer.__aiter__()),
                consumer.commit,
                lambda: consumer.end_offsets([TP0]),
                lambda: consumer.seek(TP0, 5),
                consumer.close,
            ):
                refused(call)

        assert in_a_child(child) == 0
        await read(consumer, 5)
        await consumer.close()

    play(piece)
    assert committed(broker)[TP0] == PROCESSED + 5


def test_a_consumer_of_an_event_loop_that_ended_says_so(broker: EmbeddedBroker) -> None:
    consumer = make_async(broker)

    async def first() -> None:
        await _subscribed(consumer)
        await consumer.close()

    async def second() -> None:
        with pytest.raises(WrongUse, match=r"That loop has ended"):
            await consumer.poll()

    asyncio.run(first())
    asyncio.run(second())
