"""``kohort groups watch``: look at groups again and again, and show each change.

In: groups. Out: on a terminal a view that is drawn again, else a line for each change. Must not
know: requests.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kohort.cli.asking import asking
from kohort.cli.groups.choice import Groups, groups_options
from kohort.cli.groups.reports import PartitionRow, assignment_text, offset_rows
from kohort.cli.output import MISSING, Duration, bootstrap_option, configured, json_option, note
from kohort.client.admin import Admin
from kohort.client.descriptions import GroupDescription, GroupMemberDescription
from kohort.client.errors import ClientError
from kohort.host.log_lines import utc_text
from kohort.model.ids import TopicPartition

SHOWN_CHANGES = 12
"""The view shows this many of the last changes."""

_COLORS = {"Stable": "green", "Empty": "yellow", "Dead": "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A group at one time, in seconds since 1970."""

    at: float
    group: GroupDescription
    rows: list[PartitionRow]

    @property
    def members(self) -> dict[str, GroupMemberDescription]:
        """The members by id."""
        return {member.member_id: member for member in self.group.members}

    @property
    def lag(self) -> int | None:
        """The lag of all partitions with a committed offset; None if there is none."""
        known = [row.lag for row in self.rows if row.lag is not None]
        return sum(max(lag, 0) for lag in known) if known else None

    @property
    def lags(self) -> Counter[str]:
        """The lag of the partitions of each member."""
        found: Counter[str] = Counter()
        for row in self.rows:
            if row.member is not None:
                found[row.member.member_id] += max(row.lag or 0, 0)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A difference between two looks; ``kind`` is one of the words in the help."""

    at: float
    group_id: str
    kind: str
    text: str
    values: dict[str, object] = field(default_factory=dict)

    def line(self) -> str:
        """The change as one line."""
        return f"{utc_text(self.at)}  {self.group_id}  {self.kind}  {self.text}"

    def as_json(self) -> str:
        """The change as one line of JSON."""
        return json.dumps(
            {"time": utc_text(self.at), "group": self.group_id, "change": self.kind, **self.values},
            ensure_ascii=False,
        )


def changes(before: Look | None, after: Look) -> list[Change]:
    """The changes of a group between two looks; its present state at the first look."""
    if before is None:
        return [_first(after)]
    return [
        Change(at=after.at, group_id=after.group.group_id, kind=kind, text=text, values=values)
        for source in (_states, _members, _assignments, _lags)
        for kind, text, values in source(before, after)
    ]


def _first(look: Look) -> Change:
    group = look.group
    members = [member.member_id for member in group.members]
    text = f"{group.state}, {len(members)} members, lag {_or_missing(look.lag)}"
    return Change(
        at=look.at,
        group_id=group.group_id,
        kind="first",
        text=text if group.epoch is None else f"{text}, epoch {group.epoch}",
        values={"state": group.state, "epoch": group.epoch, "members": members, "lag": look.lag},
    )


_Found = Iterator[tuple[str, str, dict[str, object]]]


def _states(before: Look, after: Look) -> _Found:
    old, new = before.group, after.group
    if old.state != new.state:
        yield "state", f"{old.state} -> {new.state}", {"before": old.state, "after": new.state}
    if new.epoch is not None and old.epoch != new.epoch:
        shown = f"{_or_missing(old.epoch)} -> {new.epoch}"
        yield "epoch", shown, {"before": old.epoch, "after": new.epoch}


def _members(before: Look, after: Look) -> _Found:
    old, new = before.members, after.members
    for kind, here, there in (("left", old, new), ("joined", new, old)):
        for member_id, member in here.items():
            if member_id not in there:
                instance = member.group_instance_id
                names = [member.client_id, member.client_host, *([instance] if instance else [])]
                values: dict[str, object] = {
                    "consumer_id": member_id,
                    "client_id": member.client_id,
                    "host": member.client_host,
                    "group_instance_id": instance,
                }
                yield kind, f"{member_id} ({', '.join(names)})", values


def _assignments(before: Look, after: Look) -> _Found:
    old, new = before.members, after.members
    for member_id in {**old, **new}:
        had = _owned(old.get(member_id))
        has = _owned(new.get(member_id))
        if gained := has - had:
            yield "gained", *_moved(member_id, gained)
        if lost := had - has:
            yield "lost", *_moved(member_id, lost)


def _owned(member: GroupMemberDescription | None) -> frozenset[TopicPartition]:
    return (member and member.partitions) or frozenset()


def _moved(member_id: str, partitions: Iterable[TopicPartition]) -> tuple[str, dict[str, object]]:
    names = [str(partition) for partition in sorted(partitions)]
    return (
        f"{member_id} {assignment_text(partitions)}",
        {"consumer_id": member_id, "partitions": names},
    )


def _lags(before: Look, after: Look) -> _Found:
    old, new = before.lag, after.lag
    if new != old and new is not None:
        by = "" if old is None else f" ({new - old:+d})"
        yield "lag", f"{new}{by}", {"before": old, "after": new}


def _or_missing(value: int | None) -> str:
    return MISSING if value is None else str(value)


class Watch:
    """Keeps the last look at each group, and the changes between looks."""

    def __init__(self) -> None:
        self.looks: dict[str, Look] = {}
        self.recent: deque[Change] = deque(maxlen=SHOWN_CHANGES)
        self.moves: dict[str, list[float]] = {}
        """The times at which the assignment of each group changed."""

    def take(self, looks: Iterable[Look]) -> list[Change]:
        """The changes since the looks before."""
        found: list[Change] = []
        for look in looks:
            name = look.group.group_id
            new = changes(self.looks.get(name), look)
            if any(change.kind in {"gained", "lost"} for change in new):
                self.moves.setdefault(name, []).append(look.at)
            self.looks[name] = look
            found += new
        self.recent.extend(change for change in found if change.kind != "lag")
        return found

    def view(self) -> Group:
        """The groups as tables, and the last changes but those of the lag."""
        parts: list[Text | Table] = []
        for name in sorted(self.looks):
            parts += [self._head(self.looks[name]), _member_table(self.looks[name]), Text()]
        return Group(
            *parts, *(Text(c.line(), overflow="ellipsis", no_wrap=True) for c in self.recent)
        )

    def _head(self, look: Look) -> Text:
        group, moves = look.group, self.moves.get(look.group.group_id, [])
        text = Text(f"{group.group_id}  ", style="bold", no_wrap=True, overflow="ellipsis")
        text.append(group.state, style=_COLORS.get(group.state, "magenta"))
        told = f"  members {len(group.members)}  lag {_or_missing(look.lag)}"
        if group.epoch is not None:
            told += f"  epoch {group.epoch}"
        if group.protocol_name:
            told += f"  {group.protocol_name}"
        told += f"  assignment changed {len(moves)} times"
        if moves:
            told += f", last {look.at - moves[-1]:.0f} s ago"
        return text.append(told, style="not bold")


def _member_table(look: Look) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("CONSUMER-ID", "HOST", "CLIENT-ID"):
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    for column, width in (("#PARTITIONS", 11), ("LAG", len(str(look.lag or 0)))):
        table.add_column(column, justify="right", min_width=max(width, 3))
    table.add_column("ASSIGNMENT", no_wrap=True, overflow="ellipsis", ratio=1)
    lags = look.lags
    for member_id, member in sorted(look.members.items()):
        owned = _owned(member)
        table.add_row(
            *(Text(member_id), Text(member.client_host), Text(member.client_id)),
            *(str(len(owned)), str(lags[member_id])),
            Text(assignment_text(owned) or MISSING),
        )
    return table


# -- the command ----------------------------------------------------------------------------------


def look_at(admin: Admin, groups: Groups) -> list[Look]:
    """The groups now; one that does not exist is Dead."""
    described = [admin.describe_group(name) for name in groups.found(admin)]
    rows = offset_rows(admin, described)
    now = time.time()
    return [Look(at=now, group=group, rows=rows[group.group_id]) for group in described]


@click.command()
@groups_options
@click.option(
    "--interval",
    type=Duration(0.1),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--count", type=click.IntRange(min=1), help="End after this number of looks.")
@click.option("--plain", is_flag=True, help="Print lines, also on a terminal.")
@bootstrap_option
@json_option
def watch(
    *,
    groups: Groups,
    interval: float,
    count: int | None,
    plain: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Watch groups: state, members, assignment and lag.

    On a terminal a view shows the groups and the last changes. In a pipe, or with --json, each
    change is one line: first, state, epoch, joined, left, gained, lost, lag. Brokers tell the
    epoch of groups of KIP-848 only. A change that is undone between two looks is not seen. Ctrl-C
    ends with status 0.
    """
    seen = Watch()
    with suppress(KeyboardInterrupt):
        with asking(bootstrap) as admin:
            first = look_at(admin, groups)
        with Admin(configured(bootstrap)) as admin:
            looks = _looks(admin, groups, first, interval, count)
            if as_json or plain or not sys.stdout.isatty():
                for look in looks:
                    for change in seen.take(look):
                        click.echo(change.as_json() if as_json else change.line())
                return
            with Live(console=Console(), auto_refresh=False) as live:
                for look in looks:
                    seen.take(look)
                    live.update(seen.view(), refresh=True)


def _looks(
    admin: Admin, groups: Groups, first: list[Look], interval: float, count: int | None
) -> Iterator[list[Look]]:
    """The looks, the first one included; a failure is told once, and the next look comes later."""
    failing = False
    yield first
    for _ in itertools.count() if count is None else range(count - 1):
        time.sleep(interval)
        try:
            look = look_at(admin, groups)
        except ClientError as error:
            if not error.retriable:
                raise
            if not failing:
                note(f"kohort: {error}; watching on")
            failing = True
        else:
            failing = False
            yield look
