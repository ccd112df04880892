"""A consumer or member that the application drops without close() or leave(): its end, and the
warning.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.client.one_consumer import TP0, committed, make, read
from tests.client.test_async_consumer import make_async
from tests.client.test_async_consumer import read as read_async
from tests.waiting import until

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.election import LeaderElection
from kohort.client.membership import GroupMembership, Membership
from kohort.client.resources import ResourceGroup
from kohort.client.worker import Configuration, Worker

NEVER_MS = 300_000
"""A session that no test outlives."""


def members(broker: EmbeddedBroker) -> int:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return len(admin.describe_group("g").members)


def own_threads() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    ours = "kohort-member", "kohort-columns", "kohort-callbacks", "kohort-dropped"
    return [name for name in names if name.startswith(ours)]


def collected(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition; one collection does not always take everything (Python 3.13)."""
    until(lambda: gc.collect() >= 0 and condition(), what)


def is_left(broker: EmbeddedBroker) -> None:
    collected(lambda: not members(broker), "the group is empty, long before the session ends")


def drop_blocking(broker: EmbeddedBroker) -> None:
    consumer = make(broker, enable_auto_commit=False, session_timeout_ms=NEVER_MS)
    consumer.subscribe(["t"])
    read(consumer, 5)


def drop_columns(broker: EmbeddedBroker) -> None:
    consumer = make(broker, enable_auto_commit=False, session_timeout_ms=NEVER_MS)
    consumer.subscribe(["t"])
    until(lambda: consumer.poll_arrow(1), "the first columns")


def drop_beside_a_running_loop(broker: EmbeddedBroker) -> None:
    async def use() -> None:
        consumer = make_async(broker, enable_auto_commit=False, session_timeout_ms=NEVER_MS)
        consumer.subscribe(["t"])
        await read_async(consumer, 5)

    async def piece() -> None:
        await use()
        await asyncio.to_thread(is_left, broker)

    asyncio.run(piece())


def drop_after_the_end_of_the_loop(broker: EmbeddedBroker) -> None:
    async def piece() -> None:
        consumer = make_async(broker, enable_auto_commit=False, session_timeout_ms=NEVER_MS)
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
        is_left(broker)
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


@pytest.mark.parametrize("group", [None, "g"])
def test_a_dropped_consumer_that_was_no_member_is_not_said_to_leave(
    broker: EmbeddedBroker, group: str | None
) -> None:
    """The warning said that the consumer leaves its group, and that records come again."""
    before = own_threads()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=group).assign([TP0])
        collected(lambda: seen, "the warning")
    (told,) = [str(each.message) for each in seen if each.category is ResourceWarning]
    assert re.fullmatch(
        rf"the consumer{' of group g' * (group is not None)} made at .*test_dropping\.py:\d+ was "
        r"dropped without close\(\)\. Use it in a with block, or call close\(\)",
        told,
    )
    until(lambda: own_threads() == before, "the threads have ended")


class Application:
    """Refers to a member, which refers to methods of the application: a cycle."""

    def __init__(self, settings: dict[str, Any], told: list[str]) -> None:
        self._told = told
        self.member = self.make(settings)
        self.member.join()

    def make(self, settings: dict[str, Any]) -> Membership[Any]:
        return GroupMembership(["t"], settings)

    def starts(self, *_what: object) -> None:
        self._told.append("starts")

    def ends(self, *_what: object) -> None:
        self._told.append("ends")


class Sharing(Application):
    def make(self, settings: dict[str, Any]) -> ResourceGroup:
        return ResourceGroup(
            settings, resources=self.names, on_acquired=self.starts, on_revoked=self.ends
        )

    def names(self) -> list[str]:
        return ["shard"]


class Leading(Application):
    def make(self, settings: dict[str, Any]) -> LeaderElection:
        return LeaderElection(settings, on_elected=self.starts, on_ended=self.ends)


class Working(Application):
    def make(self, settings: dict[str, Any]) -> Worker:
        return Worker(settings, configuration=self.read, on_start=self.starts, on_stop=self.ends)

    def read(self) -> Configuration:
        return Configuration(offset=1, tasks={"copy": 0})


def use(kind: type[Application], settings: dict[str, Any], told: list[str]) -> str:
    """Work until the garbage collector may take the application; the name of its member's kind."""
    application = kind(settings, told)
    until(lambda: application.member.snapshot().owned, "an assignment")
    until(lambda: told == ["starts"] * (kind is not Application), "the work has started")
    return type(application.member).__name__


@pytest.mark.parametrize("kind", [Application, Sharing, Leading, Working])
def test_a_dropped_member_ends_its_work_and_leaves_its_group(
    broker: EmbeddedBroker, kind: type[Application], caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "session.timeout.ms": NEVER_MS,
    }
    threads, sockets, told = own_threads(), open_sockets(), list[str]()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        name = use(kind, settings, told)
        is_left(broker)
        until(lambda: own_threads() == threads, "the threads have ended")
        until(lambda: open_sockets() <= sockets, "the sockets are closed")
    assert told == ["starts", "ends"] * (kind is not Application)
    (warned,) = [each for each in seen if issubclass(each.category, ResourceWarning)]
    assert Path(warned.filename) == Path(__file__)
    expected = (
        rf"the {name} of group g made at .*test_dropping\.py:\d+ was dropped without leave\(\)"
    )
    assert re.match(expected, str(warned.message))
    assert [r.levelno for r in caplog.records if "was dropped" in r.message] == [logging.WARNING]


def test_a_member_that_never_joined_or_has_left_is_dropped_without_a_word(
    broker: EmbeddedBroker,
) -> None:
    given = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}

    def use() -> list[weakref.ref[object]]:
        never = GroupMembership(["t"], given)
        with GroupMembership(["t"], given) as member:
            until(lambda: member.snapshot().owned, "an assignment")
        return [weakref.ref(never), weakref.ref(member)]

    gone = use()
    collected(lambda: [each() for each in gone] == [None, None], "the members are gone")


def open_sockets() -> int:
    """Sockets of this process, as the system counts them, those of librdkafka too."""
    return sum(link(fd).startswith("socket:") for fd in os.listdir("/proc/self/fd"))


def link(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:  # It was closed meanwhile.
        return ""
