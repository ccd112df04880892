"""Work of a consumer inside poll that may have to wait, for callers that block and for asyncio.

In: a generator that yields wherever the work has to wait. Out: the end of the work, or the
exception of a step. Must not know: the work.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from inspect import iscoroutine
from typing import Any, Final, TypeAlias

from kohort.client.errors import WrongUse

Steps: TypeAlias = Generator[Awaitable[Any] | None, None, None]
"""Work that yields a coroutine of a listener, or None where only time or the group helps."""

BUSY_WAIT_S: Final = 0.005
"""Time between two looks while a rebalance waits for this application."""


def run(steps: Steps) -> None:
    """Carry out the work in this thread, and sleep where the work has to wait.

    Raises:
        WrongUse: a listener is a coroutine.
        Exception: a step raised it.
    """
    try:
        awaited = next(steps)
        while True:
            if awaited is None:
                time.sleep(BUSY_WAIT_S)
                awaited = next(steps)
                continue
            if iscoroutine(awaited):
                awaited.close()
            awaited = steps.throw(
                WrongUse("a listener is a coroutine: give functions, or use AsyncConsumer")
            )
    except StopIteration:
        return


async def go_on(
    steps: Steps, awaited: Awaitable[Any] | None, pause: Callable[[], Awaitable[None]]
) -> None:
    """Carry out the rest of the work, and await what the work waits for.

    Args:
        steps: the work.
        awaited: the first yield of ``steps``.
        pause: waits until time or the group may have helped.

    Raises:
        Exception: a step raised it.
    """
    try:
        while True:
            try:
                await (pause() if awaited is None else awaited)
            except BaseException as error:
                awaited = steps.throw(error)
            else:
                awaited = next(steps)
    except StopIteration:
        return
