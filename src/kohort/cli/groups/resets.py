"""``kohort groups reset-offsets``: set committed offsets, with all scenarios of Kafka's tool.

In: a scenario, a scope. Out: the new offsets as a table, as CSV that ``--from-file`` reads, or as
JSON. Must not know: requests.
"""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from kohort.cli.asking import asking
from kohort.cli.groups.choice import (
    Groups,
    execute_option,
    groups_options,
    partitions_of,
    refusal,
    scopes_option,
)
from kohort.cli.output import (
    FILE,
    bootstrap_option,
    json_option,
    note,
    print_json,
    print_table,
    reading,
)
from kohort.client.admin import Admin
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.positions import EARLIEST, LATEST, Position

INACTIVE: Final = ("Empty", "Dead")

_DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<d>[-+]?\d+)D)?"
    r"(?:T(?:(?P<h>[-+]?\d+)H)?(?:(?P<m>[-+]?\d+)M)?(?:(?P<s>[-+]?\d+(?:\.\d*)?)S)?)?",
    re.IGNORECASE,
)
_SECONDS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


# -- new offsets ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Where offsets are set to: the name of an option, and its value."""

    name: str
    value: int = 0
    """An offset, a distance or a timestamp in ms."""
    plans: Mapping[str | None, Mapping[TopicPartition, int]] | None = None
    """Of a file: the offsets of each group; None for lines without a group."""


@dataclass(frozen=True, slots=True)
class Reset:
    """A partition of a group with its new offset."""

    group_id: str
    partition: TopicPartition
    before: int | None
    after: int
    error: ErrorCode = ErrorCode.NONE


def new_offsets(
    admin: Admin,
    scenario: Scenario,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """The offsets that a scenario gives to partitions, within their logs.

    Raises:
        ConfigError: a shift of a partition without a committed offset.
        RequestFailed: a topic or partition does not exist.
    """
    wanted = list(partitions)
    match scenario.name:
        case "to-earliest":
            return _at(admin, wanted, EARLIEST)
        case "to-latest":
            return _at(admin, wanted, LATEST)
        case "to-current":
            missing = _at(admin, [tp for tp in wanted if tp not in committed], LATEST)
            return {tp: committed.get(tp, missing.get(tp, 0)) for tp in wanted}
        case "to-datetime" | "by-duration":
            return _at_time(admin, wanted, scenario.value)
        case "shift-by":
            for tp in wanted:
                if tp not in committed:
                    raise ConfigError(
                        f"Cannot shift offset for partition {tp} since there is no current "
                        "committed offset; leave it out, or choose another scenario"
                    )
            return _within(admin, {tp: committed[tp] + scenario.value for tp in wanted})
        case _:
            return _within(admin, dict.fromkeys(wanted, scenario.value))


def _at(admin: Admin, partitions: Sequence[TopicPartition], when: int) -> dict[TopicPartition, int]:
    found = admin.list_offsets(partitions, when)
    return {tp: found[tp].offset for tp in partitions}


def _at_time(
    admin: Admin, partitions: Sequence[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    found = _at(admin, partitions, timestamp)
    later = [tp for tp, offset in found.items() if offset < 0]
    for topic, number in later:
        note(
            f"Warn: Partition {number} from topic {topic} is empty. "
            "Falling back to latest known offset."
        )
    return found | _at(admin, later, LATEST)


def _within(admin: Admin, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The offsets, moved into the logs by the rule of Kafka's tool."""
    wanted = list(offsets)
    begins, ends = _at(admin, wanted, EARLIEST), _at(admin, wanted, LATEST)
    found = {}
    for tp, offset in offsets.items():
        found[tp] = min(max(offset, begins[tp]), ends[tp])
        if offset != found[tp]:
            side = "lower than earliest" if offset < found[tp] else "higher than latest"
            note(
                f"Warn: New offset ({offset}) is {side} offset for topic partition {tp}. "
                f"Value will be set to {found[tp]}"
            )
    return found


# -- values of options ----------------------------------------------------------------------------


def timestamp_of(text: str) -> int:
    """Milliseconds since 1970 of ``YYYY-MM-DDThh:mm:ss.sss``, UTC if it names no zone.

    Raises:
        ConfigError: the text has another form.
    """
    try:
        if "T" not in text:
            raise ValueError
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"--to-datetime is {text!r}, expected YYYY-MM-DDThh:mm:ss.sss in UTC, or with a zone "
            "after the time, such as +02:00"
        ) from None
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1_000)


def duration_ms(text: str) -> int:
    """Milliseconds of an ISO 8601 duration of days and smaller: ``P1DT2H3M4.5S``.

    Raises:
        ConfigError: the text has another form.
    """
    found = _DURATION.fullmatch(text)
    parts = {name: found[name] for name in _SECONDS if found[name]} if found else {}
    if found is None or not parts or text[-1] in "tT":
        raise ConfigError(f"--by-duration is {text!r}, expected PnDTnHnMnS, for example PT30M")
    seconds = sum(float(number) * _SECONDS[name] for name, number in parts.items())
    return round((-seconds if found["sign"] == "-" else seconds) * 1_000)


def plans_of(path: Path) -> dict[str | None, dict[TopicPartition, int]]:
    """The offsets of a file: lines ``topic,partition,offset`` or ``group,topic,partition,offset``.

    Raises:
        ConfigError: the file cannot be read, or a line has another form.
    """
    plans: dict[str | None, dict[TopicPartition, int]] = {}
    try:
        with reading(path, "a file that --export wrote"):
            rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"))))
    except csv.Error as error:
        raise ConfigError(f"--from-file {path} cannot be read: {error}") from error
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        *group, topic, partition, offset = [cell.strip() for cell in ["", "", *row]]
        numbers = partition.isdecimal() and offset.isdecimal()
        if len(row) not in {3, 4} or not numbers:
            raise ConfigError(
                f"--from-file {path}, line {number}: {','.join(row)!r}, expected "
                "TOPIC,PARTITION,OFFSET or GROUP,TOPIC,PARTITION,OFFSET"
            )
        plan = plans.setdefault(group[-1] if len(row) == 4 else None, {})
        plan[TopicPartition(topic, int(partition))] = int(offset)
    return plans


def _scenario(given: Mapping[str, object]) -> Scenario:
    """The one scenario among the options.

    Raises:
        click.UsageError: none was given, or several were.
    """
    chosen = [name for name, value in given.items() if value is not None and value is not False]
    if len(chosen) != 1:
        names = ", ".join(f"--{name}" for name in given)
        found = ", ".join(f"--{name}" for name in chosen) or "none"
        raise click.UsageError(f"expected one of {names}; found {found}")
    name, value = chosen[0], given[chosen[0]]
    if isinstance(value, Path):
        return Scenario(name=name, plans=plans_of(value))
    if isinstance(value, str):
        now = round(time.time() * 1_000)
        at = timestamp_of(value) if name == "to-datetime" else now - duration_ms(value)
        return Scenario(name=name, value=at)
    return Scenario(name=name, value=int(value) if isinstance(value, int) else 0)


# -- the command ----------------------------------------------------------------------------------


def _scenario_options(command: Callable[..., bool]) -> Callable[..., bool]:
    for option in reversed(
        [
            click.option("--to-earliest", is_flag=True, help="To the first offset of the log."),
            click.option("--to-latest", is_flag=True, help="To the end of the log."),
            click.option(
                "--to-current", is_flag=True, help="To the committed offset, else to the end."
            ),
            click.option("--to-offset", type=click.IntRange(min=0), help="To this offset."),
            click.option(
                "--shift-by", type=int, help="Forward by this many offsets; back with a minus."
            ),
            click.option(
                "--to-datetime",
                metavar="YYYY-MM-DDThh:mm:ss.sss",
                help="To the first record from this time on, in UTC.",
            ),
            click.option(
                "--by-duration", metavar="PnDTnHnMnS", help="To the time so long before now."
            ),
            click.option("--from-file", type=FILE, help="To the offsets of a file of --export."),
        ]
    ):
        command = option(command)
    return command


@click.command("reset-offsets")
@groups_options
@scopes_option(required=False)
@click.option("--all-topics", is_flag=True, help="All partitions with a committed offset.")
@_scenario_options
@click.option("--export", is_flag=True, help="Print CSV for --from-file instead of a table.")
@execute_option
@bootstrap_option
@json_option
def reset_offsets(
    *,
    groups: Groups,
    scopes: tuple[str, ...],
    all_topics: bool,
    export: bool,
    execute: bool,
    bootstrap: str,
    as_json: bool,
    **scenarios: object,
) -> bool:
    """Set committed offsets of groups without members.

    Offsets outside of a log are moved to its start or end.
    """
    scenario = _scenario({name.replace("_", "-"): value for name, value in scenarios.items()})
    if scenario.plans is None and bool(scopes) == all_topics:
        raise click.UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    resets: list[Reset] = []
    errors: list[str] = []
    with asking(bootstrap) as admin:
        names = groups.found(admin)
        partitions = partitions_of(admin, scopes)
        # A plan that cannot be made ends the command: before anything is changed.
        for group_id in names:
            plan = _plan(scenario, group_id, len(names))
            if problem := _problem(admin, group_id, plan):
                errors.append(problem)
            else:
                resets += _planned(admin, group_id, scenario, partitions, plan)
        if execute:
            resets = [reset for name in names for reset in _executed(admin, name, resets)]
    errors += [
        f"The offset of group '{reset.group_id}' for {reset.partition} was not changed: "
        f"{refusal(reset.error)}"
        for reset in resets
        if reset.error
    ]
    for error in errors:
        note(f"Error: {error}")
    done = [reset for reset in resets if not reset.error]
    if as_json:
        print_json({"executed": execute, "offsets": list(map(_as_json, done)), "errors": errors})
    elif export:
        click.echo(_as_csv(done, with_group=len(names) > 1), nl=False)
    else:
        print_table(
            ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"],
            [(reset.group_id, *reset.partition, reset.after) for reset in done],
        )
    return not errors


def _plan(scenario: Scenario, group_id: str, count: int) -> Mapping[TopicPartition, int] | None:
    """The offsets of a group in a file; lines without a group are those of a single group."""
    if scenario.plans is None:
        return None
    return scenario.plans.get(group_id) or (scenario.plans.get(None, {}) if count == 1 else {})


def _problem(admin: Admin, group_id: str, plan: Mapping[TopicPartition, int] | None) -> str | None:
    """Why a group cannot be reset."""
    state = admin.describe_group(group_id).state
    if state not in INACTIVE:
        return (
            f"Assignments can only be reset if the group '{group_id}' is inactive, but the current "
            f"state is {state}. Stop its members; `kohort groups members {group_id}` shows them."
        )
    if plan is not None and not plan:
        return f"No reset plan for group {group_id} found"
    return None


def _planned(
    admin: Admin,
    group_id: str,
    scenario: Scenario,
    partitions: Sequence[TopicPartition],
    plan: Mapping[TopicPartition, int] | None,
) -> list[Reset]:
    before = {tp: position.offset for tp, position in admin.committed(group_id).items()}
    if plan is not None:
        after = _within(admin, plan)
    else:
        after = new_offsets(admin, scenario, partitions or sorted(before), before)
    return [Reset(group_id, tp, before.get(tp), after[tp]) for tp in sorted(after)]


def _executed(admin: Admin, group_id: str, resets: Iterable[Reset]) -> list[Reset]:
    mine = [reset for reset in resets if reset.group_id == group_id]
    codes = admin.alter_offsets(group_id, {r.partition: Position(r.after) for r in mine})
    return [replace(reset, error=codes[reset.partition]) for reset in mine]


def _as_json(reset: Reset) -> dict[str, object]:
    return {
        "group": reset.group_id,
        "topic": reset.partition.topic,
        "partition": reset.partition.partition,
        "current_offset": reset.before,
        "new_offset": reset.after,
    }


def _as_csv(resets: Iterable[Reset], *, with_group: bool) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for reset in resets:
        group = (reset.group_id,) if with_group else ()
        writer.writerow((*group, *reset.partition, reset.after))
    return text.getvalue()
