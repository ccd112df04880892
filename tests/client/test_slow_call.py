"""The place of a call that keeps the application from polling, in the reasons of a consumer."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from contextlib import suppress

import pytest
from tests.client.one_consumer import make
from tests.client.stage import QUICK
from tests.waiting import until

from kohort import AsyncConsumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.consuming.slow_call import SlowCall


def handle_order(over: threading.Event) -> None:
    assert over.wait(30)


def test_a_slow_call_is_named_with_its_place_also_at_the_broker(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "org.apache.kafka")
    expected = (
        r"max\.poll\.interval\.ms \(1000\) passed without a poll: the thread MainThread is in "
        r"handle_order \(test_slow_call\.py:\d+\), in (Event|Condition)\.wait \(threading\.py:\d+\)"
    )
    left = re.compile(rf"has left group through explicit .*; client reason: {expected}")
    over = threading.Event()

    def wait_for_the_end() -> None:
        until(lambda: "passed without a poll" in consumer.status().why, "the end of the interval")
        over.set()

    with make(broker, max_poll_interval_ms=1_000) as consumer:
        consumer.subscribe(["t"])
        until(lambda: consumer.poll(0.05) is not None, "the first record")
        watching = threading.Thread(target=wait_for_the_end)
        watching.start()
        handle_order(over)
        watching.join()
        assert re.fullmatch(expected, consumer.status().why)
        until(lambda: left.search(caplog.text), "the reason of the LeaveGroup")
        until(lambda: consumer.poll(0.05) is not None, "records again")


def test_a_task_that_awaits_too_long_is_named(broker: EmbeddedBroker) -> None:
    async def handle_slowly(consumer: AsyncConsumer) -> str:
        async with asyncio.timeout(20):
            while "passed without a poll" not in (why := consumer.status().why):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return why

    async def piece() -> str:
        given = {**QUICK, "bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
        async with AsyncConsumer(given, max_poll_interval_ms=1_000) as consumer:
            consumer.subscribe(["t"])
            assert await consumer.poll(20) is not None
            return await handle_slowly(consumer)

    why = asyncio.run(piece())
    assert re.search(r"the task Task-\d+ is in .*handle_slowly \(test_slow_call\.py:\d+\)", why), (
        why
    )


def test_a_listener_that_hangs_is_named_also_after_its_poll_was_cancelled(
    broker: EmbeddedBroker,
) -> None:
    async def piece() -> str:
        given = {**QUICK, "bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
        let_go = asyncio.Event()

        async def hangs(*_: object) -> None:
            await let_go.wait()

        async with AsyncConsumer(given, max_poll_interval_ms=200) as consumer:
            consumer.subscribe(["t"], on_assign=hangs)
            for _ in range(100):
                with suppress(TimeoutError):
                    await asyncio.wait_for(consumer.poll(1), 0.1)
                if "passed without a poll" in consumer.status().why:
                    break
            let_go.set()
            return consumer.status().why

    why = asyncio.run(piece())
    assert re.search(
        r"the listener is in .*hangs \(test_slow_call\.py:\d+\), in Event\.wait", why
    ), why


def test_a_blocking_call_inside_a_task_is_told_and_so_is_the_end_of_the_task() -> None:
    place, waiting, end = SlowCall(), threading.Event(), threading.Event()

    async def blocks() -> None:
        place.note()
        waiting.set()
        end.wait(20)

    thread = threading.Thread(target=lambda: asyncio.run(blocks()), name="worker")
    thread.start()
    waiting.wait(20)
    until(lambda: "wait" in place(), "the wait")
    assert re.search(r"is in .*blocks \(test_slow_call\.py:\d+\), in ", place()), place()
    end.set()
    thread.join()
    assert re.fullmatch(r"the task Task-\d+ that polled has ended", place())


def test_library_calls_are_told_beside_the_application() -> None:
    place, waiting, end = SlowCall(), threading.Event(), threading.Event()
    assert place() == ""

    def wait_for_the_database() -> None:
        place.note()
        waiting.set()
        end.wait(20)

    thread = threading.Thread(target=wait_for_the_database, name="worker")
    thread.start()
    waiting.wait(20)
    until(lambda: "in Event.wait" in place() or "in Condition.wait" in place(), "the wait")
    assert re.fullmatch(
        r"the thread worker is in .*wait_for_the_database \(test_slow_call\.py:\d+\), in "
        r"(Event|Condition)\.wait \(threading\.py:\d+\)",
        place(),
    )
    end.set()
    thread.join()
    assert place() == "the thread worker that polled has ended"
