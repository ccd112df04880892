"""A coordinator after a restart (coordinator.md 5.16)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.coordinator.world import World, subscription

from kohort.coordinator.interface import (
    Loaded,
    Replay,
)
from kohort.coordinator.records import (
    GenerationRecord,
    GroupMetadata,
    GroupRecord,
    MemberMetadata,
    Record,
)
from kohort.model.errors import InvariantViolation
from kohort.model.ids import GenerationId, GroupId, MemberId, ProtocolName, ProtocolType, Ticket
from kohort.model.instants import WallMillis


def restarted(world: World, **config: int) -> tuple[World, list[str]]:
    """A new coordinator that has read the log of the old one."""
    fresh = World(**config)
    fresh._ids = dict(world._ids)
    lines = fresh.feed(Replay(records=tuple(world.log)))
    return fresh, lines + fresh.feed(Loaded())


def test_a_stable_group_comes_back_stable_with_its_members_and_assignments() -> None:
    world = World()
    world.stable("a", "b")
    fresh, lines = restarted(world)
    assert lines == ["fact GroupLoaded generation=1 [('a-1', None) ('b-1', None)]"]
    assert fresh.state() == "Stable"
    assert fresh.beat("a", 1) == "NONE"
    assert fresh.sync("b", 1)[-1] == "b.sync <- assigned b"
    assert fresh.join("b") == ["b.join <- joined range generation=1 leader=a-1 me=b-1 []"]


def test_members_that_do_not_come_back_expire_a_whole_session_after_loading() -> None:
    world = World()
    world.stable("a", session=10_000)
    fresh, _ = restarted(world)
    assert fresh.wait(9_999) == []
    assert fresh.wait(1)[:2] == [
        "fact MemberExpired generation=1 a-1",
        "fact RebalanceStarted generation=1 Stable member expired [a-1]",
    ]


def test_a_restart_while_completing_brings_the_last_written_generation_back() -> None:
    world = World()
    world.stable("a", "b")
    world.join("a")
    world.join("b")
    fresh, _ = restarted(world)
    assert fresh.beat("a", 2) == "ILLEGAL_GENERATION"
    assert fresh.beat("a", 1) == "NONE"


def test_handed_out_ids_are_unknown_after_a_restart() -> None:
    world = World()
    world.join("a", "")
    world.written()
    fresh, lines = restarted(world)
    assert lines == ["fact GroupLoaded generation=0 []"]
    assert fresh.join("a")[-1] == "a.join <- UNKNOWN_MEMBER_ID me=a-1"
    assert fresh.state() == "Empty"


def test_offsets_of_members_and_of_simple_groups_are_all_there() -> None:
    world = World()
    world.stable("a")
    world.commit("a", 1, {"t-0": 1})
    world.commit("", -1, {"t-1": 2}, group="h")
    world.commit("", -1, {"t-1": 3}, group="h")
    world.written()
    fresh, _ = restarted(world)
    assert fresh.fetch() == ["fetch <- g NONE t-0=1"]
    assert fresh.fetch(group="h") == ["fetch#2 <- h NONE t-1=3"]
    assert fresh.listed() == {"g": "Stable", "h": "Empty"}


def test_a_restart_loses_records_that_were_not_durable() -> None:
    world = World()
    world.commit("", -1, {"t-0": 1})
    fresh, _ = restarted(world)
    assert fresh.listed() == {}


def test_a_deleted_group_stays_away() -> None:
    world = World()
    world.stable("a")
    world.commit("a", 1, {"t-0": 1})
    world.leave("a")
    world.written()
    world.durable[Ticket(99)] = (
        GroupRecord(group_id=GroupId("g"), value=None),
        GenerationRecord(group_id=GroupId("g"), value=None),
    )
    fresh, _ = restarted(world)
    assert fresh.listed() == {"g": "Empty"}, "its offset has no tombstone: a simple group is left"
    assert fresh.fetch() == ["fetch <- g NONE t-0=1"]


def test_a_group_over_capacity_rebalances_by_itself_and_the_last_to_come_back_are_cut() -> None:
    world = World()
    world.stable("a", "b", "c", "d")
    fresh, lines = restarted(world, max_size=2)
    assert lines == [
        "fact GroupLoaded generation=1 [('a-1', None) ('b-1', None) ('c-1', None) ('d-1', None)]",
        "fact RebalanceStarted generation=1 Stable over capacity []",
    ]
    fresh.join("a")
    fresh.join("b")
    assert fresh.join("c")[-1] == "c.join <- GROUP_MAX_SIZE_REACHED me="
    assert fresh.join("d") == [
        "fact JoinRefused d-1 GROUP_MAX_SIZE_REACHED",
        "d.join <- GROUP_MAX_SIZE_REACHED me=",
        "fact JoinPhaseCompleted generation=2 range a-1 [a-1 b-1]",
        "a.join <- joined range generation=2 leader=a-1 me=a-1 [a-1 b-1]",
        "b.join <- joined range generation=2 leader=a-1 me=b-1 []",
    ]


def member(member_id: str, **changed: Any) -> MemberMetadata:
    values: dict[str, Any] = {
        "member_id": MemberId(member_id),
        "group_instance_id": None,
        "client_id": "c",
        "client_host": "/127.0.0.1",
        "rebalance_timeout_ms": 60_000,
        "session_timeout_ms": 10_000,
        "subscription": subscription("t"),
        "assignment": b"x",
    }
    return MemberMetadata(**{**values, **changed})


def group(*members: MemberMetadata, leader: str | None = None) -> Record:
    return GroupRecord(
        group_id=GroupId("g"),
        value=GroupMetadata(
            protocol_type=ProtocolType("consumer"),
            generation_id=GenerationId(7),
            protocol_name=ProtocolName("range"),
            leader_id=None if leader is None else MemberId(leader),
            current_state_timestamp=WallMillis(-1),
            members=members,
        ),
    )


def test_a_record_without_a_rebalance_timeout_falls_back_to_the_session_timeout() -> None:
    world = World()
    world.feed(Replay(records=(group(member("a-1", rebalance_timeout_ms=-1), leader="a-1"),)))
    world.feed(Loaded())
    world.enter("b", rebalance=5_000)
    assert world.wait(9_999) == []
    assert "fact MembersNotRejoined generation=7 [a-1]" in world.wait(1) or (
        world.beat("a", 7) == "UNKNOWN_MEMBER_ID"
    )


def test_static_members_and_a_leader_that_is_gone_do_not_upset_loading() -> None:
    world = World()
    records = (group(member("a-1", group_instance_id="i"), member("b-1"), leader="gone"),)
    world.feed(Replay(records=records))
    world.feed(Loaded())
    assert world.state() == "Stable"
    assert world.beat("a", 7, instance="i") == "NONE"
    assert world.beat("b", 7, instance="i") == "FENCED_INSTANCE_ID"


def test_the_last_record_of_a_key_counts_however_many_came_before() -> None:
    world = World()
    first, second = group(member("a-1"), leader="a-1"), group(member("b-1"), leader="b-1")
    world.feed(Replay(records=(first,)))
    world.feed(Replay(records=(second,)))
    world.feed(Loaded())
    assert world.beat("a", 7) == "UNKNOWN_MEMBER_ID"
    assert world.beat("b", 7) == "NONE"


def test_a_log_is_not_replayed_over_living_groups() -> None:
    world = World()
    world.stable("a")
    with pytest.raises(InvariantViolation, match="empty coordinator"):
        world.feed(Replay(records=()))
