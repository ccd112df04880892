"""``kohort spark history``: tables of the rebalances of many groups, computed on Spark.

In: files of the kinds that ``kohort explain`` reads, a new folder. Out: Parquet tables in the
folder, and a table of the groups with the highest cost. Must not know: how files are read
(``explain_files``) and groups are explained (``kohort.spark.history``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from kohort.cli.explain.files import open_file, safe
from kohort.cli.output import (
    DIRECTORY,
    counted,
    json_option,
    note,
    print_json,
    print_table,
    spark_options,
)
from kohort.explain.told import Told
from kohort.lab.table import number

_COLUMNS: Final = (
    "GROUP", "REBALANCES", "MOVED", "NEEDLESS", "PARTITION-S", "KNOWN", "LONGEST-STOP-S",
    "STORMS", "MAIN-CAUSE",
)  # fmt: skip


@click.command(short_help="Make tables of the rebalances of many groups.")
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
)  # fmt: skip
@click.option(
    "--output", required=True, type=DIRECTORY,
    help="New folder for the tables; executors must see it.",
)  # fmt: skip
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Groups shown.")
@spark_options("local[*]")
@json_option
def history(
    *,
    files: tuple[Path, ...],
    output: Path,
    top: int,
    master: str,
    spark: dict[str, str],
    as_json: bool,
) -> None:
    """Explain all groups in FILES, and write the tables groups, rebalances, ownership and storms.

    The files are those of `kohort explain`: logs of brokers and clients, histories of kohort, dumps
    of __consumer_offsets. Each file is read by a task of its own, each group explained by another.
    """
    from kohort.spark.history import new_tables, write_tables  # noqa: PLC0415 - Spark is heavy
    from kohort.spark.session import apart, running_session  # noqa: PLC0415

    with new_tables(output), running_session("kohort spark history", master, spark) as session:
        paths = [path.resolve() for path in files]
        groups, remarks = apart(
            partial(write_tables, paths, output.resolve(), read_file, session),
            session.sparkContext.cancelAllJobs,
        )
    for remark in remarks:
        note(f"note: {remark}")
    rows = groups.to_pylist()
    rows.sort(key=lambda row: (-(row["partition_seconds"] or 0), -row["rebalances"], row["group"]))
    if as_json:
        print_json([{k: v for k, v in row.items() if k not in _TIMES} for row in rows])
        return
    print_table(_COLUMNS, (_row(row) for row in rows[:top]))
    if len(rows) > top:
        click.echo(f"… and {len(rows) - top:,} groups more")
    note(
        f"{output} has tables of {counted(len(rows), 'group')}: groups, rebalances, ownership, "
        "storms"
    )


_TIMES: Final = ("began", "ended")


def read_file(name: str) -> Iterator[tuple[float, Told] | str]:
    """Events with their times, and at the end remarks; the function that tasks call.

    Raises:
        ConfigError: the file cannot be read.
    """
    with ExitStack() as stack:
        file = open_file(Path(name), stack)
        yield from file.events(lambda: None)
        yield from file.remarks()


def _row(row: dict[str, Any]) -> tuple[object, ...]:
    return (
        safe(row["group"]) or "(unnamed)",
        row["rebalances"],
        row["moved"],
        row["needless"],
        number(row["partition_seconds"]),
        row["known"],
        number(row["longest_stop_s"]),
        row["storms"],
        row["main_cause"],
    )
