"""State, members, offsets and lag of groups, in the columns of Kafka's tool.

In: an ``Admin``, ids of groups. Out: a report of each group; tables on standard output, or values
for JSON. Must not know: flags of commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import click

from kohort.cli.output import note, print_table, separate
from kohort.client.admin import Admin
from kohort.client.descriptions import GroupDescription, GroupMemberDescription
from kohort.embedded.connect import decode_worker_assignment
from kohort.embedded.deferral import (
    NOTHING,
    PARTITIONS,
    Handover,
    Pending,
    Wait,
    Words,
    announced_in,
)
from kohort.engine.connect_protocol import PROTOCOL_TYPE as CONNECT
from kohort.engine.resource_protocol import PROTOCOL_TYPE as RESOURCES
from kohort.model.errors import ConfigError, ProtocolError
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position
from kohort.policies import connect_groups, resource_groups

REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")

OFFSET_COLUMNS: Final = (
    *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
    *("CONSUMER-ID", "HOST", "CLIENT-ID"),
)
MEMBER_COLUMNS: Final = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
STATE_COLUMNS: Final = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE")


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition of a group with its offsets and its owner."""

    partition: TopicPartition
    committed: Position | None
    log_end_offset: int | None
    member: GroupMemberDescription | None

    @property
    def current_offset(self) -> int | None:
        """The committed offset."""
        return None if self.committed is None else self.committed.offset

    @property
    def leader_epoch(self) -> int | None:
        """The leader's epoch in the commit."""
        if self.committed is None or self.committed.leader_epoch < 0:
            return None
        return self.committed.leader_epoch

    @property
    def lag(self) -> int | None:
        """Records that are not committed yet, None if one of the two offsets is unknown.

        Below zero if the log ends before the committed offset, as Kafka's tool shows it.
        """
        if self.current_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.current_offset

    def as_json(self) -> dict[str, object]:
        """The offsets of the partition for programs."""
        topic, number = self.partition
        return {
            "topic": topic,
            "partition": number,
            "leader_epoch": self.leader_epoch,
            "current_offset": self.current_offset,
            "log_end_offset": self.log_end_offset,
            "lag": self.lag,
            "consumer_id": self.member.member_id if self.member else None,
        }

    def cells(self, verbose: bool) -> tuple[object, ...]:
        """The columns of Kafka's tool after the group."""
        member = self.member
        epoch = (self.leader_epoch,) if verbose else ()
        offsets = (self.current_offset, self.log_end_offset, self.lag)
        who = (member.member_id, member.client_host, member.client_id) if member else (None,) * 3
        return (*self.partition, *epoch, *offsets, *who)


@dataclass(frozen=True, slots=True)
class Report:
    """All information about one group."""

    group: GroupDescription
    coordinator: str
    rows: list[PartitionRow]

    @property
    def total_lag(self) -> int | None:
        """Lag of all partitions; None if a partition with records has no committed offset."""
        if any(row.lag is None and row.log_end_offset != 0 for row in self.rows):
            return None
        return sum(max(row.lag or 0, 0) for row in self.rows)

    def as_json(self) -> dict[str, object]:
        """The whole report for programs."""
        return {
            **self.state_json(),
            "total_lag": self.total_lag,
            "waits": [
                {
                    "partitions": _listed(self.group, wait.partitions),
                    "member_id": wait.member or None,
                    "remaining_ms_at_the_last_rebalance": wait.remaining_ms,
                }
                for wait in _waits(self.group)
            ],
            "handovers": [
                {
                    "member_id": member_id,
                    "partitions": _listed(self.group, each.partitions),
                    "remaining_ms_at_the_last_rebalance": each.remaining_ms,
                }
                for member_id, each in _handovers(self.group)
            ],
            **self.members_json(),
            **self.offsets_json(),
        }

    def state_json(self) -> dict[str, object]:
        """State and coordinator for programs."""
        group = self.group
        return {
            "group": group.group_id,
            "type": group.type,
            "state": group.state,
            "protocol_type": group.protocol_type,
            "assignment_strategy": group.protocol_name,
            "coordinator": self.coordinator,
            "coordinator_id": group.coordinator_id,
            "group_epoch": group.epoch,
            "target_assignment_epoch": group.assignment_epoch,
            "member_count": len(group.members),
        }

    def members_json(self) -> dict[str, object]:
        """The members for programs."""
        return {
            "group": self.group.group_id,
            "members": [member_json(self.group, member) for member in self.group.members],
        }

    def offsets_json(self) -> dict[str, object]:
        """The offsets of each partition for programs."""
        return {
            "group": self.group.group_id,
            "partitions": [row.as_json() for row in self.rows],
        }


def member_json(group: GroupDescription, member: GroupMemberDescription) -> dict[str, object]:
    """A member for programs; epochs and the target only in groups of KIP-848."""
    return {
        "consumer_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "host": member.client_host,
        "client_id": member.client_id,
        "partitions": _names(member.partitions),
        "standbys": _listed(group, _pending(group, member).standbys),
        "current_epoch": member.epoch,
        "target_epoch": member.target_epoch,
        "target_partitions": _names(member.target),
        "upgraded": member.upgraded,
    }


def _names(partitions: Iterable[TopicPartition] | None) -> list[str] | None:
    return None if partitions is None else [str(partition) for partition in sorted(partitions)]


def described(admin: Admin, group_ids: Iterable[str]) -> list[GroupDescription]:
    """The groups with their members.

    Raises:
        ConfigError: there is no such group, or it is no consumer group.
    """
    found = [admin.describe_group(group_id) for group_id in group_ids]
    for group in found:
        if group.state == "Dead":
            raise ConfigError(_absent(admin, group.group_id))
    return found


def _absent(admin: Admin, group_id: str) -> str:
    """Why a group cannot be described: brokers list share and streams groups, too."""
    kind = next((g.type for g in admin.list_groups() if g.group_id == group_id), "")
    if kind in {"", "classic", "consumer"}:
        return f"Consumer group '{group_id}' does not exist."
    return (
        f"Group '{group_id}' is not a consumer group, but a {kind} group: kohort shows its type "
        f"and its state only, `kohort groups list --state --type`. Use Kafka's kafka-{kind}-groups."
    )


def reports(admin: Admin, group_ids: Iterable[str], *, offsets: bool = True) -> list[Report]:
    """A report of each group; without ``offsets`` cheaper and without rows.

    Raises:
        ConfigError: there is no such group.
    """
    groups = described(admin, group_ids)
    brokers = {broker.node_id: broker for broker in admin.describe_cluster().brokers}
    rows: dict[str, list[PartitionRow]] = {}
    if offsets:
        rows = offset_rows(admin, groups)
    found = []
    for group in groups:
        node = brokers.get(group.coordinator_id)
        where = f"{node.host}:{node.port}" if node else "?"
        found.append(Report(group, where, rows.get(group.group_id, [])))
    return found


def offset_rows(admin: Admin, groups: Sequence[GroupDescription]) -> dict[str, list[PartitionRow]]:
    """The partitions of each group that are committed or owned, in order."""
    committed = {group.group_id: admin.committed(group.group_id) for group in groups}
    owners = {
        group.group_id: {tp: m for m in group.members for tp in m.partitions or ()}
        for group in groups
    }
    shown = {name: sorted({*committed[name], *owners[name]}) for name in owners}
    ends = log_ends(admin, {tp for partitions in shown.values() for tp in partitions})
    return {
        name: [
            PartitionRow(tp, committed[name].get(tp), ends.get(tp), owners[name].get(tp))
            for tp in partitions
        ]
        for name, partitions in shown.items()
    }


def log_ends(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Log end offsets; deleted partitions have none."""
    wanted = set(partitions)
    if not wanted:
        return {}
    present = {tp for topic in admin.topics().values() for tp in topic.topic_partitions}
    found = admin.list_offsets(wanted & present)
    return {partition: description.offset for partition, description in found.items()}


# -- tables ---------------------------------------------------------------------------------------


def warn(group: GroupDescription) -> None:
    """Remarks about a group on standard error."""
    if group.state == "Empty":
        note(f"Consumer group '{group.group_id}' has no active members.")
    elif group.state in REBALANCING:
        note(f"Warning: Consumer group '{group.group_id}' is rebalancing.")
    for wait in _waits(group):
        note(
            f"Consumer group '{group.group_id}' keeps {_text(group, wait.partitions)} for "
            f"{f'member {wait.member}, which left' if wait.member else 'a lost member'}, for "
            f"{wait.remaining_ms / 1_000:g} s from the last rebalance at most."
        )
    for member_id, each in _handovers(group):
        note(
            f"Member {member_id} of consumer group '{group.group_id}' prepares "
            f"{_text(group, each.partitions)}, for {each.remaining_ms / 1_000:g} s from the "
            "last rebalance at most."
        )
    for member in group.members:
        if copies := _pending(group, member).standbys:
            note(
                f"Member {member.member_id} of consumer group '{group.group_id}' keeps copies of "
                f"{_text(group, copies)}."
            )


_WORDS: Final = {str(CONNECT): connect_groups.WORDS, str(RESOURCES): resource_groups.WORDS}
"""The words for groups in which something else travels as partitions."""


def _words(group: GroupDescription) -> Words:
    return _WORDS.get(group.protocol_type, PARTITIONS)


def _listed(group: GroupDescription, partitions: Iterable[TopicPartition]) -> list[str]:
    return [str(_words(group).name(partition)) for partition in sorted(partitions)]


def _text(group: GroupDescription, partitions: Iterable[TopicPartition]) -> str:
    if group.protocol_type in _WORDS:
        return ", ".join(_listed(group, partitions))
    return assignment_text(partitions)


def _pending(group: GroupDescription, member: GroupMemberDescription) -> Pending:
    """The pending work in a member's assignment; a worker's is after Connect's bytes."""
    assignment = member.assignment
    if group.protocol_type == CONNECT:
        try:
            assignment = decode_worker_assignment(assignment).detail or b""
        except ProtocolError:
            return NOTHING
    return announced_in([assignment])


def _waits(group: GroupDescription) -> tuple[Wait, ...]:
    """The waits that a kohort leader wrote into the assignments."""
    return next(filter(None, (_pending(group, member).waits for member in group.members)), ())


def _handovers(group: GroupDescription) -> list[tuple[str, Handover]]:
    """The partitions that members prepare, each with the member."""
    return [
        (str(member.member_id), each)
        for member in group.members
        for each in _pending(group, member).handovers
    ]


def print_head(report: Report) -> None:
    """State, coordinator and total lag, a line each."""
    group = report.group
    head = [
        ("GROUP", group.group_id),
        ("COORDINATOR-NODE", group.coordinator_id),
        ("STATE", group.state),
        ("BALANCER", group.protocol_name or "-"),
        ("MEMBERS", len(group.members)),
        ("TOTAL-LAG", "-" if report.total_lag is None else report.total_lag),
    ]
    separate()
    for name, value in head:
        click.echo(f"{name:<18}{value}")


def print_offsets(report: Report, *, verbose: bool = False) -> None:
    """A row of each partition with a commit or an owner."""
    columns = list(OFFSET_COLUMNS)
    if verbose:
        columns.insert(3, "LEADER-EPOCH")
    group_id = report.group.group_id
    print_table(columns, [(group_id, *row.cells(verbose)) for row in report.rows])


def print_members(report: Report, *, verbose: bool = False) -> None:
    """A row of each member."""
    members = report.group.members
    static = any(member.group_instance_id for member in members)
    # As Kafka's tool: only while a group is between the two protocols.
    upgrading = any(member.upgraded is False for member in members)
    columns = list(MEMBER_COLUMNS)
    if static:
        columns.insert(2, "GROUP-INSTANCE-ID")
    if verbose:
        columns += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        columns += ["UPGRADED"] if upgrading else []
    lines = []
    for member in members:
        owned = member.partitions
        line: list[object] = [report.group.group_id, member.member_id]
        if static:
            line.append(member.group_instance_id)
        line += [member.client_host, member.client_id, None if owned is None else len(owned)]
        if verbose:
            line += [member.epoch, assignment_text(owned or ()) or None]
            line += [member.target_epoch, assignment_text(member.target or ()) or None]
            line += [str(member.upgraded).lower()] if upgrading else []
        lines.append(line)
    print_table(columns, lines)


def print_state(report: Report, *, verbose: bool = False) -> None:
    """One row: the coordinator, the assignor and the state."""
    group = report.group
    line = [
        group.group_id,
        f"{report.coordinator}  ({group.coordinator_id})",
        group.protocol_name or None,
        group.state,
    ]
    epochs = ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"] if verbose else []
    numbers = [group.epoch, group.assignment_epoch] if verbose else []
    print_table([*STATE_COLUMNS, *epochs, "#MEMBERS"], [(*line, *numbers, len(group.members))])


def assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """Partitions in the form of Kafka's tool: ``topic:0,1;topic2:3``."""
    by_topic: dict[str, list[str]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(str(number))
    return ";".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items())
