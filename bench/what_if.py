"""Compares the prediction of ``kohort what-if`` with groups of processes on a real Kafka.

Three deployments run twice: as they are, and with a change. The evidence of the first run (the
broker's log, the offsets topic, the members' histories) gives the prediction. The second run tells
how good it is. The meter of the lab measures both runs, from the histories of the processes. The
longest gap of one run depends on the moment between two heartbeats in which a member ends: several
groups go through each run at once, and their mean is compared with the mean of the lab. The next
process of a pod has imported everything when it is told to start, so that a busy machine does not
change the restart times.

    python -m bench.what_if                      # starts a real Kafka itself
    python -m bench.what_if killed --seeds 3     # one deployment
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from threading import Barrier, Lock
from typing import Any, Final

from bench.ending import end_with_children
from bench.results import emit
from tests.client.stage import Feeder, topic

from kohort import Consumer
from kohort.cli.explain.evidence import read_sources
from kohort.client.listeners import Callbacks
from kohort.explain.deployments import Deployment
from kohort.explain.evidence import Evidence
from kohort.history.clairvoyant import Costs
from kohort.history.cost_values import Metrics
from kohort.history.costs import measure
from kohort.history.endings import with_endings
from kohort.history.fewest_moves import fewest_moves
from kohort.host.clock import monotonic_now
from kohort.lab.changes import Change, check_change
from kohort.lab.what_if import Outcome, collect, do, jobs
from kohort.model.ids import GroupId, TopicPartition
from kohort.model.instants import Instant
from kohort.storage.fact_files import read_histories
from kohort.testing.real_kafka import RealKafka

FLUSH_S: Final = 0.3
RESTORE_S: Final = 0.2
SETTLE_S: Final = 10.0
BETWEEN_S: Final = 8.0
LONGEST_S: Final = 120.0
APART_S: Final = 1.3
"""Groups that run at once end their members so long after each other."""
GOAL: Final = 0.2
TOLD: Final = (("unavailable_ms", "dead_ps"), ("longest_stop_ms", "gap_s"), ("moves", "moves"))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A deployment, the events, and the change."""

    members: int
    partitions: int
    settings: Mapping[str, Any]
    change: Change
    changed: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the consumers that the change means."""
    static: bool = False
    """Whether the change gives each pod an instance id."""
    kill: bool = False
    back_s: float = 5.0
    events: int = 2
    calm_s: float = 8.0


QUICK: Final = {"heartbeat.interval.ms": 1_000, "auto.commit.interval.ms": 1_000}
CASES: Final = {
    "eager-to-cooperative": Case(
        members=3,
        partitions=12,
        settings={"partition.assignment.strategy": "range", "session.timeout.ms": 20_000},
        change=Change(title="cooperative-sticky", policy="cooperative-sticky"),
        changed={"partition.assignment.strategy": "cooperative-sticky"},
    ),
    "dynamic-to-static": Case(
        members=3,
        partitions=12,
        settings={
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": 20_000,
        },
        change=Change(title="static", policy="static-cooperative-sticky"),
        static=True,
    ),
    "killed": Case(
        members=3,
        partitions=12,
        settings={
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": 18_000,
        },
        change=Change(title="short session", settings=(("session.timeout.ms", "6000"),)),
        changed={"session.timeout.ms": 6_000},
        kill=True,
        back_s=25.0,
        events=1,
        calm_s=12.0,
    ),
}


# -- one member -----------------------------------------------------------------------------------


def member() -> None:
    """A consumer that starts when its settings come on standard input; SIGTERM closes it."""
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    print("ready", flush=True)
    line = sys.stdin.readline()
    if not line:
        return
    told = json.loads(line)
    listener = Callbacks(
        on_assign=lambda *_: time.sleep(RESTORE_S), on_revoke=lambda *_: time.sleep(FLUSH_S)
    )
    with Consumer(told["settings"]) as consumer:
        consumer.subscribe([told["topic"]], listener)
        while not stopped:
            consumer.poll(0.1)


class Pod:
    """The processes of one pod, one after another; the next one waits for its turn."""

    def __init__(
        self, stack: ExitStack, settings: Mapping[str, Any], name: str, directory: Path
    ) -> None:
        self._stack = stack
        self._settings = settings
        self._topic = name
        self._directory = directory
        self.histories: list[Path] = []
        self._waiting = self._spare()
        self._running: subprocess.Popen[str] | None = None

    def _spare(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "bench.what_if", "--member"]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._stack.callback(_ended, process)
        return process

    def start(self) -> None:
        """Let the waiting process join the group; its history has the name of the pod."""
        life = self._directory / str(len(self.histories))
        life.mkdir(exist_ok=True)
        self.histories.append(life / f"{self._settings['client.id']}.jsonl")
        settings = {**self._settings, "kohort.history.file": str(self.histories[-1])}
        process, self._running = self._waiting, self._waiting
        assert process.stdin is not None
        process.stdin.write(json.dumps({"settings": settings, "topic": self._topic}) + "\n")
        process.stdin.flush()

    def prepare(self) -> None:
        """Start the next process."""
        self._waiting = self._spare()

    def await_ready(self) -> None:
        """Wait until the waiting process has imported everything."""
        assert self._waiting.stdout is not None
        assert self._waiting.stdout.readline().strip() == "ready"

    def end(self, *, kill: bool) -> None:
        """Ask the running process to end, or kill it."""
        assert self._running is not None
        self._running.send_signal(signal.SIGKILL if kill else signal.SIGTERM)


def _ended(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


# -- one run --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Real:
    """A run on the real Kafka."""

    group: str
    metrics: Metrics
    deployment: Deployment
    """Of the evidence up to the end of the run."""


def run_groups(
    case: Case, kafka: RealKafka, directory: Path, groups: int, *, changed: bool
) -> list[Real]:
    """Let the events happen to several groups at once, and measure each of them."""
    names = [f"{directory.name}-{'after' if changed else 'before'}-{n}" for n in range(groups)]
    turns = Turns(calm=Barrier(groups, timeout=LONGEST_S))
    with ThreadPoolExecutor(groups) as pool:
        runs = []
        for name in names:
            runs.append(pool.submit(run_case, case, kafka, directory, name, turns, changed=changed))
            time.sleep(APART_S)
        return [run.result() for run in runs]


@dataclass(frozen=True, kw_only=True)
class Turns:
    """Lets all groups end their events before the evidence of the first one is read."""

    calm: Barrier
    reading: Lock = field(default_factory=Lock)


def run_case(
    case: Case, kafka: RealKafka, directory: Path, group: str, turns: Turns, *, changed: bool
) -> Real:
    """Let the events happen to the processes of one group, and measure their histories."""
    with ExitStack() as stack:
        name = stack.enter_context(topic(kafka.bootstrap_servers, case.partitions))
        feeder = stack.enter_context(
            Feeder(kafka.bootstrap_servers, name, case.partitions, per_second=24)
        )
        stack.callback(feeder.stop)
        lives = directory / group
        lives.mkdir()
        pods = []
        for number in range(case.members):
            settings = {**QUICK, **case.settings, **(case.changed if changed else {})}
            settings |= {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": group,
                "client.id": f"pod-{number}",
                "auto.offset.reset": "earliest",
            }
            if changed and case.static:
                settings["group.instance.id"] = f"pod-{number}"
            pods.append(Pod(stack, settings, name, lives))
        for pod in pods:
            pod.await_ready()
        for pod in pods:
            pod.start()
        for pod in pods[1 : 1 + case.events]:
            pod.prepare()
        for pod in pods[1 : 1 + case.events]:
            pod.await_ready()
        time.sleep(SETTLE_S)
        begin = monotonic_now()
        for pod in pods[1 : 1 + case.events]:
            pod.end(kill=case.kill)
            time.sleep(case.back_s)
            pod.start()
            time.sleep(BETWEEN_S)
        time.sleep(case.calm_s)
        end = monotonic_now()
        histories = [path for pod in pods for path in pod.histories]
        turns.calm.wait()
        evidence = Evidence(fewest_moves)
        sources = [kafka.log(), *histories]
        with turns.reading:
            read_sources(sources, kafka.bootstrap_servers, (group,), evidence)
        partitions = [TopicPartition(name, number) for number in range(case.partitions)]
        return Real(
            group=group,
            metrics=_measured(histories, partitions, group, begin, end),
            deployment=evidence.deployment(group),
        )


def _measured(
    paths: list[Path], partitions: list[TopicPartition], group: str, begin: Instant, end: Instant
) -> Metrics:
    facts = [
        replace(recorded, incarnation=1 + int(path.parent.name))
        for path in paths
        for recorded in read_histories([path]).facts
    ]
    facts.sort(key=lambda recorded: recorded.at)
    costs = Costs(flush_ms=round(1_000 * FLUSH_S), restore_cold_ms=round(1_000 * RESTORE_S))
    whole = with_endings(facts)
    return measure(whole, partitions, costs, begin=begin, end=end, group_id=GroupId(group)).metrics


# -- the prediction -------------------------------------------------------------------------------


def predict(case: Case, real: Real, seeds: int) -> list[Outcome]:
    """The runs of the lab for the run that is the evidence, and for the changed one."""
    deployment = real.deployment
    check_change(deployment, case.change)
    print(
        f"{real.group}: "
        + ", ".join(f"{n} {f.value} ({f.known})" for n, f in deployment.figures.items())
    )
    for incident in deployment.incidents:
        print(f"  {incident.pod} {incident.what} for {incident.for_s} s ({incident.known})")
    wanted = jobs(deployment, [case.change], range(1, seeds + 1))
    return collect(wanted, map(do, wanted))


def compare(name: str, kafka: RealKafka, directory: Path, seeds: int, groups: int) -> None:
    """Both runs of a deployment, and the prediction; one row for each value."""
    case = CASES[name]
    before = run_groups(case, kafka, directory, groups, changed=False)
    present, then = zip(*(predict(case, real, seeds) for real in before), strict=True)
    after = run_groups(case, kafka, directory, groups, changed=True)
    for real in after:
        for incident in real.deployment.incidents:
            print(f"  after: {incident.pod} {incident.what} for {incident.for_s} s")
    for key, short in TOLD:
        was, is_now = _values(before, key), _values(after, key)
        lab = [value for outcome in present for value in outcome.values(key)]
        predicted = [value for outcome in then for value in outcome.values(key)]
        row = {"deployment": name, "value": short, "groups": groups, "real_before": _mean(was)}
        row |= {"spread_real_before": _spread(was), "lab_before": _mean(lab)}
        row |= {"spread_before": _spread(lab), "real_after": _mean(is_now)}
        row |= {"spread_real_after": _spread(is_now), "predicted": _mean(predicted)}
        row |= {"spread": _spread(predicted), "error": _error(fmean(predicted), fmean(is_now))}
        emit("what_if", row | {"all_after": is_now, "goal": GOAL})


def _values(runs: list[Real], key: str) -> list[float]:
    scale = 1_000 if key.endswith("_ms") else 1
    return [round(float(getattr(real.metrics, key)) / scale, 2) for real in runs]


def _mean(values: list[float]) -> float:
    return round(fmean(values), 2)


def _spread(values: list[float]) -> float:
    return round(stdev(values), 2) if len(values) > 1 else 0.0


def _error(predicted: float, real: float) -> float | None:
    return round((predicted - real) / real, 3) if real else None


@contextmanager
def _kafka() -> Iterator[RealKafka]:
    settings = {"group.initial.rebalance.delay.ms": 1_000}
    with (
        tempfile.TemporaryDirectory(prefix="kohort-what-if-") as directory,
        RealKafka(Path(directory), settings=settings, quick=True) as kafka,
    ):
        yield kafka


def main() -> None:
    end_with_children()
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.what_if")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)}")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--groups", type=int, default=2, help="groups at once (%(default)s)")
    parser.add_argument("--member", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.member:
        member()
        return
    for name in options.names:
        if name not in CASES:
            parser.error(f"unknown deployment {name!r}; choose among: {', '.join(CASES)}")
    with _kafka() as kafka:
        for name in options.names or CASES:
            with tempfile.TemporaryDirectory(prefix=f"{name}-") as directory:
                compare(name, kafka, Path(directory), options.seeds, options.groups)


if __name__ == "__main__":
    main()
