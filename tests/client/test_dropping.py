"""A consumer that the application drops without close(): its end, and the warning."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import socket
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.client.one_consumer import TP0, committed, make, read
from tests.client.stage import until
from tests.client.test_async_consumer import make_async
from tests.client.test_async_consumer import read as read_async

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin


def members(broker: EmbeddedBroker) -> int:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return len(admin.describe_group("g").members)


def own_threads() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(("kohort-member", "kohort-columns"))]


def drop_blocking(broker: EmbeddedBroker) -> None:
    consumer = make(broker, enable_auto_commit=False)
    consumer.subscribe(["t"])
    read(consumer, 5)


def drop_columns(broker: EmbeddedBroker) -> None:
    consumer = make(broker, enable_auto_commit=False)
    consumer.subscribe(["t"])
    until(lambda: consumer.poll_arrow(1), "the first columns")


def drop_beside_a_running_loop(broker: EmbeddedBroker) -> None:
    async def use() -> None:
        consumer = make_async(broker, enable_auto_commit=False)
        consumer.subscribe(["t"])
        await read_async(consumer, 5)

    async def piece() -> None:
        await use()
        await asyncio.to_thread(gc.collect)
        await asyncio.to_thread(until, lambda: not members(broker), "the group is empty", 4)

    asyncio.run(piece())


def drop_after_the_end_of_the_loop(broker: EmbeddedBroker) -> None:
    async def piece() -> None:
        consumer = make_async(broker, enable_auto_commit=False)
        consumer.subscribe(["t"])
        await read_async(consumer, 5)

    asyncio.run(piece())


@pytest.mark.parametrize(
    "drop",
    [
        drop_blocking,
        drop_columns,
        drop_beside_a_running_loop,
        drop_after_the_end_of_the_loop,
    ],
)
def test_a_dropped_consumer_warns_with_its_place_and_leaves_its_group(
    broker: EmbeddedBroker,
    drop: Callable[[EmbeddedBroker], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    before, open_before = own_threads(), open_sockets()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        drop(broker)
        gc.collect()
        until(lambda: not members(broker), "the group is empty, before the session ends", 4)
    mine = [each for each in seen if "was dropped without close()" in str(each.message)]
    assert [each.category for each in mine] == [ResourceWarning]
    helper = "test_async_consumer.py" if "loop" in drop.__name__ else "one_consumer.py"
    assert Path(mine[0].filename).name == helper
    assert re.search(rf"group g made at .*{helper}:\d+ was dropped", str(mine[0].message))
    until(lambda: own_threads() == before, "the threads have ended")
    until(lambda: open_sockets() <= open_before, "the sockets are closed")
    assert committed(broker) == {}
    assert [r.levelno for r in caplog.records if "was dropped" in r.message] == [logging.WARNING]
    leaks = [each for each in seen if issubclass(each.category, ResourceWarning)]
    assert leaks == mine


def test_a_dropped_consumer_without_a_group_is_told_without_one(broker: EmbeddedBroker) -> None:
    """The warning named the group «kohort, no group» and promised that records come again."""
    before = own_threads()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        Consumer(bootstrap_servers=broker.bootstrap_servers).assign([TP0])
        gc.collect()
    (told,) = [str(each.message) for each in seen if each.category is ResourceWarning]
    assert re.fullmatch(
        r"the consumer made at .*test_dropping\.py:\d+ was dropped without close\(\)\. "
        r"Use it in a with block, or call close\(\)",
        told,
    )
    until(lambda: own_threads() == before, "the threads have ended")


def open_sockets() -> int:
    gc.collect()
    return sum(isinstance(each, socket.socket) and each.fileno() >= 0 for each in gc.get_objects())
