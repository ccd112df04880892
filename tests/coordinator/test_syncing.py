"""Assignments on their way to the members (coordinator.md 5.9; live_kafka.md B7, B12, B14)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.coordinator.world import World

from kohort.model.errors import ErrorCode


def test_a_sync_in_an_unknown_group_by_an_unknown_member_or_in_an_empty_group_is_unknown() -> None:
    world = World()
    assert world.sync("a", 1) == ["a.sync <- UNKNOWN_MEMBER_ID"]
    world.stable("a")
    assert world.sync("z", 1) == ["z.sync <- UNKNOWN_MEMBER_ID"]
    world.leave("a")
    assert world.sync("a", 2) == ["a.sync#3 <- UNKNOWN_MEMBER_ID"]


def test_a_sync_of_another_generation_is_illegal() -> None:
    world = World()
    world.joined("a")
    assert world.sync("a", 2) == ["a.sync <- ILLEGAL_GENERATION"]
    assert world.sync("a", 0) == ["a.sync#2 <- ILLEGAL_GENERATION"]


@pytest.mark.parametrize(
    "named",
    [
        {"protocol_type": "connect"},
        {"protocol_name": "rr"},
        {"protocol_type": None},
        {"protocol_name": None},
    ],
)
def test_a_sync_that_names_another_protocol_or_none_is_inconsistent(
    named: dict[str, Any],
) -> None:
    world = World()
    world.joined("a")
    assert world.sync("a", 1, **named) == ["a.sync <- INCONSISTENT_GROUP_PROTOCOL"]


def test_assignments_of_a_follower_are_ignored() -> None:
    world = World()
    world.joined("a", "b")
    assert world.sync("b", 1, {"a-1": b"wrong", "b-1": b"wrong"}) == []
    world.sync("a", 1, {"a-1": b"x", "b-1": b"y"})
    assert {"a.sync <- assigned x", "b.sync <- assigned y"} <= set(world.written())


def test_an_old_client_names_no_protocol_and_is_served() -> None:
    world = World()
    world.joined("a")
    world.sync("a", 1, {"a-1": b"x"}, protocol_type=None, protocol_name=None, names_protocol=False)
    assert world.written()[-1] == "a.sync <- assigned x"


def test_a_sync_in_the_join_phase_is_sent_back_and_one_of_another_generation_is_illegal() -> None:
    """In this order on a live 4.3.1: 22 for 1, 27 for 2, 22 for 7 when 2 is the present one."""
    world = World()
    world.stable("a", "b")
    world.join("a")
    assert world.sync("b", 0) == ["b.sync#2 <- ILLEGAL_GENERATION"]
    assert world.sync("b", 1) == ["b.sync#3 <- REBALANCE_IN_PROGRESS"]
    assert world.sync("b", 6) == ["b.sync#4 <- ILLEGAL_GENERATION"]


def test_followers_wait_for_the_leader_and_all_wait_for_the_log() -> None:
    world = World()
    world.joined("a", "b")
    assert world.sync("b", 1) == []
    assert world.sync("a", 1, {"a-1": b"of a", "b-1": b"of b"}) == [
        "fact AssignmentReceived generation=1 a-1",
        "write 2: group g generation=1 [a-1:of a b-1:of b]",
    ]
    assert world.state() == "CompletingRebalance"
    assert world.written() == [
        "fact GroupStabilized generation=1 a-1:of a b-1:of b",
        "fact AssignmentDelivered generation=1 a-1",
        "a.sync <- assigned of a",
        "fact AssignmentDelivered generation=1 b-1",
        "b.sync <- assigned of b",
    ]
    assert world.state() == "Stable"


def test_a_follower_that_syncs_when_the_group_is_stable_is_answered_at_once() -> None:
    world = World()
    world.joined("a", "b")
    world.sync("a", 1, {"b-1": b"of b"})
    world.written()
    assert world.sync("b", 1) == [
        "fact AssignmentDelivered generation=1 b-1",
        "b.sync <- assigned of b",
    ]


def test_a_repeated_sync_in_stable_gives_the_same_bytes_and_ignores_a_new_plan() -> None:
    world = World()
    world.stable("a", "b")
    assert world.sync("a", 1, {"a-1": b"other"})[-1] == "a.sync#2 <- assigned a"


def test_members_left_out_get_empty_bytes_and_strangers_in_the_plan_are_ignored() -> None:
    world = World()
    world.joined("a", "b")
    assert world.sync("a", 1, {"a-1": b"of a", "stranger": b"x"}) == [
        "fact AssignmentReceived generation=1 a-1",
        "fact EmptyAssignmentsSet generation=1 [b-1]",
        "write 2: group g generation=1 [a-1:of a b-1:]",
    ]
    world.written()
    assert world.sync("b", 1)[-1] == "b.sync <- assigned"


def test_an_assignment_that_cannot_be_written_sends_everybody_back_to_the_join_phase() -> None:
    world = World()
    world.joined("a", "b")
    world.sync("b", 1)
    world.sync("a", 1, {"a-1": b"of a"})
    assert world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS) == [
        "fact WriteFailed assignment NOT_ENOUGH_REPLICAS",
        "a.sync <- COORDINATOR_NOT_AVAILABLE",
        "b.sync <- COORDINATOR_NOT_AVAILABLE",
        "fact RebalanceStarted generation=1 CompletingRebalance assignment not stored [a-1] "
        "COORDINATOR_NOT_AVAILABLE",
    ]
    assert world.state() == "PreparingRebalance"


def test_an_assignment_too_large_for_a_record_is_an_unknown_server_error() -> None:
    world = World()
    world.joined("a")
    world.sync("a", 1, {"a-1": b"huge"})
    assert world.refuse(ErrorCode.MESSAGE_TOO_LARGE)[1] == "a.sync <- UNKNOWN_SERVER_ERROR"


def test_a_late_write_of_an_older_generation_changes_nothing() -> None:
    world = World()
    world.joined("a", "b")
    world.sync("b", 1)
    world.sync("a", 1, {"a-1": b"old", "b-1": b"old"})
    assert world.leave("b") == [
        "fact MemberLeft generation=1 b-1",
        "b.sync <- UNKNOWN_MEMBER_ID",
        "a.sync <- REBALANCE_IN_PROGRESS",
        "fact RebalanceStarted generation=1 CompletingRebalance members left [b-1]",
        "leave <- NONE [b-1:NONE]",
    ]
    assert world.written() == []
    assert world.state() == "PreparingRebalance"


def test_a_late_failure_of_an_older_generation_changes_nothing() -> None:
    world = World()
    world.joined("a", "b")
    world.sync("a", 1, {"a-1": b"old"})
    world.leave("b")
    assert world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS) == [
        "fact WriteFailed assignment NOT_ENOUGH_REPLICAS"
    ]
    assert world.state() == "PreparingRebalance"


def test_of_two_plans_of_one_leader_the_later_decides_as_it_does_in_the_log() -> None:
    world = World()
    world.joined("a", "b")
    world.sync("b", 1)
    world.sync("a", 1, {"a-1": b"first", "b-1": b"first"})
    assert world.sync("a", 1, {"a-1": b"second", "b-1": b"second"}) == [
        "a.sync <- REBALANCE_IN_PROGRESS",
        "fact AssignmentReceived generation=1 a-1",
        "write 3: group g generation=1 [a-1:second b-1:second]",
    ]
    assert world.write(2) == []
    assert world.write(3) == [
        "fact GroupStabilized generation=1 a-1:second b-1:second",
        "fact AssignmentDelivered generation=1 a-1",
        "a.sync#2 <- assigned second",
        "fact AssignmentDelivered generation=1 b-1",
        "b.sync <- assigned second",
    ]


def test_a_leader_that_never_syncs_and_dies_sends_parked_followers_back() -> None:
    world = World()
    world.joined("a", "b", session=10_000)
    world.sync("b", 1)
    assert world.wait(10_000) == [
        "fact MemberExpired generation=1 a-1",
        "b.sync <- REBALANCE_IN_PROGRESS",
        "fact RebalanceStarted generation=1 CompletingRebalance member expired [a-1]",
    ]


def beat_until(world: World, clients: str, seconds: int) -> list[str]:
    lines: list[str] = []
    for _ in range(seconds):
        for client in clients:
            world.beat(client, 1)
        lines += world.wait(1_000)
    return lines


def test_when_nobody_syncs_within_the_rebalance_timeout_all_are_removed() -> None:
    world = World()
    world.joined("a", "b", rebalance=30_000)
    assert beat_until(world, "ab", 30) == [
        "fact RebalanceStarted generation=1 CompletingRebalance sync expired [a-1 b-1]",
        "fact GroupEmptied generation=2",
        "write 2: group g generation=2 []",
    ]


def test_a_member_that_does_not_sync_is_removed_from_a_stable_group_though_it_beats() -> None:
    world = World()
    world.joined("a", "b", rebalance=30_000)
    world.sync("a", 1, {"a-1": b"x"})
    world.written()
    assert beat_until(world, "ab", 30) == [
        "fact RebalanceStarted generation=1 Stable sync expired [b-1]",
    ]
    assert world.beat("b", 1) == "UNKNOWN_MEMBER_ID"
    assert world.beat("a", 1) == "REBALANCE_IN_PROGRESS"


def test_a_leader_that_does_not_sync_is_removed_and_the_followers_sent_back() -> None:
    world = World()
    world.joined("a", "b", rebalance=30_000)
    world.sync("b", 1)
    assert beat_until(world, "a", 30) == [
        "b.sync <- REBALANCE_IN_PROGRESS",
        "fact RebalanceStarted generation=1 CompletingRebalance sync expired [a-1]",
    ]


def test_when_all_have_synced_nothing_happens_at_the_rebalance_timeout() -> None:
    world = World()
    world.stable("a", "b", rebalance=30_000)
    assert beat_until(world, "ab", 60) == []


def test_a_member_that_joins_while_completing_sends_parked_syncs_back() -> None:
    world = World()
    world.joined("a", "b")
    world.sync("b", 1)
    world.join("c", "")
    assert world.join("c") == [
        "fact PendingMemberJoined CompletingRebalance c-1",
        "fact MemberAdded c-1",
        "fact MemberRejoined c-1 generation=1",
        "b.sync <- REBALANCE_IN_PROGRESS",
        "fact RebalanceStarted generation=1 CompletingRebalance member added [c-1]",
    ]
    assert world.sync("a", 1, {"a-1": b"late"}) == ["a.sync <- REBALANCE_IN_PROGRESS"]
