"""LeaveGroup, alone and in batches (coordinator.md 5.11)."""

from __future__ import annotations

import pytest
from tests.coordinator.world import World

from kohort.model.errors import ErrorCode


def test_leaving_an_unknown_group_is_no_error_but_each_entry_is_unknown() -> None:
    world = World()
    assert world.leave("a", "b") == ["leave <- NONE [a-1:UNKNOWN_MEMBER_ID b-1:UNKNOWN_MEMBER_ID]"]


def test_a_leaving_member_starts_a_rebalance_for_the_others() -> None:
    world = World()
    world.stable("a", "b", "c")
    assert world.leave("b", reason="the consumer is being closed") == [
        "fact MemberLeft generation=1 b-1 the consumer is being closed",
        "fact RebalanceStarted generation=1 Stable members left [b-1]",
        "leave <- NONE [b-1:NONE]",
    ]
    assert world.beat("a", 1) == "REBALANCE_IN_PROGRESS"
    assert world.beat("c", 1) == "REBALANCE_IN_PROGRESS"


def test_the_last_member_is_told_that_it_left_once_the_empty_group_is_durable() -> None:
    world = World()
    world.stable("a")
    assert world.leave("a") == [
        "fact MemberLeft generation=1 a-1",
        "fact RebalanceStarted generation=1 Stable members left [a-1]",
        "fact GroupEmptied generation=2",
        "write 3: group g generation=2 []",
    ]
    assert world.written() == ["leave <- NONE [a-1:NONE]"]
    assert world.state() == "Empty"


def test_the_last_member_is_told_when_that_record_is_lost() -> None:
    world = World()
    world.stable("a")
    world.leave("a")
    assert world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS) == [
        "fact WriteFailed empty group NOT_ENOUGH_REPLICAS",
        "leave <- COORDINATOR_NOT_AVAILABLE []",
    ]


def test_two_of_a_batch_start_one_rebalance() -> None:
    world = World()
    world.stable("a", "b", "c")
    assert world.leave("a", "b") == [
        "fact MemberLeft generation=1 a-1",
        "fact MemberLeft generation=1 b-1",
        "fact RebalanceStarted generation=1 Stable members left [a-1 b-1]",
        "leave <- NONE [a-1:NONE b-1:NONE]",
    ]
    assert world.join("c")[-1] == "c.join#3 <- joined range generation=2 leader=c-1 me=c-1 [c-1]"


def test_a_batch_of_one_valid_and_one_unknown_entry_starts_a_rebalance() -> None:
    world = World()
    world.stable("a", "b")
    assert world.leave_ids("nobody", "b-1")[-1] == (
        "leave <- NONE [nobody:UNKNOWN_MEMBER_ID b-1:NONE]"
    )
    assert world.state() == "PreparingRebalance"


def test_a_batch_of_unknown_entries_starts_none() -> None:
    world = World()
    world.stable("a")
    assert world.leave_ids("x", "") == ["leave <- NONE [x:UNKNOWN_MEMBER_ID :UNKNOWN_MEMBER_ID]"]
    assert world.state() == "Stable"


def test_an_instance_id_that_nobody_has_is_unknown_with_and_without_a_member_id() -> None:
    world = World()
    world.stable("a")
    assert world.leave_ids("", "a-1", instance="i") == [
        "leave <- NONE [:UNKNOWN_MEMBER_ID a-1:UNKNOWN_MEMBER_ID]"
    ]
    assert world.beat("a", 1) == "NONE"


def test_a_handed_out_id_that_leaves_an_empty_group_is_removed_without_a_rebalance() -> None:
    world = World()
    world.join("a", "")
    assert world.leave("a") == [
        "fact MemberLeft generation=0 a-1 pending",
        "leave <- NONE [a-1:NONE]",
    ]
    assert world.join("a")[-1] == "a.join#2 <- UNKNOWN_MEMBER_ID me=a-1"


def test_a_leavers_parked_join_is_answered() -> None:
    world = World()
    world.stable("a", "b")
    world.join("a")
    assert world.leave("a") == [
        "fact MemberLeft generation=1 a-1",
        "a.join#3 <- UNKNOWN_MEMBER_ID me=",
        "leave <- NONE [a-1:NONE]",
    ]


def test_a_leavers_parked_sync_is_answered_though_kafka_leaves_it_hanging() -> None:
    world = World()
    world.joined("a", "b")
    world.sync("b", 1)
    assert world.leave("b") == [
        "fact MemberLeft generation=1 b-1",
        "b.sync <- UNKNOWN_MEMBER_ID",
        "fact RebalanceStarted generation=1 CompletingRebalance members left [b-1]",
        "leave <- NONE [b-1:NONE]",
    ]


def test_when_the_only_absent_member_leaves_the_join_phase_ends() -> None:
    world = World()
    world.stable("a", "b")
    world.join("a")
    assert world.leave("b") == [
        "fact MemberLeft generation=1 b-1",
        "fact JoinPhaseCompleted generation=2 range a-1 [a-1]",
        "a.join#3 <- joined range generation=2 leader=a-1 me=a-1 [a-1]",
        "leave <- NONE [b-1:NONE]",
    ]


@pytest.mark.parametrize("reason", [None, "", "x" * 255, "x" * 20_000])
def test_a_reason_changes_nothing_and_is_kept_up_to_255_characters(reason: str | None) -> None:
    world = World()
    world.stable("a", "b")
    left = world.leave("b", reason=reason)[0]
    kept = f" {reason[:255]}" if reason else ""
    assert left == f"fact MemberLeft generation=1 b-1{kept}"


def test_a_leader_that_leaves_while_completing_sends_parked_syncs_back() -> None:
    world = World()
    world.joined("a", "b")
    world.sync("b", 1)
    assert world.leave("a") == [
        "fact MemberLeft generation=1 a-1",
        "b.sync <- REBALANCE_IN_PROGRESS",
        "fact RebalanceStarted generation=1 CompletingRebalance members left [a-1]",
        "leave <- NONE [a-1:NONE]",
    ]
