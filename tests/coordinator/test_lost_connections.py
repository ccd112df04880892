"""Connections that die while a JoinGroup or a SyncGroup is parked: the group does not wait.

Kafka counts such a member as joined, tells it a generation, and drops it a session later
(``tests/real_kafka/test_differences.py`` shows it).
"""

from __future__ import annotations

import pytest
from tests.coordinator.world import World

from kohort.model.ids import GroupId


@pytest.fixture
def world() -> World:
    """A Stable group of a and b; a waits in a join phase."""
    world = World()
    world.stable("a", "b", session=10_000)
    world.join("a", name="a.waits")
    return world


def test_the_session_of_a_lost_member_runs_again_and_the_member_counts_as_not_joined(
    world: World,
) -> None:
    assert world.lose("a.waits") == ["fact ParkedJoinDropped generation=1 a-1"]
    assert world.join("b") == ["fact MemberRejoined b-1 generation=1"], "the phase waits for a"
    assert world.wait(9_999) == []
    assert world.wait(1) == [
        "fact MemberExpired generation=1 a-1",
        "fact JoinPhaseCompleted generation=2 range b-1 [b-1]",
        "b.join#3 <- joined range generation=2 leader=b-1 me=b-1 [b-1]",
    ]


def test_a_lost_member_may_rejoin_over_another_connection(world: World) -> None:
    world.lose("a.waits")
    world.join("a")
    assert world.join("b")[-2:] == [
        "a.join#3 <- joined range generation=2 leader=a-1 me=a-1 [a-1 b-1]",
        "b.join#3 <- joined range generation=2 leader=a-1 me=b-1 []",
    ]
    assert "a.waits" not in world.answers


def test_a_member_may_rejoin_before_the_loss_of_its_old_connection_is_known(
    world: World,
) -> None:
    assert world.join("a")[0] == "a.waits <- REBALANCE_IN_PROGRESS me=a-1"
    assert world.lose("a.waits") == []
    assert world.join("b")[-1] == "b.join#3 <- joined range generation=2 leader=a-1 me=b-1 []"


def test_a_newcomer_that_knows_its_id_has_its_session_and_not_five_minutes() -> None:
    world = World()
    world.stable("a", session=60_000)
    world.enter("c", session=8_000)
    assert world.lose("c.join#2") == ["fact ParkedJoinDropped generation=1 c-1"]
    assert world.wait(8_000) == ["fact MemberExpired generation=1 c-1"]


@pytest.mark.parametrize("static", [False, True])
def test_a_newcomer_that_never_had_an_answer_is_removed_at_once(static: bool) -> None:
    world = World()
    world.stable("a")
    world.join("c", "", old=not static, instance="i-c" if static else None)
    world.join("a")
    assert world.state() == "CompletingRebalance"
    world.sync("a", 2, {})
    world.written()
    world.join("d", "", old=not static, instance="i-d" if static else None)
    world.lose("d.join")
    assert len(world.coordinator._registry.groups[GroupId("g")].members) == 2
    assert world.state() == "PreparingRebalance", "the others rejoin without it"


def test_a_lost_connection_does_not_shorten_the_initial_window() -> None:
    world = World()
    world.join("a", "", old=True)
    world.wait(1_000)
    assert world.lose("a.join") == ["fact ParkedJoinDropped generation=0 a-1 removed"]
    assert world.wait(1_999) == []
    assert world.wait(1)[0] == "fact GroupEmptied generation=1"


def test_requests_that_wait_for_the_log_survive_the_loss_of_their_connection() -> None:
    world = World()
    world.stable("a")
    world.commit("a", 1, {"t-0": 5})
    assert world.lose("a.commit") == []
    world.written()
    assert world.fetch("t-0") == ["fetch <- g NONE t-0=5"]


def test_a_member_that_was_dropped_while_the_number_is_on_its_way_is_waited_for(
    world: World,
) -> None:
    world.reservations_wait = True
    world.written()
    world.join("b", name="b.waits")
    assert world.state() == "CompletingRebalance"
    world.sync("a", 2, {})
    world.sync("b", 2)
    world.written()
    world.join("a", name="a.again")
    world.join("b", name="b.again")
    world.lose("b.again")
    assert world.written() == [], "the phase waits for b, as if b had not joined"
    world.join("b", name="b.third")
    assert world.answers["b.third"].generation_id == 3


def test_a_member_dropped_while_the_number_is_on_its_way_expires_with_its_session() -> None:
    world = World()
    world.stable("a", "b", session=10_000)
    world.reservations_wait = True
    world.join("a")
    world.join("b", name="b.waits")
    world.lose("b.waits")
    assert world.written() == []
    assert world.wait(9_999) == []
    assert world.wait(1)[:2] == [
        "fact MemberExpired generation=1 b-1",
        "fact JoinPhaseCompleted generation=2 range a-1 [a-1]",
    ]


# -- SyncGroup -------------------------------------------------------------------------------------


@pytest.fixture
def syncing() -> World:
    """Leader a and member b know generation 1; b waits for its assignment."""
    world = World()
    world.joined("a", "b", session=10_000)
    world.wait(4_000)
    assert world.sync("b", 1, name="b.waits") == []
    return world


def test_a_parked_sync_is_dropped_at_once_and_the_session_runs_again(syncing: World) -> None:
    assert syncing.lose("b.waits") == ["fact ParkedSyncDropped generation=1 b-1"]
    assert syncing.beat("a", 1) == "NONE"
    syncing.wait(9_999)
    assert syncing.state() == "CompletingRebalance"
    expired = syncing.wait(1)
    assert "fact MemberExpired generation=1 b-1" in expired, "a session after it was lost"


def test_a_member_that_was_lost_may_beat_and_sync_over_another_connection(syncing: World) -> None:
    syncing.lose("b.waits")
    assert syncing.beat("b", 1) == "NONE"
    assert syncing.sync("b", 1, name="b.again") == []
    syncing.sync("a", 1, {"a-1": b"A", "b-1": b"B"})
    assert syncing.written()[-1] == "b.again <- assigned B"
    assert "b.waits" not in syncing.answers


def test_an_assignment_is_not_told_to_a_connection_that_died(syncing: World) -> None:
    syncing.lose("b.waits")
    syncing.sync("a", 1, {"a-1": b"A", "b-1": b"B"})
    assert syncing.written()[-1] == "a.sync <- assigned A"
    assert syncing.sync("b", 1)[-1] == "b.sync <- assigned B", "it was kept for the member"


def test_a_leader_that_dies_with_its_assignment_on_the_way_does_not_hold_it_up(
    syncing: World,
) -> None:
    syncing.sync("a", 1, {"a-1": b"A", "b-1": b"B"})
    assert syncing.lose("a.sync") == ["fact ParkedSyncDropped generation=1 a-1"]
    assert syncing.written()[-1] == "b.waits <- assigned B"
    assert syncing.state() == "Stable"


def test_a_sync_that_was_sent_again_is_not_dropped_with_its_first_connection(
    syncing: World,
) -> None:
    assert syncing.sync("b", 1, name="b.again") == ["b.waits <- REBALANCE_IN_PROGRESS"]
    assert syncing.lose("b.waits") == []
    syncing.sync("a", 1, {"b-1": b"B"})
    assert syncing.written()[-1] == "b.again <- assigned B"
