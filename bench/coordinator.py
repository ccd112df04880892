"""What the group coordinator does in a second, and what it costs: kohort, the floor, a real Kafka.

*Heartbeat*: server CPU a request, as ``bench.heartbeat`` measures it. *Rebalance*: all members of a
group join again at once, with 100 B of metadata and of assignment each; the clock runs from the
first join written to the last sync answered. *Commits*: 100 members of one group commit one
partition each, in a closed loop; kohort answers after an fdatasync, Kafka without any. *Memory*:
what a connection costs the server, and then a member. *Calm*: heartbeats of another group while
5,000 members rebalance.

One member a connection, prepared frames, every answer compared. The load is one process, the server
another; CPU is the server's, from ``/proc``. Goals are of issue 5.

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
from typing import Any

from bench import frames, heartbeat
from bench.members import Members, NeverSettles
from bench.peers import ROOT, Peer, floor_server, own_broker, running

from kohort.client.admin import Admin

REBALANCE_GOALS_S = {1_000: 0.12, 5_000: 0.5, 10_000: 1.2}
"""By members; the first is what Kafka took at most, in ``reference/baselines.md``."""

COMMITS_GOAL = 40_000
MEMBER_GOAL_BYTES = 2_048
CONNECTION_GOAL_BYTES = 6_144
CALM_GOAL_MS = 100.0
COMMITTERS = 100
CALM_CONNECTIONS = 20
CALM_PAUSE_S = 0.02
CALM_MEMBERS = 5_000
MEMORY_MEMBERS = 2_000
MEMORY_TIMES = 3
"""How often so many come; the first time is not counted."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", help="HOST:PORT of a Kafka that runs already")
    parser.add_argument("--pid", type=int, help="its process id")
    parser.add_argument("--only", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS))
    parser.add_argument("--members", type=int, nargs="+", default=list(REBALANCE_GOALS_S))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beat", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if bool(options.bootstrap) != bool(options.pid):
        parser.error("--bootstrap and --pid go together")
    if options.beat:
        beat_calmly(*options.beat)
        return
    allow_many_files()
    for name in options.only:
        for row in SCENARIOS[name](options):
            print(json.dumps({"bench": "coordinator", "scenario": name} | row), flush=True)


def allow_many_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextlib.contextmanager
def servers(options: argparse.Namespace) -> Iterator[list[Peer]]:
    """kohort, and the Kafka that runs."""
    with own_broker() as own:
        more = [running(options.bootstrap, options.pid)] if options.bootstrap else []
        yield [own, *more]


Rows = Iterator[dict[str, object]]


def heartbeats(options: argparse.Namespace) -> Rows:
    with servers(options) as peers, floor_server() as floor:
        for count in heartbeat.CONNECTIONS:
            yield from heartbeat.measure([floor, *peers], count, 1.0, options.rounds)


def rebalance(options: argparse.Namespace) -> Rows:
    with servers(options) as peers:
        for count in options.members:
            kafka_s: float | None = None
            for peer in reversed(peers):
                row, took = rebalances(peer, count, options.rounds)
                if peer.name == "kohort":
                    goal = REBALANCE_GOALS_S.get(count)
                    row |= goal_of(took, goal, "goal_s") if goal and took else {}
                    row |= {"times_kafka": round(took / kafka_s, 2)} if kafka_s and took else {}
                else:
                    kafka_s = took
                yield row


def rebalances(peer: Peer, count: int, rounds: int) -> tuple[dict[str, object], float | None]:
    row: dict[str, object] = {"server": peer.name, "members": count}
    with contextlib.ExitStack() as stack:
        try:
            members = Members(stack, peer, fresh("rebalance"), count)
            members.rebalance()
            done = [members.rebalance() for _ in range(rounds)]
        except NeverSettles as error:
            return row | {"settled": False, "told": str(error)}, None
    took = statistics.median(one.took_s for one in done)
    cpu = statistics.median(one.cpu_s for one in done)
    return row | {
        "median_s": round(took, 3),
        "best_s": round(min(one.took_s for one in done), 3),
        "server_cpu_s": round(cpu, 3),
        "server_cpu_us_per_member": round(cpu / count * 1e6, 1),
    }, took


def commits(options: argparse.Namespace) -> Rows:
    with servers(options) as peers:
        kafka_rate = 0.0
        for peer in reversed(peers):
            row, rate = commit_rate(peer, options.rounds)
            if peer.name == "kohort":
                row |= {"goal_per_s": COMMITS_GOAL, "goal_met": rate >= COMMITS_GOAL}
                row |= {"times_kafka": round(rate / kafka_rate, 2)} if kafka_rate else {}
            else:
                kafka_rate = rate
            yield row


def commit_rate(peer: Peer, rounds: int) -> tuple[dict[str, object], float]:
    group, topic = fresh("commits"), fresh("committed")
    with Admin({"bootstrap.servers": f"{peer.host}:{peer.port}"}) as admin:
        admin.create_topic(topic, partitions=COMMITTERS)
    with contextlib.ExitStack() as stack:
        members = Members(stack, peer, group, COMMITTERS)
        seats = {}
        for number, seat in enumerate(members.seats):
            frame = frames.commit(group, seat.generation, seat.member, topic, number)
            seats[seat.sock.fileno()] = seat.sock, frame, frames.committed(topic, number)
        commit_for(seats, 0.5)
        cpu, started = peer.cpu_seconds(), time.perf_counter()
        latencies = [took for _ in range(rounds) for took in commit_for(seats, 1.0)]
        elapsed, cpu = time.perf_counter() - started, peer.cpu_seconds() - cpu
    cuts = statistics.quantiles(latencies, n=100)
    rate = len(latencies) / elapsed
    return {
        "server": peer.name,
        "connections": COMMITTERS,
        "commits_per_s": round(rate),
        "server_cpu_us_per_request": round(cpu / len(latencies) * 1e6, 1),
        "p50_ms": round(cuts[49] * 1e3, 2),
        "p99_ms": round(cuts[98] * 1e3, 2),
        "synced": peer.name == "kohort",
    }, rate


def commit_for(seats: dict[int, tuple[Any, bytes, bytes]], seconds: float) -> list[float]:
    """One commit in flight on every connection, each of a higher offset; seconds of each."""
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


def memory(options: argparse.Namespace) -> Rows:
    """Of kohort alone: a Java heap says nothing of one member.

    What comes first is not counted: it fills what the storm before it left to Python's allocator,
    which seldom gives anything back. That is told by itself.
    """
    with own_broker() as peer, contextlib.ExitStack() as stack:
        Members(stack, peer, fresh("storm"), MEMORY_MEMBERS).rebalance()
        _, *more = [grown_by(peer, idle(stack, peer)) for _ in range(MEMORY_TIMES)]
        connection = statistics.fmean(more)
        yield {"server": peer.name, "what": "a connection, idle"} | bytes_of(
            connection, CONNECTION_GOAL_BYTES
        )
    with own_broker() as peer, contextlib.ExitStack() as stack:
        first, *more = [grown_by(peer, beating(stack, peer)) for _ in range(MEMORY_TIMES)]
        whole = statistics.fmean(more)
        yield {"server": peer.name, "what": "a member that beats, without its connection"} | (
            bytes_of(whole - connection, MEMBER_GOAL_BYTES)
        )
        yield {
            "server": peer.name,
            "what": f"left to the allocator by {MEMORY_MEMBERS} members that come",
            "bytes": round((first - whole) * MEMORY_MEMBERS),
        }


def grown_by(peer: Peer, come: Callable[[], None]) -> float:
    """Bytes that the server has grown by, for each of those that ``come``."""
    settle()
    before = peer.own_bytes()
    come()
    settle()
    return (peer.own_bytes() - before) / MEMORY_MEMBERS


def idle(stack: contextlib.ExitStack, peer: Peer) -> Callable[[], None]:
    def come() -> None:
        for _ in range(MEMORY_MEMBERS):
            sock = stack.enter_context(heartbeat.connect(peer))
            heartbeat.ask(sock, frames.find_coordinator("anything"))

    return come


def beating(stack: contextlib.ExitStack, peer: Peer) -> Callable[[], None]:
    def come() -> None:
        members = Members(stack, peer, fresh("memory"), MEMORY_MEMBERS)
        beats = {
            seat.sock.fileno(): (
                seat.sock,
                frames.heartbeat(seat.group, seat.generation, seat.member),
            )
            for seat in members.seats
        }
        heartbeat.beat(beats, 0.1)

    return come


def settle() -> None:
    """Let the server come to rest."""
    time.sleep(1.0)


def bytes_of(each: float, goal: int) -> dict[str, object]:
    return {"bytes": round(each), "goal_bytes": goal, "goal_met": each <= goal}


def calm(options: argparse.Namespace) -> Rows:
    with servers(options) as peers:
        for peer in peers:
            yield calmness(peer, options.rounds)


def calmness(peer: Peer, rounds: int) -> dict[str, object]:
    """Heartbeats of another group, from a process of their own, during rebalances."""
    row: dict[str, object] = {"server": peer.name, "members": CALM_MEMBERS}
    command = [sys.executable, "-m", "bench.coordinator", "--beat", peer.host, str(peer.port)]
    beater = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        with contextlib.ExitStack() as stack:
            members = Members(stack, peer, fresh("calm"), CALM_MEMBERS)
            members.rebalance()
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
    """Heartbeats of one group, each member's after a pause, until told to stop; then say all."""
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
    # An answer that never came counts as long as it was waited for.
    turns += [(at, time.monotonic() - at) for at in sent.values()]
    print(json.dumps(turns))


def percentile(seconds: Sequence[float], which: int) -> float:
    return round(statistics.quantiles(seconds, n=100)[which - 1] * 1e3, 1)


def goal_of(measured: float, goal: float, name: str) -> dict[str, object]:
    return {name: goal, "goal_met": measured <= goal}


def fresh(what: str) -> str:
    return f"bench-{what}-{os.getpid()}-{time.monotonic_ns()}"


SCENARIOS: dict[str, Callable[[argparse.Namespace], Rows]] = {
    "heartbeat": heartbeats,
    "rebalance": rebalance,
    "commits": commits,
    "memory": memory,
    "calm": calm,
}

if __name__ == "__main__":
    main()
