"""Committing and fetching offsets (coordinator.md 5.13 and 5.14; live_kafka.md B12)."""

from __future__ import annotations

from tests.coordinator.world import WALL, World, tp

from kohort.coordinator.interface import OffsetFetchAnswer
from kohort.coordinator.records import CommittedOffset
from kohort.model.errors import ErrorCode
from kohort.model.instants import WallMillis


def test_a_commit_without_membership_makes_a_simple_group() -> None:
    world = World()
    assert world.commit("", -1, {"t-0": 5, "t-1": 7}) == [
        "fact GroupCreated simple",
        "write 1: t-0=5, t-1=7",
    ]
    assert world.written() == [
        "fact OffsetsCommitted t-0=5, t-1=7",
        "tool.commit <- t-0:NONE t-1:NONE",
    ]
    assert world.listed() == {"g": "Empty"}
    assert world.fetch("t-0", "t-1", "t-2") == ["fetch <- g NONE t-0=5 t-1=7 t-2=-"]


def test_a_commit_to_an_absent_group_is_refused_with_an_error_that_the_client_knows() -> None:
    world = World()
    assert world.commit("a", 5, {"t-0": 1}) == ["a.commit <- t-0:GROUP_ID_NOT_FOUND"]
    assert world.commit("a", 5, {"t-0": 1}, new_client=False) == [
        "a.commit#2 <- t-0:ILLEGAL_GENERATION"
    ]
    assert world.listed() == {}


def test_a_stable_member_commits_and_is_told_when_it_is_durable() -> None:
    world = World()
    world.stable("a")
    assert world.commit("a", 1, {"t-0": 5}) == ["write 3: t-0=5"]
    assert world.fetch("t-0") == ["fetch <- g NONE t-0=-"], "readers see durable offsets only"
    assert world.written() == ["fact OffsetsCommitted t-0=5", "a.commit <- t-0:NONE"]
    assert world.fetch("t-0") == ["fetch#2 <- g NONE t-0=5"]


def test_wrong_generations_and_strangers_are_refused() -> None:
    world = World()
    world.stable("a")
    assert world.commit("a", 0, {"t-0": 1}) == ["a.commit <- t-0:ILLEGAL_GENERATION"]
    assert world.commit("a", 2, {"t-0": 1}) == ["a.commit#2 <- t-0:ILLEGAL_GENERATION"]
    assert world.commit("z", 1, {"t-0": 1}) == ["z.commit <- t-0:UNKNOWN_MEMBER_ID"]
    assert world.commit("", -1, {"t-0": 1}) == ["tool.commit <- t-0:UNKNOWN_MEMBER_ID"]
    assert world.commit("a", 1, {"t-0": 1}, instance="i") == ["a.commit#3 <- t-0:UNKNOWN_MEMBER_ID"]
    # A commit with a member id needs the right generation; -1 is wrong.
    assert world.commit("a", -1, {"t-0": 1}) == ["a.commit#4 <- t-0:ILLEGAL_GENERATION"]
    assert world.commit("z", -1, {"t-0": 1}) == ["z.commit#2 <- t-0:UNKNOWN_MEMBER_ID"]


def test_a_fenced_instance_that_names_no_generation_is_fenced_all_the_same() -> None:
    world = World()
    world.static("a")
    world.join("a", "", instance="i-a")
    world.written()
    refused = world.commit("a", -1, {"t-0": 1}, instance="i-a", member_id="i-a-1")
    assert refused == ["a.commit <- t-0:FENCED_INSTANCE_ID"]


def test_while_completing_a_right_commit_must_wait_and_an_old_one_is_illegal() -> None:
    world = World()
    world.joined("a")
    assert world.commit("a", 1, {"t-0": 1}) == ["a.commit <- t-0:REBALANCE_IN_PROGRESS"]
    assert world.commit("a", 0, {"t-0": 1}) == ["a.commit#2 <- t-0:ILLEGAL_GENERATION"]


def test_while_preparing_the_present_generation_commits_even_with_its_own_join_parked() -> None:
    world = World()
    world.stable("a", "b")
    world.join("a")
    assert world.commit("a", 1, {"t-0": 1}) == ["write 3: t-0=1"]
    assert world.commit("b", 1, {"t-1": 1}) == ["write 4: t-1=1"]
    assert world.commit("b", 0, {"t-1": 1}) == ["b.commit#2 <- t-1:ILLEGAL_GENERATION"]


def test_an_emptied_group_takes_commits_without_membership_and_no_others() -> None:
    world = World()
    world.stable("a")
    world.leave("a")
    world.written()
    assert world.commit("", -1, {"t-0": 1}) == ["write 4: t-0=1"]
    assert world.commit("a", 1, {"t-0": 1}) == ["a.commit <- t-0:UNKNOWN_MEMBER_ID"]


def test_metadata_may_be_4096_characters_and_the_rest_of_the_request_is_stored() -> None:
    world = World()
    assert world.commit("", -1, {"t-0": 1}, metadata="x" * 4_096)[-1] == "write 1: t-0=1"
    assert world.commit("", -1, {"t-0": 1}, metadata="x" * 4_097) == [
        "tool.commit#2 <- t-0:OFFSET_METADATA_TOO_LARGE"
    ]


def test_unknown_partitions_are_refused_one_by_one() -> None:
    world = World()
    world.commit("", -1, {"t-0": 1, "u-0": 2, "t-1": 3}, unknown=("u-0",))
    assert world.written() == [
        "fact OffsetsCommitted t-0=1, t-1=3",
        "tool.commit <- t-0:NONE u-0:UNKNOWN_TOPIC_OR_PARTITION t-1:NONE",
    ]


def test_unknown_partitions_are_told_apart_from_an_error_of_the_group() -> None:
    """A live Kafka 4.3.1 does the same."""
    world = World()
    assert world.commit("a", 5, {"t-0": 1, "u-0": 2}, unknown=("u-0",)) == [
        "a.commit <- t-0:GROUP_ID_NOT_FOUND u-0:UNKNOWN_TOPIC_OR_PARTITION"
    ]


def test_a_fetch_returns_all_fields_of_a_commit() -> None:
    world = World()
    world.wait(1_500)
    world.commit("", -1, {"t-0": 1}, metadata="note", leader_epoch=3, retention=60_000)
    world.written()
    world.fetch("t-0")
    answer = world.answers["fetch"]
    assert isinstance(answer, OffsetFetchAnswer)
    assert answer.groups[0].offsets == (
        (
            tp("t-0"),
            CommittedOffset(
                offset=1,
                leader_epoch=3,
                metadata="note",
                commit_timestamp=WallMillis(WALL + 1_500),
                expire_timestamp=WallMillis(WALL + 61_500),
            ),
        ),
    )


def test_a_lower_offset_is_stored_too_since_the_last_write_wins() -> None:
    world = World()
    world.commit("", -1, {"t-0": 9})
    world.commit("", -1, {"t-0": 3})
    world.written()
    assert world.fetch("t-0") == ["fetch <- g NONE t-0=3"]


def test_a_refused_write_leaves_the_old_value_and_no_new_group() -> None:
    world = World()
    world.commit("", -1, {"t-0": 9})
    assert world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS) == [
        "fact WriteFailed offset commit NOT_ENOUGH_REPLICAS",
        "tool.commit <- t-0:COORDINATOR_NOT_AVAILABLE",
    ]
    assert world.listed() == {}
    world.commit("", -1, {"t-0": 9})
    world.written()
    world.commit("", -1, {"t-0": 10})
    world.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
    assert world.fetch() == ["fetch <- g NONE t-0=9"]


def test_outcomes_in_any_order_leave_what_the_log_says() -> None:
    world = World()
    world.commit("", -1, {"t-0": 1})
    world.commit("", -1, {"t-0": 2})
    world.commit("", -1, {"t-0": 3})
    world.write(2)
    world.write(1)
    world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS, 3)
    assert world.fetch() == ["fetch <- g NONE t-0=2"]


def test_groups_do_not_share_offsets() -> None:
    world = World()
    world.commit("", -1, {"t-0": 1})
    world.commit("", -1, {"t-0": 2}, group="h")
    world.written()
    assert world.fetch("t-0") == ["fetch <- g NONE t-0=1"]
    assert world.fetch("t-0", group="h") == ["fetch#2 <- h NONE t-0=2"]


def test_an_unknown_group_has_nothing_and_that_is_no_error() -> None:
    world = World()
    assert world.fetch("t-0", group="nobody") == ["fetch <- nobody NONE t-0=-"]
    assert world.fetch(group="nobody") == ["fetch#2 <- nobody NONE "]


def test_offsets_are_served_during_a_rebalance() -> None:
    world = World()
    world.stable("a", "b")
    world.commit("a", 1, {"t-0": 5})
    world.written()
    world.join("a")
    assert world.fetch() == ["fetch <- g NONE t-0=5"]


def test_many_partitions_of_one_request_are_all_stored() -> None:
    world = World()
    world.commit("", -1, {f"t-{n}": n for n in range(500)})
    world.written()
    world.fetch()
    kept = world.answers["fetch"].groups[0].offsets
    assert [(p.partition, o.offset) for p, o in kept] == [(n, n) for n in range(500)]


# -- late ------------------------------------------------------------------------------------------


def test_a_commit_that_its_sender_gave_up_moves_nothing_back_though_kafka_stores_it() -> None:
    """Twelve records were read again after an orderly revocation (see CHANGELOG)."""
    world = World()
    world.stable("a", "b")
    world.commit("a", 1, {"t-0": 137}, over=1)
    # The commit of 141 is slow, and the client gives it up with its connection.
    world.commit("a", 1, {"t-0": 153}, over=2)
    world.written()
    world.join("a")
    assert world.commit("a", 1, {"t-0": 141}, over=1) == ["a.commit#3 <- t-0:REQUEST_TIMED_OUT"]
    assert world.fetch("t-0") == ["fetch <- g NONE t-0=153"]


def test_a_late_commit_is_refused_while_the_newer_one_is_on_its_way_to_the_log() -> None:
    world = World()
    world.stable("a")
    world.commit("a", 1, {"t-0": 153, "t-1": 7}, over=2)
    late = world.commit("a", 1, {"t-0": 141, "t-1": 7}, over=1)
    assert late == ["a.commit#2 <- t-0:REQUEST_TIMED_OUT t-1:REQUEST_TIMED_OUT"]
    world.written()
    assert world.fetch() == ["fetch <- g NONE t-0=153 t-1=7"]


def test_a_late_commit_does_not_lengthen_its_senders_session() -> None:
    world = World()
    world.stable("a", session=6_000)
    world.commit("a", 1, {"t-0": 153}, over=2)
    world.written()
    world.wait(5_000)
    world.commit("a", 1, {"t-0": 141}, over=1)
    assert world.wait(1_000)[0] == "fact MemberExpired generation=1 a-1"


def test_a_late_commit_that_takes_nothing_back_is_stored() -> None:
    world = World()
    world.stable("a")
    world.commit("a", 1, {"t-0": 5}, over=2)
    world.written()
    world.commit("a", 1, {"t-0": 5, "t-1": 3}, over=1)
    world.commit("a", 1, {"t-0": 6}, over=1)
    world.written()
    assert world.fetch() == ["fetch <- g NONE t-0=6 t-1=3"]


def test_once_the_newer_write_has_failed_a_late_commit_takes_nothing_back() -> None:
    world = World()
    world.stable("a")
    world.commit("a", 1, {"t-0": 153}, over=2)
    world.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
    world.commit("a", 1, {"t-0": 141}, over=1)
    world.written()
    assert world.fetch() == ["fetch <- g NONE t-0=141"]


def test_an_application_that_seeks_back_may_commit_on_its_present_or_next_connection() -> None:
    world = World()
    world.stable("a")
    for over, offset in ((1, 9), (1, 8), (2, 7), (2, 6)):
        world.commit("a", 1, {"t-0": offset}, over=over)
    world.written()
    assert world.fetch() == ["fetch <- g NONE t-0=6"]


def test_one_members_connections_say_nothing_about_anothers() -> None:
    world = World()
    world.stable("a", "b")
    world.commit("a", 1, {"t-0": 9}, over=2)
    world.commit("b", 1, {"t-0": 3}, over=1)
    world.written()
    assert world.fetch() == ["fetch <- g NONE t-0=3"]
