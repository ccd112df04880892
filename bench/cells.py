"""Compares the lab's prediction of a rolling bounce with processes on a real Kafka.

Five processes share thirty partitions. Each process in turn ends in order, and comes back some
seconds later. The number is the partition-seconds that nobody reads, computed from the histories of
the consumers, for an eager group, for Design I, and for Design II with a wait. The lab runs the
same group: the time between the end of a process and its next start is taken from the histories.
Both numbers are means, because the phase of the heartbeats is random: of several runs of the
processes, and of twenty seeds of the lab for each. A waiting poll of the live consumers looks at
the group every 50 ms, and so does that of the lab here.

    python -m bench.cells --bootstrap HOST:PORT
    python -m bench.cells            # starts a fetched Kafka
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from bench.results import emit

from kohort.client.admin import Admin
from kohort.client.consumer import Consumer
from kohort.client.consuming.poll_loop import IDLE_WAIT_S
from kohort.history.clairvoyant import Costs
from kohort.history.costs import measure
from kohort.lab.actions import StopPod
from kohort.lab.plan import Behaviour, NetworkPlan, Plan, PodPlan, TopicPlan
from kohort.lab.world import World
from kohort.model.client_facts import ProcessStarted, ProcessStopped
from kohort.model.history_record import Recorded
from kohort.model.ids import GroupId, TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, MICROS_PER_SECOND, Instant
from kohort.storage.fact_files import read_histories
from kohort.testing.real_kafka import RealKafka

MEMBERS, PARTITIONS = 5, 30
SETTLE_S, BETWEEN_S, DOWN_S = 12.0, 10.0, 3.0
SEEDS = 20
SETTINGS = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 1_000}
POLL_MS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A policy, for live consumers and for the lab."""

    name: str
    settings: dict[str, object]
    behaviour: dict[str, Any]


CELLS = (
    Cell(
        name="eager sticky",
        settings={"partition.assignment.strategy": "sticky"},
        behaviour={"strategy": "sticky"},
    ),
    Cell(name="Design I", settings={}, behaviour={}),
    Cell(
        name="Design II, a wait of 30 s",
        settings={"scheduled.rebalance.max.delay.ms": 30_000},
        behaviour={"scheduled_rebalance_max_delay_ms": 30_000},
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", help="a Kafka; otherwise a fetched one is started")
    parser.add_argument("--runs", type=int, default=3, help="of the processes, for each cell")
    parser.add_argument("--member", nargs=3, metavar="TEXT", help=argparse.SUPPRESS)
    options, rest = parser.parse_known_args()
    if options.member:
        address, topic, history = options.member
        return member(address, topic, history, dict(pair.split("=", 1) for pair in rest))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address = options.bootstrap
        if address is None:
            kafka = RealKafka(folder, settings={"group.initial.rebalance.delay.ms": 0})
            address = stack.enter_context(kafka).bootstrap_servers
        for cell in CELLS:
            seen, predicted = [], []
            for _ in range(options.runs):
                topic = f"cells-{uuid.uuid4()}"
                history = live(cell, address, topic, folder)
                begin, stops = _stops(history)
                seen.append(_down_s(history, topic, begin))
                predicted += [lab(cell, begin, stops, seed) for seed in range(SEEDS)]
            real = statistics.mean(seen)
            emit(
                "cells",
                {
                    "what": f"rolling bounce, {cell.name}",
                    "members": MEMBERS,
                    "partitions": PARTITIONS,
                    "real_partition_s": round(real, 1),
                    "real_least": round(min(seen), 1),
                    "real_most": round(max(seen), 1),
                    "lab_partition_s": round(statistics.mean(predicted), 1),
                    "lab_least": round(min(predicted), 1),
                    "lab_most": round(max(predicted), 1),
                    "difference_percent": round(100 * (statistics.mean(predicted) / real - 1)),
                    "goal_difference_percent": 20,
                },
            )
    return 0


# -- processes ------------------------------------------------------------------------------------


def member(address: str, topic: str, history: str, settings: dict[str, str]) -> int:
    """One process: reads until SIGTERM, then leaves the group."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
    everything: dict[str, object] = {
        "bootstrap.servers": address,
        "group.id": topic,
        "kohort.history.file": history,
        **SETTINGS,
        **settings,
    }
    with Consumer(everything) as consumer:
        consumer.subscribe([topic])
        while not ended:
            consumer.poll(POLL_MS / 1_000)
    return 0


def live(cell: Cell, address: str, name: str, folder: Path) -> list[Recorded]:
    """The facts of a rolling bounce of a group, which has the name of its topic."""
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic(name, PARTITIONS, 1)
    files = [folder / f"{name}-{number}.jsonl" for number in range(MEMBERS)]

    def start(file: Path) -> subprocess.Popen[bytes]:
        settings = [f"{key}={value}" for key, value in cell.settings.items()]
        command = [sys.executable, "-m", "bench.cells"]
        return subprocess.Popen([*command, "--member", address, name, str(file), *settings])

    running = [start(file) for file in files]
    try:
        time.sleep(SETTLE_S)
        for number in reversed(range(MEMBERS)):
            began = time.monotonic()
            running[number].send_signal(signal.SIGTERM)
            running[number].wait(20)
            time.sleep(DOWN_S)
            running[number] = start(files[number])
            time.sleep(max(0.0, BETWEEN_S - (time.monotonic() - began)))
        time.sleep(SETTLE_S / 2)
    finally:
        for process in running:
            process.kill()
            process.wait(20)
    return list(read_histories(files).facts)


def _stops(history: list[Recorded]) -> tuple[Instant, list[tuple[str, int, int]]]:
    """The beginning of the window, and each stop: the process, the instant, the time until back."""
    stopped: dict[str, Instant] = {}
    stops = []
    for recorded in history:
        if isinstance(recorded.fact, ProcessStopped):
            stopped[recorded.source] = recorded.at
        elif isinstance(recorded.fact, ProcessStarted) and recorded.source in stopped:
            at = stopped.pop(recorded.source)
            stops.append((recorded.source, int(at), int(recorded.at - at)))
    begin = Instant(min(at for _, at, _ in stops) - MICROS_PER_SECOND)
    return begin, stops


def _down_s(history: list[Recorded], topic: str, begin: Instant) -> float:
    """The partition-seconds of the bounce that nobody read."""
    measured = measure(
        history,
        [TopicPartition(topic, n) for n in range(PARTITIONS)],
        Costs(),
        begin=begin,
        end=Instant(begin + round((MEMBERS * BETWEEN_S + 3) * MICROS_PER_SECOND)),
        group_id=GroupId(topic),
    )
    return measured.metrics.unavailable_ms / 1_000


# -- the lab --------------------------------------------------------------------------------------


def lab(cell: Cell, begin: Instant, stops: list[tuple[str, int, int]], seed: int) -> float:
    """The lab's partition-seconds of the same bounce."""
    behaviour = Behaviour(
        session_timeout_ms=10_000,
        heartbeat_interval_ms=1_000,
        idle_ms=POLL_MS,
        look_ms=round(IDLE_WAIT_S * 1_000),
        batch_ms=0,
        **cell.behaviour,
    )
    random = Random(seed)
    first_ms = round(SETTLE_S * 1_000) + random.randrange(1_000)
    actions = tuple(
        StopPod(
            at_ms=first_ms + (at - begin) // MICROS_PER_MILLI,
            pod=f"pod-{source.rpartition('-')[2]}",
            back_after_ms=back // MICROS_PER_MILLI,
        )
        for source, at, back in stops
    )
    plan = Plan(
        seed=seed,
        duration_ms=first_ms + round((MEMBERS * BETWEEN_S + 3) * 1_000),
        group_id="t",
        topics=(TopicPlan(name="t", partitions=PARTITIONS, records_per_second=0.01),),
        pods=tuple(
            PodPlan(name=f"pod-{n}", start_ms=random.randrange(1_000), behaviour=behaviour)
            for n in range(MEMBERS)
        ),
        network=NetworkPlan(),
        coordinator=(("group.initial.rebalance.delay.ms", "0"),),
        actions=actions,
    )
    world = World(plan)
    world.run()
    return _down_s(world.history, "t", Instant(first_ms * MICROS_PER_MILLI))


if __name__ == "__main__":
    raise SystemExit(main())
