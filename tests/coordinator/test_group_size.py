"""group.max.size (coordinator.md 5.4), and the bound on ids handed out."""

from __future__ import annotations

from tests.coordinator.world import World


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
