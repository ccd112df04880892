"""Servers that do the least work for a request: the floor of a server on kohort's kind of loop.

*Constant* answers each read with a constant. *Commits* and *synced* answer with bytes of the size
of an answer to a commit; *synced* first appends the requests to a file and syncs it in a thread,
and the requests that arrive during a sync share the next one, as in the broker. *Group* lets the
members of one group join and sync. It cuts frames, looks at the kind of a request, parks the
request until all have joined or the leader has synced, and answers with bytes that it prepared in
the first round. It checks nothing and keeps no log.

    python -m bench.floor              # constant; prints its port
    python -m bench.floor commits
    python -m bench.floor synced
    python -m bench.floor 5000         # a group of 5,000 members
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, BinaryIO

from bench import frames

from kohort.cli.broker import runner

JOIN, SYNC = 11, 14
UNKNOWN_MEMBER = 25
_MEMBER_ID_BYTES = 40
ANSWERS = {"constant": frames.HEARTBEAT_OK, "commits": frames.COMMITTED}
LOG_GROWS = 256 * 1024
"""Bytes that the log's file gets at a time, as the broker's."""


class Wire(asyncio.Protocol):
    """A connection."""

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self.transport = transport


class Constant(Wire):
    """Answers each read with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    def data_received(self, data: bytes) -> None:
        """Answer a read."""
        self.transport.write(self.answer)


class Log:
    """A file, and the connections that wait for its next sync."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file.fileno()
        self.size = 0
        self.requests: list[bytes] = []
        self.waiting: list[Any] = []
        self.busy = False
        self.loop = asyncio.get_running_loop()
        self.thread = ThreadPoolExecutor(1)

    def take(self, transport: Any, data: bytes) -> None:
        """A request waits for the next sync."""
        self.requests.append(data)
        self.waiting.append(transport)
        if not self.busy:
            self.busy = True
            self.loop.call_soon(self.sync)

    def sync(self) -> None:
        """Append what waits, sync it, then answer it."""
        waiting, self.waiting = self.waiting, []
        data = b"".join(self.requests)
        self.requests.clear()
        if self.size % LOG_GROWS + len(data) >= LOG_GROWS or not self.size:
            os.pwrite(self.file, bytes(2 * LOG_GROWS), self.size)
        os.pwrite(self.file, data, self.size)
        self.size += len(data)
        done = self.loop.run_in_executor(self.thread, os.fdatasync, self.file)
        done.add_done_callback(lambda _: self.answer(waiting))

    def answer(self, waiting: list[Any]) -> None:
        """Answer the requests that are on disk, and sync those that arrived meanwhile."""
        for transport in waiting:
            transport.write(frames.COMMITTED)
        self.busy = bool(self.waiting)
        if self.busy:
            self.sync()


class Synced(Wire):
    """Answers each read when it is on disk."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def data_received(self, data: bytes) -> None:
        """Pass a read to the log."""
        self.log.take(self.transport, data)


class Group:
    """One group of ``count`` members. The first member leads."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.members: dict[bytes, Member] = {}
        self.joined: list[Member] = []
        self.waiting: list[Member] = []
        self.leader: Member | None = None
        self.led = False
        self.generation = 0
        self.followers_head = b""

    def open_generation(self) -> None:
        """Answer all joins: followers with the same head, each with its own tail."""
        if self.leader is None:
            self._prepare()
        self.led = False
        self.generation += 1
        for member in self.joined:
            size, tail = member.tail
            head = struct.pack(">iiihi", size, frames.CORRELATION_ID, 0, 0, self.generation)
            member.transport.write(head + tail)
        self.joined.clear()

    def _prepare(self) -> None:
        self.leader = self.joined[0]
        metadata = frames.subscription(100 - len(frames.subscription(0)))
        everybody = struct.pack(">i", self.count) + b"".join(
            frames.text(m.member_id) + b"\xff\xff" + frames.data(metadata) for m in self.joined
        )
        for member in self.joined:
            tail = frames.text(frames.PROTOCOL) + frames.text(self.leader.member_id)
            tail += frames.text(member.member_id)
            tail += everybody if member is self.leader else struct.pack(">i", 0)
            member.tail = (14 + len(tail), tail)

    def take_plan(self, frame: bytes) -> None:
        """The leader has synced: answer all syncs that wait. The first plan is kept."""
        if not self.led and not self.waiting[0].assigned:
            for member_id, assignment in plan_of(frame):
                self.members[member_id].assigned = frames.synced(assignment)
        self.led = True
        for member in self.waiting:
            member.transport.write(member.assigned)
        self.waiting.clear()


def plan_of(frame: bytes) -> list[tuple[bytes, bytes]]:
    """Member ids and assignments of a leader's SyncGroup."""
    at = 14 + struct.unpack_from(">h", frame, 12)[0]  # behind the client id
    at += 2 + struct.unpack_from(">h", frame, at)[0] + 4  # the group and the generation
    at += 2 + struct.unpack_from(">h", frame, at)[0] + 2  # the member id and no instance id
    (count,) = struct.unpack_from(">i", frame, at)
    at += 4
    plan = []
    for _ in range(count):
        (size,) = struct.unpack_from(">h", frame, at)
        member_id = frame[at + 2 : at + 2 + size]
        at += 2 + size
        (size,) = struct.unpack_from(">i", frame, at)
        plan.append((member_id, frame[at + 4 : at + 4 + size]))
        at += 4 + size
    return plan


class Member(Wire):
    """A member's connection."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.member_id = ""
        self.tail = (0, b"")
        self.assigned = b""
        self.partial = bytearray()

    def data_received(self, data: bytes) -> None:
        """Park or answer a request, when its frame is whole."""
        if self.partial or int.from_bytes(data[:4], "big") != len(data) - 4:
            self.partial += data
            if int.from_bytes(self.partial[:4], "big") != len(self.partial) - 4:
                return
            data = bytes(self.partial)
            self.partial.clear()
        group = self.group
        if data[5] == JOIN:
            if not self.tail[0] and not self.introduced(data):
                return
            group.joined.append(self)
            if len(group.joined) == group.count:
                group.open_generation()
        elif data[5] == SYNC:
            group.waiting.append(self)
            if self is group.leader or group.led:
                group.take_plan(data)
        else:
            self.transport.write(frames.HEARTBEAT_OK)  # FindCoordinator: nobody reads the answer

    def introduced(self, frame: bytes) -> bool:
        """Whether a first join has the id that an answer gave it; otherwise answer it."""
        if b"nobody" in frame:
            self.refuse(UNKNOWN_MEMBER)
        elif not self.member_id:
            self.member_id = f"member-{len(self.group.members)}".ljust(_MEMBER_ID_BYTES, "-")
            self.group.members[self.member_id.encode()] = self
            self.refuse(frames.MEMBER_ID_REQUIRED)
        else:
            return True
        return False

    def refuse(self, error: int) -> None:
        """Answer a join with an error."""
        body = struct.pack(">iihi", frames.CORRELATION_ID, 0, error, -1) + frames.text("") * 2
        body += frames.text(self.member_id) + struct.pack(">i", 0)
        self.transport.write(struct.pack(">i", len(body)) + body)


async def serve(make: Callable[[], Wire]) -> None:
    """Serve on a free port, which is printed, until the process is killed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(make, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def serve_synced() -> None:
    """Serve with a log in the temporary folder."""
    with tempfile.TemporaryFile(buffering=0) as file:
        log = Log(file)
        await serve(lambda: Synced(log))


def main() -> None:
    kind = sys.argv[1] if len(sys.argv) > 1 else "constant"
    if kind in ANSWERS:
        runner(serve(partial(Constant, ANSWERS[kind])))
        return
    if kind == "synced":
        runner(serve_synced())
        return
    group = Group(int(sys.argv[1]))
    runner(serve(lambda: Member(group)))


if __name__ == "__main__":
    main()
