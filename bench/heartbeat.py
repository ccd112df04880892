"""Measures the server CPU of a Heartbeat request, with one member on each connection.

The load runs in this process. The servers are other processes; their CPU time comes from ``/proc``.
Each connection joins a group of its own and then sends one prepared Heartbeat v4 frame again and
again, as soon as the previous one is answered. Each answer is compared with the expected bytes.

The floor is a server on the same kind of loop that reads a frame and writes a constant. All servers
warm up until they stop getting faster. Then they take turns, round by round, because other work on
the same cores makes each request more expensive. The median of the rounds counts, and its ratio to
the floor.

    python -m bench.heartbeat                                     # kohort's broker, started here
    python -m bench.heartbeat --bootstrap HOST:PORT --pid PID     # any Kafka that runs already
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import socket
import statistics
import struct
import sys
import time
from collections.abc import Sequence
from functools import partial

from bench import frames
from bench.ending import end_with_children
from bench.peers import Peer, floor_server, own_broker, running
from bench.results import emit
from bench.warming import warm

CONNECTIONS = (100, 2_000)
GOAL_MICROS = 15.0


def main() -> None:
    end_with_children()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", help="HOST:PORT of a broker that runs already")
    parser.add_argument("--pid", type=int, help="its process id")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, nargs="+", default=CONNECTIONS)
    options = parser.parse_args()
    if bool(options.bootstrap) != bool(options.pid):
        parser.error("--bootstrap and --pid go together")
    with contextlib.ExitStack() as stack:
        if options.bootstrap:
            peers = [running(options.bootstrap, options.pid)]
        else:
            peers = [stack.enter_context(own_broker())]
        peers.insert(0, stack.enter_context(floor_server()))
        for count in options.connections:
            for row in measure(peers, count, options.seconds, options.rounds):
                emit("heartbeat", row)


def measure(
    peers: Sequence[Peer], count: int, seconds: float, rounds: int
) -> list[dict[str, object]]:
    """The rows of all servers, which take turns; the first is the floor, which needs no join."""
    costs: dict[Peer, list[float]] = {peer: [] for peer in peers}
    latencies: dict[Peer, list[float]] = {peer: [] for peer in peers}
    with contextlib.ExitStack() as stack:
        beating = {peer: seats(stack, peer, count) for peer in peers}

        def beat_once(peer: Peer) -> tuple[float, list[float]]:
            cpu = peer.cpu_seconds()
            turns = beat(beating[peer], seconds)
            return (peer.cpu_seconds() - cpu) / len(turns) * 1e6, turns

        def cost_of_a_round(peer: Peer) -> float:
            return beat_once(peer)[0]

        warm_ups = {peer: warm(partial(cost_of_a_round, peer)) for peer in peers}
        for _ in range(rounds):
            for peer in peers:
                cost, turns = beat_once(peer)
                costs[peer].append(cost)
                latencies[peer] += turns
    floor = statistics.median(costs[peers[0]])
    return [
        report(peer, count, costs[peer], latencies[peer], floor)
        | {"warm_up_rounds": warm_ups[peer]}
        for peer in peers
    ]


def report(
    peer: Peer, count: int, costs: list[float], latencies: list[float], floor: float
) -> dict[str, object]:
    cost = statistics.median(costs)
    cuts = statistics.quantiles(latencies, n=100)
    goal = {"goal_us": GOAL_MICROS, "goal_met": cost <= GOAL_MICROS}
    return {
        "server": peer.name,
        "connections": count,
        "requests": len(latencies),
        "requests_per_s": round(count / statistics.fmean(latencies)),
        "server_cpu_us_per_request": round(cost, 1),
        "best_round_us": round(min(costs), 1),
        "times_floor": round(cost / floor, 2),
        "p50_ms": round(cuts[49] * 1e3, 2),
        "p99_ms": round(cuts[98] * 1e3, 2),
        **(goal if peer.name == "kohort" else {}),
    }


Seats = dict[int, tuple[socket.socket, bytes]]
"""Connections by file descriptor, each with its prepared frame."""


def seats(stack: contextlib.ExitStack, peer: Peer, count: int) -> Seats:
    """Connections to a server, each with the heartbeat of its member."""
    made: Seats = {}
    for number in range(count):
        sock = stack.enter_context(connect(peer))
        frame = bytes(88)
        if peer.name != "floor":
            group = f"bench-{os.getpid()}-{count}-{number}"
            frame = frames.heartbeat(group, *enter(sock, group))
        made[sock.fileno()] = sock, frame
    return made


def connect(peer: Peer) -> socket.socket:
    """A connection with limits of 30 s for each call, kept by the system.

    With a limit of Python's, each send and each receive would call ``poll`` before.
    """
    sock = socket.create_connection(peer.address, timeout=30)
    sock.settimeout(None)
    for limit in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, limit, struct.pack("ll", 30, 0))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def beat(frames_by_fd: Seats, seconds: float) -> list[float]:
    """The seconds of each turn, with one frame in flight on each connection until time is over."""
    poller = select.epoll()
    sent: dict[int, float] = {}
    latencies: list[float] = []
    clock = time.perf_counter
    for fd, (sock, frame) in frames_by_fd.items():
        poller.register(fd, select.EPOLLIN)
        sock.sendall(frame)
        sent[fd] = clock()
    end = clock() + seconds
    open_turns = len(frames_by_fd)
    while open_turns:
        ready = poller.poll(10)
        if not ready:
            sys.exit("no answer for 10 s")
        for fd, _ in ready:
            sock, frame = frames_by_fd[fd]
            answer = sock.recv(4096)
            now = clock()
            if answer != frames.HEARTBEAT_OK:
                sys.exit(f"not the expected answer to a heartbeat: {answer.hex()}")
            latencies.append(now - sent[fd])
            if now < end:
                sock.send(frame)
                sent[fd] = now
            else:
                open_turns -= 1
    poller.close()
    return latencies


def ask(sock: socket.socket, frame: bytes) -> bytes:
    """Send a frame, return the answer's frame."""
    sock.sendall(frame)
    answer = b""
    while len(answer) < 4 or len(answer) < 4 + struct.unpack_from(">i", answer)[0]:
        more = sock.recv(65536)
        if not more:
            sys.exit("the server hung up")
        answer += more
    return answer


def enter(sock: socket.socket, group: str) -> tuple[int, str]:
    """The generation and the member id of a new member, alone in its group."""
    member = ""
    for _ in range(60):
        answer = ask(sock, frames.join(group, member, frames.subscription(0)))
        error = frames.error_of_join(answer)
        _, _, member, _ = frames.texts_of_join(answer)
        if error == 0:
            break
        if error in frames.NOT_YET:
            ask(sock, frames.find_coordinator(group))
            time.sleep(0.5)
        elif error != frames.MEMBER_ID_REQUIRED:
            sys.exit(f"JoinGroup was refused with error {error}")
    else:
        sys.exit("JoinGroup did not succeed in 60 rounds")
    generation = frames.generation_of(answer)
    answer = ask(sock, frames.sync(group, generation, member, {member: b"mine"}))
    if frames.error_of_sync(answer):
        sys.exit(f"SyncGroup was refused with error {frames.error_of_sync(answer)}")
    return generation, member


if __name__ == "__main__":
    main()
