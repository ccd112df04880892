"""Writes a coordinator's facts as log lines in the wording of Kafka 4.

In: facts, from the engine's stream. Out: lines to a logger, so that searches, dashboards and
analysers for Kafka's broker log also work for kohort's. Must not know: engines, brokers. Facts
without a line in Kafka are logged at DEBUG under this module's own name, or not at all.

Kafka's frame is ``[time] LEVEL message (logger)``, which ``KafkaFormatter`` makes; the message
starts with the coordinator of the group's partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from kohort.coordinator.partitions import partition_for
from kohort.host.clock import monotonic_now
from kohort.model import facts
from kohort.model.facts import RebalanceCause
from kohort.model.instants import Instant, Millis, after

LOGGER_NAME: Final = "org.apache.kafka.coordinator.group"
"""The package of Kafka 4's lines; each line also names the class."""

OFFSETS_TOPIC: Final = "__consumer_offsets"

_GROUPS: Final = "GroupMetadataManager"
_OFFSETS: Final = "OffsetMetadataManager"
_SHARD: Final = "GroupCoordinatorShard"


class Line(NamedTuple):
    """A line without its frame."""

    text: str
    level: int = logging.INFO
    source: str = _GROUPS
    """The last part of the logger's name."""


_own = logging.getLogger(__name__)


REFUSALS_PAUSE_MS: Final = Millis(1_000)
"""Least time between two lines about one limit: a client at a limit asks again at once."""

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
        now: the monotonic clock.
    """

    def __init__(
        self,
        node_of: Callable[[str], int],
        partition_count: int,
        logger: logging.Logger | None = None,
        now: Callable[[], Instant] = monotonic_now,
    ) -> None:
        self._node_of = node_of
        self._partition_count = partition_count
        base = logger or logging.getLogger(LOGGER_NAME)
        self._loggers = {name: base.getChild(name) for name in (_GROUPS, _OFFSETS, _SHARD)}
        self.hears_details: Callable[[], bool] = partial(_own.isEnabledFor, logging.DEBUG)
        """Whether facts without a line in Kafka's log are written, as those of single commits."""
        self._now = now
        self._quiet_until: dict[str, Instant] = {}
        """For each setting with a refusal: when the next refusal gets a line."""
        self._unlogged: dict[str, int] = {}
        """For each of these settings: the refusals without a line since the last line."""

    def hears(self, fact: facts.Fact) -> bool:
        """Whether this fact leads to a line, with the present levels of the loggers."""
        line = _LINES.get(type(fact))
        if line is None or _without_line(fact):
            return self.hears_details()
        return self._loggers[line.source].isEnabledFor(line.level)

    def write(self, fact: facts.Fact) -> None:
        """Log a fact, if there is a line for it. Refusals by one limit get one line a second."""
        unlogged = 0
        if isinstance(fact, facts.LimitReached):
            if self._is_quiet(fact.setting):
                return
            unlogged = self._unlogged.pop(fact.setting, 0)
        line = line_for(fact)
        if line is None:
            _own.debug("%s", fact)
            return
        logger = self._loggers[line.source]
        if logger.isEnabledFor(line.level):
            text = one_line(line.text)
            if unlogged:
                text += f" {unlogged} more requests were refused by this limit since the last line."
            logger.log(line.level, "%s %s", self.prefix(fact.group_id), text)

    def _is_quiet(self, setting: str) -> bool:
        """Whether a refusal by this limit gets no line, but is counted for the next line."""
        now = self._now()
        if now < self._quiet_until.get(setting, now):
            self._unlogged[setting] = self._unlogged.get(setting, 0) + 1
            return True
        self._quiet_until[setting] = after(now, REFUSALS_PAUSE_MS)
        return False

    def prefix(self, group_id: str) -> str:
        """Kafka's prefix: the coordinator's partition."""
        partition = partition_for(group_id, self._partition_count)
        node_id = self._node_of(group_id)
        return f"[GroupCoordinator id={node_id} topic={OFFSETS_TOPIC} partition={partition}]"


def line_for(fact: facts.Fact) -> Line | None:
    """Level and text of a fact's line, without the prefix; None if Kafka has no line for it."""
    line = _LINES.get(type(fact))
    if line is None or _without_line(fact):
        return None
    return line._replace(text=line.text.format(f=fact, **_values(fact)))


def _without_line(fact: facts.Fact) -> bool:
    """Whether this fact has no line although other facts of its kind have a line."""
    match fact:
        case facts.GroupCreated(simple=False) | facts.GroupDeleted(expired=True):
            return True
        case facts.AssignmentDelivered():
            return fact.size > 0
        case _:
            return False


def _values(fact: facts.Fact) -> dict[str, object]:
    """The values of a line that are not attributes of its fact."""
    members = getattr(fact, "member_ids", ())
    reason = getattr(fact, "client_reason", None) or "not provided"
    values = {
        "members": ", ".join(members),
        "count": len(members),
        "client": f"; client reason: {reason}",
    }
    match fact:
        case facts.RebalanceStarted():
            instance = fact.group_instance_id
            values["instance"] = "null" if instance is None else instance
            values["cause"] = _CAUSES[fact.cause].format(f=fact, **values)
        case facts.ParkedJoinDropped():
            waits = "It has its session timeout to join again"
            values["then"] = "It was removed" if fact.removed else waits
        case facts.MemberLeft():
            values["kind"] = "Pending member" if fact.pending else "Member"
        case facts.LimitReached():
            asked = fact.asked
            values["state"] = "is reached" if asked is None else f"would be exceeded by {asked}"
        case _:
            pass
    return values


_CAUSES: Final = {
    RebalanceCause.MEMBER_ADDED: (
        "Adding new member {members} with group instance id {instance}{client}"
    ),
    RebalanceCause.METADATA_UPDATED: (
        "Updating metadata for member {members} during {f.previous_state.value}{client}"
    ),
    RebalanceCause.LEADER_REJOINED: (
        "Leader {members} re-joining group during {f.previous_state.value}{client}"
    ),
    RebalanceCause.MEMBERS_LEFT: "explicit `LeaveGroup` request for ({members}) members.",
    RebalanceCause.MEMBER_EXPIRED: "removing member {members} on heartbeat expiration.",
    RebalanceCause.SYNC_EXPIRED: "Removing [{members}] on pending sync request expiration",
    RebalanceCause.ASSIGNMENT_NOT_STORED: (
        "Error {f.error.name} when storing group assignment during SyncGroup (member: {members})"
    ),
    RebalanceCause.PROTOCOL_CHANGED: (
        "Group's selectedProtocol will change because static member {members} with instance id "
        "{instance} joined with change of protocol{client}"
    ),
    RebalanceCause.STATIC_MEMBER_REPLACED: (
        "Updating metadata for static member {members} with instance id {instance}{client}"
    ),
    RebalanceCause.OVER_CAPACITY: (
        "Freshly-loaded group is over capacity ({f.member_count} members)"
    ),
}

# A line's text is a template: ``f`` is the fact, the other values come from ``_values``.
_LINES: Final[dict[type, Line]] = {
    # Joining.
    facts.MemberIdHandedOut: Line(
        "Dynamic member with unknown member id joins group {f.group_id} in {f.state.value} state. "
        "Created a new member id {f.member_id} and requesting the member to rejoin with this id.",
    ),
    facts.MemberAddedWithoutId: Line(
        "Dynamic member with unknown member id joins group {f.group_id} in state {f.state.value}. "
        "Created a new member id {f.member_id} and added the member to the group.",
    ),
    facts.PendingMemberJoined: Line(
        "Pending dynamic member with id {f.member_id} joins group {f.group_id} in "
        "{f.state.value} state. Adding to the group now.",
    ),
    facts.StaticMemberAdded: Line(
        "Static member with groupInstanceId={f.group_instance_id} and unknown member id joins "
        "group {f.group_id} in {f.state.value} state. Created a new member id {f.member_id} for "
        "this member and added to the group.",
    ),
    facts.StaticMemberReplaced: Line(
        "Static member with groupInstanceId={f.group_instance_id} and unknown member id joins "
        "group {f.group_id} in {f.state.value} state. Replacing previously mapped member "
        "{f.replaced_id} with this groupInstanceId.",
    ),
    # Rebalancing. The state in the first line is always the new one: Kafka sets it before it logs.
    facts.RebalanceStarted: Line(
        "Preparing to rebalance group {f.group_id} in state PreparingRebalance with old "
        "generation {f.generation_id} (reason: {cause}).",
    ),
    facts.JoinPhaseCompleted: Line(
        "Stabilized group {f.group_id} generation {f.generation_id} with {count} members.",
    ),
    facts.MembersNotRejoined: Line(
        "Group {f.group_id} removed dynamic members who haven't joined: [{members}]",
    ),
    facts.NobodyRejoined: Line(
        "Group {f.group_id} could not complete rebalance because no members rejoined.",
        logging.ERROR,
    ),
    facts.GroupEmptied: Line("Group {f.group_id} with generation {f.generation_id} is now empty."),
    # Assignments.
    facts.AssignmentReceived: Line(
        "Assignment received from leader {f.leader_id} for group {f.group_id} for generation "
        "{f.generation_id}. The group has {f.member_count} members, {f.static_count} of which are "
        "static.",
    ),
    facts.EmptyAssignmentsSet: Line(
        "Setting empty assignments for members [{members}] of {f.group_id} for generation "
        "{f.generation_id}.",
        logging.WARNING,
    ),
    facts.AssignmentDelivered: Line(
        "Sending empty assignment to member {f.member_id} of {f.group_id} for generation "
        "{f.generation_id} with no errors",
        logging.WARNING,
    ),
    # Leaving.
    facts.MemberExpired: Line(
        "Member {f.member_id} in group {f.group_id} has failed, removing it from the group.",
    ),
    facts.PendingMemberExpired: Line(
        "Pending member {f.member_id} in group {f.group_id} has been removed after session timeout "
        "expiration.",
    ),
    facts.MemberLeft: Line(
        "[Group {f.group_id}] {kind} {f.member_id} has left group through explicit `LeaveGroup` "
        "request{client}",
    ),
    facts.ParkedJoinDropped: Line(
        "The connection of member {f.member_id} in group {f.group_id} was lost while its JoinGroup "
        "waited. {then}.",
    ),
    facts.ParkedSyncDropped: Line(
        "The connection of member {f.member_id} in group {f.group_id} was lost while its SyncGroup "
        "waited. It has its session timeout to come back.",
    ),
    # Groups that come and go.
    facts.GroupCreated: Line(
        "[GroupId {f.group_id}] Creating a simple consumer group via manual offset commit.",
        source=_OFFSETS,
    ),
    facts.GroupDeleted: Line(
        "The following groups were deleted: {f.group_id}. A total of {f.offset_count} offsets were "
        "removed.",
        source=_SHARD,
    ),
    facts.GroupLoaded: Line("Loaded classic group {f.group_id} with {f.member_count} members."),
    # Failures.
    facts.SubscriptionNotParsed: Line(
        "Metadata of member {f.member_id} of group {f.group_id} for protocol {f.protocol_name} is "
        "no consumer subscription; which topics the group reads is unknown, so none of its offsets "
        "expire.",
        logging.WARNING,
    ),
    facts.DamagedMetadataRefused: Line(
        "Client {f.client_id} at {f.client_host} was refused by group {f.group_id}: its metadata "
        "of {f.size} bytes for protocol {f.protocol_name} is no consumer subscription, and would "
        "make the group's topics unreadable.",
        logging.WARNING,
    ),
    facts.WriteFailed: Line(
        f"Writing the {{f.purpose}} of group {{f.group_id}} to {OFFSETS_TOPIC} failed with "
        "{f.error.name}.",
        logging.ERROR,
    ),
    facts.LimitReached: Line(
        "A request for group {f.group_id} was refused: {f.setting}={f.limit} {state}.",
        logging.WARNING,
    ),
}
