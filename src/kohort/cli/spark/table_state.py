"""``kohort table state``: shows the keys and values of a table's state.

In: a directory, partitions, a part of a key. Out: a table, or JSON. Must not know: state files
(``kohort.spark.state``).
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import click

from kohort.cli.output import json_option, note, print_json, print_table
from kohort.model.errors import ConfigError


@click.command("state", short_help="Show the keys and values of a state.")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--topic", "scopes", multiple=True, metavar="TOPIC[:0,1]",
    help="A topic, or some of its partitions. May be repeated. (default: all)",
)  # fmt: skip
@click.option("--key", "part", default="", metavar="TEXT", help="Only keys with this text in them.")
@click.option(
    "--limit", type=click.IntRange(1), default=100, show_default=True,
    help="Most entries of a partition.",
)  # fmt: skip
@json_option
def show_state(
    directory: Path, *, scopes: tuple[str, ...], part: str, limit: int, as_json: bool
) -> None:
    """Show the state of a pipeline with --state, also while pipelines write.

    An entry is a key and a value, both bytes; those that are no text are shown as escapes. OFFSET
    is the offset after the last record that changed the state of the partition.
    """
    from kohort.spark.state.showing import heads_of, restored, shown  # noqa: PLC0415 - heavy

    known = heads_of(directory)
    chosen = [p for p in known if not scopes or any(_names(scope, *p) for scope in scopes)]
    for scope in scopes:
        if not any(_names(scope, *partition) for partition in known):
            raise ConfigError(
                f"--topic {scope}: the table in {directory} has no state of it; it has states of "
                f"{', '.join(map(str, known)) or 'no partition'}"
            )
    rows: list[dict[str, Any]] = []
    for partition in chosen:
        with restored(directory, partition) as (head, copy):
            found = (item for item in copy.items() if part in shown(item[0]))
            some = list(islice(found, limit))
            more = sum(1 for _ in found)
        offset = None if head is None else head.offset
        rows += [
            {
                "partition": str(partition),
                "offset": offset,
                "key": shown(key),
                "value": shown(value or b""),
            }
            for key, value in some
        ]
        if more:
            note(f"{partition}: {more:,} more entries; --key or --limit shows them")
    if as_json:
        print_json(rows)
        return
    print_table(["PARTITION", "OFFSET", "KEY", "VALUE"], [tuple(row.values()) for row in rows])


def _names(scope: str, topic: str, partition: int) -> bool:
    name, _, numbers = scope.partition(":")
    return name == topic and (not numbers or str(partition) in numbers.split(","))
