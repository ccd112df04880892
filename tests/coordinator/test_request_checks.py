"""Checks of a request before those of its group (coordinator.md 5.1)."""

from __future__ import annotations

import pytest
from tests.coordinator.world import World

from kohort.coordinator.interface import (
    Loaded,
    Replay,
)


def test_a_join_with_an_empty_group_id_is_invalid() -> None:
    world = World()
    assert world.join("a", "", group="") == [
        "fact JoinRefused INVALID_GROUP_ID",
        "a.join <- INVALID_GROUP_ID me=",
    ]


def test_sync_heartbeat_and_leave_with_an_empty_group_id_are_invalid() -> None:
    world = World()
    assert world.sync("a", 1, group="") == ["a.sync <- INVALID_GROUP_ID"]
    assert world.beat("a", 1, group="") == "INVALID_GROUP_ID"
    assert world.leave("a", group="") == ["leave <- INVALID_GROUP_ID []"]


def test_a_commit_to_the_empty_group_id_without_membership_is_stored() -> None:
    world = World()
    assert world.commit("", -1, {"t-0": 5}, group="") == [
        "fact GroupCreated simple",
        "write 1: t-0=5",
    ]
    assert world.written() == ["fact OffsetsCommitted t-0=5", "tool.commit <- t-0:NONE"]
    assert world.fetch("t-0", group="") == ["fetch <-  NONE t-0=5"]


def test_a_session_timeout_below_the_least_is_refused_and_leaves_no_group() -> None:
    world = World()
    assert world.join("a", "", session=5_999) == [
        "fact JoinRefused INVALID_SESSION_TIMEOUT",
        "a.join <- INVALID_SESSION_TIMEOUT me=",
    ]
    assert world.listed() == {}


def test_a_session_timeout_above_the_greatest_is_refused_with_the_id_echoed() -> None:
    world = World()
    assert world.join("a", "a-7", session=1_800_001)[-1] == (
        "a.join <- INVALID_SESSION_TIMEOUT me=a-7"
    )


@pytest.mark.parametrize("session", [6_000, 1_800_000])
def test_session_timeouts_at_both_ends_are_accepted(session: int) -> None:
    world = World()
    assert world.join("a", "", session=session)[-1] == "a.join <- MEMBER_ID_REQUIRED me=a-1"


def test_while_the_log_is_read_members_are_told_to_wait() -> None:
    """A heartbeat is answered as if all were well, since its sender can do nothing about it."""
    world = World()
    world.feed(Replay(records=()))
    assert world.join("a")[-1] == "a.join <- COORDINATOR_LOAD_IN_PROGRESS me=a-1"
    assert world.sync("a", 1) == ["a.sync <- REBALANCE_IN_PROGRESS"]
    assert world.beat("a", 1) == "NONE"
    assert world.leave("a") == ["leave <- COORDINATOR_LOAD_IN_PROGRESS []"]
    assert world.commit("a", 1, {"t-0": 1}) == ["a.commit <- t-0:COORDINATOR_LOAD_IN_PROGRESS"]
    assert world.fetch("t-0") == ["fetch <- g COORDINATOR_LOAD_IN_PROGRESS "]
    world.feed(Loaded())
    assert world.beat("a", 1) == "UNKNOWN_MEMBER_ID"


def test_a_group_above_the_maximum_number_of_groups_is_refused() -> None:
    world = World(max_groups=1)
    world.join("a", "")
    assert world.join("b", "", group="h") == [
        "fact LimitReached kohort.max.groups 1",
        "fact JoinRefused GROUP_MAX_SIZE_REACHED",
        "b.join <- GROUP_MAX_SIZE_REACHED me=",
    ]
    assert world.commit("", -1, {"t-0": 1}, group="i") == [
        "fact LimitReached kohort.max.groups 1",
        "tool.commit <- t-0:COORDINATOR_NOT_AVAILABLE",
    ]
    assert world.listed() == {"g": "Empty"}
