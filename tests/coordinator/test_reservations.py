"""A generation that was told is never told again: its number is durable first.

Kafka writes nothing when a join phase ends, and tells the same number again after a crash
(``tests/real_kafka/test_differences.py`` shows it).
"""

from __future__ import annotations

import pytest
from tests.coordinator.world import World

from kohort.model.errors import ErrorCode


@pytest.fixture
def world() -> World:
    """A Stable group of a and b in generation 1; reservations wait from here on."""
    world = World()
    world.stable("a", "b")
    world.reservations_wait = True
    return world


def test_the_number_is_sent_to_the_log_when_the_join_phase_opens(world: World) -> None:
    assert world.join("a") == [
        "fact MemberRejoined a-1 generation=1",
        "fact RebalanceStarted generation=1 Stable leader rejoined [a-1]",
        "write 3: generation 2 of g reserved",
    ]
    assert world.written() == []
    assert world.join("b")[-1] == "b.join#3 <- joined range generation=2 leader=a-1 me=b-1 []"


def test_a_join_phase_waits_until_its_reserved_number_is_durable(world: World) -> None:
    world.join("a")
    assert world.join("b") == ["fact MemberRejoined b-1 generation=1"]
    assert world.wait(9_000) == []
    assert world.written() == [
        "fact JoinPhaseCompleted generation=2 range a-1 [a-1 b-1]",
        "a.join#3 <- joined range generation=2 leader=a-1 me=a-1 [a-1 b-1]",
        "b.join#3 <- joined range generation=2 leader=a-1 me=b-1 []",
    ]


def test_a_member_that_joins_during_the_reservation_is_in_the_generation(world: World) -> None:
    world.join("c", "")
    world.join("a")
    world.join("b")
    world.join("c")
    assert world.written()[0] == "fact JoinPhaseCompleted generation=2 range a-1 [a-1 b-1 c-1]"


def test_a_number_that_was_told_and_not_synced_is_not_told_again_after_a_crash(
    world: World,
) -> None:
    world.join("a")
    world.join("b")
    world.written()
    assert world.answers["a.join#3"].generation_id == 2
    assert world.restart() == ["fact GroupLoaded generation=1 [('a-1', None) ('b-1', None)]"]
    assert world.beat("a", 2) == "ILLEGAL_GENERATION"
    assert world.beat("a", 1) == "NONE", "the assignments of generation 1 are the last there are"
    world.join("a")
    world.join("b")
    assert world.written()[0] == "fact JoinPhaseCompleted generation=3 range a-1 [a-1 b-1]"


def test_a_number_that_was_told_outlives_two_crashes(world: World) -> None:
    for _ in range(2):
        world.join("a")
        world.join("b")
        world.written()
        world.restart()
    world.join("a")
    world.join("b")
    assert world.written()[0] == "fact JoinPhaseCompleted generation=4 range a-1 [a-1 b-1]"


def test_a_number_that_was_told_outlives_the_loss_of_the_groups_own_record() -> None:
    world = World(delay=0)
    world.reservations_wait = True
    world.join("a", "", old=True)
    world.wait(0)
    assert world.write(2)[-1].startswith("a.join <- joined range generation=1")
    world.restart()
    assert world.listed() == {"g": "Empty"}
    world.join("a", "", old=True)
    world.wait(0)
    assert world.written()[-1].startswith("a.join#2 <- joined range generation=2")


def test_a_group_that_fell_empty_needs_no_reservation(world: World) -> None:
    world.leave("b")
    world.written()
    assert world.leave("a")[-2:] == [
        "fact GroupEmptied generation=2",
        "write 4: group g generation=2 []",
    ]


def test_a_number_that_was_reserved_and_never_told_may_be_passed_over(world: World) -> None:
    world.join("a")
    world.written()
    world.restart()
    world.join("a")
    world.join("b")
    assert world.written()[0].startswith("fact JoinPhaseCompleted generation=3")


def test_a_deleted_group_starts_again_at_0() -> None:
    world = World(offsets_retention_check_interval_ms=1_000)
    world.stable("a")
    world.leave("a")
    world.written()
    world.restart()
    assert world.wait(1_000) == ["write 1: tombstone of group g, tombstone of generations of g"]
    world.written()
    world.restart()
    world.stable("b")
    assert world.beat("b", 1) == "NONE"


def test_a_reservation_that_fails_early_is_asked_for_again_at_the_end(world: World) -> None:
    world.join("a")
    assert world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS) == [
        "fact WriteFailed generation NOT_ENOUGH_REPLICAS"
    ]
    assert world.join("b")[-1] == "write 4: generation 2 of g reserved"
    assert world.written()[-1] == "b.join#3 <- joined range generation=2 leader=a-1 me=b-1 []"


def test_a_reservation_that_fails_at_the_end_sends_the_members_back(world: World) -> None:
    world.join("a")
    world.join("b")
    assert world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS) == [
        "fact WriteFailed generation NOT_ENOUGH_REPLICAS",
        "a.join#3 <- COORDINATOR_NOT_AVAILABLE me=a-1",
        "b.join#3 <- COORDINATOR_NOT_AVAILABLE me=b-1",
    ]
    world.join("a")
    world.join("b")
    assert world.written()[-1] == "b.join#4 <- joined range generation=2 leader=a-1 me=b-1 []"


def test_after_a_failed_reservation_members_that_do_not_rejoin_expire(world: World) -> None:
    world.join("a")
    world.join("b")
    world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert "fact MemberExpired generation=1 a-1" in world.wait(10_000)


def test_the_last_member_may_leave_while_the_number_is_on_its_way() -> None:
    world = World()
    world.stable("a")
    world.reservations_wait = True
    world.join("a")
    assert world.leave("a")[-2:] == [
        "fact GroupEmptied generation=2",
        "write 4: group g generation=2 []",
    ]
    assert world.written() == ["leave <- NONE [a-1:NONE]"]


def test_new_ids_of_static_members_are_durable_before_a_generation_with_them_is_told() -> None:
    world = World()
    world.static("a", "b")
    world.reservations_wait = True
    world.join("a", member_id="i-a-1", instance="i-a")
    assert world.join("b", "", instance="i-b") == [
        "fact StaticMemberReplaced PreparingRebalance generation=1 i-b-1 i-b-2",
        "fact MemberRejoined i-b-2 generation=1",
    ]
    assert world.write(3) == ["write 4: generation 2 of g reserved i-b=i-b-2"]
    world.write(4)
    assert world.answers["b.join#2"].member_id == "i-b-2"
    world.restart()
    assert world.beat("b", 2, member_id="i-b-2", instance="i-b") == "ILLEGAL_GENERATION"
    assert world.beat("b", 1, member_id="i-b-1", instance="i-b") == "FENCED_INSTANCE_ID"


def test_a_new_leader_id_that_was_told_leads_after_a_crash() -> None:
    world = World()
    world.static("a", "b")
    world.reservations_wait = True
    world.join("b", member_id="i-b-1", instance="i-b", protocols="range rr")
    world.join("a", "", instance="i-a")
    world.written()
    world.restart()
    assert world.sync("a", 1, member_id="i-a-2", instance="i-a")[-1] == "a.sync#2 <- assigned a"
    assert world.join("a", member_id="i-a-2", instance="i-a")[-2] == (
        "fact RebalanceStarted generation=1 Stable leader rejoined [i-a-2]"
    )


def test_once_the_groups_own_record_holds_the_new_id_no_reservation_does() -> None:
    world = World()
    world.static("a", "b")
    world.join("b", "", instance="i-b")
    world.written()
    world.reservations_wait = True
    assert world.join("a", member_id="i-a-1", instance="i-a")[-1] == (
        "write 4: generation 2 of g reserved"
    )
