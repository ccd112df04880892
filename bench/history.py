"""``kohort spark history`` beside duckdb: rebalances, times of ownership and moves of many groups.

    python -m bench.history [--facts 5000000] [--files 16] [--cores 1 2]

One run of the lab (a rolling bounce of 6 members with 24 partitions) is written for many groups,
each with a name and a time of its own, into Parquet histories. Both sides read the same files.
``kohort spark history`` runs as a process of its own on ``local[CORES]``, with Spark's start.
duckdb reads the JSON of the facts with as many threads, and computes the rebalances, the times of
ownership and the moves by SQL. Its figures must be equal to kohort's. It computes neither causes,
findings and storms, nor anything of logs, dumps and the offsets topic: a bound, no replacement.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bench.cpu import CpuMeter
from bench.ending import end_with_children
from bench.results import emit

from kohort.lab.compared_policies import compared_policy
from kohort.lab.scenarios.base import Setup
from kohort.lab.scenarios.registry import scenario
from kohort.lab.scenarios.running import run
from kohort.storage.fact_files import write_history

MEMBERS: Final = 6
PARTITIONS: Final = 24
APART_US: Final = 7_000_000
"""The groups begin so far apart."""

STATEMENTS: Final = (
    "CREATE TEMP VIEW facts AS SELECT * FROM read_parquet(getvariable('files'))",
    """
    CREATE TEMP TABLE rebalances AS
    SELECT fact->>'group_id' AS group_id, "at",
           fact->>'cause' AS cause,
           "at" - lag("at") OVER (PARTITION BY fact->>'group_id' ORDER BY "at") AS rest
    FROM facts WHERE kind = 'RebalanceStarted'
    """,
    """
    CREATE TEMP TABLE steps AS
    SELECT fact->>'group_id' AS group_id, source, "at", sequence, kind = 'CallbackEnded' AS got,
           unnest(CAST(fact->'partitions' AS VARCHAR[])) AS place
    FROM facts
    WHERE (kind = 'CallbackEnded' AND fact->>'kind' = 'assigned')
       OR (kind = 'CallbackStarted' AND fact->>'kind' <> 'assigned')
    """,
    """
    CREATE TEMP TABLE ownership AS
    WITH followed AS (
        SELECT *, lead("at") OVER places AS ends, lag(source) OVER places AS former,
               lag(got) OVER places AS former_got, lag("at") OVER places AS former_at
        FROM steps WINDOW places AS (PARTITION BY group_id, place ORDER BY "at", sequence))
    SELECT group_id, place, source, "at" AS begins, ends,
           "at" - former_at AS down, former <> source AS moved
    FROM followed WHERE got AND NOT (coalesce(former_got, false) AND former = source)
    """,
)
"""All but the sums, which are read at the end."""

SUMS: Final = """
SELECT (SELECT count(*) FROM rebalances), (SELECT count(*) FROM ownership),
       (SELECT count(*) FROM ownership WHERE moved),
       (SELECT sum(down) / 1e6 FROM ownership),
       (SELECT count(*) FROM rebalances WHERE rest < 60e6)
"""


def write_files(folder: Path, facts: int, files: int) -> tuple[list[Path], int, int]:
    """The paths of the histories, the number of groups, and the facts in all."""
    template = folder / "template.parquet"
    setup = Setup(policy=compared_policy("sticky"), members=MEMBERS, partitions=PARTITIONS)
    done = run(scenario("rolling-bounce"), setup)
    write_history(template, done.history)
    table = pq.read_table(template)
    template.unlink()
    groups = max(1, round(facts / table.num_rows))
    name = json.dumps(done.plan.group_id)
    paths = []
    for number in range(files):
        mine = range(number, groups, files)
        if not mine:
            continue
        parts = [_as_group(table, name, f"group-{n:05}", n * APART_US) for n in mine]
        whole = pa.concat_tables(parts).sort_by("at")
        numbers = pa.array(range(1, whole.num_rows + 1), pa.int64())
        whole = whole.set_column(0, "sequence", numbers).cast(table.schema)
        path = folder / f"broker-{number}.parquet"
        pq.write_table(whole.replace_schema_metadata(table.schema.metadata), path)
        paths.append(path)
    return paths, groups, groups * table.num_rows


def _as_group(table: pa.Table, name: str, group: str, later_us: int) -> pa.Table:
    columns = {
        "at": pc.add(table["at"], later_us),
        "source": pc.binary_join_element_wise(table["source"], group, "-"),
        "fact": pc.replace_substring(table["fact"], name, json.dumps(group)),
    }
    for column, values in columns.items():
        table = table.set_column(table.schema.get_field_index(column), column, values)
    return table


def with_duckdb(paths: Sequence[Path], threads: int) -> tuple[float, float, tuple[Any, ...]]:
    """Seconds, CPU seconds, and the sums."""
    begun, cpu = time.perf_counter(), time.process_time()
    with duckdb.connect() as base:
        base.execute(f"SET threads TO {threads}")
        base.execute("SET VARIABLE files = ?", [[str(path) for path in paths]])
        for statement in STATEMENTS:
            base.execute(statement)
        sums = base.execute(SUMS).fetchone()
    assert sums is not None
    return time.perf_counter() - begun, time.process_time() - cpu, sums


def with_kohort(
    paths: Sequence[Path], output: Path, cores: int
) -> tuple[float, dict[str, float], tuple[int, int]]:
    """Seconds, CPU seconds by kind of process, and rebalances and times of ownership."""
    command = [
        sys.executable, "-m", "kohort", "spark", "history", *map(str, paths),
        "--output", str(output), "--master", f"local[{cores}]", "--top", "1",
    ]  # fmt: skip
    # Java names the daemon of workers, too.
    meter = CpuMeter({"bin/java": "JVM", "worker_daemon": "workers", "spark history": "command"})
    before = meter.seconds()
    begun = time.perf_counter()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            meter.seconds()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        subprocess.run(command, check=True)
        took = time.perf_counter() - begun
    finally:
        over.set()
        looking.join()
    used = meter.seconds()
    used.pop("other", None)
    found = [pq.read_table(output / name) for name in ("groups", "ownership")]
    sums = pc.sum(found[0]["rebalances"]).as_py(), found[1].num_rows
    return took, {kind: used[kind] - before.get(kind, 0.0) for kind in sorted(used)}, sums


def main() -> None:
    end_with_children()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--facts", type=int, default=5_000_000)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as name:
        folder = Path(name)
        paths, groups, facts = write_files(folder, given.facts, given.files)
        size = sum(path.stat().st_size for path in paths) / 1e6
        print(f"{facts:,} facts of {groups:,} groups in {len(paths)} files, {size:.0f} MB")
        for cores in given.cores:
            took, cpu, sums = with_duckdb(paths, cores)
            row = {"side": "duckdb", "facts": facts, "groups": groups, "cores": cores}
            emit(
                "history", row | {"s": round(took, 2), "cpu_us_a_fact": round(cpu / facts * 1e6, 2)}
            )
            took, by_kind, mine = with_kohort(paths, folder / f"tables-{cores}", cores)
            cpu = sum(by_kind.values())
            parts = {f"cpu_s_{kind}": round(used, 1) for kind, used in by_kind.items()}
            row |= {
                "side": "kohort",
                "s": round(took, 2),
                "cpu_us_a_fact": round(cpu / facts * 1e6, 2),
            }
            emit("history", row | parts)
            if mine != sums[:2]:
                sys.exit(
                    f"kohort found {mine} rebalances and times of ownership, duckdb {sums[:2]}"
                )
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
