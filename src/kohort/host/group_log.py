"""Writes a coordinator's facts as log lines in the wording of Kafka 4.

In: facts, from the engine's stream. Out: lines to a logger, so that searches, dashboards and
analysers for Kafka's broker log also work for kohort's. Must not know: engines, brokers. Facts
without a line in Kafka are logged at DEBUG under this module's own name, or not at all.

Kafka's frame is ``[time] LEVEL message (logger)``, which ``KafkaFormatter`` makes; the message
starts with the coordinator of the group's partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from kohort.coordinator.partitions import partition_for
from kohort.model import facts
from kohort.model.facts import RebalanceCause

LOGGER_NAME: Final = "org.apache.kafka.coordinator.group"
"""The package of Kafka 4's lines; each line also names the class."""

OFFSETS_TOPIC: Final = "__consumer_offsets"

_NOT_PROVIDED: Final = "not provided"

_GROUPS: Final = "GroupMetadataManager"
_OFFSETS: Final = "OffsetMetadataManager"
_SHARD: Final = "GroupCoordinatorShard"


class Line(NamedTuple):
    """A line without its frame."""

    level: int
    text: str
    source: str = _GROUPS
    """The last part of the logger's name."""


_own = logging.getLogger(__name__)


LONGEST_LINE: Final = 8_192
"""Most characters of one line; an id may have 32,767, and a line several ids."""


class KafkaFormatter(logging.Formatter):
    """Log lines as Kafka's default pattern lays them out."""

    def __init__(self) -> None:
        super().__init__("[%(asctime)s] %(kafka_level)s %(message)s (%(name)s)")

    def format(self, record: logging.LogRecord) -> str:
        """One line; WARNING is spelled WARN."""
        level = record.levelname
        record.kafka_level = "WARN" if level == "WARNING" else level
        return super().format(record)


def one_line(text: str) -> str:
    """A client's text for a log: no line breaks, no terminal codes, a limited length."""
    if not text.isprintable():
        text = "".join(
            each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
        )
    if len(text) > LONGEST_LINE:
        text = f"{text[:LONGEST_LINE]}... ({len(text) - LONGEST_LINE} more characters)"
    return text


class GroupLog:
    """Writes the lines of one coordinator.

    Args:
        node_of: the id of the node that coordinates a group.
        partition_count: partitions of ``__consumer_offsets``.
        logger: the parent of all loggers here; the default has the name of Kafka's package.
    """

    def __init__(
        self,
        node_of: Callable[[str], int],
        partition_count: int,
        logger: logging.Logger | None = None,
    ) -> None:
        self._node_of = node_of
        self._partition_count = partition_count
        base = logger or logging.getLogger(LOGGER_NAME)
        self._loggers = {name: base.getChild(name) for name in (_GROUPS, _OFFSETS, _SHARD)}

    def hears(self, kind: type) -> bool:
        """Whether facts of this kind lead to a line, with the present levels of the loggers."""
        return kind in _LINES or _own.isEnabledFor(logging.DEBUG)

    def write(self, fact: facts.Fact) -> None:
        """Log a fact, if there is a line for it."""
        line = line_for(fact)
        if line is None:
            _own.debug("%s", fact)
            return
        logger = self._loggers[line.source]
        if logger.isEnabledFor(line.level):
            logger.log(line.level, "%s %s", self.prefix(fact.group_id), one_line(line.text))

    def prefix(self, group_id: str) -> str:
        """Kafka's prefix: the coordinator's partition."""
        partition = partition_for(group_id, self._partition_count)
        node_id = self._node_of(group_id)
        return f"[GroupCoordinator id={node_id} topic={OFFSETS_TOPIC} partition={partition}]"


def line_for(fact: facts.Fact) -> Line | None:
    """Level and text of a fact's line, without the prefix; None if Kafka has no line for it."""
    write = _LINES.get(type(fact))
    return write(fact) if write is not None else None


def _java_set(items: Iterable[str]) -> str:
    return f"[{', '.join(items)}]"


def _or_null(value: str | None) -> str:
    return "null" if value is None else value


def _reason(client_reason: str | None) -> str:
    return f"; client reason: {client_reason or _NOT_PROVIDED}"


# -- joining ---------------------------------------------------------------------------------------


def _id_handed_out(fact: facts.MemberIdHandedOut) -> Line:
    return Line(
        logging.INFO,
        f"Dynamic member with unknown member id joins group {fact.group_id} in {fact.state.value} "
        f"state. Created a new member id {fact.member_id} and requesting the member to rejoin with "
        "this id.",
    )


def _added_without_id(fact: facts.MemberAddedWithoutId) -> Line:
    return Line(
        logging.INFO,
        f"Dynamic member with unknown member id joins group {fact.group_id} in state "
        f"{fact.state.value}. Created a new member id {fact.member_id} and added the member to "
        "the group.",
    )


def _pending_joined(fact: facts.PendingMemberJoined) -> Line:
    return Line(
        logging.INFO,
        f"Pending dynamic member with id {fact.member_id} joins group {fact.group_id} in "
        f"{fact.state.value} state. Adding to the group now.",
    )


def _static_added(fact: facts.StaticMemberAdded) -> Line:
    return Line(
        logging.INFO,
        f"Static member with groupInstanceId={fact.group_instance_id} and unknown member id joins "
        f"group {fact.group_id} in {fact.state.value} state. Created a new member id "
        f"{fact.member_id} for this member and added to the group.",
    )


def _static_replaced(fact: facts.StaticMemberReplaced) -> Line:
    return Line(
        logging.INFO,
        f"Static member with groupInstanceId={fact.group_instance_id} and unknown member id joins "
        f"group {fact.group_id} in {fact.state.value} state. Replacing previously mapped member "
        f"{fact.replaced_id} with this groupInstanceId.",
    )


# -- rebalancing -----------------------------------------------------------------------------------


def _cause(fact: facts.RebalanceStarted) -> str:  # noqa: C901, PLR0911 - one line a cause
    members, during = ", ".join(fact.member_ids), fact.previous_state.value
    client, instance = _reason(fact.client_reason), _or_null(fact.group_instance_id)
    match fact.cause:
        case RebalanceCause.MEMBER_ADDED:
            return f"Adding new member {members} with group instance id {instance}{client}"
        case RebalanceCause.METADATA_UPDATED:
            return f"Updating metadata for member {members} during {during}{client}"
        case RebalanceCause.LEADER_REJOINED:
            return f"Leader {members} re-joining group during {during}{client}"
        case RebalanceCause.MEMBERS_LEFT:
            return f"explicit `LeaveGroup` request for ({members}) members."
        case RebalanceCause.MEMBER_EXPIRED:
            return f"removing member {members} on heartbeat expiration."
        case RebalanceCause.SYNC_EXPIRED:
            return f"Removing {_java_set(fact.member_ids)} on pending sync request expiration"
        case RebalanceCause.ASSIGNMENT_NOT_STORED:
            return (
                f"Error {fact.error.name} when storing group assignment during SyncGroup "
                f"(member: {members})"
            )
        case RebalanceCause.PROTOCOL_CHANGED:
            return (
                f"Group's selectedProtocol will change because static member {members} with "
                f"instance id {instance} joined with change of protocol{client}"
            )
        case RebalanceCause.STATIC_MEMBER_REPLACED:
            return (
                f"Updating metadata for static member {members} with instance id {instance}{client}"
            )
        case RebalanceCause.OVER_CAPACITY:
            return f"Freshly-loaded group is over capacity ({fact.member_count} members)"


def _rebalance_started(fact: facts.RebalanceStarted) -> Line:
    # The state in this line is always the new one: Kafka sets it before it logs.
    return Line(
        logging.INFO,
        f"Preparing to rebalance group {fact.group_id} in state PreparingRebalance with old "
        f"generation {fact.generation_id} (reason: {_cause(fact)}).",
    )


def _join_completed(fact: facts.JoinPhaseCompleted) -> Line:
    return Line(
        logging.INFO,
        f"Stabilized group {fact.group_id} generation {fact.generation_id} with "
        f"{len(fact.member_ids)} members.",
    )


def _not_rejoined(fact: facts.MembersNotRejoined) -> Line:
    return Line(
        logging.INFO,
        f"Group {fact.group_id} removed dynamic members who haven't joined: "
        f"{_java_set(fact.member_ids)}",
    )


def _nobody_rejoined(fact: facts.NobodyRejoined) -> Line:
    return Line(
        logging.ERROR,
        f"Group {fact.group_id} could not complete rebalance because no members rejoined.",
    )


def _emptied(fact: facts.GroupEmptied) -> Line:
    return Line(
        logging.INFO,
        f"Group {fact.group_id} with generation {fact.generation_id} is now empty.",
    )


# -- assignments -----------------------------------------------------------------------------------


def _assignment_received(fact: facts.AssignmentReceived) -> Line:
    return Line(
        logging.INFO,
        f"Assignment received from leader {fact.leader_id} for group {fact.group_id} for "
        f"generation {fact.generation_id}. The group has {fact.member_count} members, "
        f"{fact.static_count} of which are static.",
    )


def _empty_assignments(fact: facts.EmptyAssignmentsSet) -> Line:
    return Line(
        logging.WARNING,
        f"Setting empty assignments for members {_java_set(fact.member_ids)} of {fact.group_id} "
        f"for generation {fact.generation_id}.",
    )


def _empty_delivered(fact: facts.AssignmentDelivered) -> Line | None:
    if fact.size:
        return None
    return Line(
        logging.WARNING,
        f"Sending empty assignment to member {fact.member_id} of {fact.group_id} for generation "
        f"{fact.generation_id} with no errors",
    )


# -- leaving ---------------------------------------------------------------------------------------


def _expired(fact: facts.MemberExpired) -> Line:
    return Line(
        logging.INFO,
        f"Member {fact.member_id} in group {fact.group_id} has failed, removing it from the group.",
    )


def _join_dropped(fact: facts.ParkedJoinDropped) -> Line:
    then = "It was removed" if fact.removed else "It has its session timeout to join again"
    return Line(
        logging.INFO,
        f"The connection of member {fact.member_id} in group {fact.group_id} was lost while its "
        f"JoinGroup waited. {then}.",
    )


def _sync_dropped(fact: facts.ParkedSyncDropped) -> Line:
    return Line(
        logging.INFO,
        f"The connection of member {fact.member_id} in group {fact.group_id} was lost while its "
        "SyncGroup waited. It has its session timeout to come back.",
    )


def _pending_expired(fact: facts.PendingMemberExpired) -> Line:
    return Line(
        logging.INFO,
        f"Pending member {fact.member_id} in group {fact.group_id} has been removed after session "
        "timeout expiration.",
    )


def _left(fact: facts.MemberLeft) -> Line:
    who = "Pending member" if fact.pending else "Member"
    return Line(
        logging.INFO,
        f"[Group {fact.group_id}] {who} {fact.member_id} has left group through explicit "
        f"`LeaveGroup` request{_reason(fact.client_reason)}",
    )


# -- groups that come and go -----------------------------------------------------------------------


def _created(fact: facts.GroupCreated) -> Line | None:
    if not fact.simple:
        return None
    return Line(
        logging.INFO,
        f"[GroupId {fact.group_id}] Creating a simple consumer group via manual offset commit.",
        _OFFSETS,
    )


def _deleted(fact: facts.GroupDeleted) -> Line | None:
    if fact.expired:
        return None
    return Line(
        logging.INFO,
        f"The following groups were deleted: {fact.group_id}. A total of {fact.offset_count} "
        "offsets were removed.",
        _SHARD,
    )


# -- loading and failures --------------------------------------------------------------------------


def _loaded(fact: facts.GroupLoaded) -> Line:
    return Line(
        logging.INFO, f"Loaded classic group {fact.group_id} with {fact.member_count} members."
    )


def _unparsed(fact: facts.SubscriptionNotParsed) -> Line:
    return Line(
        logging.WARNING,
        f"Metadata of member {fact.member_id} of group {fact.group_id} for protocol "
        f"{fact.protocol_name} is no consumer subscription; which topics the group reads is "
        "unknown, so none of its offsets expire.",
    )


def _damaged(fact: facts.DamagedMetadataRefused) -> Line:
    return Line(
        logging.WARNING,
        f"Client {fact.client_id} at {fact.client_host} was refused by group {fact.group_id}: its "
        f"metadata of {fact.size} bytes for protocol {fact.protocol_name} is no consumer "
        "subscription, and would make the group's topics unreadable.",
    )


def _write_failed(fact: facts.WriteFailed) -> Line:
    return Line(
        logging.ERROR,
        f"Writing the {fact.purpose} of group {fact.group_id} to {OFFSETS_TOPIC} failed with "
        f"{fact.error.name}.",
    )


def _limit_reached(fact: facts.LimitReached) -> Line:
    return Line(
        logging.WARNING,
        f"A request for group {fact.group_id} was refused: {fact.setting}={fact.limit} "
        + ("is reached." if fact.asked is None else f"would be exceeded by {fact.asked}."),
    )


_LINES: Final[dict[type, Callable[[Any], Line | None]]] = {
    facts.GroupCreated: _created,
    facts.GroupDeleted: _deleted,
    facts.MemberIdHandedOut: _id_handed_out,
    facts.MemberAddedWithoutId: _added_without_id,
    facts.PendingMemberJoined: _pending_joined,
    facts.StaticMemberAdded: _static_added,
    facts.StaticMemberReplaced: _static_replaced,
    facts.RebalanceStarted: _rebalance_started,
    facts.JoinPhaseCompleted: _join_completed,
    facts.MembersNotRejoined: _not_rejoined,
    facts.NobodyRejoined: _nobody_rejoined,
    facts.GroupEmptied: _emptied,
    facts.AssignmentReceived: _assignment_received,
    facts.EmptyAssignmentsSet: _empty_assignments,
    facts.AssignmentDelivered: _empty_delivered,
    facts.MemberExpired: _expired,
    facts.PendingMemberExpired: _pending_expired,
    facts.MemberLeft: _left,
    facts.ParkedJoinDropped: _join_dropped,
    facts.ParkedSyncDropped: _sync_dropped,
    facts.GroupLoaded: _loaded,
    facts.SubscriptionNotParsed: _unparsed,
    facts.WriteFailed: _write_failed,
    facts.DamagedMetadataRefused: _damaged,
    facts.LimitReached: _limit_reached,
}
