"""Runs every measurement in turn: ``make bench``; ``python -m bench codec consume`` runs two.

Each measurement runs in a process of its own, so that none inherits memory or warm caches. If a
real Kafka was fetched (``kohort kafka fetch``), it is measured in the same run. Nothing else should
run on the machine. ``--json FILE`` keeps the rows with the load of the machine; ``python -m
bench.results BEFORE AFTER`` prints the ratios of two such files.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.ending import end_with_children
from bench.results import Row, rows_in, save

from kohort.testing.kafka_jars import installed
from kohort.testing.real_kafka import RealKafka

ROOT = Path(__file__).parent.parent
ORDER = ("codec", "assignors", "coordinator", "lab", "connectors", "startup", "consume", "pipeline")
ALONE = (
    "codepath", "drawing", "explain", "gap", "heartbeat", "history", "many_partitions", "memory",
    "reading", "worker_start",
)  # fmt: skip
"""Run only if they are named."""

BESIDE = ("coordinator", "heartbeat", "consume", "gap", "memory")
TOGETHER = ("coordinator",)
"""Measures kohort and the real Kafka in one process, if there is a Kafka."""

WITH_PID = ("coordinator", "heartbeat")
KAFKA_SETTINGS = {"group.initial.rebalance.delay.ms": 0}


def main() -> int:
    end_with_children()
    parser = argparse.ArgumentParser(description="Measure kohort.", prog="python -m bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ORDER + ALONE)}")
    parser.add_argument("--no-kafka", action="store_true", help="without a real Kafka beside it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows into this file")
    parser.add_argument(
        "--small", action="store_true", help="small sizes: shows that all runs, measures nothing"
    )
    options = parser.parse_args()
    unknown = sorted(set(options.names) - {*ORDER, *ALONE})
    if unknown:
        parser.error(
            f"no measurement is called {', '.join(unknown)}; there are {', '.join(ORDER + ALONE)}"
        )
    names = [name for name in ORDER + ALONE if name in (options.names or ORDER)]
    beside = [name for name in names if name in BESIDE]
    if options.no_kafka or installed() is None:
        together: list[str] = []
    else:
        together = [name for name in names if name in TOGETHER]
    runs = Runs(small=options.small)
    for name in names:
        if name not in together:
            runs.run(name, f"{name}: kohort")
    if beside and not options.no_kafka:
        run_beside(runs, beside)
    if options.json:
        save(options.json, runs.rows)
    if runs.failed:
        print(f"failed: {', '.join(runs.failed)}", file=sys.stderr)
    return 1 if runs.failed else 0


SMALL = {
    "codec": ["--seconds", "0.05"],
    "assignors": ["--small"],
    "coordinator": ["--small"],
    "heartbeat": ["--connections", "20", "--rounds", "2", "--seconds", "0.2"],
    "lab": ["--small"],
    "startup": ["--records", "10000"],
    "consume": ["--records", "20000", "--rounds", "1"],
    "drawing": ["--partitions", "50", "--members", "10", "--frames", "20"],
    "explain": ["--mib", "1", "--rounds", "1"],
    "gap": ["--hold", "1", "--rounds", "1"],
    "history": ["--facts", "100000", "--files", "2"],
    "many_partitions": ["--partitions", "50", "--seconds", "5"],
    "memory": ["--partitions", "20", "--settle", "1"],
}
"""Arguments for a run that takes seconds; the pipeline has no small size."""


class Runs:
    """The measurements of one run: their rows, and the names of those that failed."""

    def __init__(self, *, small: bool) -> None:
        self.rows: list[Row] = []
        self.failed: list[str] = []
        self._small = small

    def run(self, name: str, title: str, arguments: Sequence[str] = ()) -> None:
        """Run one measurement, print its output, keep its rows."""
        print(f"\n=== {title} ===", flush=True)
        small = SMALL.get(name, []) if self._small else []
        command = [sys.executable, "-m", f"bench.{name}", *small, *arguments]
        before = os.getloadavg()[0]
        found: list[Row] = []
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    print(line, end="", flush=True)
                    found += rows_in(line)
            except BaseException:
                process.terminate()
                raise
        load = [round(before, 1), round(os.getloadavg()[0], 1)]
        self.rows += [{"bench": name} | row | {"load": load} for row in found]
        if process.returncode:
            self.failed.append(name)


def run_beside(runs: Runs, names: Sequence[str]) -> None:
    """Run the measurements that a real Kafka can take part in."""
    if installed() is None:
        print("\nno real Kafka beside it: `kohort kafka fetch` gets one", flush=True)
        return
    with (
        tempfile.TemporaryDirectory(prefix="kohort-bench-") as directory,
        RealKafka(Path(directory), settings=KAFKA_SETTINGS) as kafka,
    ):
        there = ["--bootstrap", kafka.bootstrap_servers]
        for name in names:
            pid = ["--pid", str(kafka.pids[1])] if name in WITH_PID else []
            runs.run(name, f"{name}: a real Kafka", [*there, *pid])


if __name__ == "__main__":
    sys.exit(main())
