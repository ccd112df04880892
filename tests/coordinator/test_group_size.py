"""group.max.size (coordinator.md 5.4), and the bound on ids handed out."""

from __future__ import annotations

import pytest
from tests.coordinator.world import World, subscription

from kohort.coordinator.interface import Observe
from kohort.storage.group_records import write_record


def test_ids_are_handed_out_beyond_the_size_but_only_so_many_may_join() -> None:
    world = World(max_size=2)
    for client in "abc":
        assert world.join(client, "")[-1] == f"{client}.join <- MEMBER_ID_REQUIRED me={client}-1"
    world.join("a")
    world.join("b")
    assert world.join("c") == [
        "fact JoinRefused c-1 GROUP_MAX_SIZE_REACHED",
        "c.join#2 <- GROUP_MAX_SIZE_REACHED me=",
    ]


def test_a_third_old_client_is_refused() -> None:
    world = World(max_size=2)
    world.join("a", "", old=True)
    world.join("b", "", old=True)
    assert world.join("c", "", old=True)[-1] == "c.join <- GROUP_MAX_SIZE_REACHED me="


def test_a_member_of_a_full_stable_group_may_rejoin_and_a_stranger_may_not() -> None:
    world = World(max_size=2)
    world.stable("a", "b")
    assert world.join("b")[-1] == "b.join#3 <- joined range generation=1 leader=a-1 me=b-1 []"
    assert world.join("c", "") == [
        "fact JoinRefused GROUP_MAX_SIZE_REACHED",
        "c.join <- GROUP_MAX_SIZE_REACHED me=",
    ]
    assert world.beat("a", 1) == "NONE"


def test_a_parked_member_of_a_full_join_phase_may_send_its_join_again() -> None:
    world = World(max_size=2)
    world.enter("a")
    world.enter("b")
    assert world.join("a")[0] == "a.join#2 <- REBALANCE_IN_PROGRESS me=a-1"


def test_strangers_cannot_fill_a_group_with_ids() -> None:
    world = World(max_pending_members=1)
    world.join("a", "")
    assert world.join("b", "") == [
        "fact LimitReached kohort.max.pending.members 1",
        "fact JoinRefused GROUP_MAX_SIZE_REACHED",
        "b.join <- GROUP_MAX_SIZE_REACHED me=",
    ]


def test_metadata_beyond_its_bound_is_refused_with_the_numbers() -> None:
    world = World(max_metadata_bytes=100)
    assert world.join("a", "", protocols={"range": subscription("t" * 90)}) == [
        "fact LimitReached kohort.max.metadata.bytes 100 107",
        "fact JoinRefused GROUP_MAX_SIZE_REACHED",
        "a.join <- GROUP_MAX_SIZE_REACHED me=",
    ]
    assert world.join("b", "")[-1] == "b.join <- MEMBER_ID_REQUIRED me=b-1"


def full() -> tuple[World, int]:
    """A group that holds as many members with their assignments as it may, and how many."""
    world = World(max_group_bytes=4_096, assignment_budget_bytes=300)
    count = 0
    while True:
        name = f"m{count}"
        world.join(name, "", old=True, session=300_000)
        if f"{name}.join" in world.answers:
            while "m0.join" not in world.answers:
                world.wait(1_000)
            return world, count
        count += 1


def test_a_group_refuses_joins_that_would_make_its_record_too_large() -> None:
    world, count = full()
    assert count > 5
    assert world.answers[f"m{count}.join"].error.name == "GROUP_MAX_SIZE_REACHED"
    facts = [world.show(e) for e in world.effects if isinstance(e, Observe)]
    refused = next(fact for fact in facts if "LimitReached" in fact)
    assert refused.startswith("fact LimitReached kohort.max.group.bytes 4096 4")


def test_a_full_group_can_be_assigned_its_budget_for_everybody_within_the_bound() -> None:
    world, count = full()
    plan = {f"m{n}-1": b"x" * 300 for n in range(count)}
    assert world.sync("m0", 1, plan)[-1].startswith("write ")
    (record,) = world._records[world.unwritten[-1]]
    key, value = write_record(record)
    assert value is not None
    assert len(key) + len(value) + 100 <= 4_096, "with room for the batch around it"


def test_a_member_of_a_full_group_may_come_back_but_not_with_much_more() -> None:
    world, _ = full()
    assert world.join("m0")[-1].startswith("m0.join#2 <- joined")
    large = {"range": subscription("t" * 1_500)}
    assert world.join("m0", protocols=large)[-1] == "m0.join#3 <- GROUP_MAX_SIZE_REACHED me="
    assert world.beat("m0", 1) == "NONE"


def test_a_leader_that_spends_more_than_the_budget_is_not_refused() -> None:
    """Every assignment that fits into a request fits into the log."""
    world, count = full()
    plan = {f"m{n}-1": b"x" * 3_000 for n in range(count)}
    world.sync("m0", 1, plan)
    assert world.written()[-1] == "m0.sync <- assigned " + "x" * 3_000
    assert world.state() == "Stable"


def test_a_group_has_at_most_what_fits_the_request_that_assigns() -> None:
    world = World(max_request_bytes=2_048)
    assert world.join("a", "", protocols={"range": subscription("t" * 900)}) == [
        "fact LimitReached socket.request.max.bytes 2048 2283",
        "fact JoinRefused GROUP_MAX_SIZE_REACHED",
        "a.join <- GROUP_MAX_SIZE_REACHED me=",
    ]


@pytest.mark.parametrize("instance", [None, "i" * 32_731])
def test_a_name_of_which_no_id_can_be_made_is_refused(instance: str | None) -> None:
    world = World()
    client = "c" * (32_731 if instance is None else 5)
    assert world.join(client, "", instance=instance)[-1].endswith(".join <- INVALID_REQUEST me=")
    client = client[:-1]
    instance = None if instance is None else instance[:-1]
    assert "INVALID_REQUEST" not in world.join(client, "", instance=instance)[-1]


def test_long_names_count() -> None:
    world = World(max_group_bytes=20_000)
    lines = world.join("a", "", group="g" * 10_000, protocols={"r" * 10_000: subscription("t")})
    assert "fact LimitReached kohort.max.group.bytes 20000 21" in lines[0]
