"""Every public method of ``AsyncConsumer`` in every state, with right and with wrong arguments.

The calls and the wrong arguments are those of test_states.py, and so are most of the exceptions.
No cell hangs, stays silent or ends the membership.
"""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, Final, TypeAlias

import pytest
from tests.client.stage import QUICK
from tests.client.test_async_consumer import play
from tests.client.test_states import (
    CALLS,
    CHANGES,
    LONGEST_S,
    RAISES,
    T0,
    T1,
    WRONG,
    Method,
    broker_of_the_table,
)

from kohort import AsyncConsumer
from kohort.client.errors import Closed, CommitFailed, Fenced, WrongUse

Use: TypeAlias = Callable[[AsyncConsumer], Awaitable[None]]

MINE: Final[dict[str, Method]] = {
    **{call: method for call, method in CALLS.items() if call != "commit asynchronously"},
    "iterate": lambda c: anext(aiter(c)),
    "batches": lambda c: anext(c.batches(5, 0.05)),
}
"""The calls of ``Consumer``; each commit is awaited."""

POLLS: Final = frozenset({"poll", "consume", "iterate", "batches", "poll_arrow"})
MY_RAISES: Final[dict[str, dict[type[Exception], frozenset[str]]]] = {
    **{state: RAISES[state] for state in RAISES if state != "second_thread"},
    "second_task": {WrongUse: POLLS | {"assign"}},
}
"""The calls that raise in each state; all others succeed."""
WAITS: Final = frozenset({"unsubscribe", "close"})
"""The calls that wait for a listener which another task runs."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with contextmanager(broker_of_the_table)() as address:
        yield address


async def read(consumer: AsyncConsumer, count: int) -> None:
    async with asyncio.timeout(30):
        while count > 0:
            count -= len(await consumer.consume(count, 0.05))


class Stage:
    """Brings consumers of a group of their own into a state; closes them at the end."""

    def __init__(self, bootstrap: str, opened: AsyncExitStack) -> None:
        self._settings = {
            **QUICK,
            "bootstrap.servers": bootstrap,
            "group.id": f"g-{uuid.uuid4().hex[:8]}",
            "default.api.timeout.ms": 20_000,
        }
        self._opened = opened

    async def make(self, **more: object) -> AsyncConsumer:
        consumer = AsyncConsumer({**self._settings, **more})
        self._opened.enter_context(suppress(Fenced))
        return await self._opened.enter_async_context(consumer)

    async def unsubscribed(self, use: Use) -> None:
        await use(await self.make())

    async def joining(self, use: Use) -> None:
        consumer = await self.make()
        consumer.subscribe(["t"])
        await use(consumer)

    async def owning(self, use: Use) -> None:
        await use(await self.owner())

    async def owner(self, **more: object) -> AsyncConsumer:
        consumer = await self.make(**more)
        consumer.subscribe(["t"])
        await read(consumer, 2)
        return consumer

    async def revoking(self, use: Use) -> None:
        """The subscription names t no more, and no poll has called on_revoke yet."""
        consumer = await self.owner()
        consumer.subscribe(["u"])
        await use(consumer)

    async def fenced(self, use: Use) -> None:
        consumer = await self.owner(**{"group.instance.id": "one"})
        other = await self.make(**{"group.instance.id": "one"})
        other.subscribe(["t"])
        await read(other, 1)
        with pytest.raises(Fenced):
            await read(consumer, 500)
        await use(consumer)

    async def closed(self, use: Use) -> None:
        consumer = await self.make()
        await consumer.close()
        await use(consumer)

    async def in_on_assign(self, use: Use) -> None:
        await self._in_callback(await self.make(), use, "on_assign", "t")

    async def in_on_revoke(self, use: Use) -> None:
        await self._in_callback(await self.owner(), use, "on_revoke", "u")

    async def _in_callback(self, consumer: AsyncConsumer, use: Use, name: str, topic: str) -> None:
        called: list[bool] = []

        async def call(consumer: AsyncConsumer, _: object) -> None:
            if not called:
                called.append(True)
                await use(consumer)

        consumer.subscribe([topic], **{name: call})  # type: ignore[arg-type]
        async with asyncio.timeout(60):
            while not called:
                await consumer.poll(0.02)

    async def second_task(self, use: Use) -> None:
        """Another task is inside poll, in on_assign."""
        consumer = await self.make()
        inside, done = asyncio.Event(), asyncio.Event()

        async def hold(*_: object) -> None:
            inside.set()
            await done.wait()

        consumer.subscribe(["t"], on_assign=hold)

        async def polls() -> None:
            with suppress(WrongUse, Closed):  # the use may have unsubscribed or closed
                while not done.is_set():
                    await consumer.poll(0.02)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(polls())
            await inside.wait()
            try:
                await use(consumer)
            finally:
                done.set()


async def call_of(call: str, consumer: AsyncConsumer) -> object:
    answer = MINE[call](consumer)
    return await answer if inspect.isawaitable(answer) else answer


@asynccontextmanager
async def unharmed(consumer: AsyncConsumer) -> AsyncIterator[None]:
    """Check that a call ends soon, and that the driver survives the call."""
    async with asyncio.timeout(LONGEST_S):
        yield
    assert consumer._driver.error is None, "the membership ended"


async def call_with(
    consumer: AsyncConsumer, name: str, args: tuple[Any, ...], more: dict[str, Any]
) -> None:
    answer = getattr(consumer, name)(*args, **more)
    await (anext(answer) if name == "batches" else answer)


def error_of(state: str, call: str) -> type[Exception] | None:
    return next((kind for kind, calls in MY_RAISES[state].items() if call in calls), None)


def changes(state: str, call: str) -> bool:
    """Whether the call changes the state; a refused call changes nothing."""
    return call in CHANGES and error_of(state, call) not in {WrongUse, Closed}


async def cell(state: str, call: str, consumer: AsyncConsumer) -> None:
    """One call with right arguments."""
    wanted = error_of(state, call)
    async with unharmed(consumer):
        if wanted is None:
            await call_of(call, consumer)
            return
        if (state, wanted) == ("joining", CommitFailed):  # the member may have joined meanwhile
            with suppress(CommitFailed):
                await call_of(call, consumer)
            return
        with pytest.raises(wanted) as caught:
            await call_of(call, consumer)
    assert str(caught.value), "an error says something"


def in_state(bootstrap: str, state: str, use: Use) -> None:
    async def piece() -> None:
        async with AsyncExitStack() as opened:
            await getattr(Stage(bootstrap, opened), state)(use)

    play(piece)


def test_the_table_has_every_public_name() -> None:
    names = {name for name in dir(AsyncConsumer) if not name.startswith("_")}
    assert names - {"check_loop"} <= {call.partition(" ")[0] for call in MINE}


@pytest.mark.parametrize("state", MY_RAISES)
def test_calls_that_change_no_state(bootstrap: str, state: str) -> None:
    """One consumer takes all of these calls."""

    async def use(consumer: AsyncConsumer) -> None:
        for call in MINE:
            if not changes(state, call):
                await cell(state, call, consumer)

    in_state(bootstrap, state, use)


@pytest.mark.parametrize(
    ("state", "call"),
    [
        (state, call)
        for state in MY_RAISES
        for call in sorted(CHANGES)
        if changes(state, call) and not (state == "second_task" and call in WAITS)
    ],
)
def test_calls_that_change_the_state(bootstrap: str, state: str, call: str) -> None:
    in_state(bootstrap, state, lambda consumer: cell(state, call, consumer))


@pytest.mark.parametrize("call", sorted(WAITS))
def test_a_call_that_ends_an_assignment_waits_for_the_listener_of_another_task(
    bootstrap: str, call: str
) -> None:
    started: list[asyncio.Task[object]] = []

    async def use(consumer: AsyncConsumer) -> None:
        started.append(asyncio.create_task(call_of(call, consumer)))
        await asyncio.sleep(0.05)
        assert not started[0].done()

    async def piece() -> None:
        async with AsyncExitStack() as opened:
            await Stage(bootstrap, opened).second_task(use)
            async with asyncio.timeout(LONGEST_S):
                await started[0]

    play(piece)


@pytest.mark.parametrize("state", MY_RAISES)
def test_wrong_arguments_raise_in_the_call_and_change_nothing(bootstrap: str, state: str) -> None:
    async def facts(consumer: AsyncConsumer) -> object:
        positions = []
        if state in ("owning", "revoking"):
            positions = [await consumer.position(tp) for tp in (T0, T1)]
        return consumer.subscription(), consumer.assignment(), consumer.paused(), positions

    async def use(consumer: AsyncConsumer) -> None:
        before = await facts(consumer)
        for name, wrong in WRONG.items():
            for args, more in wrong:
                if {"asynchronous", "callback"} & more.keys() and name == "commit":
                    continue  # no parameters of AsyncConsumer
                async with unharmed(consumer):
                    with pytest.raises((TypeError, ValueError, WrongUse)) as caught:
                        await call_with(consumer, name, args, more)
                assert str(caught.value)
        assert await facts(consumer) == before
        if state in ("joining", "owning", "revoking"):
            await read(consumer, 1)

    in_state(bootstrap, state, use)
