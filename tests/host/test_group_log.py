"""Facts become log lines in the exact wording of Kafka 4."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kohort.host.group_log import GroupLog, KafkaFormatter, line_for, one_line
from kohort.model import facts
from kohort.model.errors import ErrorCode
from kohort.model.facts import RebalanceCause
from kohort.model.group_state import GroupState
from kohort.model.ids import (
    GenerationId,
    GroupId,
    GroupInstanceId,
    MemberId,
    ProtocolName,
    ProtocolType,
)
from kohort.model.instants import Instant

GROUP = GroupId("demo-group")
MEMBER = MemberId("console-consumer-801d7cec")
OTHER = MemberId("console-consumer-e4575ac0")
ONE = GenerationId(1)


def rebalance(cause: RebalanceCause, **more: Any) -> facts.RebalanceStarted:
    values: dict[str, Any] = {
        "group_id": GROUP,
        "generation_id": ONE,
        "previous_state": GroupState.STABLE,
        "cause": cause,
        "member_ids": (MEMBER,),
    }
    return facts.RebalanceStarted(**{**values, **more})


PREPARING = (
    "Preparing to rebalance group demo-group in state PreparingRebalance with old generation 1 "
)

LINES: list[tuple[facts.Fact, int, str]] = [
    (
        facts.MemberIdHandedOut(group_id=GROUP, state=GroupState.EMPTY, member_id=MEMBER),
        logging.INFO,
        "Dynamic member with unknown member id joins group demo-group in Empty state. Created a "
        "new member id console-consumer-801d7cec and requesting the member to rejoin with this id.",
    ),
    (
        facts.MemberAddedWithoutId(group_id=GROUP, state=GroupState.STABLE, member_id=MEMBER),
        logging.INFO,
        "Dynamic member with unknown member id joins group demo-group in state Stable. Created a "
        "new member id console-consumer-801d7cec and added the member to the group.",
    ),
    (
        facts.PendingMemberJoined(group_id=GROUP, state=GroupState.EMPTY, member_id=MEMBER),
        logging.INFO,
        "Pending dynamic member with id console-consumer-801d7cec joins group demo-group in Empty "
        "state. Adding to the group now.",
    ),
    (
        facts.StaticMemberAdded(
            group_id=GROUP,
            state=GroupState.EMPTY,
            group_instance_id=GroupInstanceId("i-1"),
            member_id=MEMBER,
        ),
        logging.INFO,
        "Static member with groupInstanceId=i-1 and unknown member id joins group demo-group in "
        "Empty state. Created a new member id console-consumer-801d7cec for this member and added "
        "to the group.",
    ),
    (
        facts.StaticMemberReplaced(
            group_id=GROUP,
            state=GroupState.STABLE,
            generation_id=ONE,
            group_instance_id=GroupInstanceId("i-1"),
            replaced_id=MEMBER,
            member_id=OTHER,
        ),
        logging.INFO,
        "Static member with groupInstanceId=i-1 and unknown member id joins group demo-group in "
        "Stable state. Replacing previously mapped member console-consumer-801d7cec with this "
        "groupInstanceId.",
    ),
    (
        rebalance(
            RebalanceCause.PROTOCOL_CHANGED,
            group_instance_id=GroupInstanceId("i-1"),
            client_reason="because",
        ),
        logging.INFO,
        PREPARING + "(reason: Group's selectedProtocol will change because static member "
        "console-consumer-801d7cec with instance id i-1 joined with change of protocol; client "
        "reason: because).",
    ),
    (
        rebalance(RebalanceCause.STATIC_MEMBER_REPLACED, group_instance_id=GroupInstanceId("i-1")),
        logging.INFO,
        PREPARING + "(reason: Updating metadata for static member console-consumer-801d7cec with "
        "instance id i-1; client reason: not provided).",
    ),
    (
        rebalance(RebalanceCause.MEMBER_ADDED, client_reason="need to re-join"),
        logging.INFO,
        PREPARING + "(reason: Adding new member console-consumer-801d7cec with group instance id "
        "null; client reason: need to re-join).",
    ),
    (
        rebalance(RebalanceCause.MEMBER_ADDED, group_instance_id=GroupInstanceId("i-1")),
        logging.INFO,
        PREPARING + "(reason: Adding new member console-consumer-801d7cec with group instance id "
        "i-1; client reason: not provided).",
    ),
    (
        rebalance(RebalanceCause.METADATA_UPDATED, client_reason="cached metadata has changed"),
        logging.INFO,
        PREPARING + "(reason: Updating metadata for member console-consumer-801d7cec during "
        "Stable; client reason: cached metadata has changed).",
    ),
    (
        rebalance(RebalanceCause.LEADER_REJOINED),
        logging.INFO,
        PREPARING + "(reason: Leader console-consumer-801d7cec re-joining group during Stable; "
        "client reason: not provided).",
    ),
    (
        rebalance(RebalanceCause.MEMBERS_LEFT, member_ids=(MEMBER, OTHER)),
        logging.INFO,
        PREPARING + "(reason: explicit `LeaveGroup` request for (console-consumer-801d7cec, "
        "console-consumer-e4575ac0) members.).",
    ),
    (
        rebalance(RebalanceCause.MEMBER_EXPIRED),
        logging.INFO,
        PREPARING + "(reason: removing member console-consumer-801d7cec on heartbeat expiration.).",
    ),
    (
        rebalance(RebalanceCause.SYNC_EXPIRED, member_ids=(MEMBER, OTHER)),
        logging.INFO,
        PREPARING + "(reason: Removing [console-consumer-801d7cec, console-consumer-e4575ac0] on "
        "pending sync request expiration).",
    ),
    (
        rebalance(RebalanceCause.ASSIGNMENT_NOT_STORED, error=ErrorCode.NOT_COORDINATOR),
        logging.INFO,
        PREPARING + "(reason: Error NOT_COORDINATOR when storing group assignment during SyncGroup "
        "(member: console-consumer-801d7cec)).",
    ),
    (
        facts.JoinPhaseCompleted(
            group_id=GROUP,
            generation_id=ONE,
            protocol_type=ProtocolType("consumer"),
            protocol_name=ProtocolName("range"),
            leader_id=MEMBER,
            member_ids=(MEMBER, OTHER),
        ),
        logging.INFO,
        "Stabilized group demo-group generation 1 with 2 members.",
    ),
    (
        facts.AssignmentReceived(
            group_id=GROUP, generation_id=ONE, leader_id=MEMBER, member_count=2, static_count=0
        ),
        logging.INFO,
        "Assignment received from leader console-consumer-801d7cec for group demo-group for "
        "generation 1. The group has 2 members, 0 of which are static.",
    ),
    (
        facts.EmptyAssignmentsSet(group_id=GROUP, generation_id=ONE, member_ids=(OTHER,)),
        logging.WARNING,
        "Setting empty assignments for members [console-consumer-e4575ac0] of demo-group for "
        "generation 1.",
    ),
    (
        facts.AssignmentDelivered(group_id=GROUP, generation_id=ONE, member_id=OTHER, size=0),
        logging.WARNING,
        "Sending empty assignment to member console-consumer-e4575ac0 of demo-group for generation "
        "1 with no errors",
    ),
    (
        facts.MemberExpired(
            group_id=GROUP, generation_id=ONE, member_id=MEMBER, group_instance_id=None
        ),
        logging.INFO,
        "Member console-consumer-801d7cec in group demo-group has failed, removing it from the "
        "group.",
    ),
    (
        facts.PendingMemberExpired(group_id=GROUP, member_id=MEMBER),
        logging.INFO,
        "Pending member console-consumer-801d7cec in group demo-group has been removed after "
        "session timeout expiration.",
    ),
    (
        facts.MemberLeft(
            group_id=GROUP,
            generation_id=ONE,
            member_id=MEMBER,
            group_instance_id=None,
            client_reason=None,
            pending=False,
        ),
        logging.INFO,
        "[Group demo-group] Member console-consumer-801d7cec has left group through explicit "
        "`LeaveGroup` request; client reason: not provided",
    ),
    (
        facts.MemberLeft(
            group_id=GROUP,
            generation_id=ONE,
            member_id=MEMBER,
            group_instance_id=None,
            client_reason="{closed}",
            pending=True,
        ),
        logging.INFO,
        "[Group demo-group] Pending member console-consumer-801d7cec has left group through "
        "explicit `LeaveGroup` request; client reason: {closed}",
    ),
    (
        facts.GroupEmptied(group_id=GROUP, generation_id=GenerationId(2)),
        logging.INFO,
        "Group demo-group with generation 2 is now empty.",
    ),
    (
        facts.MembersNotRejoined(group_id=GROUP, generation_id=ONE, member_ids=(MEMBER, OTHER)),
        logging.INFO,
        "Group demo-group removed dynamic members who haven't joined: [console-consumer-801d7cec, "
        "console-consumer-e4575ac0]",
    ),
    (
        facts.NobodyRejoined(group_id=GROUP, generation_id=ONE),
        logging.ERROR,
        "Group demo-group could not complete rebalance because no members rejoined.",
    ),
    (
        facts.GroupLoaded(group_id=GROUP, generation_id=ONE, member_count=2),
        logging.INFO,
        "Loaded classic group demo-group with 2 members.",
    ),
    *(
        (
            facts.ParkedJoinDropped(
                group_id=GROUP,
                generation_id=ONE,
                member_id=MEMBER,
                group_instance_id=None,
                removed=removed,
            ),
            logging.INFO,
            "The connection of member console-consumer-801d7cec in group demo-group was lost while "
            f"its JoinGroup waited. {then}.",
        )
        for removed, then in (
            (True, "It was removed"),
            (False, "It has its session timeout to join again"),
        )
    ),
    (
        facts.ParkedSyncDropped(
            group_id=GROUP, generation_id=ONE, member_id=MEMBER, group_instance_id=None
        ),
        logging.INFO,
        "The connection of member console-consumer-801d7cec in group demo-group was lost while its "
        "SyncGroup waited. It has its session timeout to come back.",
    ),
    (
        facts.SubscriptionNotParsed(
            group_id=GROUP, member_id=MEMBER, protocol_name=ProtocolName("range")
        ),
        logging.WARNING,
        "Metadata of member console-consumer-801d7cec of group demo-group for protocol range is no "
        "consumer subscription; which topics the group reads is unknown, so none of its offsets "
        "expire.",
    ),
    (
        facts.DamagedMetadataRefused(
            group_id=GROUP,
            member_id=MEMBER,
            client_id="{c}",
            client_host="/127.0.0.1",
            protocol_name=ProtocolName("range"),
            size=7,
        ),
        logging.WARNING,
        "Client {c} at /127.0.0.1 was refused by group demo-group: its metadata of 7 bytes for "
        "protocol range is no consumer subscription, and would make the group's topics unreadable.",
    ),
    (
        facts.WriteFailed(group_id=GROUP, purpose="metadata", error=ErrorCode.NOT_COORDINATOR),
        logging.ERROR,
        "Writing the metadata of group demo-group to __consumer_offsets failed with "
        "NOT_COORDINATOR.",
    ),
    (
        facts.LimitReached(group_id=GROUP, setting="kohort.max.groups", limit=7),
        logging.WARNING,
        "A request for group demo-group was refused: kohort.max.groups=7 is reached.",
    ),
    (
        facts.LimitReached(group_id=GROUP, setting="kohort.max.groups", limit=7, asked=9),
        logging.WARNING,
        "A request for group demo-group was refused: kohort.max.groups=7 would be exceeded by 9.",
    ),
]


@pytest.mark.parametrize(("fact", "level", "text"), LINES)
def test_a_fact_is_worded_as_kafka_words_it(fact: facts.Fact, level: int, text: str) -> None:
    line = line_for(fact)
    assert line is not None
    assert (line.level, line.text) == (level, text)
    assert line.source == "GroupMetadataManager"


def test_every_cause_of_a_rebalance_has_a_wording() -> None:
    for cause in RebalanceCause:
        line = line_for(rebalance(cause))
        assert line is not None
        assert line.text.startswith(PREPARING + "(reason: ")


def test_a_whole_line_is_framed_as_kafka_frames_it(caplog: pytest.LogCaptureFixture) -> None:
    """Three lines of a live Kafka 4.3.1 with other times and ids."""
    caplog.set_level(logging.INFO)
    caplog.handler.setFormatter(KafkaFormatter())
    log = GroupLog(lambda _group: 1, 50)
    log.write(facts.GroupEmptied(group_id=GROUP, generation_id=GenerationId(2)))
    log.write(facts.GroupCreated(group_id=GROUP, simple=True))
    log.write(facts.GroupDeleted(group_id=GROUP, generation_id=ONE, offset_count=1, expired=False))
    lines = [caplog.handler.format(record).partition("] ")[2] for record in caplog.records]
    where = "[GroupCoordinator id=1 topic=__consumer_offsets partition=15]"
    package = "org.apache.kafka.coordinator.group"
    assert lines == [
        f"INFO {where} Group demo-group with generation 2 is now empty. "
        f"({package}.GroupMetadataManager)",
        f"INFO {where} [GroupId demo-group] Creating a simple consumer group via manual offset "
        f"commit. ({package}.OffsetMetadataManager)",
        f"INFO {where} The following groups were deleted: demo-group. A total of 1 offsets were "
        f"removed. ({package}.GroupCoordinatorShard)",
    ]


def test_warnings_are_spelled_as_in_kafka(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.setFormatter(KafkaFormatter())
    GroupLog(lambda _group: 1, 50).write(
        facts.LimitReached(group_id=GROUP, setting="kohort.max.groups", limit=7)
    )
    (record,) = caplog.records
    assert "] WARN [GroupCoordinator id=1 " in caplog.handler.format(record)


def test_an_id_with_a_line_break_starts_no_line_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    forged = MemberId("c\n[2026-01-01 00:00:00,000] INFO forged\r")
    GroupLog(lambda _group: 1, 50).write(
        facts.PendingMemberExpired(group_id=GROUP, member_id=forged)
    )
    (record,) = caplog.records
    assert len(record.getMessage().splitlines()) == 1


def test_facts_without_a_line_in_kafka_are_not_logged_as_if_they_had_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    log = GroupLog(lambda _group: 1, 50)
    log.write(facts.GroupCreated(group_id=GROUP, simple=False))
    log.write(facts.GroupDeleted(group_id=GROUP, generation_id=ONE, offset_count=0, expired=True))
    log.write(
        facts.AssignmentDelivered(group_id=GROUP, generation_id=ONE, member_id=MEMBER, size=9)
    )
    log.write(facts.OffsetsExpired(group_id=GROUP, partitions=()))
    assert caplog.records == []


def test_a_fact_is_wanted_exactly_if_writing_it_logs_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = GroupLog(lambda _group: 1, 50)
    silent = facts.OffsetsCommitted(GROUP, MEMBER, ONE, ())
    worded = rebalance(RebalanceCause.MEMBER_EXPIRED)
    assigned, unassigned = (
        facts.AssignmentDelivered(group_id=GROUP, generation_id=ONE, member_id=MEMBER, size=size)
        for size in (9, 0)
    )
    for level, heard in (
        (logging.ERROR, []),
        (logging.WARNING, [unassigned]),
        (logging.INFO, [worded, unassigned]),
        (logging.DEBUG, [silent, worded, assigned, unassigned]),
    ):
        caplog.set_level(level)
        caplog.clear()
        for fact in (silent, worded, assigned, unassigned):
            assert log.hears(fact) == (fact in heard)
            log.write(fact)
        assert len(caplog.records) == len(heard)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain Ä", "plain Ä"),
        ("a\nb\r", "a\\nb\\r"),
        ("\x1b[2J\x00\u202e", "\\x1b[2J\\x00\\u202e"),
        ("y" * 8_195, "y" * 8_192 + "... (3 more characters)"),
    ],
)
def test_client_text_is_one_printable_line_of_limited_length(text: str, line: str) -> None:
    assert one_line(text) == line


def test_refusals_by_one_limit_get_one_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    instants = iter([0, 1, 999_999, 999_999, 1_000_000, 2_000_000])
    logger = logging.getLogger("refusals")
    log = GroupLog(lambda _group: 1, 50, logger, lambda: Instant(next(instants)))
    caplog.set_level(logging.INFO, "refusals")
    refused = facts.LimitReached(group_id=GROUP, setting="kohort.max.groups", limit=7)
    elsewhere = facts.LimitReached(group_id=GROUP, setting="kohort.max.group.bytes", limit=9)
    for fact in (refused, refused, refused, elsewhere, refused, refused):
        log.write(fact)
    first, other, second, third = (record.getMessage() for record in caplog.records)
    assert first.endswith("kohort.max.groups=7 is reached.")
    assert other.endswith("kohort.max.group.bytes=9 is reached.")
    assert second == f"{first} 2 more requests were refused by this limit since the last line."
    assert third == first
