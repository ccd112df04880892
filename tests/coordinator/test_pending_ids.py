"""Ids handed out and not joined with (KIP-394; coordinator.md 5.5)."""

from __future__ import annotations

import pytest
from tests.coordinator.world import World


@pytest.fixture
def rebalancing() -> World:
    """Members a and b are both back, and the id c-1 is outstanding."""
    world = World()
    world.stable("a", "b")
    world.join("c", "", session=6_000)
    world.join("a")
    world.join("b")
    return world


def test_a_handed_out_id_may_neither_beat_nor_sync_nor_commit() -> None:
    world = World()
    world.stable("a")
    world.join("b", "")
    assert world.beat("b", 1) == "UNKNOWN_MEMBER_ID"
    assert world.sync("b", 1) == ["b.sync <- UNKNOWN_MEMBER_ID"]
    assert world.commit("b", 1, {"t-0": 1}) == ["b.commit <- t-0:UNKNOWN_MEMBER_ID"]


def test_a_join_phase_waits_a_second_for_an_outstanding_id_and_no_longer(
    rebalancing: World,
) -> None:
    """Kafka waits until the id's session ends, even if no member joins with it."""
    assert rebalancing.state() == "PreparingRebalance"
    assert rebalancing.wait(999) == []
    assert rebalancing.wait(1) == [
        "fact JoinPhaseCompleted generation=2 range a-1 [a-1 b-1]",
        "a.join#3 <- joined range generation=2 leader=a-1 me=a-1 [a-1 b-1]",
        "b.join#3 <- joined range generation=2 leader=a-1 me=b-1 []",
    ]
    assert rebalancing.join("c")[1] == "fact MemberAdded c-1", "the id is still good"


def test_an_id_that_was_handed_out_a_while_ago_is_not_waited_for() -> None:
    world = World()
    world.stable("a", session=60_000)
    world.join("c", "")
    world.wait(1_000)
    assert world.join("a")[-1] == "a.join#3 <- joined range generation=2 leader=a-1 me=a-1 [a-1]"


def test_if_a_parked_member_goes_meanwhile_the_phase_lasts_as_long_as_it_may() -> None:
    world = World()
    world.stable("a", "b", rebalance=8_000)
    world.join("c", "")
    world.join("a", name="a.waits", rebalance=8_000)
    world.join("b", rebalance=8_000)
    world.lose("a.waits")
    assert world.wait(7_999) == []
    assert world.wait(1)[0] == "fact MembersNotRejoined generation=1 [a-1]"


def test_the_join_phase_ends_when_the_outstanding_id_joins(rebalancing: World) -> None:
    assert rebalancing.join("c") == [
        "fact PendingMemberJoined PreparingRebalance c-1",
        "fact MemberAdded c-1",
        "fact MemberRejoined c-1 generation=1",
        "fact JoinPhaseCompleted generation=2 range a-1 [a-1 b-1 c-1]",
        "a.join#3 <- joined range generation=2 leader=a-1 me=a-1 [a-1 b-1 c-1]",
        "b.join#3 <- joined range generation=2 leader=a-1 me=b-1 []",
        "c.join#2 <- joined range generation=2 leader=a-1 me=c-1 []",
    ]


def test_the_join_phase_ends_when_the_outstanding_id_leaves(rebalancing: World) -> None:
    assert rebalancing.leave("c") == [
        "fact MemberLeft generation=1 c-1 pending",
        "fact JoinPhaseCompleted generation=2 range a-1 [a-1 b-1]",
        "a.join#3 <- joined range generation=2 leader=a-1 me=a-1 [a-1 b-1]",
        "b.join#3 <- joined range generation=2 leader=a-1 me=b-1 []",
        "leave <- NONE [c-1:NONE]",
    ]


def test_an_expired_id_is_unknown() -> None:
    world = World()
    world.stable("a", session=60_000)
    world.join("b", "", session=6_000)
    assert world.wait(6_000) == ["fact PendingMemberExpired b-1"]
    assert world.beat("a", 1) == "NONE", "no rebalance comes of it"
    assert world.join("b")[-1] == "b.join#2 <- UNKNOWN_MEMBER_ID me=b-1"


def test_two_ids_of_one_client_differ() -> None:
    world = World()
    assert world.join("a", "")[-1] == "a.join <- MEMBER_ID_REQUIRED me=a-1"
    assert world.join("a", "")[-1] == "a.join#2 <- MEMBER_ID_REQUIRED me=a-2"


def test_a_handed_out_id_that_leaves_a_stable_group_starts_no_round() -> None:
    """In Kafka, the leave starts a rebalance."""
    world = World()
    world.stable("a")
    world.join("b", "")
    assert world.leave("b") == [
        "fact MemberLeft generation=1 b-1 pending",
        "leave <- NONE [b-1:NONE]",
    ]
    assert world.beat("a", 1) == "NONE"
    assert world.join("b")[-1] == "b.join#2 <- UNKNOWN_MEMBER_ID me=b-1"
