"""Members' way into a group (coordinator.md 5.2 and 5.6; live_kafka.md B1 to B4)."""

from __future__ import annotations

import pytest
from tests.coordinator.world import World, subscription

from kohort.model.errors import ErrorCode


def test_a_stranger_is_given_an_id_and_asked_to_join_again_with_it() -> None:
    world = World()
    assert world.join("a", "") == [
        "fact GroupCreated",
        "write 1: group g generation=0 []",
        "fact MemberIdHandedOut Empty a-1",
        "a.join <- MEMBER_ID_REQUIRED me=a-1",
    ]
    assert world.listed() == {"g": "Empty"}


def test_the_id_handed_out_joins_and_leads_the_first_generation_after_the_delay() -> None:
    world = World()
    world.join("a", "")
    assert world.join("a") == [
        "fact PendingMemberJoined Empty a-1",
        "fact MemberAdded a-1",
        "fact MemberRejoined a-1 generation=0",
        "fact RebalanceStarted generation=0 Empty member added [a-1]",
    ]
    assert world.wait(3_000) == [
        "fact JoinPhaseCompleted generation=1 range a-1 [a-1]",
        "a.join#2 <- joined range generation=1 leader=a-1 me=a-1 [a-1]",
    ]


def test_an_old_client_without_an_id_joins_in_one_step() -> None:
    world = World()
    assert world.join("a", "", old=True) == [
        "fact GroupCreated",
        "write 1: group g generation=0 []",
        "fact MemberAddedWithoutId Empty a-1",
        "fact MemberAdded a-1",
        "fact MemberRejoined a-1 generation=0",
        "fact RebalanceStarted generation=0 Empty member added [a-1]",
    ]


def test_a_made_up_id_is_unknown_and_makes_no_group() -> None:
    world = World()
    assert world.join("a", "made-up") == [
        "fact JoinRefused made-up UNKNOWN_MEMBER_ID",
        "a.join <- UNKNOWN_MEMBER_ID me=made-up",
    ]
    assert world.listed() == {}


def test_a_made_up_id_is_unknown_to_a_group_that_exists() -> None:
    world = World()
    world.stable("a")
    assert world.join("b", "made-up") == [
        "fact JoinRefused made-up UNKNOWN_MEMBER_ID",
        "b.join <- UNKNOWN_MEMBER_ID me=made-up",
    ]


def test_a_first_join_without_protocol_type_or_protocols_is_refused_and_leaves_nothing() -> None:
    world = World()
    assert world.join("a", "", protocol_type="")[-1] == (
        "a.join <- INCONSISTENT_GROUP_PROTOCOL me="
    )
    assert world.join("a", "", protocols="")[-1] == "a.join#2 <- INCONSISTENT_GROUP_PROTOCOL me="
    assert world.listed() == {}


def test_a_join_of_another_protocol_type_is_refused() -> None:
    world = World()
    world.stable("a")
    assert world.join("b", "", protocol_type="connect")[-1] == (
        "b.join <- INCONSISTENT_GROUP_PROTOCOL me="
    )


def test_a_join_that_shares_no_protocol_with_the_group_is_refused_then_one_that_does_is_not() -> (
    None
):
    world = World()
    world.stable("a")
    assert world.join("b", "", protocols="roundrobin")[-1] == (
        "b.join <- INCONSISTENT_GROUP_PROTOCOL me="
    )
    assert world.join("b", "", protocols="roundrobin range")[-1] == (
        "b.join#2 <- MEMBER_ID_REQUIRED me=b-1"
    )


def test_a_protocol_that_only_some_members_support_is_not_enough() -> None:
    world = World()
    world.enter("a", protocols="range")
    world.enter("b", protocols="range roundrobin")
    assert world.join("c", "", protocols="roundrobin")[-1] == (
        "c.join <- INCONSISTENT_GROUP_PROTOCOL me="
    )


def test_wrong_protocols_are_seen_before_an_unknown_id() -> None:
    world = World()
    world.stable("a")
    assert world.join("b", "made-up", protocols="roundrobin")[-1] == (
        "b.join <- INCONSISTENT_GROUP_PROTOCOL me=made-up"
    )


def test_only_the_leader_is_told_the_members_and_their_metadata() -> None:
    world = World()
    world.enter("a", protocols={"range": b"of a"}, protocol_type="opaque")
    world.enter("b", protocols={"range": b"of b"}, protocol_type="opaque")
    world.wait(6_000)
    leader, follower = world.answers["a.join#2"], world.answers["b.join#2"]
    assert [(m.member_id, m.metadata) for m in leader.members] == [
        ("a-1", b"of a"),
        ("b-1", b"of b"),
    ]
    assert leader.protocol_type == "opaque"
    assert follower.members == ()
    assert follower.leader_id == "a-1"


def test_a_stranger_at_a_stable_group_gets_an_id_and_nothing_else_happens() -> None:
    world = World()
    world.stable("a")
    assert world.join("b", "") == [
        "fact MemberIdHandedOut Stable b-1",
        "b.join <- MEMBER_ID_REQUIRED me=b-1",
    ]
    assert world.beat("a", 1) == "NONE"
    assert world.state() == "Stable"


def test_the_second_join_starts_a_rebalance_that_heartbeats_report() -> None:
    world = World()
    world.stable("a")
    world.join("b", "")
    assert world.join("b", reason="need to re-join") == [
        "fact PendingMemberJoined Stable b-1",
        "fact MemberAdded b-1",
        "fact MemberRejoined b-1 generation=1",
        "fact RebalanceStarted generation=1 Stable member added [b-1] need to re-join",
    ]
    assert world.beat("a", 1) == "REBALANCE_IN_PROGRESS"
    assert world.join("a") == [
        "fact MemberRejoined a-1 generation=1",
        "fact JoinPhaseCompleted generation=2 range a-1 [a-1 b-1]",
        "a.join#3 <- joined range generation=2 leader=a-1 me=a-1 [a-1 b-1]",
        "b.join#2 <- joined range generation=2 leader=a-1 me=b-1 []",
    ]


def test_a_group_without_its_first_record_is_forgotten_and_its_join_answered() -> None:
    world = World()
    world.join("a", "", old=True)
    assert world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS) == [
        "fact WriteFailed creation NOT_ENOUGH_REPLICAS",
        "a.join <- COORDINATOR_NOT_AVAILABLE me=a-1",
    ]
    assert world.listed() == {}
    assert world.wait(60_000) == []


def test_a_group_that_told_a_generation_outlives_the_loss_of_its_first_record() -> None:
    world = World(delay=0)
    world.enter("a")
    world.wait(1)
    assert world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS) == [
        "fact WriteFailed creation NOT_ENOUGH_REPLICAS"
    ]
    assert world.beat("a", 1) == "NONE"


# -- known members ---------------------------------------------------------------------------------


def test_a_leader_that_repeats_its_join_while_completing_gets_the_same_answer_again() -> None:
    world = World()
    world.joined("a", "b")
    assert world.join("a") == [
        "a.join#3 <- joined range generation=1 leader=a-1 me=a-1 [a-1 b-1]",
    ]
    assert world.state() == "CompletingRebalance"


def test_a_follower_that_repeats_its_join_while_completing_gets_an_empty_list() -> None:
    world = World()
    world.joined("a", "b")
    world.sync("b", 1)
    assert world.join("b") == ["b.join#3 <- joined range generation=1 leader=a-1 me=b-1 []"]
    assert "b.sync" not in world.answers, "an unchanged join leaves the parked sync alone"


def test_changed_metadata_while_completing_sends_parked_syncs_back_and_starts_over() -> None:
    world = World()
    world.joined("a", "b", "c")
    world.sync("b", 1)
    assert world.join("c", protocols={"range": subscription("t", "u")}) == [
        "fact MemberRejoined c-1 generation=1",
        "b.sync <- REBALANCE_IN_PROGRESS",
        "fact RebalanceStarted generation=1 CompletingRebalance metadata updated [c-1]",
    ]
    assert world.sync("a", 1, {"a-1": b"late"}) == ["a.sync <- REBALANCE_IN_PROGRESS"]
    world.join("a")
    assert world.join("b")[1:] == [
        "fact JoinPhaseCompleted generation=2 range a-1 [a-1 b-1 c-1]",
        "a.join#3 <- joined range generation=2 leader=a-1 me=a-1 [a-1 b-1 c-1]",
        "b.join#3 <- joined range generation=2 leader=a-1 me=b-1 []",
        "c.join#3 <- joined range generation=2 leader=a-1 me=c-1 []",
    ]


def test_a_stable_leader_that_rejoins_unchanged_starts_a_rebalance() -> None:
    world = World()
    world.stable("a", "b")
    assert world.join("a") == [
        "fact MemberRejoined a-1 generation=1",
        "fact RebalanceStarted generation=1 Stable leader rejoined [a-1]",
    ]


def test_a_stable_follower_that_rejoins_unchanged_is_told_the_present_generation() -> None:
    world = World()
    world.stable("a", "b")
    assert world.join("b") == ["b.join#3 <- joined range generation=1 leader=a-1 me=b-1 []"]
    assert world.state() == "Stable"


def test_an_unchanged_join_is_no_sign_of_life_and_changes_no_timeout() -> None:
    world = World()
    world.stable("a", "b", session=10_000)
    world.wait(9_000)
    world.beat("a", 1)
    world.join("b", session=30_000)
    assert world.wait(1_000) == [
        "fact MemberExpired generation=1 b-1",
        "fact RebalanceStarted generation=1 Stable member expired [b-1]",
    ]


def test_a_stable_follower_with_changed_metadata_starts_a_rebalance() -> None:
    world = World()
    world.stable("a", "b")
    assert world.join("b", protocols={"range": subscription("u")}) == [
        "fact MemberRejoined b-1 generation=1",
        "fact RebalanceStarted generation=1 Stable metadata updated [b-1]",
    ]


def test_a_stable_follower_that_reorders_its_protocols_starts_a_rebalance() -> None:
    world = World()
    world.stable("a", "b", protocols="range roundrobin")
    assert world.join("b", protocols="roundrobin range")[-1] == (
        "fact RebalanceStarted generation=1 Stable metadata updated [b-1]"
    )


def test_the_join_phase_ends_when_the_last_member_is_back() -> None:
    world = World()
    world.stable("a", "b")
    world.join("a")
    assert world.join("b") == [
        "fact MemberRejoined b-1 generation=1",
        "fact JoinPhaseCompleted generation=2 range a-1 [a-1 b-1]",
        "a.join#3 <- joined range generation=2 leader=a-1 me=a-1 [a-1 b-1]",
        "b.join#3 <- joined range generation=2 leader=a-1 me=b-1 []",
    ]


def test_a_dynamic_member_that_does_not_rejoin_is_dropped_when_the_rebalance_timeout_ends() -> None:
    world = World()
    world.stable("a", "b", rebalance=30_000)
    world.join("a", rebalance=30_000)
    for _ in range(5):
        world.wait(5_000)
        assert world.beat("b", 1) == "REBALANCE_IN_PROGRESS"
    assert world.wait(5_000) == [
        "fact MembersNotRejoined generation=1 [b-1]",
        "fact JoinPhaseCompleted generation=2 range a-1 [a-1]",
        "a.join#3 <- joined range generation=2 leader=a-1 me=a-1 [a-1]",
    ]
    assert world.beat("b", 1) == "UNKNOWN_MEMBER_ID"
    assert world.sync("b", 1) == ["b.sync#2 <- UNKNOWN_MEMBER_ID"]
    assert world.commit("b", 1, {"t-0": 1}) == ["b.commit <- t-0:UNKNOWN_MEMBER_ID"]


def test_a_leader_that_does_not_rejoin_is_followed_by_one_that_did() -> None:
    world = World()
    world.stable("a", "b", "c", session=60_000, rebalance=30_000)
    world.join("c", protocols={"range": subscription("u")}, rebalance=30_000)
    world.join("b", rebalance=30_000)
    assert world.wait(30_000) == [
        "fact MembersNotRejoined generation=1 [a-1]",
        "fact JoinPhaseCompleted generation=2 range b-1 [b-1 c-1]",
        "b.join#3 <- joined range generation=2 leader=b-1 me=b-1 [b-1 c-1]",
        "c.join#3 <- joined range generation=2 leader=b-1 me=c-1 []",
    ]


def test_the_join_window_is_the_longest_rebalance_timeout_of_the_members() -> None:
    world = World()
    world.enter("a", rebalance=5_000, session=60_000)
    world.enter("b", rebalance=30_000, session=60_000)
    world.wait(6_000)
    for member in "ab":
        world.sync(member, 1, {} if member == "a" else None)
    world.written()
    world.join("a", rebalance=5_000, session=60_000)
    assert world.wait(29_999) == []
    assert world.wait(1)[-1] == "a.join#3 <- joined range generation=2 leader=a-1 me=a-1 [a-1]"


def test_when_nobody_rejoins_the_group_falls_empty_with_a_generation_and_a_record() -> None:
    world = World()
    world.stable("a", "b", session=60_000, rebalance=30_000)
    world.join("c", "")
    world.join("c", rebalance=30_000)
    world.leave("c")
    assert world.wait(30_000) == [
        "fact MembersNotRejoined generation=1 [a-1 b-1]",
        "fact GroupEmptied generation=2",
        "write 3: group g generation=2 []",
    ]


def test_an_old_id_is_unknown_to_a_group_that_fell_empty() -> None:
    world = World()
    world.stable("a")
    world.leave("a")
    assert world.join("a")[-1] == "a.join#3 <- UNKNOWN_MEMBER_ID me=a-1"


def test_a_join_sent_again_while_the_first_is_parked_supersedes_it_and_both_are_answered() -> None:
    """Kafka never answers the first, nor anything after it on that connection."""
    world = World()
    world.enter("a")
    assert world.join("a") == [
        "a.join#2 <- REBALANCE_IN_PROGRESS me=a-1",
        "fact MemberRejoined a-1 generation=0",
    ]
    assert world.wait(3_000) == [
        "fact JoinPhaseCompleted generation=1 range a-1 [a-1]",
        "a.join#3 <- joined range generation=1 leader=a-1 me=a-1 [a-1]",
    ]


def test_metadata_that_is_too_short_to_be_read_leaves_the_topics_unknown() -> None:
    world = World()
    world.enter("a")
    world.enter("b", protocols={"range": b"\x00\x01\x00"})
    assert world.wait(6_000) == [
        "fact InitialDelayExtended 3000 54000",
        "fact SubscriptionNotParsed b-1 range",
        "fact JoinPhaseCompleted generation=1 range a-1 [a-1 b-1]",
        "a.join#2 <- joined range generation=1 leader=a-1 me=a-1 [a-1 b-1]",
        "b.join#2 <- joined range generation=1 leader=a-1 me=b-1 []",
    ]


@pytest.mark.parametrize(
    "damaged",
    [
        b"\x00\x01\xff\xff\xff\x7f",
        b"\x00\x00\x00\x00\x00\x01",
        b"\x00\x00\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x05topi",
    ],
    ids=["no list", "no topic", "null topic", "short topic"],
)
def test_metadata_that_claims_more_than_it_holds_is_refused_and_the_others_go_on(
    damaged: bytes,
) -> None:
    """In Kafka 4.3 it breaks every round until its member is gone (live_kafka.md 3.1)."""
    world = World()
    world.stable("a")
    assert world.join("b", "", protocols={"range": damaged}, old=True) == [
        "fact DamagedMetadataRefused range",
        "fact JoinRefused INCONSISTENT_GROUP_PROTOCOL",
        "b.join <- INCONSISTENT_GROUP_PROTOCOL me=",
    ]
    assert world.beat("a", 1) == "NONE"
    assert world.join("c", "", protocol_type="other", protocols={"range": damaged})[-1].endswith(
        "INCONSISTENT_GROUP_PROTOCOL me="
    )
    assert world.join("c", "", group="h", protocol_type="own", protocols={"x": damaged})[-1] == (
        "c.join#2 <- MEMBER_ID_REQUIRED me=c-1"
    )


def test_a_rebalance_timeout_of_zero_means_the_session_timeout() -> None:
    world = World()
    world.stable("a", "b", rebalance=0, session=10_000)
    world.join("a", rebalance=0)
    world.wait(9_000)
    world.beat("b", 1)
    assert world.state() == "PreparingRebalance"
    assert world.wait(1_000)[0] == "fact MembersNotRejoined generation=1 [b-1]"
