"""AsyncConsumer on uvloop's event loop: records, rebalances, listeners, cancellation, closing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from tests.client.one_consumer import committed
from tests.client.test_async_consumer import EVERYTHING, make_async, read, soon

from kohort.broker.embedded import EmbeddedBroker
from kohort.model.ids import TopicPartition


def play(piece: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine on uvloop; a task that is left over is a failure."""

    async def watched() -> None:
        assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
        async with asyncio.timeout(50):
            await piece()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(watched())


def test_records_rebalances_and_listeners(broker: EmbeddedBroker) -> None:
    seen: list[tuple[str, int]] = []

    async def revoked(consumer: Any, partitions: list[TopicPartition]) -> None:
        await consumer.commit()
        seen.append(("revoked", len(partitions)))

    async def piece() -> None:
        async with make_async(broker) as one:
            one.subscribe(["t"], on_revoke=revoked)
            places = await read(one, 200)
            assert Counter(places) == EVERYTHING
            assert await one.end_offsets([("t", 0)]) == {("t", 0): 100}
            async with make_async(broker) as two:
                two.subscribe(["t"])

                async def both() -> bool:
                    await asyncio.gather(one.poll(0.05), two.poll(0.05))
                    return len(one.assignment()) == len(two.assignment()) == 1

                async with asyncio.timeout(30):
                    while not await both():
                        pass

    play(piece)
    assert ("revoked", 1) in seen
    assert sum(committed(broker).values()) == 200


def test_polls_that_are_cancelled_lose_and_repeat_no_record(broker: EmbeddedBroker) -> None:
    async def piece() -> None:
        async with make_async(broker, max_poll_records=7) as consumer:
            consumer.subscribe(["t"])
            await soon_assigned(consumer)
            places: list[tuple[int, int]] = []
            while len(places) < 200:
                task = asyncio.create_task(consumer.consume(7, 1))
                await asyncio.sleep(0)
                task.cancel()
                try:
                    records = await task
                except asyncio.CancelledError:
                    records = await consumer.consume(7, 1)
                places += [(r.partition() or 0, r.offset() or 0) for r in records]
            assert Counter(places) == EVERYTHING

    play(piece)


async def soon_assigned(consumer: Any) -> None:
    consumer_reads = asyncio.create_task(consumer.poll(20))
    await soon(consumer.assignment, "the assignment")
    record = await consumer_reads
    assert record is not None
    consumer.seek((record.topic(), record.partition()), 0)


@pytest.mark.parametrize("cancelled", [False, True])
def test_closing(broker: EmbeddedBroker, cancelled: bool) -> None:
    async def piece() -> None:
        consumer = make_async(broker)
        consumer.subscribe(["t"])
        await read(consumer, 50)
        closing = asyncio.create_task(consumer.close())
        if cancelled:
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
        await consumer.close()
        await soon(lambda: len(asyncio.all_tasks()) == 1, "the cancelled close ends")

    play(piece)
    assert sum(committed(broker).values()) == 50
