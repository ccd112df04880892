"""Groups of member engines against the coordinator engine, in whole stories."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pair import Client, World
from tests.examples import examples

from kohort.engine.member_outputs import RequestErrorKind
from kohort.model.ids import GroupInstanceId, TopicPartition


def three(world: World, **config: Any) -> list[Client]:
    """Three members that have settled."""
    members = [world.client(name, **config).join() for name in ("a", "b", "c")]
    world.until(lambda: world.settled(*members), within_ms=20_000)
    return members


def loads(*members: Client) -> list[int]:
    return sorted(len(m.owned) for m in members)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_three_members_that_join_together_share_everything(strategy: str) -> None:
    world = World()
    members = three(world, strategy=strategy)
    assert loads(*members) == [4, 4, 4]
    world.run(60_000)
    assert world.settled(*members)
    assert len({tuple(m.generations[-1:]) for m in members}) == 1
    assert all(not m.losses for m in members)


def test_torn_bytes_change_nothing() -> None:
    world = World(torn=True)
    members = three(world)
    assert loads(*members) == [4, 4, 4]


def test_with_an_initial_delay_one_generation_is_enough() -> None:
    world = World(initial_rebalance_delay_ms=3_000)
    members = three(world)
    assert [m.generations for m in members] == [[1], [1], [1]]


def test_a_member_that_joins_takes_only_its_share_and_the_others_never_let_go_of_the_rest() -> None:
    world = World()
    a, b, c = three(world)
    world.run(10_000)
    before = {p: since for m in (a, b, c) for p, since in m.kept_since.items()}
    d = world.client("d").join()
    world.until(lambda: world.settled(a, b, c, d), within_ms=20_000)
    assert loads(a, b, c, d) == [3, 3, 3, 3]
    after = {p: since for m in (a, b, c) for p, since in m.kept_since.items()}
    assert len(after) == 9
    assert all(before[p] == since for p, since in after.items()), "kept all the time"


def test_a_member_that_leaves_is_replaced_at_once() -> None:
    world = World()
    a, b, c = three(world)
    kept = {p: since for m in (a, b) for p, since in m.kept_since.items()}
    c.leave()
    taken_ms = world.until(lambda: world.settled(a, b), within_ms=10_000)
    assert taken_ms <= 3_100, "a heartbeat interval and a few round trips"
    assert c.left
    assert all(m.kept_since[p] == kept[p] for m in (a, b) for p in kept if p in m.owned)
    assert len([p for p in kept if p in a.owned | b.owned]) == 8


def test_a_member_that_is_killed_is_replaced_when_its_session_ends() -> None:
    world = World()
    a, b, c = three(world, session_timeout_ms=10_000)
    c.kill()
    taken_ms = world.until(lambda: world.settled(a, b), within_ms=20_000)
    assert 7_000 <= taken_ms <= 13_200
    assert loads(a, b) == [6, 6]


def test_the_leader_may_be_the_one_that_is_killed() -> None:
    world = World()
    members = three(world, session_timeout_ms=10_000)
    leader = next(m for m in members if m.engine.core.is_leader)
    leader.kill()
    others = [m for m in members if m is not leader]
    world.until(lambda: world.settled(*others), within_ms=30_000)
    assert loads(*others) == [6, 6]


def test_a_slow_member_delays_the_rebalance_and_no_other_member_stops() -> None:
    world = World()
    a, b, c = three(world)
    c.revoke_ms = 10_000
    world.run(5_000)
    kept = {p: since for m in (a, b, c) for p, since in m.kept_since.items()}
    d = world.client("d").join()
    for _ in range(9):
        world.run(1_000)
        a.commit()
        b.commit()
    world.engine.check()
    assert not d.owned, "the rebalance is still open"
    for m in (a, b, c):
        assert all(m.kept_since[p] == kept[p] for p in m.owned)
        assert len(m.owned) == 4
    world.run(500)
    assert len(a.committed) == len(b.committed) == 9, "also while their own join is parked"
    assert all(c.error is None and not c.refused for m in (a, b) for c in m.committed)
    world.until(lambda: world.settled(a, b, c, d), within_ms=60_000)


def test_eager_members_stop_when_a_rebalance_starts() -> None:
    world = World()
    a, b, c = three(world, strategy="range")
    c.revoke_ms = 5_000
    world.run(4_000)
    world.client("d", strategy="range").join()
    world.run(4_000)
    assert loads(a, b) == [0, 0]


def test_sticky_members_keep_their_partitions() -> None:
    world = World()
    a, b, c = three(world, strategy="sticky")
    before = {m.name: set(m.owned) for m in (a, b, c)}
    d = world.client("d", strategy="sticky").join()
    world.until(lambda: world.settled(a, b, c, d), within_ms=20_000)
    assert all(len(before[m.name] & m.owned) == 3 for m in (a, b, c))


def test_a_rolling_change_from_eager_to_cooperative_never_has_two_owners() -> None:
    world = World()
    both = "cooperative-sticky,range"
    old = three(world, strategy="range")
    new = []
    for number, leaver in enumerate(old):
        leaver.leave()
        new.append(world.client(f"n{number}", strategy=both).join())
        world.run(10_000)
    world.until(lambda: world.settled(*new), within_ms=20_000)
    last = []
    for number, leaver in enumerate(new):
        leaver.leave()
        last.append(world.client(f"l{number}").join())
        world.run(10_000)
    world.until(lambda: world.settled(*last), within_ms=20_000)
    assert not any(m.failures for m in world.clients)


def test_a_member_without_a_common_protocol_is_refused_and_the_group_goes_on() -> None:
    world = World()
    members = three(world)
    stranger = world.client("x", strategy="range").join()
    world.run(10_000)
    assert "INCONSISTENT_GROUP_PROTOCOL" in stranger.failures[0].message
    assert world.settled(*members)


def test_members_keep_their_partitions_when_all_connections_break() -> None:
    world = World()
    members = three(world)
    kept = {p: since for m in members for p, since in m.kept_since.items()}
    world.break_all()
    world.run(30_000)
    assert world.settled(*members)
    assert all(not m.losses for m in members)
    assert {p: s for m in members for p, s in m.kept_since.items()} == kept


def test_connections_break_in_the_middle_of_a_rebalance() -> None:
    world = World()
    members = three(world)
    members[2].revoke_ms = 2_000
    d = world.client("d").join()
    for _ in range(8):
        world.run(500)
        world.break_all()
    world.until(lambda: world.settled(*members, d), within_ms=120_000)
    assert loads(*members, d) == [3, 3, 3, 3]


@pytest.mark.slow
def test_the_leader_notices_new_partitions() -> None:
    world = World()
    members = three(world)
    world.topics["t"] = 15
    world.until(lambda: world.settled(*members), within_ms=30_000)
    assert loads(*members) == [5, 5, 5]


def test_a_topic_that_does_not_exist_yet_is_picked_up_when_it_does() -> None:
    world = World()
    a = world.client("a", topics=("t", "later")).join()
    world.until(lambda: len(a.owned) == 12, within_ms=5_000)
    world.topics["later"] = 2
    world.until(lambda: world.settled(a), within_ms=5_000)
    assert TopicPartition("later", 1) in a.owned


def test_a_member_that_does_not_poll_leaves_and_comes_back() -> None:
    world = World()
    a, b, c = three(world, max_poll_interval_ms=None)
    slow = world.client("slow", max_poll_interval_ms=10_000).join()
    world.until(lambda: world.settled(a, b, c, slow), within_ms=9_000)
    world.run(15_000)
    assert world.settled(a, b, c)
    assert "max.poll.interval.ms" in slow.losses[0]
    slow.join()
    world.until(lambda: world.settled(a, b, c, slow), within_ms=9_000)
    assert loads(a, b, c, slow) == [3, 3, 3, 3]


def test_a_commit_without_membership_is_refused_at_once() -> None:
    world = World()
    a = world.client("a").join()
    a.owned = {TopicPartition("t", 0)}
    a.kept_since = {TopicPartition("t", 0): 0}
    a.commit()
    error = a.committed[0].error
    assert error is not None
    assert error.kind is RequestErrorKind.MEMBERSHIP


def test_offsets_committed_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    a = world.client("a").join()
    world.until(lambda: world.settled(a), within_ms=5_000)
    a.commit()
    world.run(100)
    assert a.committed[-1].refused == {}
    answers: list[Any] = []
    monkeypatch.setattr(a, "_owner", answers.append)
    wanted = {*a.owned, TopicPartition("t", 99)}
    a.carry_out(a.engine.fetch_offsets(wanted, world.now)[1])
    world.run(100)
    (fetched,) = answers
    assert fetched.error is None
    assert fetched.offsets[TopicPartition("t", 99)] is None
    assert all(fetched.offsets[p].offset > 0 for p in a.owned)


def test_the_same_seed_gives_the_same_run() -> None:
    def story() -> list[object]:
        world = World(torn=True, seed=5)
        members = three(world)
        world.client("d").join()
        world.run(5_000)
        members[0].leave()
        world.run(20_000)
        return [(m.name, m.generations, sorted(m.kept_since.items())) for m in world.clients]

    assert story() == story()


CHAOS = st.lists(
    st.tuples(
        st.sampled_from(["join", "leave", "kill", "break", "slow", "commit", "wait"]),
        st.integers(0, 5),
        st.integers(0, 4_000),
    ),
    min_size=3,
    max_size=25,
)


@given(steps=CHAOS, torn=st.booleans(), seed=st.integers(0, 9))
@examples(60)
def test_after_any_faults_the_group_settles_with_one_owner_for_each_partition(
    steps: list[tuple[str, int, int]], torn: bool, seed: int
) -> None:
    world = World(torn=torn, seed=seed, latency_ms=1 + seed % 3)
    for what, which, wait_ms in steps:
        present = [c for c in world.clients if c.alive and not c.left]
        chosen = present[which % len(present)] if present else None
        if what == "join" and len(present) < 6:
            name = f"c{len(world.clients)}"
            world.client(name, session_timeout_ms=6_000, rebalance_timeout_ms=20_000).join()
        elif what == "break":
            world.break_all()
        elif chosen is not None:
            _happens(what, chosen)
        world.run(wait_ms)
    for client in world.clients:
        client.revoke_ms = 0
    last = world.client("last", session_timeout_ms=6_000).join()
    present = [c for c in world.clients if c.alive and not c.left]
    world.until(lambda: world.settled(*present), within_ms=120_000)
    assert last.owned
    assert max(loads(*present)) - min(loads(*present)) <= 1
    for client in world.clients:
        assert not client.failures


def _happens(what: str, client: Client) -> None:
    if what == "leave":
        client.leave()
        client.left = True
    elif what == "kill":
        client.kill()
    elif what == "slow":
        client.revoke_ms = 1_500
    elif what == "commit":
        client.commit()


@pytest.mark.parametrize("grows_ms_after_the_return", [-2_000, 10_000])
def test_a_static_leader_that_returns_to_its_assignment_sees_that_the_topic_grew(
    grows_ms_after_the_return: int,
) -> None:
    """It assigns nothing (KIP-814), so it uses the note in its own assignment (164, 272)."""
    world = World()
    leader = world.client("a", group_instance_id=GroupInstanceId("a")).join()
    world.run(5_000)
    other = world.client("b", group_instance_id=GroupInstanceId("b")).join()
    world.until(lambda: world.settled(leader, other), within_ms=20_000)
    generation = leader.generations[-1]
    leader.kill()
    world.run(3_000)
    if grows_ms_after_the_return < 0:
        world.topics["t"] = 14
    back = world.client("a2", group_instance_id=GroupInstanceId("a")).join()
    world.run(2_000)
    assert back.generations[:1] == [generation]
    if grows_ms_after_the_return > 0:
        world.run(grows_ms_after_the_return)
        assert back.generations == [generation]
        world.topics["t"] = 14
    world.until(lambda: world.settled(back, other), within_ms=30_000)
    assert loads(back, other) == [7, 7]


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("leads", ["holder", "other"])
@pytest.mark.parametrize("topics", [("t",), ("t", "not there")])
def test_a_slow_revocation_starts_no_further_round(
    topics: tuple[str, ...], leads: str, static: bool
) -> None:
    """The leader looks for new partitions and began a round at each look (seed 40309).

    It looks every 20 s here, and every second while a topic is missing.
    """
    world = World()

    def member(name: str) -> Client:
        instance = GroupInstanceId(name) if static else None
        return world.client(
            name, group_instance_id=instance, topics=topics, rebalance_timeout_ms=30_000
        ).join()

    leader, other = member("1"), member("2")
    world.until(lambda: loads(leader, other) == [6, 6], within_ms=20_000)
    assert leader.engine.core.is_leader
    (leader if leads == "holder" else other).release_ms = 90_000
    before = leader.generations[-1]
    third = member("3")
    world.run(85_000)
    # One round with the new member, one after the quick member gave its partitions up.
    assert third.generations == [before + 1, before + 2]
    world.run(15_000)
    assert loads(leader, other, third) == [4, 4, 4]
    assert third.generations == [before + 1, before + 2, before + 3]


@pytest.mark.parametrize("leads", ["holder", "other"])
def test_partitions_withheld_for_a_dead_holder_get_an_owner(
    leads: str,
) -> None:
    """A static holder returned to an assignment without the partitions, and did not rejoin (760).

    No other member can know that the holder gave them up. So the holder rejoins at once.
    """
    world = World(initial_rebalance_delay_ms=3_000)
    world.topics["t"] = 3
    settings = {"revoke_ms": 1_000, "session_timeout_ms": 45_000}
    names = ["a", "z"] if leads == "holder" else ["z", "a"]  # the first by name has two partitions
    members = [
        world.client(f"process of {name}", group_instance_id=GroupInstanceId(name), **settings)
        for name in names
    ]
    leader, follower = (member.join() for member in members)
    world.until(lambda: world.settled(leader, follower), within_ms=20_000)
    assert leader.engine.core.is_leader
    holder, other = sorted(members, key=lambda client: -len(client.owned))
    assert holder.engine.core.is_leader == (leads == "holder")
    third = world.client("m", group_instance_id=GroupInstanceId("m"), **settings).join()
    world.until(lambda: third.generations != [], within_ms=20_000)
    instance = holder.engine.core.config.group_instance_id
    holder.kill()
    back = world.client("its next process", group_instance_id=instance, **settings).join()
    world.until(lambda: back.generations != [], within_ms=2_000)
    assert back.generations == third.generations, "its assignment stands"
    assert [len(m.owned) for m in (back, other, third)] == [1, 1, 0]
    # `back` prepares to rejoin; the others prepare when their next heartbeats report that.
    world.until(lambda: world.settled(back, other, third), within_ms=6_000)
    assert loads(back, other, third) == [1, 1, 1]
    assert back.generations == [third.generations[0], third.generations[0] + 1]
