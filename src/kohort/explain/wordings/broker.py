"""Messages of Kafka's brokers about groups, 1.0 to 4.3: the Scala and the Java coordinator.

In: nothing. Out: `BROKER`. Must not know: frames, clients.

A template without its first letter fits a message that versions begin with a capital letter or not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, TypeAlias

from kohort.explain.events import Kind, Side
from kohort.explain.wordings.coordinator import COORDINATOR
from kohort.explain.wordings.server import SERVER
from kohort.explain.wordings.templates import NEWEST, Wording, number, wording

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
    # Lines that were cut or shortened.
    (
        Kind.PREPARING,
        "Preparing to rebalance group <group> in state PreparingRebalance with old "
        f"generation <generation> {_OFFSETS}",
        "2.1-3.8",
    ),
    (
        Kind.PREPARING,
        "Preparing to rebalance group <group> in state PreparingRebalance with old "
        "generation <generation>",
        "2.1-",
    ),
    (
        Kind.PREPARING,
        "Preparing to restabilize group <group> with old generation <generation>",
        "0.9-0.11",
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
    (Kind.STABILIZED, "Stabilized group <group> generation <generation>", "0.9-0.11"),
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
        "0.9-2.7",
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
        Kind.MEMBER_JOINS,
        "[GroupId <group>] Member <member> joins the consumer group using the <protocol> protocol",
        "4.0-",
    ),
    (
        Kind.EPOCH,
        "[GroupId <group>] Bumped group epoch to <generation> with metadata hash <hash>",
        "4.1-",
    ),
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
        Kind.LEFT,
        "[Group <group>] Dynamic Member <member> has left group through explicit `LeaveGroup` "
        "request; client reason: <reason>",
        "3.7-",
    ),
    (
        Kind.LEFT,
        "[Group <group>] Static Member <member> with instance id <instance> has left group "
        "through explicit `LeaveGroup` request; client reason: <reason>",
        "3.7-",
    ),
    (
        Kind.PENDING_EXPIRED,
        "[Group <group>] Pending member <member> has left group through explicit `LeaveGroup` "
        "request; client reason: <reason>",
        "3.7-",
    ),
    (
        Kind.PENDING_EXPIRED,
        "Pending member with memberId=<member> has left group <group> through explicit "
        "`LeaveGroup` request",
        "3.0-3.8",
    ),
    (Kind.PENDING_EXPIRED, "Pending member <member> is leaving group <group>", "2.3-2.8"),
    (
        Kind.STATIC_REPLACED,
        "[GroupId <group>] Static member with instance id <instance> re-joins the consumer group "
        "using the <protocol> protocol. Created a new member <member> to replace the existing "
        "member <old>",
        "4.0-",
    ),
    (
        Kind.FENCED,
        "[GroupId <group>] Static member <member> with instance id <instance> cannot join the "
        "group because the instance id is <rest> owned by member <old>",
        "4.0-",
    ),
    (
        Kind.NEW_MEMBER,
        "[GroupId <group>] Dynamic member with unknown member id joins the consumer group. "
        "Created a new member id <member> and requesting the member to rejoin with this id",
        "4.0-",
    ),
    (
        Kind.EXPIRED,
        "[GroupId <group>] Member <member> fenced from the group because <reason>",
        "4.0-",
    ),
    (
        Kind.RECONCILED,
        "[GroupId <group>] Member <member> updated its subscribed topics to: <topics>",
        "4.0-",
    ),
    (Kind.RECONCILED, "[GroupId <group>] Computed new subscription metadata: <topics>", "3.7-4.0"),
    (
        Kind.LEADER_REPLACED,
        "Group leader [member.id: <member>, group.instance.id: <instance>] failed to join before "
        "rebalance timeout, while new leader <new> was elected",
        "2.3-3.8",
    ),
    (
        Kind.LEADER_REPLACED,
        "Group leader [member.id: <member>, group.instance.id: <instance>] failed to join before "
        "rebalance timeout, and the group couldn't proceed to next generation because no member "
        "joined",
        "2.3-3.8",
    ),
    (
        Kind.LEADER_REPLACED,
        "Group leader [memberId: <member>, groupInstanceId: <instance>] failed to join before the "
        "rebalance timeout. Member <new> was elected as the new leader",
        "3.7-",
    ),
    (
        Kind.LEADER_REPLACED,
        "Group leader [memberId: <member>, groupInstanceId: <instance>] failed to join before the "
        "rebalance timeout and the group couldn't proceed to the next generation because no "
        "member joined",
        "3.7-",
    ),
    (
        Kind.STATIC_KEPT,
        "Static member joins during <state> stage will not trigger rebalance",
        "2.3-2.5",
    ),
    (
        Kind.FENCED,
        "given member.id <member> is identified as a known static member <instance>, but not "
        "matching the expected member.id <old> during <operation>, will respond with instance "
        "fenced error",
        "2.4-2.8",
    ),
    (
        Kind.FENCED,
        "given member.id <member> is identified as a known static member <instance>,but not "
        "matching the expected member.id <old> during <operation>, will respond with instance "
        "fenced error",
        "2.4-2.8",
    ),
)

BROKER: Final[tuple[Wording, ...]] = tuple(
    wording(kind, Side.BROKER, "Kafka", template, versions)
    for kind, template, versions in (*_TABLE, *COORDINATOR, *SERVER)
)

_PHRASES: Final[tuple[tuple[str, Versions], ...]] = (
    (" with group instanceid ", (number("2.3"), number("2.4"))),
    (" with group instance id ", (number("2.5"), NEWEST)),
    ("; client reason: ", (number("3.2"), NEWEST)),
    ("(reason: removing member ", (number("2.1"), number("2.8"))),
    ("(reason: Removing member ", (number("3.0"), number("3.8"))),
)
"""Parts of messages, with the versions that use them."""
_BITS: Final = tuple((1 << number, phrase) for number, (phrase, _) in enumerate(_PHRASES))


def versions_of(known: Versions | None, text: str) -> Versions | None:
    """The versions of Kafka that write a message with these phrases.

    Args:
        known: the versions that write the message.
        text: the message.
    """
    phrases = 0
    for bit, phrase in _BITS:
        if phrase in text:
            phrases |= bit
    return _narrowed(known, phrases) if phrases else known


@lru_cache(maxsize=1_024)
def _narrowed(known: Versions | None, phrases: int) -> Versions | None:
    low, high = known or (0.0, NEWEST)
    for (bit, _), (_, (first, last)) in zip(_BITS, _PHRASES, strict=True):
        if phrases & bit:
            low, high = max(low, first), min(high, last)
    return (low, high) if (low, high) != (0.0, NEWEST) and low <= high else known
