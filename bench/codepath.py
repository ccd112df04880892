"""Measures the CPU of the broker's own code for a rebalance and for commits, without sockets.

The broker runs in this process, with its loop, its log and its syncs. Its sessions have transports
that keep the answers, so no request passes the system's network. The measured CPU is that of
kohort's own code; ``bench.coordinator`` measures the same work with sockets. The load is the copy
of each frame and the comparison of each answer, about 1 µs.

CPU is the time of all threads of the process. The best round counts beside the median: other work
on the same cores makes rounds longer, never shorter.

    python -m bench.codepath
    python -m bench.codepath --only commits --rounds 30
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import struct
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench import frames
from bench.ending import end_with_children
from bench.members import ASSIGNMENT_BYTES, METADATA_BYTES
from bench.results import emit

from kohort.broker.serve import BrokerServer
from kohort.broker.session import Session
from kohort.cli.broker import collect_garbage_seldom, runner
from kohort.client.admin import Admin
from kohort.host.settings import BrokerSettings, parse_settings

READS_AT_ONCE = 64
"""Requests that one poll of the sockets brings."""

COMMITS_EACH = 20
"""Commits of each member in a round."""


class Transport:
    """A transport of one session that keeps the last answer."""

    def __init__(self, answered: Callable[[], None]) -> None:
        self._answered = answered
        self.lost: Callable[[Exception | None], None]
        self.answer = b""

    def write(self, data: bytes) -> None:
        """Keep an answer."""
        self.answer = data
        self._answered()

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        """The address of the client."""
        return "127.0.0.1", 0

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing is buffered."""

    def get_write_buffer_size(self) -> int:
        """Nothing is buffered."""
        return 0

    def is_closing(self) -> bool:
        """The connection is open."""
        return False

    def close(self) -> None:
        """Tell the session that the connection is gone."""
        self.lost(None)


class Seats:
    """The members of one group on one broker, and the exchange of a request with each of them."""

    def __init__(self, server: BrokerServer, group: str, count: int) -> None:
        self.group = group
        self.count = count
        self._left = 0
        self._done = asyncio.Event()
        self.wires = [Transport(self._take) for _ in range(count)]
        self.sessions = []
        for wire in self.wires:
            node: Any = SimpleNamespace(coordinates=None)
            session = Session(server._broker_loop, node)
            wire.lost = session.connection_lost
            session.connection_made(wire)  # type: ignore[arg-type]
            self.sessions.append(session)
        self.ids: list[str] = []

    def _take(self) -> None:
        self._left -= 1
        if not self._left:
            self._done.set()

    async def ask(self, requests: Sequence[bytes]) -> list[bytes]:
        """Send a request of each member and return the answers."""
        self._left = self.count
        self._done.clear()
        for first in range(0, self.count, READS_AT_ONCE):
            for session, frame in zip(
                self.sessions[first : first + READS_AT_ONCE],
                requests[first : first + READS_AT_ONCE],
                strict=True,
            ):
                session.data_received(bytes(memoryview(frame)))
            await asyncio.sleep(0)
        await self._done.wait()
        return [wire.answer for wire in self.wires]

    async def gather(self) -> None:
        """Make a Stable group of all members, with frames for its rounds."""
        metadata = frames.subscription(METADATA_BYTES - len(frames.subscription(0)))
        self._metadata = [metadata[:-1] + bytes([variant]) for variant in (0, 1)]
        answers = await self.ask([self._join("", 0)] * self.count)
        self.ids = [frames.texts_of_join(answer)[2] for answer in answers]
        self._rounds = 0
        self._joins = [[self._join(member, v) for member in self.ids] for v in (0, 1)]
        plan = {
            m: struct.pack(">i", n) + bytes(ASSIGNMENT_BYTES - 4) for n, m in enumerate(self.ids)
        }
        self._assigned = [frames.synced(assignment) for assignment in plan.values()]
        answers = await self.ask(self._joins[0])
        self._syncs = [
            frames.sync(self.group, 0, member, plan if frames.texts_of_join(answer)[3] else {})
            for member, answer in zip(self.ids, answers, strict=True)
        ]
        await self.synchronise(answers)

    def _join(self, member: str, variant: int) -> bytes:
        return frames.join(self.group, member, self._metadata[variant])

    async def synchronise(self, answers: list[bytes]) -> None:
        """Send the SyncGroup of each member for the generation of the joins' ``answers``."""
        at = frames.sync_generation_at(self.group)
        number = answers[0][frames.GENERATION_AT : frames.GENERATION_AT + 4]
        self.generation = frames.generation_of(answers[0])
        synced = await self.ask([sync[:at] + number + sync[at + 4 :] for sync in self._syncs])
        assert synced == self._assigned, "each member gets its own assignment"

    async def rebalance(self) -> None:
        """All members join again with other metadata, and sync."""
        self._rounds += 1
        await self.synchronise(await self.ask(self._joins[self._rounds % 2]))

    def committing(self, topic: str) -> Callable[[], Awaitable[None]]:
        """Commits of all members, one after another, with rising offsets."""
        halves = []
        for number, member in enumerate(self.ids):
            frame = frames.commit(self.group, self.generation, member, topic, number)
            end = -frames.COMMITTED_FROM_END
            halves.append((frame[:end], frame[end + 8 :]))
        expected = [frames.committed(topic, number) for number in range(self.count)]
        offset = 0

        async def commit() -> None:
            nonlocal offset
            for _ in range(COMMITS_EACH):
                offset += 1
                number = struct.pack(">q", offset)
                got = await self.ask([head + number + tail for head, tail in halves])
                assert got == expected, "each commit is stored"

        return commit


async def cost(step: Callable[[], Awaitable[None]], rounds: int, units: int) -> dict[str, object]:
    """CPU in µs for each of the ``units`` of a step, of the best round and of the median."""
    await step()
    took = []
    for _ in range(rounds):
        before = time.process_time()
        await step()
        took.append((time.process_time() - before) / units * 1e6)
    return {"best_us": round(min(took), 1), "median_us": round(statistics.median(took), 1)}


async def measure(options: argparse.Namespace, folder: Path) -> None:
    settings = {
        "group.initial.rebalance.delay.ms": 500,  # the first join phase waits for all members
        "kohort.max.pending.members": max(options.members),
    }
    server = BrokerServer(
        data_dir=folder / "data",
        settings=parse_settings(BrokerSettings, {k: str(v) for k, v in settings.items()}),
    )
    await server.start()
    collect_garbage_seldom()
    try:
        for count in options.members if "rebalance" in options.only else ():
            seats = Seats(server, f"rebalance-{count}", count)
            await seats.gather()
            row = await cost(seats.rebalance, options.rounds, count)
            emit("codepath", {"what": "a member joins again and syncs", "members": count} | row)
        if "commits" in options.only:
            await asyncio.to_thread(create, server.bootstrap_servers, options.committers)
            seats = Seats(server, "commits", options.committers)
            await seats.gather()
            row = await cost(
                seats.committing("t"), options.rounds, options.committers * COMMITS_EACH
            )
            emit("codepath", {"what": "a commit", "members": options.committers} | row)
    finally:
        await server.stop()


def create(bootstrap: str, partitions: int) -> None:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topic("t", partitions=partitions)


def main() -> None:
    end_with_children()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=["rebalance", "commits"])
    parser.add_argument("--members", type=int, nargs="+", default=[1_000])
    parser.add_argument("--committers", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runner(measure(options, Path(folder)))


if __name__ == "__main__":
    main()
