"""``kohort table``: describe, list, clean, verify, rewind an exactly-once table, or move it.

In: a directory and, for the comparison, brokers. Out: tables, JSON and an exit status. Must not
know: how files and topics are compared (``kohort.spark``).
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kohort.cli.output import (
    Duration,
    bootstrap_option,
    configured,
    function_option,
    json_option,
    note,
    print_json,
    print_table,
)
from kohort.cli.spark.table_rewind import rewind
from kohort.cli.spark.table_state import show_state

if TYPE_CHECKING:
    from kohort.spark.tables.verify import Verdict

_DIRECTORY = click.argument("directory", type=click.Path(path_type=Path))


@click.group()
def table() -> None:
    """Describe, list, clean, compact, verify, rewind and move a table that pipelines wrote."""


@table.command()
@_DIRECTORY
@json_option
def files(directory: Path, *, as_json: bool) -> None:
    """List the committed files."""
    from kohort.spark.ledgers.ledger import DataFile  # noqa: PLC0415 - keep `kohort --help` quick
    from kohort.spark.tables.table import open_ledger  # noqa: PLC0415 - as above

    with closing(open_ledger(directory)) as ledger:
        if not ledger.names_files_of_pieces:
            _print_files(ledger.files(), ledger.files(dead=True), as_json=as_json)
            return
        rows = [row for row in ledger.manifest() if row.data_files or row.dead_path]
    if as_json:
        print_json([{**dataclasses.asdict(row), "partition": str(row.partition)} for row in rows])
        return
    print_table(
        ["PARTITION", "BEGIN", "END", "EPOCH", "ROWS", "DEAD-LETTERS", "FILE"],
        [
            (r.partition, r.begin, r.end, r.epoch, file.rows, r.dead_letters, file.path)
            for r in rows
            for file in r.data_files or (DataFile(path=r.dead_path or "", rows=0),)
        ],
    )


def _print_files(files: Mapping[str, int], dead_files: Mapping[str, int], *, as_json: bool) -> None:
    """The files of a Delta table; after a compaction a file has rows of many partitions."""
    found = [(path, size, False) for path, size in sorted(files.items())]
    found += [(path, size, True) for path, size in sorted(dead_files.items())]
    if as_json:
        print_json([{"path": p, "size": size, "dead_letters": dead} for p, size, dead in found])
        return
    print_table(
        ["FILE", "BYTES", "DEAD-LETTERS"], [(p, n, "yes" if d else "-") for p, n, d in found]
    )


@table.command(short_help="Remove files that no commit names.")
@_DIRECTORY
@click.option(
    "--older-than", type=Duration(), default=3600.0, show_default=True,
    metavar="SECONDS", help="Keep younger files, since a running batch may still commit them.",
)  # fmt: skip
@json_option
def clean(directory: Path, *, older_than: float, as_json: bool) -> None:
    """Remove files that no commit names; killed and fenced applications leave them."""
    from kohort.spark.tables.table import clean as remove  # noqa: PLC0415

    removed = remove(directory, older_than)
    if as_json:
        print_json([dataclasses.asdict(orphan) for orphan in removed])
        return
    for orphan in removed:
        click.echo(orphan.path)
    note(f"{len(removed)} files removed")


@table.command(short_help="Show the positions and owners of partitions.")
@_DIRECTORY
@json_option
def positions(directory: Path, *, as_json: bool) -> None:
    """Show the first offset of each partition that is not in the table yet, and its last owner."""
    from kohort.spark.tables.table import open_ledger  # noqa: PLC0415

    with closing(open_ledger(directory)) as ledger:
        known = sorted(ledger.all_positions().items())
    if as_json:
        print_json([{"partition": str(p), **dataclasses.asdict(at)} for p, at in known])
        return
    rows = [
        (partition, at.next_offset, at.epoch, at.generation, at.member or "-")
        for partition, at in known
        if at.next_offset is not None
    ]
    print_table(["PARTITION", "POSITION", "EPOCH", "GENERATION", "MEMBER"], rows)


@table.command(short_help="Describe a table: kind, columns, sizes.")
@_DIRECTORY
@json_option
def describe(directory: Path, *, as_json: bool) -> None:
    """Describe a table: its kind, group, columns, rows, files and topics."""
    from kohort.spark.tables.descriptions import describe as look  # noqa: PLC0415

    found = look(directory)
    if as_json:
        print_json(dataclasses.asdict(found))
        return
    columns = ", ".join(f"{name} {kind}" for name, kind in found.columns.items())
    topics = ", ".join(f"{name} ({count} partitions)" for name, count in found.topics.items())
    for name, value in (
        ("kind", found.kind),
        ("group", found.group),
        ("columns", columns or "-"),
        ("rows", f"{found.rows:,} in {found.files:,} files, {found.bytes:,} bytes"),
        ("dead letters", f"{found.dead_letters:,} in {found.dead_letter_files:,} files"),
        ("replaced files", f"{found.replaced_files:,}"),
        ("topics", topics or "-"),
        ("queries", f"{found.queries:,}"),
    ):
        click.echo(f"{name + ':':<16}{value}")


table.add_command(rewind)
table.add_command(show_state)


@table.command(short_help="Keep the ledger of a new table in PostgreSQL.")
@_DIRECTORY
@click.argument("database", metavar="URL")
def postgres(directory: Path, database: str) -> None:
    """Keep the ledger of a new Parquet table in the PostgreSQL database at URL.

    Then pipelines on any host that shares the directory may write the table. URL has no password:
    libpq takes it from PGPASSWORD, ~/.pgpass or a service file. For a table with such a ledger, the
    command changes the URL, after the database has moved.
    """
    from kohort.spark.tables.table import wanting  # noqa: PLC0415

    with wanting("a ledger in PostgreSQL needs", "psycopg", "postgres"):
        from kohort.spark.ledgers.postgres_ledger import use_database  # noqa: PLC0415
    schema = use_database(directory, database)
    note(f"the ledger of {directory} is in the schema {schema} of this database")


@table.command(short_help="Make few large files of a Delta table's small ones.")
@_DIRECTORY
@click.option(
    "--target-mb", type=click.IntRange(1), default=100, show_default=True, metavar="MEGABYTES",
    help="About the size of the new files.",
)  # fmt: skip
def compact(directory: Path, *, target_mb: int) -> None:
    """Make few large files of a Delta table's small ones, also while pipelines write it."""
    from kohort.spark.tables.table import delta_maintenance  # noqa: PLC0415

    done = delta_maintenance().compact(directory, target_mb << 20)
    note(f"{done.added} files replace {done.removed}; `kohort table vacuum` removes old ones")


@table.command(short_help="Remove files that a compaction replaced.")
@_DIRECTORY
@click.option(
    "--older-than", type=Duration(), default=10.0, show_default=True, metavar="MINUTES",
    help="Keep files that were replaced later: readers may still read older versions.",
)  # fmt: skip
def vacuum(directory: Path, *, older_than: float) -> None:
    """Remove files of a Delta table that a compaction replaced, also while pipelines write it."""
    from kohort.spark.tables.table import delta_maintenance  # noqa: PLC0415

    removed = delta_maintenance().vacuum(directory, 60 * older_than)
    for path in removed:
        click.echo(path)
    note(f"{len(removed)} files removed")


@table.command(short_help="Move a table to this host.")
@_DIRECTORY
def adopt(directory: Path) -> None:
    """Let applications on this host write the table; first end all applications on the other one.

    One host writes a table, since locks of SQLite do not reach another host.
    """
    from kohort.spark.tables.table import adopt as move  # noqa: PLC0415

    former, here = move(directory)
    note(f"host {here} writes {directory} from now on, host {former} did before")


@table.command(short_help="Compare every row with the topic.")
@_DIRECTORY
@bootstrap_option
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="The isolation level of the pipeline.",
)
@function_option("The Python function of the pipelines, to compute its rows and its state again.")
@json_option
def verify(
    directory: Path, *, bootstrap: str, isolation_level: str, state: str | None, as_json: bool
) -> None:
    """Compare every row with the topic: holes, duplicates, strangers, orphans. Exit 1 if any.

    If the SQL filters, Spark runs the SQL again on every record without a row.
    """
    from kohort.client.config import parse_client_settings  # noqa: PLC0415
    from kohort.spark.state.stage import load_stage  # noqa: PLC0415
    from kohort.spark.tables.missing_rows import SparkQueryRunner  # noqa: PLC0415
    from kohort.spark.tables.verify import verify as compare  # noqa: PLC0415

    settings = parse_client_settings({**configured(bootstrap), "isolation.level": isolation_level})
    with SparkQueryRunner() as runner:
        loaded = None if state is None else load_stage(state)
        verdict = compare(directory, settings, runner, loaded)
    if as_json:
        print_json(_as_json(verdict))
    else:
        _print(verdict)
    if not verdict.ok:
        sys.exit(1)


_NUMBERS = (
    "records", "rows", "dead_letters", "filtered", "undecided", "holes", "duplicates", "strangers",
    "unread", "unchecked",
)  # fmt: skip


def _as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "ok": verdict.ok,
        **{name: verdict.total(name) for name in _NUMBERS},
        "orphans": [dataclasses.asdict(orphan) for orphan in verdict.orphans],
        "partitions": [
            {**dataclasses.asdict(p), "partition": str(p.partition)} for p in verdict.partitions
        ],
    }


def _print(verdict: Verdict) -> None:
    print_table(
        ["PARTITION", "BEGIN", "END", *(name.upper().replace("_", "-") for name in _NUMBERS)],
        [
            (p.partition, p.begin, p.end, *(getattr(p, name) for name in _NUMBERS))
            for p in verdict.partitions
        ],
    )
    for p in verdict.partitions:
        for trouble in p.troubles:
            note(f"{p.partition}: {trouble}")
        for remark in p.remarks:
            note(f"{p.partition}: {remark}")
    for orphan in verdict.orphans:
        note(
            f"orphan: {orphan.path} ({orphan.size} bytes) counts for nothing; "
            "`kohort table clean` removes it"
        )
    so_far = " except the undecided records" if verdict.total("undecided") else ""
    left = ", but files of killed batches are left" if verdict.orphans else ""
    note(f"every record once{so_far}{left}" if verdict.rows_ok else "NOT WHOLE")
