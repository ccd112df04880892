"""Static membership (KIP-345, KIP-814; coordinator.md 1.6, 1.9, 1.12 and 5.8)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.coordinator.test_loading import restarted
from tests.coordinator.world import World, subscription

from kohort.coordinator.interface import JoinAnswer
from kohort.coordinator.records import GroupRecord
from kohort.model.errors import ErrorCode
from kohort.model.ids import GroupId, MemberId


@pytest.fixture
def world() -> World:
    """Static members a (which leads) and b, Stable in generation 1."""
    world = World()
    world.static("a", "b")
    return world


def who(name: str, serial: int = 1) -> dict[str, Any]:
    return {"member_id": f"i-{name}-{serial}", "instance": f"i-{name}"}


def returns(world: World, name: str, **how: Any) -> list[str]:
    """A new process under the instance id of ``name``; the log writes what it is given."""
    lines = world.join(name, "", instance=f"i-{name}", **how)
    return lines + world.written()


def test_the_first_static_member_joins_at_once_and_is_known_by_its_instance_id() -> None:
    world = World()
    assert world.join("a", "", instance="i-a") == [
        "fact GroupCreated",
        "write 1: group g generation=0 []",
        "fact StaticMemberAdded Empty i-a-1",
        "fact MemberAdded i-a-1",
        "fact MemberRejoined i-a-1 generation=0",
        "fact RebalanceStarted generation=0 Empty member added [i-a-1]",
    ]
    assert world.wait(3_000)[-1] == (
        "a.join <- joined range generation=1 leader=i-a-1 me=i-a-1 [i-a-1]"
    )
    answer = world.answers["a.join"]
    assert isinstance(answer, JoinAnswer)
    assert answer.members[0].group_instance_id == "i-a"


def test_a_follower_that_restarts_gets_a_new_id_and_nobody_else_notices(world: World) -> None:
    assert returns(world, "b") == [
        "fact StaticMemberReplaced Stable generation=1 i-b-1 i-b-2",
        "write 3: group g generation=1 [i-a-1:a i-b-2:b]",
        "b.join#2 <- joined range generation=1 leader=i-a-1 me=i-b-2 []",
    ]
    assert world.beat("a", 1, **who("a")) == "NONE"
    assert world.sync("b", 1, **who("b", 2))[-1] == "b.sync#2 <- assigned b"


def test_the_new_id_is_told_only_once_it_is_durable(world: World) -> None:
    world.join("b", "", instance="i-b")
    assert "b.join#2" not in world.answers
    assert world.wait(5_000) == []
    assert world.written() == ["b.join#2 <- joined range generation=1 leader=i-a-1 me=i-b-2 []"]


def test_a_leader_that_restarts_leads_and_is_told_to_skip_the_assignment(world: World) -> None:
    assert returns(world, "a")[-1] == (
        "a.join#2 <- joined range generation=1 leader=i-a-2 me=i-a-2 [i-b-1 i-a-2] skips assignment"
    )
    assert world.sync("a", 1, {"i-b-1": b"other"}, **who("a", 2))[-1] == "a.sync#2 <- assigned a"
    assert world.sync("b", 1, **who("b"))[-1] == "b.sync#2 <- assigned b"


def test_an_older_leader_that_restarts_gets_its_former_id_as_the_leader(
    world: World,
) -> None:
    assert returns(world, "a", skips=False)[-1] == (
        "a.join#2 <- joined range generation=1 leader=i-a-1 me=i-a-2 []"
    )
    assert world.join("a", instance="i-a", member_id="i-a-2")[-1] == (
        "fact RebalanceStarted generation=1 Stable leader rejoined [i-a-2]"
    )


def test_the_former_id_is_fenced_when_it_names_its_instance(world: World) -> None:
    returns(world, "b")
    assert world.join("b", **who("b"))[-1] == "b.join#3 <- FENCED_INSTANCE_ID me=i-b-1"
    assert world.sync("b", 1, **who("b"))[-1] == "b.sync#2 <- FENCED_INSTANCE_ID"
    assert world.beat("b", 1, **who("b")) == "FENCED_INSTANCE_ID"
    assert world.commit("b", 1, {"t-0": 1}, **who("b")) == ["b.commit <- t-0:FENCED_INSTANCE_ID"]
    assert world.leave_ids("i-b-1", instance="i-b") == ["leave <- NONE [i-b-1:FENCED_INSTANCE_ID]"]


def test_the_former_id_is_unknown_when_it_does_not_name_its_instance(world: World) -> None:
    returns(world, "b")
    assert world.join("b", "i-b-1")[-1] == "b.join#3 <- UNKNOWN_MEMBER_ID me=i-b-1"
    assert world.sync("b", 1, member_id="i-b-1")[-1] == "b.sync#2 <- UNKNOWN_MEMBER_ID"
    assert world.beat("b", 1, member_id="i-b-1") == "UNKNOWN_MEMBER_ID"
    assert world.commit("b", 1, {"t-0": 1}, member_id="i-b-1") == [
        "b.commit <- t-0:UNKNOWN_MEMBER_ID"
    ]
    assert world.leave_ids("i-b-1") == ["leave <- NONE [i-b-1:UNKNOWN_MEMBER_ID]"]


def test_a_static_member_may_leave_its_instance_id_out(world: World) -> None:
    assert world.beat("b", 1, member_id="i-b-1") == "NONE"


@pytest.mark.parametrize("request_", ["beat", "sync", "join", "commit"])
def test_an_instance_id_never_seen_is_unknown(world: World, request_: str) -> None:
    stranger: dict[str, Any] = {"member_id": "i-b-1", "instance": "i-x"}
    if request_ == "beat":
        assert world.beat("b", 1, **stranger) == "UNKNOWN_MEMBER_ID"
    elif request_ == "sync":
        assert world.sync("b", 1, **stranger) == ["b.sync#2 <- UNKNOWN_MEMBER_ID"]
    elif request_ == "join":
        assert world.join("b", **stranger)[-1] == "b.join#2 <- UNKNOWN_MEMBER_ID me=i-b-1"
    else:
        assert world.commit("b", 1, {"t-0": 1}, **stranger) == ["b.commit <- t-0:UNKNOWN_MEMBER_ID"]


def test_a_restart_with_changed_metadata_and_the_same_vote_is_no_round(world: World) -> None:
    changed = subscription("t", "u")
    lines = returns(world, "b", protocols={"range": changed})
    assert lines[-1] == "b.join#2 <- joined range generation=1 leader=i-a-1 me=i-b-2 []"
    record = world.log[-1]
    assert isinstance(record, GroupRecord)
    assert record.value is not None
    kept = {m.member_id: m.subscription for m in record.value.members}
    assert kept[MemberId("i-b-2")] == changed
    assert world.beat("a", 1, **who("a")) == "NONE"


def test_a_restart_that_changes_the_vote_is_a_round() -> None:
    world = World()
    world.static("a", "b", protocols="range rr")
    assert returns(world, "b", protocols="rr")[-2:] == [
        "fact MemberRejoined i-b-2 generation=1",
        "fact RebalanceStarted generation=1 Stable protocol changed [i-b-2]",
    ]
    assert world.join("a", instance="i-a", member_id="i-a-1", protocols="range rr")[-2:] == [
        "a.join#2 <- joined rr generation=2 leader=i-a-1 me=i-a-1 [i-a-1 i-b-2]",
        "b.join#2 <- joined rr generation=2 leader=i-a-1 me=i-b-2 []",
    ]


def test_on_a_tied_vote_a_restart_keeps_the_protocol() -> None:
    world = World()
    world.join("a", "", instance="i-a", protocols="range rr")
    world.join("b", "", instance="i-b", protocols="rr range")
    world.wait(6_000)
    world.sync("a", 1, {}, **who("a"))
    world.sync("b", 1, **who("b"))
    world.written()
    for name, protocols in (("a", "range rr"), ("b", "rr range"), ("a", "range rr")):
        assert "StaticMemberReplaced" in returns(world, name, protocols=protocols)[0]
        assert world.state() == "Stable"


def test_a_restart_while_the_assignment_is_awaited_is_a_new_round() -> None:
    """The leader may be assigning to the former id just now (KAFKA-9801)."""
    world = World()
    for name in "ab":
        world.join(name, "", instance=f"i-{name}")
    world.wait(6_000)
    world.sync("b", 1, **who("b"))
    assert world.join("a", "", instance="i-a") == [
        "fact StaticMemberReplaced CompletingRebalance generation=1 i-a-1 i-a-2",
        "fact MemberRejoined i-a-2 generation=1",
        "b.sync <- REBALANCE_IN_PROGRESS",
        "fact RebalanceStarted generation=1 CompletingRebalance static member replaced [i-a-2]",
    ]


def test_a_parked_sync_of_the_former_id_is_fenced() -> None:
    world = World()
    for name in "ab":
        world.join(name, "", instance=f"i-{name}")
    world.wait(6_000)
    world.sync("b", 1, **who("b"))
    assert world.join("b", "", instance="i-b")[1] == "b.sync <- FENCED_INSTANCE_ID"


def test_a_parked_join_of_the_former_id_is_fenced_and_the_new_one_parked(world: World) -> None:
    world.join("a", **who("a"))
    assert world.join("a", "", instance="i-a", name="second") == [
        "fact StaticMemberReplaced PreparingRebalance generation=1 i-a-1 i-a-2",
        "a.join#2 <- FENCED_INSTANCE_ID me=i-a-1",
        "fact MemberRejoined i-a-2 generation=1",
    ]
    assert world.join("b", **who("b"))[-2:] == [
        "b.join#2 <- joined range generation=2 leader=i-a-2 me=i-b-1 []",
        "second <- joined range generation=2 leader=i-a-2 me=i-a-2 [i-b-1 i-a-2]",
    ]


def test_one_replaced_in_the_initial_window_finishes_with_the_window() -> None:
    world = World()
    world.join("a", "", instance="i-a", session=6_000)
    assert world.join("a", "", instance="i-a", session=6_000)[1] == (
        "a.join <- FENCED_INSTANCE_ID me=i-a-1"
    )
    assert world.wait(2_999) == []
    assert (
        world.wait(1)[-1] == "a.join#2 <- joined range generation=1 leader=i-a-2 me=i-a-2 [i-a-2]"
    )


def test_one_replaced_while_parked_outlives_a_short_session() -> None:
    """It is no newcomer any more: its parked request says that it lives."""
    world = World(delay=20_000)
    world.join("a", "", instance="i-a", session=6_000)
    world.join("a", "", instance="i-a", session=6_000)
    assert world.wait(20_000)[-1].endswith("me=i-a-2 [i-a-2]")


def test_five_restarts_are_five_ids_and_one_member(world: World) -> None:
    told = [returns(world, "b")[-1] for _ in range(5)]
    assert [line.partition("me=")[2] for line in told] == [f"i-b-{n} []" for n in range(2, 7)]
    held = world.coordinator._registry.groups[GroupId("g")]
    assert list(held.members) == ["i-a-1", "i-b-6"]


def test_the_new_id_first_has_its_predecessors_session(world: World) -> None:
    returns(world, "b", session=60_000)
    world.wait(9_000)
    world.beat("a", 1, **who("a"))
    assert world.wait(1_000)[0] == "fact MemberExpired generation=1 i-b-2"


def test_the_requested_session_timeout_counts_from_the_first_heartbeat(world: World) -> None:
    returns(world, "b", session=60_000)
    assert world.beat("b", 1, **who("b", 2)) == "NONE"
    assert "i-b-2" not in " ".join(world.wait(30_000))


def test_the_former_ids_session_is_over_without_effect(world: World) -> None:
    returns(world, "b")
    for _ in range(3):
        world.wait(5_000)
        assert world.beat("a", 1, **who("a")) == "NONE"
        assert world.beat("b", 1, **who("b", 2)) == "NONE"


def test_if_the_new_id_cannot_be_written_the_former_one_still_works(world: World) -> None:
    world.join("b", "", instance="i-b", protocols="range rr", session=60_000)
    assert world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS) == [
        "fact WriteFailed static member NOT_ENOUGH_REPLICAS",
        "b.join#2 <- COORDINATOR_NOT_AVAILABLE generation=1 me=",
    ]
    assert world.beat("b", 1, **who("b")) == "NONE"
    assert world.beat("b", 1, **who("b", 2)) == "FENCED_INSTANCE_ID"
    world.wait(9_000)
    world.beat("a", 1, **who("a"))
    assert world.wait(1_000)[0] == "fact MemberExpired generation=1 i-b-1", "its own session again"


def test_a_leader_leads_as_before_if_its_new_id_cannot_be_written(world: World) -> None:
    world.join("a", "", instance="i-a")
    world.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
    assert world.answers["a.join#2"].leader_id == "i-a-1"
    assert world.join("b", **who("b"))[-1] == (
        "b.join#2 <- joined range generation=1 leader=i-a-1 me=i-b-1 []"
    )


def test_of_two_processes_with_one_instance_id_one_is_fenced_and_one_stays(world: World) -> None:
    world.join("b", "", instance="i-b", name="first")
    world.join("b", "", instance="i-b", name="second")
    assert world.written() == [
        "first <- FENCED_INSTANCE_ID me=i-b-2",
        "second <- joined range generation=1 leader=i-a-1 me=i-b-3 []",
    ]
    assert world.state() == "Stable"


def test_a_round_that_starts_before_the_new_id_is_durable_sends_it_back_to_join(
    world: World,
) -> None:
    world.join("b", "", instance="i-b")
    world.join("a", **who("a"))
    assert world.written() == ["b.join#2 <- joined range generation=1 leader=i-a-1 me=i-b-2 []"]
    assert world.sync("b", 1, **who("b", 2))[-1] == "b.sync#2 <- REBALANCE_IN_PROGRESS"
    assert world.join("b", **who("b", 2))[-1] == (
        "b.join#3 <- joined range generation=2 leader=i-a-1 me=i-b-2 []"
    )


def test_a_leader_that_restarts_learns_no_member_that_joins_before_its_id_is_durable(
    world: World,
) -> None:
    world.join("a", "", instance="i-a")
    world.enter("c")
    assert world.written()[-1] == (
        "a.join#2 <- joined range generation=1 leader=i-a-2 me=i-a-2 [i-b-1 i-a-2] skips assignment"
    )


def test_a_follower_that_restarts_learns_the_leader_though_it_left_meanwhile(
    world: World,
) -> None:
    world.join("b", "", instance="i-b")
    world.leave_ids("i-a-1", instance="i-a")
    told = [line for line in world.written() if line.startswith("b.join#2")]
    assert told == ["b.join#2 <- joined range generation=1 leader=i-a-1 me=i-b-2 []"]


def test_a_new_id_that_a_later_generation_knows_stays_though_its_record_is_lost() -> None:
    world = World()
    world.static("a", "b", rebalance=8_000, session=60_000)
    world.join("b", "", instance="i-b", rebalance=8_000, session=60_000)
    world.join("a", **who("a"), rebalance=8_000, session=60_000)
    world.wait(8_000)
    assert world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)[-1] == (
        "b.join#2 <- COORDINATOR_NOT_AVAILABLE generation=2 me="
    )
    assert world.beat("b", 2, **who("b", 2)) == "NONE"


def test_one_that_expired_before_its_id_was_durable_is_unknown(world: World) -> None:
    world.join("b", "", instance="i-b")
    world.wait(6_000)
    world.beat("a", 1, **who("a"))
    world.wait(5_000)
    assert world.write(3) == ["b.join#2 <- UNKNOWN_MEMBER_ID me=i-b-2"]


def test_a_static_member_absent_at_the_close_is_in_the_leaders_list_until_it_expires() -> None:
    world = World()
    world.static("a", "b", rebalance=8_000, session=20_000)
    world.join("a", **who("a"), rebalance=8_000, session=20_000)
    assert world.wait(8_000) == [
        "fact JoinPhaseCompleted generation=2 range i-a-1 [i-a-1 i-b-1]",
        "a.join#2 <- joined range generation=2 leader=i-a-1 me=i-a-1 [i-a-1 i-b-1]",
    ]
    assert world.beat("b", 1, **who("b")) == "ILLEGAL_GENERATION"


def test_the_sync_timer_removes_a_static_member_that_never_syncs() -> None:
    world = World()
    world.static("a", "b", rebalance=8_000, session=60_000)
    world.join("a", **who("a"), rebalance=8_000, session=60_000)
    world.wait(8_000)
    world.sync("a", 2, {"i-a-1": b"a", "i-b-1": b"b"}, **who("a"))
    world.written()
    assert world.wait(8_000) == [
        "fact RebalanceStarted generation=2 Stable sync expired [i-b-1]",
    ]


def test_one_that_missed_a_round_and_returns_in_time_costs_no_further_round() -> None:
    """Kafka 4.3 waits for the former id's SyncGroup and starts a needless round."""
    world = World()
    world.static("a", "b", rebalance=8_000, session=60_000)
    world.join("a", **who("a"), rebalance=8_000, session=60_000)
    world.wait(8_000)
    world.sync("a", 2, {"i-a-1": b"a", "i-b-1": b"b"}, **who("a"))
    world.written()
    assert returns(world, "b", rebalance=8_000, session=60_000)[-1] == (
        "b.join#2 <- joined range generation=2 leader=i-a-1 me=i-b-2 []"
    )
    assert world.sync("b", 2, **who("b", 2))[-1] == "b.sync#2 <- assigned b"
    assert world.wait(20_000) == []


def test_one_that_returns_and_never_syncs_is_removed_by_the_sync_timer() -> None:
    world = World()
    world.static("a", "b", rebalance=8_000, session=60_000)
    world.join("a", **who("a"), rebalance=8_000, session=60_000)
    world.wait(8_000)
    world.sync("a", 2, {}, **who("a"))
    world.written()
    returns(world, "b", rebalance=8_000, session=60_000)
    assert world.wait(8_000)[-1] == (
        "fact RebalanceStarted generation=2 Stable sync expired [i-b-2]"
    )


def test_when_nobody_rejoins_static_members_get_another_window() -> None:
    world = World()
    world.static("a", "b", rebalance=8_000, session=60_000)
    world.join("a", **who("a"), rebalance=8_000, session=60_000)
    world.leave_ids("i-a-1", instance="i-a")
    assert world.wait(8_000) == ["fact NobodyRejoined generation=1"]
    assert world.state() == "PreparingRebalance"
    assert world.join("b", **who("b"))[-1] == (
        "b.join#2 <- joined range generation=2 leader=i-b-1 me=i-b-1 [i-b-1]"
    )


def test_an_administrator_removes_members_by_instance_id_alone(world: World) -> None:
    assert world.leave_ids("", instance="i-b") == [
        "fact MemberLeft generation=1 i-b-1",
        "fact RebalanceStarted generation=1 Stable members left []",
        "leave <- NONE [:NONE]",
    ]
    assert world.join("a", **who("a"))[-1] == (
        "a.join#2 <- joined range generation=2 leader=i-a-1 me=i-a-1 [i-a-1]"
    )


def test_leaving_under_an_instance_id_that_is_anothers_is_fenced(world: World) -> None:
    assert world.leave_ids("i-a-1", instance="i-b") == ["leave <- NONE [i-a-1:FENCED_INSTANCE_ID]"]


def test_a_handed_out_id_with_an_instance_id_is_an_error_and_stays_usable() -> None:
    world = World()
    world.join("c", "")
    assert world.join("c", instance="i-c")[-1] == "c.join#2 <- UNKNOWN_SERVER_ERROR me="
    assert world.join("c")[1] == "fact MemberAdded c-1"


def test_a_restarted_static_member_fits_a_full_group_though_kafka_counts_it_twice() -> None:
    world = World(max_size=2)
    world.static("a", "b")
    assert world.join("c", "", instance="i-c")[-1] == "c.join <- GROUP_MAX_SIZE_REACHED me="
    assert returns(world, "b")[-1] == (
        "b.join#2 <- joined range generation=1 leader=i-a-1 me=i-b-2 []"
    )


def test_after_a_reload_the_new_id_is_the_known_one(world: World) -> None:
    returns(world, "b")
    fresh, _ = restarted(world)
    assert fresh.beat("b", 1, **who("b", 2)) == "NONE"
    assert fresh.beat("b", 1, **who("b")) == "FENCED_INSTANCE_ID"
    assert returns(fresh, "b")[-1] == (
        "b.join <- joined range generation=1 leader=i-a-1 me=i-b-3 []"
    )
    assert fresh.sync("b", 1, **who("b", 3))[-1] == "b.sync <- assigned b"
