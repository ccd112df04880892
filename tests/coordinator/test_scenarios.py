"""Scenarios of the reference that no other file here tests."""

from __future__ import annotations

from typing import Any

from tests.coordinator.world import World, subscription


def who(name: str, serial: int = 1) -> dict[str, Any]:
    """Static member ``name`` under its how-manieth id."""
    return {"member_id": f"i-{name}-{serial}", "instance": f"i-{name}"}


def test_one_more_static_member_than_the_size_is_refused() -> None:
    world = World(max_size=2)
    for name in "ab":
        world.join(name, "", instance=f"i-{name}")
    assert world.join("c", "", instance="i-c")[-1] == "c.join <- GROUP_MAX_SIZE_REACHED me="


def test_every_round_raises_the_generation_by_one() -> None:
    world = World()
    world.stable("a", "b", session=1_800_000)
    for generation in range(2, 30):
        world.join("a")
        told = f"generation={generation} leader=a-1 me=b-1 []"
        assert world.join("b")[-1].endswith(told)
        world.sync("b", generation)
        world.sync("a", generation, {"a-1": b"a", "b-1": b"b"})
        world.written()


def test_a_known_instance_id_with_anothers_member_id_is_fenced() -> None:
    world = World()
    world.static("a", "b")
    wrong: dict[str, Any] = {"member_id": "i-a-1", "instance": "i-b"}
    assert world.join("b", **wrong)[-1] == "b.join#2 <- FENCED_INSTANCE_ID me=i-a-1"
    assert world.sync("b", 1, **wrong)[-1] == "b.sync#2 <- FENCED_INSTANCE_ID"
    assert world.beat("b", 1, **wrong) == "FENCED_INSTANCE_ID"
    assert world.commit("b", 1, {"t-0": 1}, **wrong) == ["b.commit <- t-0:FENCED_INSTANCE_ID"]


def test_a_static_leader_that_rejoins_with_its_id_starts_a_round_and_a_follower_none() -> None:
    world = World()
    world.static("a", "b")
    assert world.join("b", **who("b"))[-1] == (
        "b.join#2 <- joined range generation=1 leader=i-a-1 me=i-b-1 []"
    )
    assert world.state() == "Stable"
    world.join("a", **who("a"))
    assert world.state() == "PreparingRebalance"
    assert world.beat("b", 1, **who("b")) == "REBALANCE_IN_PROGRESS"


def test_a_static_member_that_missed_a_round_rejoins_with_its_id() -> None:
    world = World()
    world.static("a", "b", session=60_000, rebalance=8_000)
    world.join("a", **who("a"), rebalance=8_000)
    assert world.wait(8_000)[-1].endswith("me=i-a-1 [i-a-1 i-b-1]")
    assert world.beat("b", 1, **who("b")) == "ILLEGAL_GENERATION"
    assert world.join("b", **who("b"), session=60_000, rebalance=8_000)[-1] == (
        "b.join#2 <- joined range generation=2 leader=i-a-1 me=i-b-1 []"
    )
    world.sync("b", 2, **who("b"))
    world.sync("a", 2, {"i-a-1": b"a", "i-b-1": b"b"}, **who("a"))
    assert world.written()[-1] == "b.sync#2 <- assigned b"


def test_of_every_instance_that_is_started_twice_at_once_one_survives() -> None:
    world = World()
    world.static("a", "b", "c")
    for name in "abc":
        for _ in range(2):
            world.join(name, "", instance=f"i-{name}")
    world.written()
    for name in "abc":
        beats = [world.beat(name, 1, **who(name, serial)) for serial in (1, 2, 3)]
        assert beats == ["FENCED_INSTANCE_ID", "FENCED_INSTANCE_ID", "NONE"]


def test_a_rolling_restart_of_static_members_is_no_round() -> None:
    world = World()
    world.static("a", "b", "c")
    for name in "abc":
        world.join(name, "", instance=f"i-{name}")
        assert "generation=1" in world.written()[-1]
        world.sync(name, 1, **who(name, 2))
        assert world.answers[f"{name}.sync#2"].assignment == name.encode()
        assert world.state() == "Stable"


def test_a_static_leader_that_skipped_the_assignment_starts_a_round_when_it_sees_cause() -> None:
    world = World()
    world.static("a", "b")
    world.join("a", "", instance="i-a")
    assert world.written()[-1].endswith("skips assignment")
    world.join("a", **who("a", 2))
    world.join("b", **who("b"))
    told = world.answers["a.join#3"]
    assert (told.generation_id, told.leader_id, told.skip_assignment) == (2, "i-a-2", False)
    assert sorted(member.member_id for member in told.members) == ["i-a-2", "i-b-1"]


def test_a_static_member_that_never_rejoins_holds_a_round_for_its_session_at_most() -> None:
    world = World()
    world.join("s", "", instance="i-s", session=10_000)
    world.wait(6_000)
    world.sync("s", 1, {}, member_id="i-s-1", instance="i-s")
    world.written()
    world.enter("b", session=60_000)
    assert world.wait(9_999) == []
    assert world.wait(1)[-1] == "b.join#2 <- joined range generation=2 leader=b-1 me=b-1 [b-1]"


def test_an_administrator_removes_everybody_by_member_id() -> None:
    world = World()
    world.static("a", "b")
    assert world.leave_ids("i-a-1", "i-b-1")[-1].startswith("write")
    assert world.written()[-1] == "leave <- NONE [i-a-1:NONE i-b-1:NONE]"
    assert world.state() == "Empty"


def test_a_member_that_leaves_and_returns_fifty_times_leaves_no_ghost() -> None:
    world = World(delay=0)
    for turn in range(1, 51):
        world.join("a", "")
        lines = world.join("a", f"a-{turn}") + world.wait(1) + world.written()
        assert lines[-1].endswith(
            f"generation={2 * turn - 1} leader=a-{turn} me=a-{turn} [a-{turn}]"
        )
        world.leave_ids(f"a-{turn}")
        world.written()
    assert world.state() == "Empty"


def test_two_groups_have_members_generations_and_offsets_of_their_own() -> None:
    world = World()
    world.stable("a", "b")
    world.stable("x", group="h")
    world.join("a", protocols={"range": subscription("u")})
    assert world.beat("b", 1) == "REBALANCE_IN_PROGRESS"
    assert world.beat("x", 1, group="h") == "NONE"
    world.commit("x", 1, {"t-0": 9}, group="h")
    world.written()
    assert world.fetch("t-0") == ["fetch <- g NONE t-0=-"]


def test_of_two_syncs_of_one_member_that_wait_both_are_answered() -> None:
    """Kafka never answers the first."""
    world = World()
    world.joined("a", "b")
    world.sync("b", 1)
    assert world.sync("b", 1)[0] == "b.sync <- REBALANCE_IN_PROGRESS"
    world.sync("a", 1, {"a-1": b"1", "b-1": b"2"})
    assert world.written()[-1] == "b.sync#2 <- assigned 2"
