"""Work of a consumer that may have to wait, for callers that block and for asyncio.

In: a generator that yields wherever the work has to wait. Out: the result of the work, or the
exception of a step. Must not know: the work.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Generator
from inspect import iscoroutine
from typing import Any, Final, TypeAlias, TypeVar

from kohort.client.errors import WrongUse

LOG: Final = logging.getLogger(__name__)
Steps: TypeAlias = Generator[Awaitable[Any] | None, None, None]
"""Work that yields a coroutine of a listener, or None where only time or the group helps."""

BUSY_WAIT_S: Final = 0.005
"""Time between two looks while a rebalance waits for this application."""


T = TypeVar("T")
Y = TypeVar("Y")


def carry_out(work: Generator[Y, Any, T], wait: Callable[[Y], Any]) -> T:
    """The result of work in this thread.

    Args:
        work: each yield gets the result of its wait, or the exception that ended the wait.
        wait: waits for a yielded value.
    """
    try:
        awaited = next(work)
        while True:
            try:
                result = wait(awaited)
            except BaseException as error:
                # Also Ctrl-C: the work cleans up now, not when the traceback is forgotten.
                awaited = work.throw(error)
            else:
                awaited = work.send(result)
    except StopIteration as end:
        found: T = end.value
        return found


async def go_on(work: Generator[Y, Any, T], awaited: Y, wait: Callable[[Y], Awaitable[Any]]) -> T:
    """As `carry_out`, for asyncio, from the first yielded value on."""
    try:
        while True:
            try:
                result = await wait(awaited)
            except BaseException as error:
                awaited = work.throw(error)
            else:
                awaited = work.send(result)
    except StopIteration as end:
        found: T = end.value
        return found


def run(steps: Steps) -> None:
    """Carry out steps in this thread, and sleep where they have to wait.

    Raises:
        WrongUse: a listener is a coroutine.
        BaseException: a step raised it, or it ended a wait, such as KeyboardInterrupt.
    """
    carry_out(steps, _sleep)


def _sleep(awaited: Awaitable[Any] | None) -> None:
    if awaited is not None:
        if iscoroutine(awaited):
            awaited.close()
        raise WrongUse("a listener is a coroutine: give functions, or use AsyncConsumer")
    time.sleep(BUSY_WAIT_S)


class WorkInTurn:
    """Carries out one piece of work after the other for tasks of asyncio.

    A cancelled task leaves its work running: the rebalance needs the end of the work.

    Args:
        pause: waits until time or the group may have helped.
    """

    def __init__(self, pause: Callable[[], Awaitable[None]]) -> None:
        self._pause = pause
        self._task: asyncio.Task[None] | None = None
        """The work that has to wait at present."""

    def runs_caller(self) -> bool:
        """Whether the calling coroutine is part of the work, as a listener is."""
        return self._task is not None and self._task is asyncio.current_task()

    async def carry_out(self, steps: Steps) -> None:
        """Carry out work, after work that waits already.

        Raises:
            Exception: a step of this work, or of the work before, raised it.
        """
        while self._task is not None and not self.runs_caller():
            await self._finish()
        try:
            awaited = next(steps)
        except StopIteration:
            return
        self._task = asyncio.create_task(go_on(steps, awaited, self._wait))
        await self._finish()

    async def end(self, longest_s: float) -> None:
        """Wait for work that a cancelled task left running, then cancel that work.

        The log reports a failure, and work that had to be cancelled.
        """
        task = self._task
        if task is None:
            return
        await asyncio.wait([task], timeout=longest_s)
        if not task.done():
            LOG.warning("the consumer is closed while a listener works; the listener is cancelled")
            task.cancel()
            await asyncio.wait([task])
        self._task = None
        if not task.cancelled() and (error := task.exception()):
            LOG.warning("a listener failed while the consumer was being closed: %r", error)

    async def _finish(self) -> None:
        task = self._task
        assert task is not None
        try:
            await asyncio.shield(task)
        finally:
            if task.done() and self._task is task:
                self._task = None

    def _wait(self, awaited: Awaitable[Any] | None) -> Awaitable[Any]:
        return self._pause() if awaited is None else awaited
