"""Measures the group coordinator: rates and CPU of kohort and of a real Kafka, in one run.

*Heartbeat*: server CPU of a request, as in ``bench.heartbeat``. *Rebalance*: all members of a group
join again at once, each with 100 B of metadata and 100 B of assignment; the time runs from the
first written JoinGroup to the last answered SyncGroup; ``bench.floor`` has the floor. *Commits*:
100 members of one group commit one partition each, in a closed loop; kohort answers after an
fdatasync, Kafka without one; ``bench.floor`` has floors with and without a sync. *Memory*: the
bytes of a connection, and of a member, in the server. *Calm*: heartbeats of another group while
5,000 members rebalance.

Each member has a connection, frames are prepared, each answer is compared. All servers warm up
until they stop getting faster, then take turns. The load is one process, each server another one;
CPU is the server's, from ``/proc``.

    python -m bench.coordinator                                   # kohort's broker, started here
    python -m bench.coordinator --only rebalance --members 1000
    python -m bench.coordinator --bootstrap HOST:PORT --pid PID   # a Kafka that runs, beside it
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import select
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from bench import frames, heartbeat
from bench.ending import end_with_children
from bench.members import Members, NeverSettles, fresh
from bench.peers import ROOT, Peer, floor_server, own_broker, running
from bench.rebalance import REBALANCE_GOALS_S, SPARE_FILES, rebalance_seconds, rebalances
from bench.results import emit, goal_of
from bench.warming import warm

from kohort.client.admin import Admin

COMMITS_GOAL = 50_000
MEMBER_GOAL_BYTES = 2_048
CONNECTION_GOAL_BYTES = 6_144
CALM_GOAL_MS = 100.0
COMMITTERS = 100
CALM_CONNECTIONS = 20
CALM_PAUSE_S = 0.02
CALM_MEMBERS = 5_000
MEMORY_MEMBERS = 2_000
MEMORY_TIMES = 3
"""How often the members are added; the first time is not counted."""


def main() -> None:
    end_with_children()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", help="HOST:PORT of a Kafka that runs already")
    parser.add_argument("--pid", type=int, help="its process id")
    parser.add_argument("--only", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS))
    parser.add_argument("--members", type=int, nargs="+", default=list(REBALANCE_GOALS_S))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a round of requests")
    parser.add_argument("--small", action="store_true", help="sizes that run in seconds")
    parser.add_argument("--beat", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if bool(options.bootstrap) != bool(options.pid):
        parser.error("--bootstrap and --pid go together")
    if options.beat:
        beat_calmly(*options.beat)
        return
    options.connections, options.crowd = heartbeat.CONNECTIONS, CALM_MEMBERS
    options.memory_members = MEMORY_MEMBERS
    if options.small:
        options.members, options.connections, options.crowd = [50], (20,), 1_000
        options.rounds, options.seconds, options.memory_members = 2, 0.2, 50
    most = allow_many_files()
    for name in options.only:
        for row in SCENARIOS[name](options, most):
            emit("coordinator", {"scenario": name} | row)


def allow_many_files() -> int:
    """Raise the limit of open files; return the members that a broker then has connections for."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (65_536, 65_536))
        most = 65_536
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most - SPARE_FILES


@contextlib.contextmanager
def servers(options: argparse.Namespace) -> Iterator[list[Peer]]:
    """A broker of kohort, and the running Kafka if there is one."""
    most = max(*options.members, options.crowd, COMMITTERS)
    with own_broker(f"kohort.max.pending.members={most}") as own:
        more = [running(options.bootstrap, options.pid)] if options.bootstrap else []
        yield [own, *more]


Rows = Iterator[dict[str, object]]


def heartbeats(options: argparse.Namespace, most: int) -> Rows:
    """Rows of ``bench.heartbeat``."""
    with servers(options) as peers, floor_server() as floor:
        for count in options.connections:
            if count <= most:
                yield from heartbeat.measure(
                    [floor, *peers], count, options.seconds, options.rounds
                )


def rebalance(options: argparse.Namespace, most: int) -> Rows:
    """Rows for each size; a server that does not settle is not tried with more members."""
    with servers(options) as peers:
        able = list(reversed(peers))
        for wanted in options.members:
            count = min(wanted, most)
            rows, able = rebalances(able, count, options.rounds)
            for row in rows:
                yield row | ({"wanted_members": wanted} if count < wanted else {})


def commits(options: argparse.Namespace, most: int) -> Rows:
    """Commits a second; the servers take turns, round by round."""
    del most
    with contextlib.ExitStack() as stack:
        peers = list(reversed(stack.enter_context(servers(options))))
        seats = {peer: committing(stack, peer) for peer in peers}
        for kind in ("synced", "commits"):
            peers.insert(0, floor := stack.enter_context(floor_server(kind)))
            seats[floor] = answered(stack, floor, seats[peers[-1]])
        rounds: dict[Peer, list[CommitRound]] = {peer: [] for peer in peers}
        warm_ups = {
            peer: warm(partial(commit_cost, peer, seats[peer], options.seconds)) for peer in peers
        }
        for _ in range(options.rounds):
            for peer in peers:
                rounds[peer].append(commit_round(peer, seats[peer], options.seconds))
    rates: dict[str, float] = {}
    for peer in peers:
        latencies = [took for one in rounds[peer] for took in one.latencies]
        rate = statistics.median(len(one.latencies) / one.elapsed_s for one in rounds[peer])
        cuts = statistics.quantiles(latencies, n=100)
        row = {
            "server": peer.name,
            "connections": COMMITTERS,
            "commits_per_s": round(rate),
            "server_cpu_us_per_request": round(
                sum(one.cpu_s for one in rounds[peer]) / len(latencies) * 1e6, 1
            ),
            "load_cpu_us_per_request": round(
                sum(one.load_cpu_s for one in rounds[peer]) / len(latencies) * 1e6, 1
            ),
            "p50_ms": round(cuts[49] * 1e3, 2),
            "p99_ms": round(cuts[98] * 1e3, 2),
            "synced": peer.name in ("kohort", "floor, synced"),
            "warm_up_rounds": warm_ups[peer],
        }
        if peer.name == "kohort":
            row |= {"goal_per_s": COMMITS_GOAL, "goal_met": rate >= COMMITS_GOAL}
            row |= {f"times_{name}": round(rate / other, 2) for name, other in rates.items()}
        rates[peer.name] = rate
        yield row


Committing = dict[int, tuple[Any, bytes, bytes]]
"""Connections by file descriptor, each with its prepared commit and the expected answer."""


def committing(stack: contextlib.ExitStack, peer: Peer) -> Committing:
    """The members of a new group, with a partition each."""
    group, topic = fresh("commits"), fresh("committed")
    with Admin({"bootstrap.servers": f"{peer.host}:{peer.port}"}) as admin:
        admin.create_topic(topic, partitions=COMMITTERS)
    members = Members(stack, peer, group, COMMITTERS)
    return {
        seat.sock.fileno(): (
            seat.sock,
            frames.commit(group, seat.generation, seat.member, topic, number),
            frames.committed(topic, number),
        )
        for number, seat in enumerate(members.seats)
    }


def answered(stack: contextlib.ExitStack, floor: Peer, like: Committing) -> Committing:
    """Connections to a floor, with the requests of ``like`` and the floor's one answer."""
    made: Committing = {}
    for _, frame, _ in like.values():
        sock = stack.enter_context(heartbeat.connect(floor))
        made[sock.fileno()] = sock, frame, frames.COMMITTED
    return made


class CommitRound(NamedTuple):
    """A round: its seconds, the CPU seconds of the server and of this process, the latencies."""

    elapsed_s: float
    cpu_s: float
    load_cpu_s: float
    latencies: list[float]


def commit_round(peer: Peer, seats: Committing, seconds: float) -> CommitRound:
    """Commits on all connections for this many seconds."""
    cpu, load, started = peer.cpu_seconds(), time.process_time(), time.perf_counter()
    latencies = commit_for(seats, seconds)
    elapsed, load = time.perf_counter() - started, time.process_time() - load
    return CommitRound(elapsed, peer.cpu_seconds() - cpu, load, latencies)


def commit_cost(peer: Peer, seats: Committing, seconds: float) -> float:
    """The mean seconds of a commit in one round."""
    done = commit_round(peer, seats, seconds)
    return done.elapsed_s / len(done.latencies)


def commit_for(seats: Committing, seconds: float) -> list[float]:
    """The seconds of each commit, with one in flight on each connection and rising offsets."""
    poller = select.epoll()
    number = 0
    put = struct.Struct(">q").pack
    sent: dict[int, float] = {}
    latencies: list[float] = []
    clock = time.perf_counter
    halves = {
        fd: (sock, frame[: -frames.COMMITTED_FROM_END], frame[-frames.COMMITTED_FROM_END + 8 :], ok)
        for fd, (sock, frame, ok) in seats.items()
    }
    for fd, (sock, head, tail, _) in halves.items():
        poller.register(fd, select.EPOLLIN)
        sock.sendall(head + put(number) + tail)
        sent[fd] = clock()
    end = clock() + seconds
    left = len(seats)
    while left:
        ready = poller.poll(10)
        if not ready:
            sys.exit("no answer to a commit for 10 s")
        number += 1
        for fd, _ in ready:
            sock, head, tail, ok = halves[fd]
            answer = sock.recv(4096)
            now = clock()
            if answer != ok:
                sys.exit(f"not the expected answer to a commit: {answer.hex()}")
            latencies.append(now - sent[fd])
            if now < end:
                sock.send(head + put(number) + tail)
                sent[fd] = now
            else:
                left -= 1
    poller.close()
    return latencies


def memory(options: argparse.Namespace, most: int) -> Rows:
    """Memory of kohort's broker alone: the heap of a JVM does not show the bytes of one member.

    The first members are not counted: they fill the memory that earlier joins left to Python's
    allocator, which seldom returns memory. A row of its own has that amount.
    """
    del most
    count = options.memory_members
    with own_broker() as peer, contextlib.ExitStack() as stack:
        Members(stack, peer, fresh("storm"), count).rebalance()
        _, *more = [grown_by(peer, idle(stack, peer, count), count) for _ in range(MEMORY_TIMES)]
        connection = statistics.fmean(more)
        yield {"server": peer.name, "what": "a connection, idle"} | bytes_of(
            connection, CONNECTION_GOAL_BYTES
        )
    with own_broker() as peer, contextlib.ExitStack() as stack:
        first, *more = [
            grown_by(peer, beating(stack, peer, count), count) for _ in range(MEMORY_TIMES)
        ]
        whole = statistics.fmean(more)
        yield {"server": peer.name, "what": "a member that beats, without its connection"} | (
            bytes_of(whole - connection, MEMBER_GOAL_BYTES)
        )
        yield {
            "server": peer.name,
            "what": f"left to the allocator by {count} joining members",
            "bytes": round((first - whole) * count),
        }


def grown_by(peer: Peer, add: Callable[[], None], count: int) -> float:
    """The growth of the server in bytes, for each of the ``count`` members that ``add`` adds."""
    settle()
    before = peer.own_bytes()
    add()
    settle()
    return (peer.own_bytes() - before) / count


def idle(stack: contextlib.ExitStack, peer: Peer, count: int) -> Callable[[], None]:
    def add() -> None:
        for _ in range(count):
            sock = stack.enter_context(heartbeat.connect(peer))
            heartbeat.ask(sock, frames.find_coordinator("anything"))

    return add


def beating(stack: contextlib.ExitStack, peer: Peer, count: int) -> Callable[[], None]:
    def add() -> None:
        members = Members(stack, peer, fresh("memory"), count)
        beats = {
            seat.sock.fileno(): (
                seat.sock,
                frames.heartbeat(seat.group, seat.generation, seat.member),
            )
            for seat in members.seats
        }
        heartbeat.beat(beats, 0.1)

    return add


def settle() -> None:
    """Wait until the server has no work left."""
    time.sleep(1.0)


def bytes_of(each: float, goal: int) -> dict[str, object]:
    return {"bytes": round(each), "goal_bytes": goal, "goal_met": each <= goal}


def calm(options: argparse.Namespace, most: int) -> Rows:
    """Latencies of heartbeats in one group while another group rebalances."""
    with servers(options) as peers:
        for peer in peers:
            yield calmness(peer, min(options.crowd, most), options.rounds)


def calmness(peer: Peer, count: int, rounds: int) -> dict[str, object]:
    """The row of one server; a process of its own sends the heartbeats."""
    row: dict[str, object] = {"server": peer.name, "members": count}
    command = [sys.executable, "-m", "bench.coordinator", "--beat", peer.host, str(peer.port)]
    beater = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        with contextlib.ExitStack() as stack:
            members = Members(stack, peer, fresh("calm"), count)
            warm(partial(rebalance_seconds, members), window=4)
            time.sleep(1)
            quiet = time.monotonic() - 0.8
            done = [members.rebalance() for _ in range(rounds)]
    except NeverSettles as error:
        return row | {"settled": False, "told": str(error)}
    finally:
        told, _ = beater.communicate("stop\n", timeout=60)
    turns: list[tuple[float, float]] = json.loads(told)
    before = [took for sent, took in turns if quiet <= sent < done[0].started]
    during = [took for sent, took in turns if any(one.started <= sent < one.ended for one in done)]
    p99 = percentile(during, 99)
    return row | {
        "rebalance_s": round(statistics.median(one.took_s for one in done), 3),
        "heartbeats": len(during),
        "p50_ms": percentile(during, 50),
        "p99_ms": p99,
        "longest_ms": round(max(during) * 1e3, 1),
        "p99_ms_before": percentile(before, 99),
        **(goal_of(p99, CALM_GOAL_MS, "goal_ms") if peer.name == "kohort" else {}),
    }


def beat_calmly(host: str, port: str) -> None:
    """Send heartbeats for one group until standard input has a line; then print all latencies."""
    peer = Peer("any", host, int(port), os.getpid())
    with contextlib.ExitStack() as stack:
        members = Members(stack, peer, fresh("other"), CALM_CONNECTIONS)
        by_fd = {
            seat.sock.fileno(): (
                seat.sock,
                frames.heartbeat(seat.group, seat.generation, seat.member),
            )
            for seat in members.seats
        }
        poller = select.epoll()
        for fd in (*by_fd, sys.stdin.fileno()):
            poller.register(fd, select.EPOLLIN)
        start = time.monotonic()
        due = {fd: start + n * CALM_PAUSE_S / len(by_fd) for n, fd in enumerate(by_fd)}
        sent: dict[int, float] = {}
        turns: list[tuple[float, float]] = []
        while True:
            pause = max(min(due.values(), default=start + 1e9) - time.monotonic(), 0)
            ready = [fd for fd, _ in poller.poll(min(pause, 0.1))]
            now = time.monotonic()
            if sys.stdin.fileno() in ready:
                break
            for fd in ready:
                if by_fd[fd][0].recv(4096) != frames.HEARTBEAT_OK:
                    sys.exit("not the expected answer to a heartbeat")
                turns.append((sent[fd], now - sent[fd]))
                due[fd] = max(sent.pop(fd) + CALM_PAUSE_S, now)
            for fd in [fd for fd, at in due.items() if at <= now]:
                del due[fd]
                sent[fd] = time.monotonic()
                by_fd[fd][0].send(by_fd[fd][1])
    # A missing answer counts with the time since its request.
    turns += [(at, time.monotonic() - at) for at in sent.values()]
    print(json.dumps(turns))


def percentile(seconds: Sequence[float], which: int) -> float:
    return round(statistics.quantiles(seconds, n=100)[which - 1] * 1e3, 1)


SCENARIOS: dict[str, Callable[[argparse.Namespace, int], Rows]] = {
    "heartbeat": heartbeats,
    "rebalance": rebalance,
    "commits": commits,
    "memory": memory,
    "calm": calm,
}

if __name__ == "__main__":
    main()
