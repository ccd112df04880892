"""Heartbeats and sessions (coordinator.md 5.10; live_kafka.md B11 and section 2)."""

from __future__ import annotations

from tests.coordinator.world import World


def test_a_heartbeat_in_an_unknown_or_empty_group_is_refused() -> None:
    world = World()
    assert world.beat("a", 1) == "UNKNOWN_MEMBER_ID"
    world.stable("a")
    world.leave("a")
    assert world.beat("a", 2) == "UNKNOWN_MEMBER_ID"


def test_the_member_is_checked_before_the_generation() -> None:
    world = World()
    world.stable("a")
    assert world.beat("z", 9) == "UNKNOWN_MEMBER_ID"
    assert world.beat("a", 9) == "ILLEGAL_GENERATION"
    assert world.beat("a", 0) == "ILLEGAL_GENERATION"


def test_an_instance_id_that_the_group_never_saw_is_unknown() -> None:
    world = World()
    world.stable("a")
    assert world.beat("a", 1, instance="i") == "UNKNOWN_MEMBER_ID"


def test_the_answer_to_a_heartbeat_in_each_state() -> None:
    world = World()
    world.joined("a", "b")
    assert world.beat("a", 1) == "NONE", "CompletingRebalance"
    world.sync("a", 1, {})
    world.sync("b", 1)
    world.written()
    assert world.beat("a", 1) == "NONE", "Stable"
    world.join("a")
    assert world.beat("b", 1) == "REBALANCE_IN_PROGRESS", "PreparingRebalance"


def test_a_member_with_heartbeats_stays() -> None:
    world = World()
    world.stable("a", session=10_000)
    for _ in range(6):
        assert world.wait(5_000) == []
        assert world.beat("a", 1) == "NONE"


def test_a_member_without_heartbeats_is_removed_at_its_session_timeout() -> None:
    world = World()
    world.stable("a", "b", session=10_000)
    world.wait(9_999)
    world.beat("a", 1)
    assert world.wait(1) == [
        "fact MemberExpired generation=1 b-1",
        "fact RebalanceStarted generation=1 Stable member expired [b-1]",
    ]
    assert world.beat("b", 1) == "UNKNOWN_MEMBER_ID"
    assert world.beat("a", 1) == "REBALANCE_IN_PROGRESS"


def test_commits_are_signs_of_life() -> None:
    world = World()
    world.stable("a", session=10_000)
    for offset in range(6):
        assert world.wait(5_000) == []
        world.commit("a", 1, {"t-0": offset})
        world.written()
    assert world.beat("a", 1) == "NONE"


def test_a_refused_beat_is_no_sign_of_life() -> None:
    world = World()
    world.stable("a", session=10_000)
    world.wait(9_999)
    assert world.beat("a", 7) == "ILLEGAL_GENERATION"
    assert world.wait(1)[0] == "fact MemberExpired generation=1 a-1"


def test_a_sync_in_stable_is_no_sign_of_life() -> None:
    world = World()
    world.stable("a", session=10_000)
    world.wait(9_999)
    world.sync("a", 1)
    assert world.wait(1)[0] == "fact MemberExpired generation=1 a-1"


def test_a_parked_join_of_a_known_member_outlives_its_session() -> None:
    world = World()
    world.stable("a", "b", session=10_000, rebalance=60_000)
    world.join("a", session=10_000)
    for _ in range(10):
        world.wait(5_000)
        world.beat("b", 1)
    assert world.join("b")[-2:] == [
        "a.join#3 <- joined range generation=2 leader=a-1 me=a-1 [a-1 b-1]",
        "b.join#3 <- joined range generation=2 leader=a-1 me=b-1 []",
    ]
    assert world.wait(9_999) == []
    assert world.wait(1)[0] == "fact MemberExpired generation=2 a-1"


def test_a_parked_sync_outlives_its_session_and_gets_a_whole_one_when_it_is_answered() -> None:
    world = World()
    world.joined("a", "b", session=10_000, rebalance=60_000)
    world.sync("b", 1)
    for _ in range(4):
        world.wait(5_000)
        world.beat("a", 1)
    world.sync("a", 1, {})
    world.written()
    world.wait(9_999)
    world.beat("a", 1)
    assert world.wait(1)[0] == "fact MemberExpired generation=1 b-1"


def test_a_new_members_five_minutes_end_with_its_first_generation() -> None:
    world = World()
    world.stable("a", session=10_000)
    assert world.wait(10_000)[0] == "fact MemberExpired generation=1 a-1"


def test_a_new_member_parked_for_five_minutes_is_told_that_it_is_unknown() -> None:
    world = World()
    world.stable("a", rebalance=900_000, session=600_000)
    world.enter("b", rebalance=900_000)
    assert world.wait(300_000) == [
        "fact MemberExpired generation=1 b-1",
        "b.join#2 <- UNKNOWN_MEMBER_ID me=",
    ]


def test_a_session_timeout_changed_on_a_rejoin_is_the_one_that_counts() -> None:
    world = World()
    world.stable("a", session=10_000)
    world.join("a", session=20_000)
    assert world.wait(19_999) == []
    assert world.wait(1)[0] == "fact MemberExpired generation=2 a-1"


def test_when_the_leaders_session_ends_another_leads_the_next_generation() -> None:
    world = World()
    world.stable("a", "b", session=10_000)
    world.wait(9_999)
    world.beat("b", 1)
    world.wait(1)
    assert world.join("b")[-1] == "b.join#3 <- joined range generation=2 leader=b-1 me=b-1 [b-1]"


def test_when_all_sessions_end_the_group_falls_empty() -> None:
    world = World()
    world.stable("a", session=10_000)
    assert world.wait(10_000) == [
        "fact MemberExpired generation=1 a-1",
        "fact RebalanceStarted generation=1 Stable member expired [a-1]",
        "fact GroupEmptied generation=2",
        "write 3: group g generation=2 []",
    ]
    assert world.state() == "Empty"


def test_the_expiry_of_an_absent_member_completes_the_join_phase() -> None:
    """A crash without leave, and the client back under a new id: live, 3.00 s of a 3 s session."""
    world = World()
    world.stable("a", "b", session=10_000)
    world.join("a")
    assert world.wait(10_000) == [
        "fact MemberExpired generation=1 b-1",
        "fact JoinPhaseCompleted generation=2 range a-1 [a-1]",
        "a.join#3 <- joined range generation=2 leader=a-1 me=a-1 [a-1]",
    ]
