"""Makes a group of many members, each on a connection of its own, and lets all join again.

One thread and one ``epoll`` drive all connections. Frames are prepared before the time starts. Each
answer is compared with the expected bytes, except for the number of the generation.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench import frames
from bench.heartbeat import ask, connect
from bench.peers import Peer

ANSWER_S = 60
"""Longest wait for the next answer on any connection."""

AT_ONCE = 500
"""Members that connect, or ask for an id, before an answer is read."""

READ_BYTES = 1 << 16
"""Bytes of one read. The system maps a buffer of a megabyte anew for each read."""

ASSIGNMENT_BYTES = 100
METADATA_BYTES = 100

OnAnswer = Callable[["Seat", bytes], None]


class NeverSettles(Exception):
    """A member got an error, so the group does not become stable."""


class Seat:
    """A member and its connection."""

    def __init__(self, sock: socket.socket, group: str) -> None:
        self.sock = sock
        self.group = group
        self.member = ""
        self.generation = 0
        self.leads = False
        self.synced = False
        self.partial = bytearray()
        self.variant = 0
        self.joins: tuple[bytes, ...] = ()
        self.sync = b""
        self.followed = b""
        self.assigned = b""

    def prepare(self, plan: dict[str, bytes]) -> None:
        """Prepare the frames of each round; the leader has a ``plan``."""
        self.joins = tuple(map(self.join, (0, 1)))
        self.sync = frames.sync(self.group, self.generation, self.member, plan)

    def join(self, variant: int) -> bytes:
        """A JoinGroup; the metadata of the variants differs, so each starts a rebalance."""
        bare = len(frames.subscription(0))
        metadata = frames.subscription(METADATA_BYTES - bare)
        return frames.join(self.group, self.member, metadata[:-1] + bytes([variant]))


@dataclass(frozen=True)
class Round:
    """One round: all members joined again and got their assignments."""

    started: float
    ended: float
    """The monotonic instants of the first written join and the last answered sync."""

    cpu_s: float
    """CPU seconds of the server."""

    load_cpu_s: float
    """CPU seconds of this process, which is the load."""

    @property
    def took_s(self) -> float:
        """Seconds from start to end."""
        return self.ended - self.started


class Members:
    """A group of ``count`` members on a server, in a generation of all of them.

    Args:
        stack: closes the connections.
        peer: the server.
        group: its group id; a new one.
        count: members.
    """

    def __init__(self, stack: contextlib.ExitStack, peer: Peer, group: str, count: int) -> None:
        self.peer = peer
        self.group = group
        self.seats: list[Seat] = []
        for first in range(0, count, AT_ONCE):
            for _ in range(min(AT_ONCE, count - first)):
                self.seats.append(Seat(stack.enter_context(connect(peer)), group))
            # The answer shows that the server has accepted all of them. A full backlog costs 1 s.
            ask(self.seats[-1].sock, frames.find_coordinator(group))
        self._poller = select.epoll()
        stack.callback(self._poller.close)
        self._by_fd = {seat.sock.fileno(): seat for seat in self.seats}
        for fd in self._by_fd:
            self._poller.register(fd, select.EPOLLIN)
        self._await_group()
        self._introduce()
        self._gather()

    def rebalance(self) -> Round:
        """One round in which all members join again with other metadata.

        Raises:
            NeverSettles: the server answered with an error.
        """
        left = len(self.seats)
        at = frames.sync_generation_at(self.group)

        def take(seat: Seat, frame: bytes) -> None:
            nonlocal left
            if seat.synced:
                if frame != seat.assigned:
                    raise NeverSettles(f"SyncGroup: {_error(frame)}")
                left -= 1
                return
            if not seat.leads and frames.followed(frame) != seat.followed:
                raise NeverSettles(f"JoinGroup: {_error(frame)}")
            if seat.leads and frames.texts_of_join(frame)[3] != len(self.seats):
                raise NeverSettles(f"JoinGroup of the leader: {_error(frame)}")
            seat.synced = True
            seat.generation = frames.generation_of(frame)
            number = frame[frames.GENERATION_AT : frames.GENERATION_AT + 4]
            seat.sock.sendall(seat.sync[:at] + number + seat.sync[at + 4 :])

        for seat in self.seats:
            seat.synced = False
            seat.variant = 1 - seat.variant
        cpu, load = self.peer.cpu_seconds(), time.process_time()
        started = time.monotonic()
        for seat in self.seats:
            seat.sock.sendall(seat.joins[seat.variant])
        self._drive(take, lambda: left == 0)
        ended = time.monotonic()
        return Round(started, ended, self.peer.cpu_seconds() - cpu, time.process_time() - load)

    def _await_group(self) -> None:
        """Wait for a coordinator: a fresh Kafka makes its offsets topic at the first lookup.

        The JoinGroup has an unknown member id, because a handed-out id would delay the join phase.
        """
        sock = self.seats[0].sock
        nobody = frames.join(self.group, "nobody", frames.subscription(0))
        for _ in range(60):
            ask(sock, frames.find_coordinator(self.group))
            if frames.error_of_join(ask(sock, nobody)) not in frames.NOT_YET:
                return
            time.sleep(0.5)
        sys.exit("no coordinator within 30 s")

    def _introduce(self) -> None:
        """Get an id for each member."""

        def take(seat: Seat, frame: bytes) -> None:
            if frames.error_of_join(frame) != frames.MEMBER_ID_REQUIRED:
                sys.exit(f"expected a member id, but the answer to JoinGroup is {_error(frame)}")
            seat.member = frames.texts_of_join(frame)[2]
            left.discard(seat)

        left: set[Seat] = set()
        for first in range(0, len(self.seats), AT_ONCE):
            left.update(self.seats[first : first + AT_ONCE])
            for seat in left:
                seat.sock.sendall(seat.join(0))
            self._drive(take, lambda: not left)

    def _gather(self) -> None:
        """Join until one generation has all members, then sync and prepare the frames of a round.

        With an initial delay of 0 the first generations have only some of the members. These
        members join again with other metadata after the leader's answer shows their number.
        """
        sizes: dict[int, int] = {}
        waiting: dict[int, list[Seat]] = {}
        count = len(self.seats)

        def take(seat: Seat, frame: bytes) -> None:
            if frames.error_of_join(frame):
                sys.exit(f"JoinGroup of a new member: {_error(frame)}")
            seat.generation = generation = frames.generation_of(frame)
            seat.followed = frames.followed(frame)
            members = frames.texts_of_join(frame)[3]
            seat.leads = members > 0
            waiting.setdefault(generation, []).append(seat)
            if members:
                sizes[generation] = members
            if sizes.get(generation, count) < count:
                for one in waiting.pop(generation):
                    one.variant = 1 - one.variant
                    one.sock.sendall(one.join(one.variant))

        for seat in self.seats:
            seat.sock.sendall(seat.join(0))
        self._drive(take, lambda: any(len(seats) == count for seats in waiting.values()))
        self._first_sync()

    def _first_sync(self) -> None:
        left = len(self.seats)
        plan = {
            seat.member: struct.pack(">i", number) + bytes(ASSIGNMENT_BYTES - 4)
            for number, seat in enumerate(self.seats)
        }

        def take(seat: Seat, frame: bytes) -> None:
            nonlocal left
            if frame != seat.assigned:
                raise NeverSettles(f"SyncGroup: {_error(frame)}")
            left -= 1

        for seat in self.seats:
            seat.assigned = frames.synced(plan[seat.member])
            seat.prepare(plan if seat.leads else {})
            seat.sock.sendall(seat.sync)
        self._drive(take, lambda: left == 0)

    def _drive(self, take: OnAnswer, done: Callable[[], bool]) -> None:
        """Pass each complete answer to ``take`` until ``done``."""
        poll, by_fd = self._poller.poll, self._by_fd
        while not done():
            ready = poll(ANSWER_S)
            if not ready:
                raise NeverSettles(f"no answer for {ANSWER_S} s")
            for fd, _ in ready:
                seat = by_fd[fd]
                data = seat.sock.recv(READ_BYTES)
                if not data:
                    sys.exit("the server hung up")
                partial = seat.partial
                if not partial and int.from_bytes(data[:4], "big") == len(data) - 4:
                    take(seat, data)
                    continue
                partial += data
                while len(partial) >= 4:
                    end = 4 + int.from_bytes(partial[:4], "big")
                    if len(partial) < end:
                        break
                    frame = bytes(partial[:end])
                    del partial[:end]
                    take(seat, frame)


def fresh(what: str) -> str:
    """A name that no group or topic has yet."""
    return f"bench-{what}-{os.getpid()}-{time.monotonic_ns()}"


def _error(frame: bytes) -> str:
    return f"error {frames.error_of_join(frame)}"
