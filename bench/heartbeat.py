"""Server CPU per Heartbeat request: one member a connection, all beating in a closed loop.

The load runs in this process, the server in another, whose CPU time is read from ``/proc``. Every
connection joins a group of its own for real and then sends one prepared Heartbeat v4 frame again
and again, as soon as the last one is answered; every answer is compared with the expected bytes.
Frames are put together here by hand, so that the load costs little and the codec measured is the
server's. The median of several rounds counts; the best one tells what neighbours on the same cores
have added. Beside it stands the floor: a server on the same kind of loop that reads a frame and
writes a constant, without looking at either.

    python bench/heartbeat.py                                     # kohort's broker, started here
    python bench/heartbeat.py --bootstrap HOST:PORT --pid PID     # any Kafka that runs already

Linux only: CPU time comes from ``/proc/PID/stat``, in ticks of usually 10 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kohort.cli.broker import runner

CONNECTIONS = (100, 2_000)
GOAL_MICROS = 15.0
SESSION_TIMEOUT_MS = 120_000
CORRELATION_ID = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", help="HOST:PORT of a broker that runs already")
    parser.add_argument("--pid", type=int, help="its process id")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--floor", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--connections", type=int, nargs="+", default=CONNECTIONS)
    options = parser.parse_args()
    if bool(options.bootstrap) != bool(options.pid):
        parser.error("--bootstrap and --pid go together")
    with contextlib.ExitStack() as stack:
        if options.floor:
            serve_floor()
        if options.bootstrap:
            host, _, port = options.bootstrap.rpartition(":")
            address, pid, name = (host, int(port)), options.pid, options.bootstrap
        else:
            address, pid = stack.enter_context(own_broker())
            name = "kohort"
        floor_address, floor_pid = stack.enter_context(floor_server())
        for count in options.connections:
            floor = run(
                floor_address, floor_pid, count, options.seconds, options.rounds, real=False
            )
            report("floor", floor)
            report(name, run(address, pid, count, options.seconds, options.rounds, real=True))


def report(server: str, measured: dict[str, object]) -> None:
    print(json.dumps({"bench": "heartbeat", "server": server} | measured), flush=True)


@contextlib.contextmanager
def floor_server() -> Iterator[tuple[tuple[str, int], int]]:
    """The least a server on this kind of loop can cost, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--floor"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield ("127.0.0.1", int(process.stdout.readline())), process.pid
    finally:
        process.terminate()
        process.wait(timeout=30)


def serve_floor() -> None:
    """Answer whatever comes with a constant, until killed."""
    buffer = memoryview(bytearray(65536))

    class Constant(asyncio.BufferedProtocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def get_buffer(self, sizehint: int) -> memoryview:
            return buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.transport.write(HEARTBEAT_OK)

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Constant, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    runner(main())


@contextlib.contextmanager
def own_broker() -> Iterator[tuple[tuple[str, int], int]]:
    """A broker as a user starts it, on a free port; only the initial delay differs."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "kohort.cli.main", "broker", "--port", "0"),
            *("--data-dir", str(Path(folder) / "data"), "--log-level", "WARNING"),
            *("--set", "group.initial.rebalance.delay.ms=0"),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if " ready on " not in line:
                sys.exit("the broker did not start")
            host, _, port = line.split(" ready on ")[1].split()[0].rpartition(":")
            yield (host, int(port)), process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)


def run(
    address: tuple[str, int], pid: int, count: int, seconds: float, rounds: int, *, real: bool
) -> dict[str, object]:
    """Join with ``count`` connections (where the server is a ``real`` one), warm up, measure."""
    sockets = [socket.create_connection(address) for _ in range(count)]
    costs: list[float] = []
    latencies: list[float] = []
    try:
        for sock in sockets:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frames = {
            sock.fileno(): (
                sock,
                join(sock, f"bench-{os.getpid()}-{count}-{i}") if real else bytes(88),
            )
            for i, sock in enumerate(sockets)
        }
        beat(frames, seconds)
        started = time.perf_counter()
        for _ in range(rounds):
            cpu = cpu_seconds(pid)
            turns = beat(frames, seconds)
            costs.append((cpu_seconds(pid) - cpu) / len(turns) * 1e6)
            latencies += turns
        took = time.perf_counter() - started
    finally:
        for sock in sockets:
            sock.close()
    cost = statistics.median(costs)
    cuts = statistics.quantiles(latencies, n=100)
    return {
        "connections": count,
        "requests": len(latencies),
        "requests_per_s": round(len(latencies) / took),
        "server_cpu_us_per_request": round(cost, 1),
        "best_round_us": round(min(costs), 1),
        "p50_ms": round(cuts[49] * 1e3, 2),
        "p99_ms": round(cuts[98] * 1e3, 2),
        **({"goal_us": GOAL_MICROS, "goal_met": cost <= GOAL_MICROS} if real else {}),
    }


def beat(frames: dict[int, tuple[socket.socket, bytes]], seconds: float) -> list[float]:
    """One frame in flight on every connection until the time is over; seconds of each turn."""
    poller = select.epoll()
    sent: dict[int, float] = {}
    latencies: list[float] = []
    clock = time.perf_counter
    for fd, (sock, frame) in frames.items():
        poller.register(fd, select.EPOLLIN)
        sock.sendall(frame)
        sent[fd] = clock()
    end = clock() + seconds
    open_turns = len(frames)
    while open_turns:
        ready = poller.poll(10)
        if not ready:
            sys.exit("no answer for 10 s")
        for fd, _ in ready:
            sock, frame = frames[fd]
            answer = sock.recv(4096)
            now = clock()
            if answer != HEARTBEAT_OK:
                sys.exit(f"not the expected answer to a heartbeat: {answer.hex()}")
            latencies.append(now - sent[fd])
            if now < end:
                sock.send(frame)
                sent[fd] = now
            else:
                open_turns -= 1
    poller.close()
    return latencies


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# Frames by hand: JoinGroup v5 and SyncGroup v3 in the classic encoding, Heartbeat v4 compact.


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def compact(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


def framed(api_key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhi", api_key, version, CORRELATION_ID) + text("bench")
    return struct.pack(">i", len(head) + len(body)) + head + body


HEARTBEAT_OK = struct.pack(">iibihb", 12, CORRELATION_ID, 0, 0, 0, 0)


_METADATA = struct.pack(">hi", 0, 1) + text("bench") + struct.pack(">i", -1)
SUBSCRIPTION = struct.pack(">i", len(_METADATA)) + _METADATA
"""A consumer's subscription to one topic, version 0."""


def ask(sock: socket.socket, frame: bytes) -> bytes:
    """Send a frame, return the answer's body behind its correlation id."""
    sock.sendall(frame)
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        more = sock.recv(65536)
        if not more:
            sys.exit("the server hung up")
        data += more
    return data[8:]


def join(sock: socket.socket, group: str) -> bytes:
    """Become the only member of a group; returns the Heartbeat frame of that member."""
    member = ""
    for _ in range(10):
        body = text(group) + struct.pack(">ii", SESSION_TIMEOUT_MS, SESSION_TIMEOUT_MS)
        body += text(member) + struct.pack(">h", -1) + text("consumer")
        body += struct.pack(">i", 1) + text("range") + SUBSCRIPTION
        answer = ask(sock, framed(11, 5, body))
        error, generation = struct.unpack_from(">hi", answer, 4)
        position = 10
        for _ in range(3):  # protocol name, leader, member id
            (length,) = struct.unpack_from(">h", answer, position)
            member = answer[position + 2 : position + 2 + max(length, 0)].decode()
            position += 2 + max(length, 0)
        if error == 0:
            break
        if error in (15, 16):  # a fresh Kafka makes its offsets topic first
            find = text(group) + b"\x00"
            ask(sock, framed(10, 1, find))
            time.sleep(0.5)
        elif error != 79:
            sys.exit(f"JoinGroup was refused with error {error}")
    else:
        sys.exit("JoinGroup did not succeed in ten rounds")
    body = text(group) + struct.pack(">i", generation) + text(member) + struct.pack(">h", -1)
    body += struct.pack(">i", 1) + text(member) + struct.pack(">i", 4) + b"mine"
    (error,) = struct.unpack_from(">h", ask(sock, framed(14, 3, body)), 4)
    if error:
        sys.exit(f"SyncGroup was refused with error {error}")
    head = struct.pack(">hhi", 12, 4, CORRELATION_ID) + text("bench") + b"\x00"
    body = compact(group) + struct.pack(">i", generation) + compact(member) + b"\x00\x00"
    return struct.pack(">i", len(head) + len(body)) + head + body


if __name__ == "__main__":
    main()
