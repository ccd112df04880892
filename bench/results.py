"""Measured rows: printed as JSON lines, kept in a file with the state of the machine, compared.

In: rows from the measurements, or two files. Out: one JSON file of a run, or a table of ratios. A
row consists of names and sizes, which identify it, and of measured numbers.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]

SIZES = frozenset(
    {
        "members",
        "connections",
        "connectors",
        "records",
        "value_bytes",
        "partitions",
        "settled",
        "facts",
        "groups",
        "cores",
    }
)
"""Numbers that identify a row, besides its texts."""

UNCOMPARED = ("goal", "warm_up", "load", "times_", "requests", "heartbeats", "log_mib")
"""The beginnings of names of numbers that are neither identity nor result."""


def emit(name: str, row: Row) -> None:
    """Print one row of the measurement ``name``."""
    print(json.dumps({"bench": name} | row), flush=True)


def rows_in(line: str) -> list[Row]:
    """The rows in one line of a measurement's output; none if the line is a text for people."""
    try:
        found = json.loads(line)
    except ValueError:
        return []
    listed = found if isinstance(found, list) else [found]
    return [row for row in listed if isinstance(row, dict)]


def machine() -> Row:
    """The machine and its interpreter."""
    model = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "processors": os.cpu_count(),
        "processor": model[0] if model else platform.machine(),
        "python": platform.python_version(),
    }


def save(path: Path, rows: Iterable[Row]) -> None:
    """Write all rows of a run and the machine to a file."""
    text = json.dumps({"machine": machine(), "rows": list(rows)}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def compare(before: Path, after: Path) -> int:
    """Print each number of two runs and its ratio; return the number of compared rows."""
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in (before, after)]
    for name, found in zip(("before", "after"), runs, strict=True):
        print(f"{name}: {json.dumps(found['machine'])}")
    old, new = ({identity(row): row for row in found["rows"]} for found in runs)
    width = max((len(key) for key in old.keys() & new.keys()), default=0)
    for key in [key for key in old if key in new]:
        print(f"\n{key:{width}}  load {old[key].get('load')} → {new[key].get('load')}")
        for measure, number in results(old[key]):
            other = new[key].get(measure)
            if isinstance(other, int | float) and number:
                print(f"    {measure:34} {number:>14,} {other:>14,}   × {other / number:.2f}")
    for title, lost in (
        ("only before", old.keys() - new.keys()),
        ("only after", new.keys() - old.keys()),
    ):
        for key in sorted(lost):
            print(f"{title}: {key}")
    return len(old.keys() & new.keys())


def identity(row: Row) -> str:
    """The texts and sizes of a row, in the order of their names."""
    parts = {
        name: value
        for name, value in row.items()
        if name != "load" and (isinstance(value, str) or name in SIZES)
    }
    return " ".join(
        f"{name}={value}" if name in SIZES else str(value) for name, value in parts.items()
    )


def results(row: Row) -> Iterator[tuple[str, float]]:
    """The measured numbers of a row."""
    for name, value in row.items():
        countable = isinstance(value, int | float) and not isinstance(value, bool)
        if countable and name not in SIZES and not name.startswith(UNCOMPARED):
            yield name, value


def goal_of(measured: float, goal: float, name: str) -> dict[str, object]:
    """The part of a row that says whether a measured value meets its goal."""
    return {name: goal, "goal_met": measured <= goal}


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("python -m bench.results BEFORE.json AFTER.json")
    sys.exit(0 if compare(Path(sys.argv[1]), Path(sys.argv[2])) else 1)
