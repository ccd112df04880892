"""The intervals of ``flush.ms``, under clocks of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import pytest

from kohort.broker import flusher as flusher_module
from kohort.broker.flusher import Flusher
from kohort.model.deadlines import Deadlines
from kohort.model.instants import Instant
from kohort.storage.faulty_files import UnsyncedLossFiles
from kohort.storage.log_config import LogConfig
from kohort.storage.partition_log import PartitionLog
from kohort.storage.records import Record, build_batch


class Loop:
    """Runs callbacks when the test asks for it, and the work of an executor at once."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, function: Callable[..., None], *arguments: Any) -> None:
        self.soon.append(lambda: function(*arguments))

    def run_in_executor(self, _executor: object, function: Callable[[], None]) -> Future[None]:
        function()
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def run(self) -> None:
        while self.soon:
            self.soon.pop(0)()


def test_an_interval_that_fires_before_its_time_of_day_fires_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wall, now = 1_000, Instant(0)
    monkeypatch.setattr(flusher_module, "wall_now", lambda: wall)
    monkeypatch.setattr(flusher_module, "monotonic_now", lambda: now)
    chores: Deadlines[Callable[[Instant], None]] = Deadlines()
    loop = Loop()
    flusher = Flusher(
        cast("asyncio.AbstractEventLoop", loop),
        cast("ThreadPoolExecutor", None),
        chores,
        lambda log: None,
    )
    log = PartitionLog.open(
        UnsyncedLossFiles(), "/data/t-0", LogConfig(flush_ms=30), report=lambda sentence: None
    )
    log.append(build_batch([Record(None, b"a", 1_000)]), wall)
    flusher.appended(log, now)
    wall, now = 1_029, Instant(30_000)
    while (chore := chores.pop_due(now)) is not None:
        chore(now)
    loop.run()
    assert log.durable_end_offset == 0
    wall, now = 1_030, Instant(31_000)
    while (chore := chores.pop_due(now)) is not None:
        chore(now)
    loop.run()
    assert log.durable_end_offset == 1
