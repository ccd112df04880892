"""A cancelled call of an AsyncConsumer loses no record and no commit, wherever it waits.

`Cut` cancels the n-th wait of a coroutine: at once, or when the wait is just over and its result is
on the way. Each call is cut at its first wait, at its second one, and so on until it comes to its
end. At the end every ``await`` of `AsyncConsumer` that an application can cancel was cut.
"""

from __future__ import annotations

import ast
import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from contextlib import aclosing
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import pytest
from tests.client.one_consumer import TP0, TP1, committed
from tests.client.test_async_consumer import EVERYTHING, make_async, play
from tests.waiting import until

from kohort import AsyncConsumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client import async_consumer
from kohort.client.consuming import async_driver, async_positions, steps
from kohort.client.consuming.log_questions import Question
from kohort.client.errors import BrokerUnreachable
from kohort.client.listeners import RebalanceListener
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

Place = tuple[str, int]
"""A file and a line."""
At = int | Callable[[], bool]
Way = Callable[[AsyncConsumer], Coroutine[Any, Any, list[Any]]]
NOBODY_CANCELS = {"_end", "_go_on", "end"}
"""Functions that run in tasks of the consumer: no application can cancel them."""


class Cut:
    """Awaits a coroutine, and cancels the task when it waits for the time ``at``.

    Args:
        coroutine: any.
        at: 0 is the first wait; or a condition, which the first such wait fulfils.
        late: cancel when the wait is over, before its result is used.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], at: At, *, late: bool) -> None:
        self._coroutine, self._at, self._late = coroutine, at, late
        self.reached = False
        self.places: set[Place] = set()
        """The lines that the cancellation passed."""

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._coroutine.__await__()
        task = asyncio.current_task()
        assert task is not None
        step: Callable[[], Any] = lambda: inner.send(None)  # noqa: E731
        for number in count():
            try:
                waited = step()
            except StopIteration as end:
                return end.value
            except asyncio.CancelledError as error:
                self.places |= places_of(error.__traceback__)
                raise
            here = number == self._at if isinstance(self._at, int) else self._at()
            if here and not self.reached:
                self.reached = True
                if self._late and waited is not None:
                    waited.add_done_callback(lambda _: task.cancel())
                else:
                    task.cancel()
            try:
                yield waited
            except BaseException as error:
                step = lambda error=error: inner.throw(error)  # type: ignore[misc] # noqa: E731
            else:
                step = lambda: inner.send(None)  # noqa: E731
        raise AssertionError


def places_of(trace: TracebackType | None) -> set[Place]:
    found = set()
    while trace is not None:
        found.add((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return found


class Cutter:
    """Cuts calls, each one wait later than the one before, and collects the lines."""

    def __init__(self) -> None:
        self.places: set[Place] = set()

    async def cut(
        self, call: Callable[[], Coroutine[Any, Any, Any]], at: At, *, late: bool
    ) -> tuple[bool, Any]:
        """Whether the call came so far, and its result; None if it was cancelled."""
        cut = Cut(call(), at, late=late)

        async def run() -> Any:
            return await cut

        task = asyncio.create_task(run())
        await asyncio.wait([task])
        self.places |= cut.places
        return cut.reached, None if task.cancelled() else task.result()

    async def each(
        self, call: Callable[[], Coroutine[Any, Any, Any]]
    ) -> AsyncIterator[tuple[bool, Any]]:
        """Cut a call at each of its waits, in both ways; whether it was cut, and the result."""
        for late in (False, True):
            for at in count():
                reached, result = await self.cut(call, at, late=late)
                yield reached, result
                if not reached:
                    break


async def one(consumer: AsyncConsumer) -> list[Any]:
    record = await consumer.poll(0.3)
    return [] if record is None else [record]


async def several(consumer: AsyncConsumer) -> list[Any]:
    return await consumer.consume(7, 0.3)


async def iterate(consumer: AsyncConsumer) -> list[Any]:
    async with aclosing(cast("AsyncGenerator[Any]", consumer.__aiter__())) as records:
        return [await anext(records)]


async def batch(consumer: AsyncConsumer) -> list[Any]:
    async with aclosing(cast("AsyncGenerator[Any]", consumer.batches(500, 0.02))) as batches:
        found: list[Any] = await anext(batches)
        return found


async def columns(consumer: AsyncConsumer) -> list[Any]:
    found = await consumer.poll_arrow(0.3, 7)
    return [] if found is None else [found]


def places_in(results: list[Any]) -> list[tuple[int, int]]:
    places: list[tuple[int, int]] = []
    for each in results:
        if hasattr(each, "num_rows"):
            rows = (each.column(name).to_pylist() for name in ("partition", "offset"))
            places += zip(*rows, strict=True)
        else:
            places.append((each.partition(), each.offset()))
    return places


async def read_all(cutter: Cutter, broker: EmbeddedBroker, way: Way, *, late: bool) -> None:
    """Every record comes once, in order, although nearly every call is cancelled."""
    seen: list[tuple[int, int]] = []
    async with make_async(broker, max_poll_records=7, group_id=way.__name__ + str(late)) as reader:
        reader.subscribe(["t"])
        at = 0
        while len(seen) < len(EVERYTHING):
            reached, found = await cutter.cut(lambda: way(reader), at, late=late)
            seen += places_in(found or [])
            at = at + 1 if reached else 0
        assert await way_out(way, reader) == []
    assert Counter(seen) == EVERYTHING
    for partition in (0, 1):
        assert [o for p, o in seen if p == partition] == list(range(100))
    assert committed(broker, way.__name__ + str(late)) == {TP0: 100, TP1: 100}


async def way_out(way: Way, reader: AsyncConsumer) -> list[Any]:
    """Records that still come after all of them."""
    return await (columns if way is columns else several)(reader)


async def cut_questions(cutter: Cutter, broker: EmbeddedBroker) -> None:
    """A cancelled question changes nothing; a cancelled seek moves all partitions, or none."""
    async with make_async(broker, group_id="questions", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        await consumer.poll(20)
        await consumer.commit({TP0: 3, TP1: 4})
        both = [TP0, TP1]
        expected: list[tuple[Callable[[], Coroutine[Any, Any, Any]], object]] = [
            (lambda: consumer.committed(both), {TP0: Position(3), TP1: Position(4)}),
            (lambda: consumer.partitions_for("t"), both),
            (lambda: consumer.beginning_offsets(both), {TP0: 0, TP1: 0}),
            (lambda: consumer.end_offsets(both), {TP0: 100, TP1: 100}),
            (lambda: consumer.offsets_for_times({TP0: 2**62}), {TP0: None}),
        ]
        for call, answer in expected:
            async for reached, result in cutter.each(call):
                assert result == answer or (reached and result is None)
        for seek, before, after in (
            (consumer.seek_to_end, 50, 100),
            (consumer.seek_to_beginning, 50, 0),
        ):
            consumer.seek(TP0, before)
            consumer.seek(TP1, before)
            async for reached, _ in cutter.each(seek):
                at = {await consumer.position(tp) for tp in both}
                assert at == {before if reached else after} or (reached and at == {after})
        await cut_lag(cutter, consumer)


async def cut_lag(cutter: Cutter, consumer: AsyncConsumer) -> None:
    """The first question fails and is repeated; the positions come late."""
    inner = consumer._inner
    position, metadata = inner._position, inner._questions._metadata
    failed: Future[None] = Future()
    failed.set_exception(BrokerUnreachable("a broker that is being restarted"))
    answers: list[Future[None]] = []

    def later(partition: Any) -> Question[int]:
        yield 0.0
        return (yield from position(partition))

    async def lag() -> dict[TopicPartition, int]:
        answers.append(failed)
        return await consumer.lag()

    inner._position = later  # type: ignore[method-assign, assignment]
    inner._questions._metadata = (  # type: ignore[method-assign]
        lambda *asked: answers.pop() if answers else metadata(*asked)
    )
    async for reached, result in cutter.each(lag):
        assert result == {TP0: 100, TP1: 100} or (reached and result is None)


async def cut_first_position(cutter: Cutter, broker: EmbeddedBroker) -> None:
    """A position that is not known yet is asked for, and the question is cancelled."""
    async with make_async(broker, group_id="position") as consumer:
        await consumer.assign([TP0])
        async for reached, result in cutter.each(lambda: consumer.position(TP0)):
            assert result == 0 or (reached and result is None)


async def cut_batches(cutter: Cutter, broker: EmbeddedBroker) -> None:
    """Records that were gathered for a batch come with the next call."""
    async with make_async(broker, group_id="batches") as consumer:
        consumer.subscribe(["t"])
        await consumer.poll(20)

        async def again() -> list[Any]:
            for partition in (TP0, TP1):
                consumer.seek(partition, 0)
            return await batch(consumer)

        for late in (False, True):
            for nth in range(2):
                waits = count()

                def gathers(waits: Iterator[int] = waits, nth: int = nth) -> bool:
                    return bool(consumer._loop.buffer) and next(waits) == nth

                reached, found = await cutter.cut(again, gathers, late=late)
                assert reached
                seen = Counter(places_in(found or []))
                while seen.total() < EVERYTHING.total():
                    seen.update(places_in(await several(consumer)))
                assert seen == EVERYTHING


async def cut_commits(cutter: Cutter, broker: EmbeddedBroker) -> None:
    """A cancelled commit is carried out."""
    numbers = count(1)
    async with make_async(broker, group_id="commits", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        await consumer.poll(20)
        done = 0

        async def commit() -> None:
            nonlocal done
            done = next(numbers)
            await consumer.commit({TP0: done})

        def is_committed() -> bool:
            return committed(broker, "commits") == {TP0: done}

        async for _ in cutter.each(commit):
            await asyncio.to_thread(until, is_committed, "the commit")


class Noting(RebalanceListener):
    """Notes each call by partition. The poll of an assignment waits until ``go`` is set."""

    def __init__(self) -> None:
        self.noted: dict[TopicPartition, list[str]] = {TP0: [], TP1: []}
        self.go = asyncio.Event()

    async def on_partitions_assigned(self, consumer: Any, partitions: Any) -> None:
        await self.go.wait()
        for each in partitions:
            self.noted[each].append("assigned")

    async def on_partitions_revoked(self, consumer: Any, partitions: Any) -> None:
        await asyncio.sleep(0)
        for each in partitions:
            self.noted[each].append("revoked")


async def cut_memberships(cutter: Cutter, broker: EmbeddedBroker) -> None:
    """Polls and unsubscribes are cancelled; the next subscription works at once.

    The listener is called for each partition in turn: assigned, revoked.
    """
    async with make_async(broker, group_id="memberships") as consumer:
        listener = Noting()

        def listens() -> bool:
            return consumer._work._task is not None

        async def live() -> None:
            listener.go.clear()
            consumer.subscribe(["t"], listener)
            await cutter.cut(lambda: consumer.poll(20), listens, late=False)
            await cutter.cut(lambda: consumer.poll(20), 1, late=False)  # waits for the listener
            listener.go.set()
            async with asyncio.timeout(10):
                while not await consumer.poll(0.2):
                    pass

        await live()
        async for reached, _ in cutter.each(consumer.unsubscribe):
            if reached:
                await live()
            else:
                assert consumer.assignment() == frozenset()
                consumer.subscribe(["t"], listener)
        await consumer.unsubscribe()
        for noted in listener.noted.values():
            assert noted == ["assigned", "revoked"] * (len(noted) // 2)
            assert len(noted) > 2


async def cut_assignments(cutter: Cutter, broker: EmbeddedBroker) -> None:
    """Partitions are assigned although the call was cancelled, or the next call assigns them."""
    async with make_async(broker, group_id="assignments") as consumer:
        async for _ in cutter.each(lambda: consumer.assign([TP0])):
            await consumer.assign([TP1])
            assert consumer.assignment() == {TP1}
        await consumer.assign([])
        assert consumer.assignment() == frozenset()


async def cut_closes(cutter: Cutter, broker: EmbeddedBroker) -> None:
    """A cancelled close goes on: it commits, and leaves the group. A second one waits for it."""
    numbers = count()
    consumer: AsyncConsumer[Any, Any]
    group, read = "", 0

    async def close() -> None:
        async with consumer:
            pass

    async def make() -> None:
        nonlocal consumer, group, read
        group = f"closes {next(numbers)}"
        consumer = make_async(broker, group_id=group)
        consumer.subscribe(["t"])
        read = len(await consumer.consume(50, 20))

    await make()
    async for _ in cutter.each(close):
        await cutter.cut(consumer.close, 0, late=False)
        await consumer.close()
        assert sum(committed(broker, group).values()) == read > 0
        await make()
    await consumer.close()


@pytest.mark.slow
def test_a_call_that_is_cancelled_at_any_wait_loses_nothing(broker: EmbeddedBroker) -> None:
    cutter = Cutter()

    async def piece() -> None:
        for way in (one, several, iterate, batch, columns):
            for late in (False, True):
                await read_all(cutter, broker, way, late=late)
        await cut_questions(cutter, broker)
        await cut_first_position(cutter, broker)
        await cut_batches(cutter, broker)
        await cut_commits(cutter, broker)
        await cut_memberships(cutter, broker)
        await cut_assignments(cutter, broker)
        await cut_closes(cutter, broker)

    play(piece)
    assert uncut(cutter.places) == []


def uncut(places: set[Place]) -> list[str]:
    """The lines with an ``await`` that was never cancelled."""
    left = []
    for module in (async_consumer, async_positions, async_driver, steps):
        file = Path(str(module.__file__))
        functions = ast.walk(ast.parse(file.read_text()))
        for function in functions:
            if not isinstance(function, ast.AsyncFunctionDef) or function.name in NOBODY_CANCELS:
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Await):
                    lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                    if not any((str(file), line) in places for line in lines):
                        left.append(f"{file.name}:{node.lineno} {function.name}")
    return left
