"""The end of an AsyncConsumer: repeated, cancelled, beside a listener, after an exception."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.client.one_consumer import TP0, TP1, committed
from tests.client.test_async_consumer import make_async, play, read, soon
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.errors import Closed, WrongUse


def test_closing_twice_while_polled_and_after_a_cancellation(broker: EmbeddedBroker) -> None:
    async def piece() -> None:
        consumer = make_async(broker)
        consumer.subscribe(["t"])
        await read(consumer, 200)
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await soon(lambda: not consumer.side.watches, "its end")
        await consumer.close()
        for call in (consumer.poll, consumer.commit, consumer.unsubscribe):
            with pytest.raises(Closed):
                await call()
        with pytest.raises(Closed):
            consumer.subscribe(["t"])
        never_used = make_async(broker)
        await never_used.close()

    play(piece)
    assert committed(broker) == {TP0: 100, TP1: 100}


def test_a_second_close_waits_for_the_end_of_a_cancelled_one(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    last_step, may_end = threading.Event(), threading.Event()

    async def piece() -> None:
        consumer = make_async(broker)
        close_the_rest = consumer._inner._close_the_rest

        def close_later() -> None:
            last_step.set()
            assert may_end.wait(30)
            close_the_rest()

        monkeypatch.setattr(consumer._inner, "_close_the_rest", close_later)
        closing = asyncio.create_task(consumer.close())
        await soon(last_step.is_set, "the last step of the first close")
        closing.cancel()
        second = asyncio.create_task(consumer.close())
        await asyncio.wait([closing], timeout=30)
        assert closing.cancelled()
        await asyncio.wait([second], timeout=0.1)
        assert not second.done()
        may_end.set()
        await second
        with pytest.raises(Closed):
            await consumer.poll()

    play(piece)


@pytest.mark.parametrize("ending", ["never", "with an exception"])
def test_a_close_is_bounded_and_leaves_whatever_a_listener_does(
    broker: EmbeddedBroker, ending: str
) -> None:
    begun = asyncio.Event()

    async def on_assign(_consumer: Any, _partitions: Any) -> None:
        begun.set()
        await asyncio.sleep(600 if ending == "never" else 0.05)
        raise RuntimeError("no room")

    async def piece() -> None:
        consumer = make_async(broker, session_timeout_ms=60_000)
        consumer.subscribe(["t"], on_assign=on_assign)
        poll = asyncio.create_task(consumer.poll(30))
        await begun.wait()
        poll.cancel()
        await asyncio.wait([poll])
        await consumer.close(0.5)

    play(piece)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        # The session lasts a minute: only a LeaveGroup empties the group before.
        assert not admin.describe_group("g").members


def test_after_an_exception_nothing_is_committed(broker: EmbeddedBroker) -> None:
    async def piece() -> None:
        with pytest.raises(RuntimeError):  # noqa: PT012
            async with make_async(broker) as consumer:
                consumer.subscribe(["t"])
                await read(consumer, 5)
                raise RuntimeError("processing failed")

    play(piece)
    assert sum(committed(broker).values()) == 0


def test_a_cancelled_change_to_columns_closes_librdkafkas_consumer(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = threading.Event()

    async def piece() -> None:
        async with make_async(broker) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 1)
            fetcher = consumer._inner._fetcher
            # librdkafka's close waits behind other work of the consumer's thread.
            monkeypatch.setattr(
                "kohort.client.async_consumer.import_columns",
                lambda: consumer.side.blocking.submit(busy.wait, 30),
            )
            change = asyncio.create_task(consumer.poll_arrow(20))
            await soon(lambda: consumer._inner._columns, "the change")
            change.cancel()
            await asyncio.wait([change])
            busy.set()
            await soon(lambda: fetcher._closed, "the end of librdkafka's consumer")

    play(piece)


@pytest.mark.parametrize("columns", [False, True], ids=["records", "columns"])
def test_close_leaves_and_frees_everything_after_the_end_of_its_event_loop(
    broker: EmbeddedBroker, columns: bool
) -> None:
    threads, files = consumer_threads(), open_files()
    consumers = []

    async def forgotten() -> None:
        consumer = make_async(broker)
        consumers.append(consumer)
        consumer.subscribe(["t"])
        if columns:
            assert await consumer.poll_arrow(20) is not None
        else:
            await read(consumer, 200)

    async def later() -> None:
        (consumer,) = consumers
        with pytest.raises(WrongUse, match=r"That loop has ended: close\(\) works in this loop"):
            await consumer.poll()
        await consumer.close()
        await consumer.close()
        with pytest.raises(Closed):
            await consumer.poll()

    play(forgotten)
    play(later)
    assert committed(broker) == {TP0: 100, TP1: 100}
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert not admin.describe_group("g").members
    until(lambda: consumer_threads() <= threads, "no thread is left")
    until(lambda: open_files() <= files, "no descriptor is left")


def consumer_threads() -> set[threading.Thread]:
    """The threads of this process, without those of the broker."""
    return {each for each in threading.enumerate() if not each.name.startswith("kohort-sync")}


def open_files() -> int:
    """How many sockets, pipes and selectors are open; 0 where the system does not tell."""
    found = 0
    for each in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):  # closed meanwhile
            found += not str(each.readlink()).startswith("/")  # the broker's files
    return found


def test_a_subscription_ends_the_wait_of_an_unsubscribe(broker: EmbeddedBroker) -> None:
    """Another task subscribes while the group is being left: both calls work, and soon."""

    async def piece() -> None:
        async with make_async(broker) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 1)
            leaving = asyncio.create_task(consumer.unsubscribe())
            await asyncio.sleep(0)
            consumer.subscribe(["t"])
            async with asyncio.timeout(10):
                await leaving
                await read(consumer, 1)
            await consumer.unsubscribe()
            await consumer.assign([TP0])
            giving_up = asyncio.create_task(consumer.assign([]))
            await asyncio.sleep(0)
            with pytest.raises(WrongUse, match="wait for its end"):
                consumer.subscribe(["t"])
            await giving_up
            consumer.subscribe(["t"])
            await read(consumer, 1)

    play(piece)
