"""Questions of an AsyncConsumer about logs: on the event loop, without a thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import pytest
from tests.client.one_consumer import TP0, TP1
from tests.client.test_async_consumer import make_async, play, read

from kohort import AsyncConsumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.errors import BrokerUnreachable, Closed, RequestFailed
from kohort.model.ids import TopicPartition


class Refusing(ThreadPoolExecutor):
    """In place of asyncio's pool, which other work of an application may have filled."""

    def submit(self, *_work: Any, **_more: Any) -> NoReturn:
        raise AssertionError("asyncio's pool is the application's")


def test_a_life_leaves_asyncios_pool_to_the_application(broker: EmbeddedBroker) -> None:
    async def piece() -> None:
        asyncio.get_running_loop().set_default_executor(Refusing())
        async with make_async(broker) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 200)
            threads = threading.active_count()
            assert await consumer.end_offsets([TP0]) == {TP0: 100}
            assert await consumer.lag() == {TP0: 0, TP1: 0}
            assert await consumer.committed([TP0]) == {}
            assert threading.active_count() == threads, "no question starts a thread"
            await consumer.seek_to_beginning()
            batch = await consumer.poll_arrow(20)
            assert batch is not None

    play(piece)


def test_missing_topics_and_partitions_are_named(broker: EmbeddedBroker) -> None:
    async def piece() -> None:
        async with make_async(broker) as consumer:
            for question in (
                consumer.partitions_for("missing"),
                consumer.end_offsets([("missing", 0)]),
                consumer.offsets_for_times({TopicPartition("t", 7): 0}),
            ):
                with pytest.raises(RequestFailed, match=r"(missing|t-7): the broker answered UNKN"):
                    await question

    play(piece)


def test_questions_to_a_silent_broker_block_nothing_and_end(broker: EmbeddedBroker) -> None:
    """One is cancelled, one is told that time is over, one ends with the consumer."""

    async def piece() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            settings = {"bootstrap.servers": address, "group.id": "g"}
            short = AsyncConsumer(settings, socket_connection_setup_timeout_ms=1_000)
            long = AsyncConsumer(settings)
            late, cancelled, closed = (
                asyncio.create_task(each.end_offsets([TP0])) for each in (short, long, long)
            )
            turns = 0
            while not late.done():
                await asyncio.sleep(0.001)
                turns += 1
            assert turns > 2, "the loop turns while the question waits for 1 s"
            with pytest.raises(BrokerUnreachable, match="no answer in time"):
                await late
            cancelled.cancel()
            await long.close()
            await asyncio.wait([cancelled, closed], timeout=10)
            assert cancelled.cancelled()
            with pytest.raises(Closed):
                await closed
            await short.close()

    play(piece)
