"""DescribeGroups and ListGroups (coordinator.md 5.12)."""

from __future__ import annotations

from tests.coordinator.world import World, subscription

from kohort.coordinator.interface import (
    DescribeAnswer,
    DescribedMember,
    DescribeGroups,
)
from kohort.model.errors import ErrorCode
from kohort.model.group_state import GroupState
from kohort.model.ids import GroupId, MemberId


def described(world: World, *groups: str, new: bool = True) -> DescribeAnswer:
    name = f"describe {len(world.answers)}"
    world.feed(
        DescribeGroups(
            token=world.token(name),
            group_ids=tuple(GroupId(g) for g in groups),
            knows_group_id_not_found=new,
        )
    )
    answer = world.answers[name]
    assert isinstance(answer, DescribeAnswer)
    return answer


def test_an_absent_group_is_an_error_to_new_clients_and_dead_to_old_ones() -> None:
    world = World()
    (new,) = described(world, "g").groups
    assert (new.error, new.state, new.message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        GroupState.DEAD,
        "Group g not found.",
    )
    (old,) = described(world, "g", new=False).groups
    assert (old.error, old.state, old.message) == (ErrorCode.NONE, GroupState.DEAD, None)


def test_a_stable_group_shows_its_protocol_and_everybodys_bytes() -> None:
    world = World()
    world.stable("a", "b")
    (group,) = described(world, "g").groups
    assert (group.state, group.protocol_type, group.protocol_name) == (
        GroupState.STABLE,
        "consumer",
        "range",
    )
    assert group.members == tuple(
        DescribedMember(
            member_id=MemberId(f"{client}-1"),
            group_instance_id=None,
            client_id=client,
            client_host="/127.0.0.1",
            metadata=subscription("t"),
            assignment=client.encode(),
        )
        for client in "ab"
    )


def test_a_rebalancing_group_hides_protocol_and_metadata() -> None:
    world = World()
    world.stable("a", "b")
    world.join("a")
    (group,) = described(world, "g").groups
    assert (group.state, group.protocol_name) == (GroupState.PREPARING_REBALANCE, "")
    assert [m.metadata for m in group.members] == [b"", b""]


def test_an_emptied_group_keeps_its_protocol_type() -> None:
    world = World()
    world.stable("a")
    world.leave("a")
    (group,) = described(world, "g").groups
    assert (group.state, group.protocol_type, group.members) == (GroupState.EMPTY, "consumer", ())


def test_groups_are_described_in_the_order_asked_for() -> None:
    world = World()
    world.stable("a")
    assert [g.group_id for g in described(world, "x", "g", "y").groups] == ["x", "g", "y"]


def test_lists_are_filtered_by_state_and_type_whatever_the_case() -> None:
    world = World()
    world.stable("a")
    world.commit("", -1, {"t-0": 1}, group="simple")
    world.written()
    assert world.listed() == {"g": "Stable", "simple": "Empty"}
    assert world.listed("sTABLE") == {"g": "Stable"}
    assert world.listed("Stable", "Empty") == {"g": "Stable", "simple": "Empty"}
    assert world.listed("Confused") == {}
    assert world.listed(types=("Classic",)) == {"g": "Stable", "simple": "Empty"}
    assert world.listed(types=("consumer",)) == {}
