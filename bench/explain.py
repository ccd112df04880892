"""Measures ``kohort explain`` on logs that are made here: time, CPU time and peak memory.

Each log is explained by a program of its own, from the file to the explanation of all groups; CPU
time and memory are those of its two processes, which read and explain. ``group
lines`` has lines about groups only, as a log of a busy coordinator; ``server log`` has one line
about a group in ten, as most logs of brokers; ``java clients`` are the lines of consumers.

    python -m bench.explain [--mib N] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.ending import end_with_children
from bench.results import emit

from kohort.cli.explain.evidence import read_sources
from kohort.explain.explaining import Explainer
from kohort.history.fewest_moves import fewest_moves
from kohort.host.collector import without_collector

SCALA = "(kafka.coordinator.group.GroupCoordinator)"
GROUPS = 20
MIB = 1 << 20


def stamp(millis: int) -> str:
    seconds, rest = divmod(millis, 1_000)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(1_700_000_000 + seconds)) + f",{rest:03}"


def member(chosen: random.Random, group: int) -> str:
    bits = f"{chosen.getrandbits(128):032x}"
    parts = (bits[:8], bits[8:12], bits[12:16], bits[16:20], bits[20:])
    return f"consumer-orders-{group}-1-{'-'.join(parts)}"


def group_lines() -> Iterator[str]:
    """Rebalances of Kafka 3.x, four lines each: a member joins or leaves, all join, all sync."""
    chosen, at, generations = random.Random(1), 0, [0] * GROUPS
    while True:
        group, at = chosen.randrange(GROUPS), at + chosen.randrange(2_000)
        name, generation, who = f"orders-{group}", generations[group], member(chosen, group)
        begin = f"[{stamp(at)}] INFO [GroupCoordinator 1]: "
        preparing = (
            f"Preparing to rebalance group {name} in state PreparingRebalance with old generation "
            f"{generation} (__consumer_offsets-{group}) (reason: "
        )
        if chosen.random() < 0.5:
            yield (
                f"{begin}Dynamic member with unknown member id joins group {name} in Stable state. "
                f"Created a new member id {who} and request the member to rejoin with this id. "
                f"{SCALA}\n"
            )
            yield (
                f"{begin}{preparing}Adding new member {who} with group instance id None; client "
                f"reason: rebalance failed due to MemberIdRequiredException) {SCALA}\n"
            )
        else:
            yield (
                f"{begin}{preparing}Removing member {who} on LeaveGroup; client reason: the "
                f"consumer is being closed) {SCALA}\n"
            )
            yield (
                f"{begin}Member MemberMetadata(memberId={who}, groupInstanceId=None, "
                f"clientId=consumer-orders-{group}-1, clientHost=/10.0.0.{group}, "
                "sessionTimeoutMs=45000, rebalanceTimeoutMs=300000, supportedProtocols=List(range, "
                f"cooperative-sticky)) has left group {name} through explicit `LeaveGroup`; client "
                f"reason: the consumer is being closed {SCALA}\n"
            )
        generations[group] = generation = generation + 1
        begin = f"[{stamp(at + 1_500)}] INFO [GroupCoordinator 1]: "
        yield (
            f"{begin}Stabilized group {name} generation {generation} (__consumer_offsets-{group}) "
            f"with 12 members {SCALA}\n"
        )
        yield (
            f"{begin}Assignment received from leader {who} for group {name} for generation "
            f"{generation}. The group has 12 members, 0 of which are static. {SCALA}\n"
        )


def server_log() -> Iterator[str]:
    """One line about a group in ten."""
    others = (
        "INFO [Log partition=t-{0}, dir=/data] Rolled new log segment at offset {1} in 3 ms. "
        "(kafka.log.Log)",
        "INFO [ReplicaFetcher replicaId=1, leaderId=2, fetcherId=0] Truncating partition t-{0} to "
        "local high watermark {1} (kafka.server.ReplicaFetcherThread)",
        "INFO [LocalLog partition=t-{0}, dir=/data] Deleting segment files LogSegment(baseOffset="
        "{1}, size=1073741824) (kafka.log.LocalLog$)",
    )
    for number, line in enumerate(group_lines()):
        yield line
        for more in range(9):
            text = others[more % len(others)].format(number % 97, number * 1_000)
            yield f"{line[: line.index(']') + 1]} {text}\n"


def java_clients() -> Iterator[str]:
    """Consumers that join, sync, and give up."""
    chosen, at, generation = random.Random(1), 0, 0
    where = "(org.apache.kafka.clients.consumer.internals.ConsumerCoordinator)"
    while True:
        at, generation = at + chosen.randrange(5_000), generation + 1
        number = chosen.randrange(50)
        who = member(chosen, number)
        context = f"[Consumer clientId=orders-{number}, groupId=orders] "
        joined = (
            f"Generation{{generationId={generation}, memberId='{who}', protocol='cooperative-"
            "sticky'}"
        )
        for step, text in enumerate(
            (
                "Request joining group due to: group is already rebalancing",
                "Revoke previously assigned partitions orders-1, orders-2",
                "(Re-)joining group",
                f"Successfully joined group with generation {joined}",
                f"Successfully synced group in generation {joined}",
                "Adding newly assigned partitions: orders-1, orders-2, orders-3",
            )
        ):
            yield f"[{stamp(at + step)}] INFO {context}{text} {where}\n"


KINDS: dict[str, Callable[[], Iterator[str]]] = {
    "group lines": group_lines,
    "server log": server_log,
    "java clients": java_clients,
}


def write(path: Path, lines: Iterator[str], size: int) -> int:
    """Write lines until the file has this many bytes; the number of lines."""
    written = count = 0
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(line)
            written, count = written + len(line), count + 1
            if written >= size:
                return count
    raise AssertionError("the lines never end")


@without_collector()
def read(path: Path) -> dict[str, float]:
    """Explain one log in this program: seconds, CPU seconds and peak memory."""
    begun, started = time.perf_counter(), time.process_time()
    explainer = Explainer(fewest_moves)
    read_sources([path], None, (), explainer)
    found = explainer.finish()
    wall, cpu = time.perf_counter() - begun, time.process_time() - started
    assert sum(each.story.total for each in found) > 0
    mine = resource.getrusage(resource.RUSAGE_SELF)
    reading = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "wall_s": wall,
        "cpu_s": cpu + reading.ru_utime + reading.ru_stime,
        "reading_cpu_s": reading.ru_utime + reading.ru_stime,
        "peak_mib": (mine.ru_maxrss + reading.ru_maxrss) / 1_024,
    }


def measure(path: Path, rounds: int) -> dict[str, float]:
    """The medians of the seconds, and the highest peak in MiB."""
    found = []
    for _ in range(rounds):
        command = [sys.executable, "-m", "bench.explain", "--read", str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout))
    seconds = ("wall_s", "cpu_s", "reading_cpu_s")
    medians = {name: statistics.median(each[name] for each in found) for name in seconds}
    return {**medians, "peak_mib": max(each["peak_mib"] for each in found)}


def main() -> int:
    end_with_children()
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--mib", type=int, default=20, help="size of each log (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each log (%(default)s)")
    parser.add_argument("--read", type=Path, metavar="FILE", help="only explain this log")
    options = parser.parse_args()
    if options.read:
        print(json.dumps(read(options.read)))
        return 0
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as folder:
        for kind, made in KINDS.items():
            path = Path(folder) / "server.log"
            lines = write(path, made(), options.mib * MIB)
            found = measure(path, options.rounds)
            row = {
                "log": kind,
                "log_mib": options.mib,
                **{name: round(value, 2) for name, value in found.items()},
                "wall_s_for_100_mb": round(found["wall_s"] * 100e6 / (options.mib * MIB), 1),
                "line_us": round(found["cpu_s"] / lines * 1e6, 2),
            }
            print(
                f"{kind}: {options.mib} MiB in {row['wall_s']} s, {row['cpu_s']} s of CPU "
                f"({row['line_us']} µs a line; the reading process {row['reading_cpu_s']} s); "
                f"100 MB in {row['wall_s_for_100_mb']} s; peak {row['peak_mib']:.0f} MiB",
                flush=True,
            )
            emit("explain", row)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
