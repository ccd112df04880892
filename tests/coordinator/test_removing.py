"""Deleting offsets and groups, and retention (coordinator.md 5.14 and 5.15)."""

from __future__ import annotations

import pytest
from tests.coordinator.world import World, subscription, tp

from kohort.coordinator import removing
from kohort.coordinator.interface import (
    DeleteGroups,
    Loaded,
    OffsetDelete,
    TopicsDeleted,
)
from kohort.model.errors import ErrorCode
from kohort.model.ids import GroupId

MINUTE = 60_000
SWEEP = 600_000


def delete_offsets(
    world: World, *partitions: str, group: str = "g", unknown: str = ""
) -> list[str]:
    return world.feed(
        OffsetDelete(
            token=world.token("delete"),
            group_id=GroupId(group),
            partitions=tuple(tp(p) for p in partitions),
            unknown_partitions=frozenset({tp(unknown)} if unknown else ()),
        )
    )


def delete_groups(world: World, *groups: str) -> list[str]:
    return world.feed(
        DeleteGroups(token=world.token("delete"), group_ids=tuple(GroupId(g) for g in groups))
    )


def with_offsets(world: World, **groups: dict[str, int]) -> World:
    for group, offsets in groups.items():
        world.commit("", -1, offsets, group=group)
    world.written()
    return world


# -- requests --------------------------------------------------------------------------------------


def test_offsets_of_an_empty_group_are_deleted_durably() -> None:
    world = with_offsets(World(), g={"t-0": 1, "t-1": 2})
    assert delete_offsets(world, "t-0", "u-0", "x-0", unknown="x-0") == [
        "write 2: tombstone of t-0"
    ]
    assert world.fetch() == ["fetch <- g NONE t-0=1 t-1=2"]
    assert world.written() == ["delete <- NONE t-0:NONE u-0:NONE x-0:UNKNOWN_TOPIC_OR_PARTITION"]
    assert world.fetch() == ["fetch#2 <- g NONE t-1=2"]


def test_a_partition_without_an_offset_is_no_error_and_no_record() -> None:
    world = with_offsets(World(), g={"t-0": 1})
    assert delete_offsets(world, "u-0") == ["delete <- NONE u-0:NONE"]


def test_topics_that_a_live_consumer_reads_keep_their_offsets() -> None:
    world = World()
    world.stable("a")
    world.commit("a", 1, {"t-0": 1, "u-0": 2})
    world.written()
    assert delete_offsets(world, "t-0", "u-0") == ["write 4: tombstone of u-0"]
    assert world.written() == ["delete <- NONE t-0:GROUP_SUBSCRIBED_TO_TOPIC u-0:NONE"]


def test_a_live_group_of_another_type_keeps_all_its_offsets() -> None:
    world = World()
    world.stable("a", protocol_type="connect")
    assert delete_offsets(world, "t-0") == ["delete <- NON_EMPTY_GROUP "]


def test_offsets_of_absent_and_unnamed_groups_cannot_be_deleted() -> None:
    world = World()
    assert delete_offsets(world, "t-0") == ["delete <- GROUP_ID_NOT_FOUND "]
    assert delete_offsets(world, "t-0", group="") == ["delete#2 <- INVALID_GROUP_ID "]


def test_a_refused_tombstone_leaves_the_offset() -> None:
    world = with_offsets(World(), g={"t-0": 1})
    delete_offsets(world, "t-0")
    assert world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS) == [
        "fact WriteFailed offset tombstones NOT_ENOUGH_REPLICAS",
        "delete <- COORDINATOR_NOT_AVAILABLE ",
    ]
    assert world.fetch() == ["fetch <- g NONE t-0=1"]


def test_groups_are_deleted_each_with_its_own_error_and_one_answer() -> None:
    world = with_offsets(World(), empty={"t-0": 1}, other={"t-0": 2})
    world.stable("a", group="live")
    assert delete_groups(world, "empty", "absent", "live", "other", "empty") == [
        "write 5: tombstone of t-0, tombstone of group empty",
        "write 6: tombstone of t-0, tombstone of group other",
    ]
    assert world.write(6) == ["fact GroupDeleted generation=0"]
    assert world.write(5) == [
        "fact GroupDeleted generation=0",
        "delete <- empty:NONE absent:GROUP_ID_NOT_FOUND live:NON_EMPTY_GROUP other:NONE "
        "empty:GROUP_ID_NOT_FOUND",
    ]
    assert world.listed() == {"live": "Stable"}
    assert world.fetch("t-0", group="empty") == ["fetch <- empty NONE t-0=-"]


def test_a_group_is_dead_during_its_tombstone_and_returns_if_that_fails() -> None:
    world = with_offsets(World(), g={"t-0": 1})
    delete_groups(world, "g")
    assert world.state() == "Dead"
    assert world.join("a", "")[-1] == "a.join <- COORDINATOR_NOT_AVAILABLE me="
    assert world.join("a", "a-1")[-1] == "a.join#2 <- COORDINATOR_NOT_AVAILABLE me=a-1"
    assert world.beat("a", 1) == "COORDINATOR_NOT_AVAILABLE"
    assert world.sync("a", 1) == ["a.sync <- COORDINATOR_NOT_AVAILABLE"]
    assert world.leave("a") == ["leave <- COORDINATOR_NOT_AVAILABLE []"]
    assert world.commit("", -1, {"t-0": 2}) == ["tool.commit#2 <- t-0:COORDINATOR_NOT_AVAILABLE"]
    assert delete_offsets(world, "t-0") == ["delete#2 <- GROUP_ID_NOT_FOUND "]
    assert world.fetch() == ["fetch <- g NONE t-0=1"]
    assert world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS) == [
        "fact WriteFailed group tombstone NOT_ENOUGH_REPLICAS",
        "delete <- g:COORDINATOR_NOT_AVAILABLE",
    ]
    assert world.state() == "Empty"
    assert world.fetch() == ["fetch#2 <- g NONE t-0=1"]


def test_a_commit_under_way_when_its_group_is_deleted_does_not_outlive_it() -> None:
    world = World()
    world.commit("", -1, {"t-0": 1})
    assert delete_groups(world, "g") == ["write 2: tombstone of t-0, tombstone of group g"]
    world.written()
    assert world.listed() == {}


def test_a_first_record_refused_while_the_tombstone_is_under_way_changes_nothing() -> None:
    """Found by a random life: the group was forgotten twice."""
    world = World()
    world.join("a", "")
    delete_groups(world, "g")
    assert world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS) == [
        "fact WriteFailed creation NOT_ENOUGH_REPLICAS"
    ]
    assert world.written() == ["fact GroupDeleted generation=0", "delete <- g:NONE"]
    assert world.listed() == {}


def test_a_deleted_group_starts_over_at_generation_one() -> None:
    world = World()
    world.stable("a")
    world.leave("a")
    world.written()
    delete_groups(world, "g")
    world.written()
    world.join("b", "")
    world.join("b")
    assert world.wait(3_000)[-1] == "b.join#2 <- joined range generation=1 leader=b-1 me=b-1 [b-1]"


def test_deleting_nothing_is_answered() -> None:
    assert delete_groups(World()) == ["delete <- "]


def test_offsets_of_a_deleted_topic_go_in_all_groups() -> None:
    world = with_offsets(World(), g={"t-0": 1, "u-0": 2}, h={"t-0": 3})
    world.feed(TopicsDeleted(topics=frozenset({"t"})))
    world.written()
    assert world.fetch() == ["fetch <- g NONE u-0=2"]
    assert world.fetch(group="h") == ["fetch#2 <- h NONE "]


# -- retention -------------------------------------------------------------------------------------


def retaining(minutes: int = 30, **config: int) -> World:
    world = World(offsets_retention_minutes=minutes, **config)
    world.feed(Loaded())
    return world


def test_an_empty_group_goes_when_its_retention_has_passed_since_it_fell_empty() -> None:
    world = retaining()
    world.stable("a", session=1_800_000)
    world.commit("a", 1, {"t-0": 1})
    world.wait(25 * MINUTE)
    world.leave("a")
    world.written()
    assert world.wait(25 * MINUTE) == [], "the commit is 50 minutes old, the emptiness 25"
    assert world.wait(10 * MINUTE) == [
        "write 5: tombstone of t-0, tombstone of group g, tombstone of generations of g"
    ]
    assert world.written() == [
        "fact OffsetsExpired [t-0]",
        "fact GroupDeleted generation=2 expired",
    ]
    assert world.listed() == {}


def test_a_stable_consumer_loses_only_offsets_of_topics_it_does_not_read() -> None:
    world = retaining()
    world.stable("a", session=1_800_000)
    world.commit("a", 1, {"t-0": 1, "u-0": 2})
    world.written()
    lines = []
    for _ in range(4):
        lines += world.wait(10 * MINUTE)
        world.beat("a", 1)
    assert lines == ["write 4: tombstone of u-0"]
    assert world.written() == ["fact OffsetsExpired [u-0]"]
    assert world.state() == "Stable"


def test_a_simple_groups_offsets_expire_each_by_its_own_commit() -> None:
    world = retaining()
    world.commit("", -1, {"t-0": 1})
    world.wait(15 * MINUTE)
    world.commit("", -1, {"t-1": 2})
    world.written()
    assert world.wait(15 * MINUTE) == ["write 3: tombstone of t-0"]
    world.written()
    assert world.wait(20 * MINUTE) == ["write 4: tombstone of t-1, tombstone of group g"]


@pytest.mark.parametrize(
    "metadata", [b"", b"\x00\x00\xff\xff\xff\xff", b"\x00\x00\x00\x00\x00\x01"]
)
def test_nothing_expires_while_a_live_members_subscription_cannot_be_read(metadata: bytes) -> None:
    world = retaining()
    world.stable_with(metadata)
    world.commit("a", 1, {"u-0": 2})
    world.written()
    for _ in range(5):
        assert world.wait(10 * MINUTE) == []
        world.beat("a", 1)


def test_nothing_expires_while_a_group_rebalances() -> None:
    world = retaining()
    world.stable("a", "b", session=1_800_000, rebalance=1_800_000_000)
    world.commit("a", 1, {"u-0": 2})
    world.written()
    world.join("a", session=1_800_000, rebalance=1_800_000_000)
    for _ in range(5):
        assert world.wait(10 * MINUTE) == []
        world.beat("b", 1)


def test_nothing_expires_in_a_live_group_of_another_type() -> None:
    world = retaining()
    world.stable("a", session=1_800_000, protocol_type="connect")
    world.commit("a", 1, {"u-0": 2})
    world.written()
    for _ in range(5):
        assert world.wait(10 * MINUTE) == []
        world.beat("a", 1)


def test_an_explicit_expire_time_takes_precedence_over_the_retention_of_the_group() -> None:
    world = retaining(minutes=10_000)
    world.commit("", -1, {"t-0": 1}, retention=15 * MINUTE)
    world.commit("", -1, {"t-1": 1})
    world.written()
    assert world.wait(10 * MINUTE) == []
    assert world.wait(10 * MINUTE) == ["write 3: tombstone of t-0"]


def test_a_group_without_members_and_offsets_goes_at_the_next_sweep() -> None:
    world = retaining()
    world.stable("a")
    world.leave("a")
    world.written()
    assert world.wait(SWEEP) == ["write 4: tombstone of group g, tombstone of generations of g"]


def test_a_group_that_has_handed_out_an_id_stays_for_it() -> None:
    world = retaining()
    world.wait(SWEEP - 1_000)
    world.join("a", "")
    world.written()
    assert world.wait(1_000) == []
    assert world.join("a")[0] == "fact PendingMemberJoined Empty a-1"


def test_a_sweep_looks_at_all_groups_though_not_in_one_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(removing, "SWEEP_CHUNK", 5)
    world = retaining(minutes=1)
    for n in range(12):
        world.commit("", -1, {"t-0": 1}, group=f"g{n}")
    world.written()
    world.wait(SWEEP - world.now // 1_000 - 1)
    assert len(world.wait(1)) == 5
    assert len(world.wait(2)) == 7
    world.written()
    assert world.listed() == {}


def test_a_subscription_is_read_from_its_leading_fields_whatever_follows() -> None:
    world = retaining()
    world.stable_with(b"\x00\x09" + subscription("u")[2:] + b"tail of a version to come")
    world.commit("a", 1, {"u-0": 2})
    world.written()
    for _ in range(5):
        assert world.wait(10 * MINUTE) == []
        world.beat("a", 1)
