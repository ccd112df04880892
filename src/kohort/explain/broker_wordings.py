"""Messages of Kafka's brokers about groups, 1.0 to 4.3: the Scala and the Java coordinator.

In: nothing. Out: `BROKER`, the most special message first. Must not know: frames, clients.

A template without its first letter fits a message that versions begin with a capital letter or not.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from kohort.explain.events import Kind, Side
from kohort.explain.templates import NEWEST, Wording, number, wording

Versions: TypeAlias = tuple[float, float]
"""The first and the last version, as `number` tells them."""

_OFFSETS = "(__consumer_offsets-<partition>)"
_STATICS = "The group has <members> members, <static> of which are static"

_TABLE: Final = (
    (
        Kind.PREPARING,
        "Preparing to rebalance group <group> in state PreparingRebalance with old "
        "generation <generation> "
        f"{_OFFSETS} (reason: <reason>)",
        "2.1-3.8",
    ),
    (
        Kind.PREPARING,
        "Preparing to rebalance group <group> in state PreparingRebalance with old "
        "generation <generation> "
        "(reason: <reason>)",
        "3.7-",
    ),
    (
        Kind.PREPARING,
        f"Preparing to rebalance group <group> with old generation <generation> {_OFFSETS}",
        "1.0-2.0",
    ),
    (
        Kind.STABILIZED,
        f"Stabilized group <group> generation <generation> {_OFFSETS} with <members> members",
        "2.8-3.8",
    ),
    (Kind.STABILIZED, f"Stabilized group <group> generation <generation> {_OFFSETS}", "1.0-2.7"),
    (
        Kind.STABILIZED,
        "Stabilized group <group> generation <generation> with <members> members",
        "3.7-",
    ),
    (
        Kind.ASSIGNED,
        "Assignment received from leader <member> for group <group> for generation <generation>. "
        + _STATICS,
        "3.0-",
    ),
    (
        Kind.ASSIGNED,
        "Assignment received from leader for group <group> for generation <generation>. "
        + _STATICS,
        "2.8-2.8",
    ),
    (
        Kind.ASSIGNED,
        "Assignment received from leader for group <group> for generation <generation>",
        "1.0-2.7",
    ),
    (
        Kind.PENDING_EXPIRED,
        "Pending member <member> in group <group> has been removed after session timeout "
        "expiration",
        "2.2-",
    ),
    (
        Kind.EXPIRED,
        "Member <member> in group <group> has failed, removing it from the group",
        "1.0-",
    ),
    # A reporter removed the name of the group and the blank before the name.
    (Kind.EXPIRED, "Member <member> in group<group> has failed, removing it from the group", None),
    (
        Kind.LEFT,
        "Member[group.instance.id <instance>, member.id <member>] in group <group> has left, "
        "removing it from the group",
        "2.4-2.8",
    ),
    (
        Kind.LEFT,
        "Member MemberMetadata(memberId=<member>, groupInstanceId=<instance>, clientId=<client>, "
        "clientHost=<host>, sessionTimeoutMs=<session>, rebalanceTimeoutMs=<timeout>, "
        "supportedProtocols=<protocols>) has left group <group> through explicit `LeaveGroup`; "
        "client reason: <reason>",
        "3.2-3.8",
    ),
    (
        Kind.LEFT,
        "Member MemberMetadata(memberId=<member>, groupInstanceId=<instance>, clientId=<client>, "
        "clientHost=<host>, sessionTimeoutMs=<session>, rebalanceTimeoutMs=<timeout>, "
        "supportedProtocols=<protocols>) has left group <group> through explicit `LeaveGroup` "
        "request",
        "3.0-3.1",
    ),
    (
        Kind.LEFT,
        "[Group <group>] Member <member> has left group through explicit `LeaveGroup` request; "
        "client reason: <reason>",
        "3.7-",
    ),
    (Kind.LEFT, "Member <member> in group <group> has left, removing it from the group", "1.0-2.3"),
    (
        Kind.EMPTY,
        f"Group <group> with generation <generation> is now empty {_OFFSETS}",
        "1.0-3.8",
    ),
    (Kind.EMPTY, "Group <group> with generation <generation> is now empty", "3.7-"),
    (
        Kind.REMOVED_LATE,
        "Group <group> remove dynamic members who haven't joined: <list>",
        "2.7-2.7",
    ),
    (Kind.REMOVED_LATE, "Group <group> removed dynamic members who haven't joined: <list>", "2.8-"),
    (
        Kind.NOBODY_JOINED,
        "Group <group> could not complete rebalance because no members rejoined",
        "2.3-",
    ),
    (
        Kind.NEW_MEMBER,
        "ynamic member with unknown member id joins group <group> in <state> state. Created a new "
        "member id <member> and request the member to rejoin with this id",
        "2.5-3.8",
    ),
    (
        Kind.NEW_MEMBER,
        "ynamic member with unknown member id joins group <group> in <state> state. Created a new "
        "member id <member> and requesting the member to rejoin with this id",
        "3.7-",
    ),
    (
        Kind.NEW_MEMBER,
        "ynamic Member with unknown member id joins group <group> in <state> state. Created a new "
        "member id <member> for this member and add to the group",
        "2.5-3.8",
    ),
    (
        Kind.NEW_MEMBER,
        "ynamic member with unknown member id joins group <group> in state <state>. Created a new "
        "member id <member> and added the member to the group",
        "3.7-",
    ),
    (
        Kind.MEMBER_JOINS,
        "Pending dynamic member with id <member> joins group <group> in <state> state. Adding to "
        "the group now",
        "2.5-",
    ),
    (
        Kind.STATIC_REPLACED,
        "Static member <instance> of group <group> with unknown member id rejoins, assigning new "
        "member id <member>, while old member id <old> will be removed",
        "2.5-2.8",
    ),
    (
        Kind.STATIC_REPLACED,
        "Static member <instance> with unknown member id rejoins, assigning new member id "
        "<member>, while old member <old> will be removed",
        "2.3-2.4",
    ),
    (
        Kind.STATIC_REPLACED,
        "Static member with groupInstanceId=<instance> and unknown member id joins group <group> "
        "in <state> state. Replacing previously mapped member <old> with this groupInstanceId",
        "3.0-",
    ),
    (
        Kind.STATIC_JOINS,
        "Adding new static member <instance> to group <group> with member id <member>",
        "2.5-2.8",
    ),
    (
        Kind.STATIC_JOINS,
        "Static member with groupInstanceId=<instance> and unknown member id joins group <group> "
        "in <state> state. Created a new member id <member> for this member and …",
        "3.0-",
    ),
    (
        Kind.STATIC_KEPT,
        "Static member which joins during Stable stage and doesn't affect selectProtocol will not "
        "trigger rebalance",
        "2.6-3.8",
    ),
    (
        Kind.STATIC_KEPT,
        "Static member which joins during Stable stage and doesn't affect the selected protocol "
        "will not trigger a rebalance",
        "3.7-",
    ),
    (
        Kind.FENCED,
        "given member.id <member> is identified as a known static member <instance>,but not "
        "matching the expected member.id <old>",
        "2.3-2.8",
    ),
    (
        Kind.FENCED,
        "Request memberId=<member> for static member with groupInstanceId=<instance> is fenced by "
        "current memberId=<old> during operation <operation>",
        "3.0-3.8",
    ),
    (
        Kind.FENCED,
        "Request memberId=<member> for static member with groupInstanceId=<instance> is fenced by "
        "existing memberId=<old> during operation <operation>",
        "3.7-",
    ),
    (
        Kind.FENCED,
        "[GroupId <group>] Static member <member> with instance id <instance> is fenced by "
        "existing member <old>",
        "4.0-",
    ),
    (
        Kind.EMPTY_ASSIGNMENT,
        "Setting empty assignments for members <list> of <group> for generation <generation>",
        "2.5-",
    ),
    (
        Kind.EMPTY_ASSIGNMENT,
        "Sending empty assignment to member <member> of <group> for generation <generation> with "
        "no errors",
        "2.5-",
    ),
    (
        Kind.UNLOADED,
        "[GroupId=<group>] Unloading group metadata for generation <generation>",
        "3.7-",
    ),
    (Kind.UNLOADED, "Unloading group metadata for <group> with generation <generation>", "1.0-3.8"),
    (Kind.LOADED, "Loading group metadata for <group> with generation <generation>", "1.0-3.8"),
    (Kind.LOADED, "Loaded classic group <group> with <members> members", "3.7-"),
    (
        Kind.COORDINATOR_MOVED,
        "Finished loading offsets and group metadata from __consumer_offsets-<partition> in <ms> "
        "milliseconds…",
        "1.0-3.8",
    ),
    (
        Kind.COORDINATOR_MOVED,
        "Elected as the group coordinator for partition <partition> in epoch <epoch>",
        "2.8-",
    ),
    (
        Kind.COORDINATOR_MOVED,
        "Resigned as the group coordinator for partition <partition> in epoch <epoch>",
        "2.8-",
    ),
    (
        Kind.MEMBER_JOINS,
        "[GroupId <group>] Member <member> joins the consumer group using the <protocol> protocol",
        "4.0-",
    ),
    (
        Kind.EPOCH,
        "[GroupId <group>] Bumped group epoch to <generation> with metadata hash <hash>",
        "4.1-",
    ),
    (Kind.EPOCH, "[GroupId <group>] Bumped group epoch to <generation>", "4.0-4.0"),
    (
        Kind.TARGET,
        "[GroupId <group>] Computed a new target assignment for epoch <generation> with "
        "'<assignor>' assignor in <ms>ms…",
        "3.9-",
    ),
    (
        Kind.RECONCILED,
        "[GroupId <group>] Member <member> new assignment state: epoch=<generation>, "
        "previousEpoch=<previous>, state=<state>, assignedPartitions=<partitions>",
        "3.8-",
    ),
    (
        Kind.EXPIRED,
        "[GroupId <group>] Member <member> fenced from the group because the member session "
        "expired",
        "4.0-",
    ),
    (
        Kind.EXPIRED,
        "[GroupId <group>] Member <member> fenced from the group because it failed to transition "
        "from epoch <generation> within <ms>ms",
        "4.0-",
    ),
    (Kind.LEFT, "[GroupId <group>] Member <member> left the consumer group", "4.0-"),
    (
        Kind.LEFT,
        "[GroupId <group>] Static member <member> with instance id <instance> temporarily left the "
        "consumer group",
        "4.0-",
    ),
    (
        Kind.LEFT,
        "[GroupId <group>] Static Member <member> with instance id <instance> temporarily left the "
        "consumer group",
        "4.0-",
    ),
    (
        Kind.LEFT,
        "[GroupId <group>] Static Member <member> with instance id <instance> left the consumer "
        "group",
        "4.0-",
    ),
    (
        Kind.MEMBER_JOINS,
        "[GroupId <group>] Static member <member> with instance id <instance> joins the consumer "
        "group using the <protocol> protocol",
        "4.0-",
    ),
    (
        Kind.COORDINATOR_MOVED,
        "Finished unloading metadata for __consumer_offsets-<partition> with epoch <epoch>",
        "3.7-",
    ),
    (
        Kind.COORDINATOR_MOVED,
        "Finished loading of metadata from __consumer_offsets-<partition> with epoch <epoch> in "
        "<ms>ms…",
        "3.7-",
    ),
    (
        Kind.HOUSEKEEPING,
        "Scheduling loading of metadata from __consumer_offsets-<partition> …",
        "3.7-",
    ),
    (
        Kind.HOUSEKEEPING,
        "Scheduling unloading of metadata for __consumer_offsets-<partition> with …",
        "3.7-",
    ),
    (Kind.HOUSEKEEPING, "Started unloading metadata for __consumer_offsets-<partition> …", "3.7-"),
    (Kind.HOUSEKEEPING, "Scheduling loading of offsets and group metadata from …", "1.0-3.8"),
    (Kind.HOUSEKEEPING, "Generated <count> tombstone records in <ms> milliseconds while …", "3.7-"),
    (Kind.HOUSEKEEPING, "Generated <count> records in <ms> milliseconds while …", "3.7-"),
    (Kind.HOUSEKEEPING, "Removed <count> offsets associated with deleted partitions: …", "1.0-3.8"),
    (Kind.HOUSEKEEPING, "Removed <count> expired offsets in <ms> milliseconds", "1.0-3.8"),
    (
        Kind.HOUSEKEEPING,
        "Group <group> transitioned to Dead in generation <generation>",
        "1.0-3.8",
    ),
    (
        Kind.HOUSEKEEPING,
        "Ignored unloading metadata for __consumer_offsets-<partition> in …",
        "3.7-",
    ),
    (
        Kind.HOUSEKEEPING,
        "Ignored loading metadata from __consumer_offsets-<partition> since …",
        "3.7-",
    ),
    (Kind.HOUSEKEEPING, "Ignored load completion from __consumer_offsets-<partition> …", "3.7-"),
    (Kind.HOUSEKEEPING, "The coordinator __consumer_offsets-<partition> is already …", "3.7-"),
    (Kind.HOUSEKEEPING, "Starting up", None),
    (Kind.HOUSEKEEPING, "Startup complete", None),
    (Kind.HOUSEKEEPING, "Shutting down", None),
    (Kind.HOUSEKEEPING, "Shutdown complete", None),
    (Kind.CONVERTED, "Converted the classic group to a consumer group", "4.0-"),
)

BROKER: Final[tuple[Wording, ...]] = tuple(
    wording(kind, Side.BROKER, "Kafka", template, versions) for kind, template, versions in _TABLE
)

_PHRASES: Final[tuple[tuple[str, Versions], ...]] = (
    (" with group instanceid ", (number("2.3"), number("2.4"))),
    (" with group instance id ", (number("2.5"), NEWEST)),
    ("; client reason: ", (number("3.2"), NEWEST)),
    ("(reason: removing member ", (number("2.1"), number("2.8"))),
    ("(reason: Removing member ", (number("3.0"), number("3.8"))),
)
"""Parts of messages, with the versions that use them."""


def versions_of(known: Versions | None, text: str) -> Versions | None:
    """The versions of Kafka that write a message with these phrases.

    Args:
        known: the versions that write the message.
        text: the message.
    """
    low, high = known or (0.0, NEWEST)
    for phrase, (first, last) in _PHRASES:
        if phrase in text:
            low, high = max(low, first), min(high, last)
    return (low, high) if (low, high) != (0.0, NEWEST) and low <= high else known
