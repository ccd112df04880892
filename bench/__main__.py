"""``make bench``: every measurement in turn; ``python -m bench codec heartbeat`` some of them.

Each runs in a process of its own, so that none inherits the memory or the warmth of another. Where
a real Kafka was fetched (``kohort kafka fetch``), what can be measured on it is, beside kohort's.
Nothing else should run on the machine meanwhile: figures are of the machine as it is.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kohort.testing.kafka_jars import installed
from kohort.testing.real_kafka import RealKafka

ROOT = Path(__file__).parent.parent
ORDER = ("codec", "coordinator", "lab", "startup", "consume", "pipeline")
ALONE = ("heartbeat",)
"""Measured when it is named: the coordinator's bench has it too."""

BESIDE = ("coordinator", "heartbeat", "consume")
TOGETHER = ("coordinator",)
"""Measures kohort and the real Kafka in one run, where there is one."""

WITH_PID = ("coordinator", "heartbeat")
KAFKA_SETTINGS = {"group.initial.rebalance.delay.ms": 0}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure kohort.", prog="python -m bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ORDER + ALONE)}")
    parser.add_argument("--no-kafka", action="store_true", help="without a real Kafka beside it")
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
    failed = [n for n in names if n not in together and not run(n, f"{n}: kohort")]
    if beside and not options.no_kafka:
        failed += run_beside(beside)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run(name: str, title: str, arguments: Sequence[str] = ()) -> bool:
    print(f"\n=== {title} ===", flush=True)
    command = [sys.executable, "-m", f"bench.{name}", *arguments]
    return subprocess.run(command, check=False, cwd=ROOT).returncode == 0


def run_beside(names: Sequence[str]) -> list[str]:
    if installed() is None:
        print("\nno real Kafka beside it: `kohort kafka fetch` gets one", flush=True)
        return []
    with (
        tempfile.TemporaryDirectory(prefix="kohort-bench-") as directory,
        RealKafka(Path(directory), settings=KAFKA_SETTINGS) as kafka,
    ):
        there = ["--bootstrap", kafka.bootstrap_servers]
        return [
            name
            for name in names
            if not run(
                name,
                f"{name}: a real Kafka",
                [*there, "--pid", str(kafka.pids[1])] if name in WITH_PID else there,
            )
        ]


if __name__ == "__main__":
    sys.exit(main())
