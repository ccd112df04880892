"""``kohort groups``: list and describe consumer groups of any Kafka.

In: flags. Out: the tables of Kafka's own tool, after a head with state and total lag, or JSON.
Warnings go to standard error. Must not know: requests (``kohort.client.admin``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import click

from kohort.cli.asking import asking
from kohort.cli.output import bootstrap_option, json_option, note, print_json, print_table
from kohort.client.admin import Admin
from kohort.client.descriptions import GroupDescription, GroupMemberDescription
from kohort.embedded.deferral import Handover, Wait, announced_in
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition

REBALANCING = ("PreparingRebalance", "CompletingRebalance")


@click.group()
def groups() -> None:
    """List and describe consumer groups."""


@groups.command("list")
@click.option("--state", "with_state", is_flag=True, help="Show each group's type and state.")
@bootstrap_option
@json_option
def list_groups(*, with_state: bool, bootstrap: str, as_json: bool) -> None:
    """List all groups, one a line."""
    with asking(bootstrap) as admin:
        found = sorted(admin.list_groups(), key=lambda group: group.group_id)
    if as_json:
        print_json(
            [
                {
                    "group": group.group_id,
                    "type": group.type,
                    "protocol_type": group.protocol_type,
                    "state": group.state,
                }
                for group in found
            ]
        )
    elif with_state:
        print_table(
            ["GROUP", "TYPE", "STATE"],
            [(group.group_id, group.type or None, group.state or None) for group in found],
        )
    else:
        for group in found:
            click.echo(group.group_id)


@groups.command()
@click.argument("group_ids", nargs=-1, required=True)
@click.option("--members", is_flag=True, help="Show members instead of offsets.")
@click.option("--state", "state", is_flag=True, help="Show the group's state only.")
@click.option("--verbose", is_flag=True, help="With --members: show each member's partitions.")
@bootstrap_option
@json_option
def describe(
    *,
    group_ids: tuple[str, ...],
    members: bool,
    state: bool,
    verbose: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Show state, members and lag of groups."""
    if members and state:
        raise click.UsageError("--members and --state show different tables: choose one")
    with asking(bootstrap) as admin:
        reports = [_report(admin, group_id) for group_id in dict.fromkeys(group_ids)]
    if as_json:
        print_json([report.as_json() for report in reports])
        return
    for report in reports:
        _warn(report.group)
        if state:
            _print_state(report)
        elif members:
            _print_members(report, verbose)
        else:
            _print_offsets(report)


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition of a group with its offsets and its owner."""

    partition: TopicPartition | None
    current_offset: int | None
    log_end_offset: int | None
    member: GroupMemberDescription | None

    @property
    def lag(self) -> int | None:
        """Records that are not committed yet; None if one of the two offsets is unknown."""
        if self.current_offset is None or self.log_end_offset is None:
            return None
        return max(self.log_end_offset - self.current_offset, 0)

    def as_json(self) -> dict[str, object]:
        """The offsets of the partition for programs."""
        topic, number = self.partition or (None, None)
        return {
            "topic": topic,
            "partition": number,
            "current_offset": self.current_offset,
            "log_end_offset": self.log_end_offset,
            "lag": self.lag,
            "consumer_id": self.member.member_id if self.member else None,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """All information about one group."""

    group: GroupDescription
    coordinator: str
    rows: list[PartitionRow]

    @property
    def total_lag(self) -> int | None:
        """Lag of all partitions; None if a partition with records has no committed offset."""
        if any(row.lag is None and row.log_end_offset != 0 for row in self.rows if row.partition):
            return None
        return sum(row.lag or 0 for row in self.rows)

    def as_json(self) -> dict[str, object]:
        """The whole report for programs."""
        return {
            "group": self.group.group_id,
            "state": self.group.state,
            "protocol_type": self.group.protocol_type,
            "assignment_strategy": self.group.protocol_name,
            "coordinator": self.coordinator,
            "coordinator_id": self.group.coordinator_id,
            "total_lag": self.total_lag,
            "waits": [
                {
                    "partitions": [str(partition) for partition in sorted(wait.partitions)],
                    "remaining_ms_at_the_last_rebalance": wait.remaining_ms,
                }
                for wait in _waits(self.group)
            ],
            "handovers": [
                {
                    "member_id": member_id,
                    "partitions": [str(partition) for partition in sorted(each.partitions)],
                    "remaining_ms_at_the_last_rebalance": each.remaining_ms,
                }
                for member_id, each in _handovers(self.group)
            ],
            "members": [_member_json(member) for member in self.group.members],
            "partitions": [row.as_json() for row in self.rows if row.partition is not None],
        }


def _report(admin: Admin, group_id: str) -> Report:
    group = admin.describe_group(group_id)
    committed = admin.committed(group_id)
    if group.state == "Dead" and not committed:
        raise ConfigError(f"Consumer group '{group_id}' does not exist.")
    owners = {
        partition: member for member in group.members for partition in member.partitions or ()
    }
    partitions = sorted({*committed, *owners})
    ends = _log_ends(admin, partitions)
    rows = [
        PartitionRow(
            partition,
            committed[partition].offset if partition in committed else None,
            ends.get(partition),
            owners.get(partition),
        )
        for partition in partitions
    ]
    rows += [
        PartitionRow(None, None, None, member) for member in group.members if not member.partitions
    ]
    brokers = {broker.node_id: broker for broker in admin.describe_cluster().brokers}
    node = brokers.get(group.coordinator_id)
    where = f"{node.host}:{node.port}" if node else "?"
    return Report(group, where, rows)


def _log_ends(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Log end offsets; deleted partitions have none."""
    present = {
        partition for topic in admin.topics().values() for partition in topic.topic_partitions
    }
    found = admin.list_offsets([partition for partition in partitions if partition in present])
    return {partition: description.offset for partition, description in found.items()}


def _warn(group: GroupDescription) -> None:
    if group.state == "Empty":
        note(f"Consumer group '{group.group_id}' has no active members.")
    elif group.state in REBALANCING:
        note(f"Warning: Consumer group '{group.group_id}' is rebalancing.")
    for wait in _waits(group):
        note(
            f"Consumer group '{group.group_id}' keeps {assignment_text(wait.partitions)} for a "
            f"lost member, for {wait.remaining_ms / 1_000:g} s from the last rebalance at most."
        )
    for member_id, each in _handovers(group):
        note(
            f"Member {member_id} of consumer group '{group.group_id}' prepares "
            f"{assignment_text(each.partitions)}, for {each.remaining_ms / 1_000:g} s from the "
            "last rebalance at most."
        )
    for member in group.members:
        if copies := announced_in([member.assignment]).standbys:
            note(
                f"Member {member.member_id} of consumer group '{group.group_id}' keeps copies of "
                f"{assignment_text(copies)}."
            )


def _waits(group: GroupDescription) -> tuple[Wait, ...]:
    """The waits that a kohort leader wrote into the assignments."""
    return announced_in(member.assignment for member in group.members).waits


def _handovers(group: GroupDescription) -> list[tuple[str, Handover]]:
    """The partitions that members prepare, each with the member."""
    return [
        (str(member.member_id), each)
        for member in group.members
        for each in announced_in([member.assignment]).handovers
    ]


def _print_offsets(report: Report) -> None:
    group = report.group
    head = [
        ("GROUP", group.group_id),
        ("COORDINATOR-NODE", group.coordinator_id),
        ("STATE", group.state),
        ("BALANCER", group.protocol_name or "-"),
        ("MEMBERS", len(group.members)),
        ("TOTAL-LAG", "-" if report.total_lag is None else report.total_lag),
    ]
    click.echo()
    for name, value in head:
        click.echo(f"{name:<18}{value}")
    print_table(
        [
            *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
            *("CONSUMER-ID", "HOST", "CLIENT-ID"),
        ],
        [(group.group_id, *_cells(row)) for row in report.rows],
    )


def _cells(row: PartitionRow) -> tuple[object, ...]:
    member = row.member
    client = (member.client_host, member.client_id) if member else (None, None)
    return (*row.as_json().values(), *client)


def _print_members(report: Report, verbose: bool) -> None:
    static = any(member.group_instance_id for member in report.group.members)
    columns = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    if static:
        columns.insert(2, "GROUP-INSTANCE-ID")
    if verbose:
        columns.append("ASSIGNMENT")
    lines = []
    for member in report.group.members:
        owned = member.partitions
        line: list[object] = [report.group.group_id, member.member_id]
        if static:
            line.append(member.group_instance_id)
        line += [member.client_host, member.client_id, None if owned is None else len(owned)]
        if verbose:
            line.append(assignment_text(owned or ()) or None)
        lines.append(line)
    print_table(columns, lines)


def assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """Partitions in the form of Kafka's tool: ``topic:0,1;topic2:3``."""
    by_topic: dict[str, list[str]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(str(number))
    return ";".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items())


def _print_state(report: Report) -> None:
    group = report.group
    print_table(
        ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"],
        [
            (
                group.group_id,
                f"{report.coordinator}  ({group.coordinator_id})",
                group.protocol_name or None,
                group.state,
                len(group.members),
            )
        ],
    )


def _member_json(member: GroupMemberDescription) -> dict[str, object]:
    owned = member.partitions
    return {
        "consumer_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "host": member.client_host,
        "client_id": member.client_id,
        "partitions": None if owned is None else [str(partition) for partition in sorted(owned)],
        "standbys": [str(tp) for tp in sorted(announced_in([member.assignment]).standbys)],
    }
