"""``kohort table rewind``: sets positions of a Delta table back, so that records are read again.

In: a directory, partitions, an offset, brokers. Out: a table of positions, or JSON. Must not know:
files, commits (``kohort.spark``).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click

from kohort.cli.groups.choice import execute_option, partitions_of, scopes_option
from kohort.cli.output import (
    bootstrap_option,
    configured,
    json_option,
    note,
    print_json,
    print_table,
)
from kohort.client.admin import Admin
from kohort.client.config import parse_client_settings
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.positions import EARLIEST, LATEST, Position


@click.command(short_help="Take rows out of a Delta table and read their records again.")
@click.argument("directory", type=click.Path(path_type=Path))
@scopes_option(required=True)
@click.option("--to-offset", type=click.IntRange(0), help="The new position.")
@click.option("--to-earliest", is_flag=True, help="To the first offset of the table.")
@click.option(
    "--drop-compacted", is_flag=True,
    help="Let rows go that have no record in a compacted topic any more.",
)  # fmt: skip
@bootstrap_option
@json_option
@execute_option
def rewind(
    directory: Path,
    *,
    scopes: tuple[str, ...],
    to_offset: int | None,
    to_earliest: bool,
    drop_compacted: bool,
    bootstrap: str,
    as_json: bool,
    execute: bool,
) -> bool:
    """Take the rows from an offset on out of a Delta table, and set the positions to this offset.

    Running pipelines go on there and write the records again, with their present SQL. Records that
    the topic does not have any more cannot be written again, so their rows must stay; with
    --drop-compacted, rows of a compacted topic may go.
    """
    if to_earliest == (to_offset is not None):
        raise ConfigError("give one of --to-offset and --to-earliest")
    from kohort.spark.source.topic_checks import check_id, kept_until  # noqa: PLC0415 - heavy
    from kohort.spark.tables.table import open_ledger, rewind_table  # noqa: PLC0415 - heavy
    from kohort.spark.tables.verify import compacted_rows  # noqa: PLC0415 - heavy

    rewind_table(directory, {}, execute=False)
    with closing(open_ledger(directory)) as ledger:
        known, begins = ledger.all_positions(), ledger.begins()
        noted = ledger.noted_topics()
        # Uncommitted records count: the pipelines may have read them.
        settings = configured(bootstrap) | {"isolation.level": "read_uncommitted"}
        with Admin(settings) as admin:
            partitions = partitions_of(admin, scopes)
            for name, found in admin.topics({p.topic for p in partitions}).items():
                check_id(name, noted.get(name), found.topic_id)
            first = admin.list_offsets(partitions, EARLIEST)
            last = admin.list_offsets(partitions, LATEST)
            ends = {p: Position(at.offset, at.leader_epoch) for p, at in last.items()}
            kept = kept_until(ends, ledger.noted_leaders(partitions), admin.epoch_ends)
    offsets: dict[TopicPartition, int] = {}
    for partition in partitions:
        offset = begins.get(partition, 0) if to_offset is None else to_offset
        position = known[partition].next_offset if partition in known else None
        _check_kept(partition, offset, first[partition].offset, kept[partition], position)
        offsets[partition] = offset
    rewind_table(directory, offsets, execute=False)
    gone = compacted_rows(directory, parse_client_settings(settings), offsets)
    for partition, lost in gone.items():
        _check_compacted(partition, offsets[partition], lost, drop=drop_compacted)
    if execute:
        rewind_table(directory, offsets)
    if as_json:
        rows = [
            {
                "partition": str(p),
                "position": known[p].next_offset,
                "new_position": offset,
                "compacted_rows": len(gone.get(p, ())),
            }
            for p, offset in offsets.items()
        ]
        print_json({"executed": execute, "positions": rows})
    else:
        print_table(
            ["PARTITION", "POSITION", "NEW-POSITION"],
            [(p, known[p].next_offset, offset) for p, offset in offsets.items()],
        )
    return True


def _check_compacted(
    partition: TopicPartition, offset: int, lost: Sequence[int], *, drop: bool
) -> None:
    """Print a remark about rows that have no record any more; ConfigError unless they may go."""
    examples = ", ".join(map(str, lost[:5])) + (", ..." if len(lost) > 5 else "")
    told = (
        f"{len(lost)} rows of {partition} from offset {offset} on have no record in the topic any "
        f"more, since the topic is compacted (offsets {examples})"
    )
    if not drop:
        raise ConfigError(
            f"{partition} cannot be rewound to {offset}: {told}: these rows could not be written "
            "again; rewind to an offset behind them, or give --drop-compacted to lose them"
        )
    note(f"{told}: they leave the table for good")


def _check_kept(
    partition: TopicPartition, offset: int, first: int, kept: int, position: int | None
) -> None:
    """Raise ConfigError unless the topic has the records that were read from ``offset`` on.

    Args:
        partition: the partition.
        offset: the new position.
        first: the first offset of the topic.
        kept: the first offset without the record that was read there.
        position: the position of the table; None without one.
    """
    if offset < first:
        raise ConfigError(
            f"{partition} cannot be rewound to {offset}: the topic begins at offset {first}, so "
            "earlier rows could not be written again"
        )
    if kept < (position or 0):
        raise ConfigError(
            f"{partition} cannot be rewound to {offset}: the topic has the records of the table "
            f"only before offset {kept}, and the table has rows up to offset {position}; an "
            "unclean election of a leader lost the others, or the topic was deleted and made "
            "again; these rows could not be written again: leave them in the table, or read the "
            "topic anew with another group into another output directory"
        )
