"""KIP-134: a group that was Empty waits for more members (seed 000; coordinator.md 5.3)."""

from __future__ import annotations

import pytest
from tests.coordinator.world import World

from kohort.model.errors import InvariantViolation


def test_a_lone_member_joins_when_the_delay_is_over_and_not_before() -> None:
    world = World(delay=3_000)
    world.enter("a")
    assert world.wait(2_999) == []
    assert world.wait(1) == [
        "fact JoinPhaseCompleted generation=1 range a-1 [a-1]",
        "a.join#2 <- joined range generation=1 leader=a-1 me=a-1 [a-1]",
    ]


def test_a_second_member_in_the_window_extends_it_once() -> None:
    world = World(delay=3_000)
    world.enter("a")
    world.wait(1_500)
    world.enter("b")
    assert world.wait(1_500) == ["fact InitialDelayExtended 3000 54000"]
    assert world.wait(2_999) == []
    assert world.wait(1) == [
        "fact JoinPhaseCompleted generation=1 range a-1 [a-1 b-1]",
        "a.join#2 <- joined range generation=1 leader=a-1 me=a-1 [a-1 b-1]",
        "b.join#2 <- joined range generation=1 leader=a-1 me=b-1 []",
    ]


def test_a_new_member_in_every_window_cannot_hold_the_join_beyond_the_rebalance_timeout() -> None:
    """D 3 s, R 10 s: the windows end at 3, 6, 9 and 10 s."""
    world = World(delay=3_000)
    world.enter("a", rebalance=10_000)
    ends = []
    for second, newcomer in ((1, "b"), (4, "c"), (7, "d"), (9.5, "e")):
        ends += world.wait(round(second * 1_000) - world.now // 1_000)
        world.enter(newcomer, rebalance=10_000)
    ends += world.wait(10_000 - world.now // 1_000)
    assert ends[:4] == [
        "fact InitialDelayExtended 3000 4000",
        "fact InitialDelayExtended 3000 1000",
        "fact InitialDelayExtended 1000 0",
        "fact JoinPhaseCompleted generation=1 range a-1 [a-1 b-1 c-1 d-1 e-1]",
    ]
    assert world.now == 10_000_000


def test_a_delay_as_long_as_the_rebalance_timeout_is_never_extended() -> None:
    world = World(delay=10_000)
    world.enter("a", rebalance=10_000)
    world.wait(5_000)
    world.enter("b", rebalance=10_000)
    assert world.wait(5_000)[0] == "fact JoinPhaseCompleted generation=1 range a-1 [a-1 b-1]"


def test_a_delay_longer_than_the_rebalance_timeout_wins_over_it() -> None:
    """The KIP's text says otherwise; Kafka's code and a live broker say this."""
    world = World(delay=10_000)
    world.enter("a", rebalance=7_000)
    assert world.wait(9_999) == []
    assert world.wait(1)[0] == "fact JoinPhaseCompleted generation=1 range a-1 [a-1]"


def test_a_delay_of_zero_goes_through_the_timer_and_ends_at_the_next_tick() -> None:
    world = World(delay=0)
    world.reservations_wait = True
    assert world.enter("a")[-2:] == [
        "fact RebalanceStarted generation=0 Empty member added [a-1]",
        "write 2: generation 1 of g reserved",
    ]
    assert world.coordinator.next_deadline() == world.now
    assert world.write(2) == [
        "fact JoinPhaseCompleted generation=1 range a-1 [a-1]",
        "a.join#2 <- joined range generation=1 leader=a-1 me=a-1 [a-1]",
    ]


def test_an_id_that_was_only_handed_out_does_not_extend_the_window() -> None:
    world = World(delay=3_000)
    world.enter("a")
    world.join("b", "")
    assert world.wait(3_000)[0] == "fact JoinPhaseCompleted generation=1 range a-1 [a-1]"


def test_the_initial_window_runs_out_though_everybody_is_parked() -> None:
    world = World(delay=3_000)
    world.enter("a")
    world.enter("b")
    world.join("a")
    assert world.state() == "PreparingRebalance"


def test_leaving_does_not_shorten_the_initial_window() -> None:
    world = World(delay=3_000)
    world.enter("a")
    world.enter("b")
    assert world.leave("a") == [
        "fact MemberLeft generation=0 a-1",
        "a.join#2 <- UNKNOWN_MEMBER_ID me=",
        "leave <- NONE [a-1:NONE]",
    ]
    assert world.wait(3_000) == ["fact InitialDelayExtended 3000 54000"]
    assert world.wait(3_000) == [
        "fact JoinPhaseCompleted generation=1 range b-1 [b-1]",
        "b.join#2 <- joined range generation=1 leader=b-1 me=b-1 [b-1]",
    ]


def test_the_expiry_of_a_handed_out_id_ends_the_initial_window() -> None:
    world = World(delay=20_000)
    world.enter("a")
    world.join("b", "", session=6_000)
    assert world.wait(6_000) == [
        "fact PendingMemberExpired b-1",
        "fact JoinPhaseCompleted generation=1 range a-1 [a-1]",
        "a.join#2 <- joined range generation=1 leader=a-1 me=a-1 [a-1]",
    ]


def test_a_group_of_one_handed_out_id_stays_empty_when_that_expires() -> None:
    world = World()
    world.join("a", "", session=6_000)
    assert world.wait(6_000) == ["fact PendingMemberExpired a-1"]
    assert world.listed() == {"g": "Empty"}
    assert world.join("b", "")[-1] == "b.join <- MEMBER_ID_REQUIRED me=b-1"


def test_a_new_member_parked_for_five_minutes_is_thrown_out_of_a_longer_window() -> None:
    world = World(delay=600_000)
    world.enter("a")
    world.written()
    assert world.wait(300_000) == [
        "fact MemberExpired generation=0 a-1",
        "a.join#2 <- UNKNOWN_MEMBER_ID me=",
        "fact GroupEmptied generation=1",
        "write 2: group g generation=1 []",
    ]


def test_the_delay_applies_again_after_the_group_fell_empty() -> None:
    world = World(delay=3_000)
    world.stable("a")
    world.leave("a")
    world.enter("b")
    assert world.wait(2_999) == []
    assert world.wait(1)[-1] == "b.join#2 <- joined range generation=3 leader=b-1 me=b-1 [b-1]"


def test_a_member_that_joins_a_stable_group_meets_no_delay() -> None:
    world = World(delay=3_000)
    world.stable("a")
    world.enter("b")
    assert world.join("a")[-1] == "b.join#2 <- joined range generation=2 leader=a-1 me=b-1 []"


def test_the_maker_of_ids_must_not_repeat_itself() -> None:
    world = World()
    world.stable("a")
    world._ids["a"] = 0
    with pytest.raises(InvariantViolation, match="never repeats itself"):
        world.join("a", "")
