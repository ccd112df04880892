"""Join and sync: the sentences of member_and_policies 5.7, one test each."""

from __future__ import annotations

from typing import get_args

import pytest
from tests.member.conftest import OFFER, Harness

from kohort.member.effects import (
    DropCoordinator,
    Failed,
    FindCoordinator,
    Joined,
    Lost,
    PerformAssignment,
    PrepareJoin,
    Send,
)
from kohort.member.events import (
    AssignmentFailed,
    AssignmentPerformed,
    CoordinatorFailed,
    CoordinatorFound,
    CoordinatorLost,
    Event,
    Join,
    JoinPrepared,
    RequestFailed,
    RequestRejoin,
    SubscriptionChanged,
)
from kohort.member.member import HANDLERS
from kohort.member.requests import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from kohort.member.states import MemberState
from kohort.model.errors import ErrorCode
from kohort.model.ids import GenerationId, MemberId, ProtocolName, ProtocolType
from kohort.model.join import JoinedMember, JoinProtocol


def test_nothing_is_sent_before_the_coordinator_is_known(world: Harness) -> None:
    assert world.do(Join()) == [FindCoordinator()]
    assert world.do(Join()) == [], "looked for once"
    world.do(CoordinatorFound())
    assert world.one(PrepareJoin).generation_id == -1


def test_an_owner_that_is_not_ready_holds_the_join_back(world: Harness) -> None:
    world.do(Join())
    world.do(CoordinatorFound())
    world.none_of(Send)
    assert world.member.state is MemberState.PREPARING
    world.prepared()
    join = world.sent(JoinGroup)
    assert join.member_id == ""
    assert join.protocols == (JoinProtocol(ProtocolName("cooperative-sticky"), b"offer"),)


def test_an_answer_to_an_older_prepare_is_ignored(world: Harness) -> None:
    world.do(Join())
    world.do(CoordinatorFound())
    attempt = world.one(PrepareJoin).attempt
    assert world.do(JoinPrepared(attempt=attempt - 1, protocols=())) == []
    assert world.member.state is MemberState.PREPARING


def test_offering_nothing_is_fatal(world: Harness) -> None:
    world.do(Join())
    world.do(CoordinatorFound())
    world.prepared(())
    assert "offers no protocol" in world.one(Failed).message


def test_126_member_id_required_gives_an_id_and_the_second_join_carries_it(world: Harness) -> None:
    world.start()
    first = world.sent(JoinGroup)
    world.join_answer(
        world.send_of(JoinGroup), ErrorCode.MEMBER_ID_REQUIRED, member_id=MemberId("given")
    )
    second = world.sent(JoinGroup)
    assert second.member_id == "given"
    assert second.protocols == first.protocols
    assert world.member.state is MemberState.JOINING
    assert world.member.generation_id == -1


def test_127_a_disconnect_after_join_keeps_the_id(world: Harness) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup), ErrorCode.MEMBER_ID_REQUIRED)
    request = world.send_of(JoinGroup)
    world.do(RequestFailed(request_id=request.request_id))
    world.do(CoordinatorLost())
    world.one(FindCoordinator)
    world.do(CoordinatorFound())
    world.pass_ms(1_000)
    again = world.sent(JoinGroup)
    assert again == request.request, "same id, same bytes"


def test_127_a_disconnect_after_sync_keeps_the_id_and_joins_again_with_the_same_bytes(
    world: Harness,
) -> None:
    world.start()
    join = world.sent(JoinGroup)
    world.join_answer(world.send_of(JoinGroup))
    world.do(CoordinatorLost())
    assert world.member.state is MemberState.JOINING
    world.do(CoordinatorFound())
    world.pass_ms(1_000)
    again = world.sent(JoinGroup)
    assert again.member_id == "m1"
    assert again.protocols == join.protocols


@pytest.mark.parametrize(
    ("rebalance_ms", "expected_ms"), [(60_000, 65_000), (5_000, 30_000), (2**31 - 1, 2**31 - 1)]
)
def test_128_join_waits_for_the_rebalance_timeout_and_five_seconds(
    make_world: type[Harness], rebalance_ms: int, expected_ms: int
) -> None:
    world = make_world(rebalance_timeout_ms=rebalance_ms)
    world.start()
    assert world.send_of(JoinGroup).timeout_ms == expected_ms


def test_129_a_coordinator_that_loads_is_asked_again_after_a_back_off(world: Harness) -> None:
    world.start()
    for at_least, at_most in ((80, 120), (160, 240), (320, 480), (640, 960), (800, 1_200)):
        world.join_answer(
            world.send_of(JoinGroup), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, member_id=""
        )
        world.none_of(Send)
        world.pass_ms(at_least - 1)
        world.none_of(Send)
        world.pass_ms(at_most - at_least + 1)
        world.sent(JoinGroup)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INVALID_REQUEST,
    ],
)
def test_130_131_132_138_fatal_answers_to_join_are_told_once(
    world: Harness, error: ErrorCode
) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup), error, member_id="")
    failed = world.one(Failed)
    assert failed.error is error
    assert error.name in failed.message
    assert "'g'" in failed.message
    world.none_of(Lost)
    assert world.member.state is MemberState.FENCED
    assert world.pass_ms(600_000) == [], "nothing is sent any more"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            ErrorCode.INVALID_SESSION_TIMEOUT,
            (
                "session.timeout.ms is 45000, outside",
                "group.min.session.timeout.ms and group.max.session.timeout.ms",
                "Set session.timeout.ms between the two, or change them at the brokers",
            ),
        ),
        (ErrorCode.INVALID_GROUP_ID, ("does not take this group.id: set another name",)),
        (
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            ("group.max.size", "kohort.max.group.bytes", "kohort.max.metadata.bytes"),
        ),
    ],
)
def test_a_refusal_names_the_settings_and_the_next_step(
    world: Harness, error: ErrorCode, words: tuple[str, ...]
) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup), error, member_id="")
    message = world.one(Failed).message
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_132_138_fatal_answers_to_sync(world: Harness, error: ErrorCode) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup))
    world.sync_answer(world.send_of(SyncGroup), error)
    assert world.one(Failed).error is error


def test_130_the_next_join_states_the_failure_as_its_reason(world: Harness) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup), ErrorCode.GROUP_MAX_SIZE_REACHED, member_id="")
    world.do(Join(reason="again"))
    world.prepared()
    assert world.sent(JoinGroup).reason == "again"
    assert world.sent(JoinGroup).member_id == ""


def test_a_fatal_answer_gives_the_place_back_unless_it_is_fenced(world: Harness) -> None:
    world.stable()
    world.do(RequestRejoin(reason="r"))
    world.prepared()
    world.join_answer(world.send_of(JoinGroup), ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert world.sent(LeaveGroup).member_id == "m1"
    assert world.one(Lost).generation_id == 1
    assert world.effects.index(world.one(Lost)) < world.effects.index(world.one(Failed))
    offered = ", ".join(protocol.name for protocol in OFFER)
    assert f"this member offers {offered}, which" in world.one(Failed).message
    assert "two rolling restarts" in world.one(Failed).message


def test_133_an_answer_that_is_not_waited_for_is_ignored(world: Harness) -> None:
    world.stable()
    world.do(RequestRejoin(reason="r"))
    world.prepared()
    old = world.send_of(JoinGroup)
    world.do(RequestFailed(request_id=old.request_id))
    world.pass_ms(1_200)
    world.none_of(Lost)
    newer = world.send_of(JoinGroup)
    assert world.join_answer(old, ErrorCode.UNKNOWN_MEMBER_ID) == []
    world.join_answer(newer, generation_id=GenerationId(2))
    assert world.sent(SyncGroup).generation_id == 2


def test_unknown_member_id_in_join_drops_the_id_and_starts_over(world: Harness) -> None:
    world.stable()
    world.do(RequestRejoin(reason="r"))
    world.prepared()
    world.join_answer(world.send_of(JoinGroup), ErrorCode.UNKNOWN_MEMBER_ID)
    assert world.one(Lost).member_id == "m1"
    assert world.one(PrepareJoin).generation_id == -1, "at once, and everything owned is gone"
    world.prepared()
    assert world.sent(JoinGroup).member_id == ""


def test_134_illegal_generation_in_sync_keeps_the_id(world: Harness) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup))
    world.sync_answer(world.send_of(SyncGroup), ErrorCode.ILLEGAL_GENERATION)
    world.none_of(Lost)
    world.prepared()
    assert world.sent(JoinGroup).member_id == "m1"


def test_135_unknown_member_id_in_sync_drops_both(world: Harness) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup))
    world.sync_answer(world.send_of(SyncGroup), ErrorCode.UNKNOWN_MEMBER_ID)
    world.prepared()
    assert world.sent(JoinGroup).member_id == ""


def test_136_rebalance_in_progress_in_join_joins_again(world: Harness) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup), ErrorCode.MEMBER_ID_REQUIRED)
    world.join_answer(world.send_of(JoinGroup), ErrorCode.REBALANCE_IN_PROGRESS)
    assert world.sent(JoinGroup).member_id == "m1"


def test_136_rebalance_in_progress_in_sync_joins_again_and_gives_nothing_up(world: Harness) -> None:
    world.stable()
    world.do(RequestRejoin(reason="r"))
    world.prepared((JoinProtocol(ProtocolName("cooperative-sticky"), b"owns much"),))
    world.join_answer(world.send_of(JoinGroup), generation_id=GenerationId(2))
    world.sync_answer(world.send_of(SyncGroup), ErrorCode.REBALANCE_IN_PROGRESS)
    world.none_of(Lost, PrepareJoin)
    again = world.sent(JoinGroup)
    assert again.member_id == "m1"
    assert again.protocols[0].metadata == b"owns much"


def test_137_an_answer_of_another_protocol_type_is_fatal(world: Harness) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup), protocol_type=ProtocolType("connect"))
    assert "'connect'" in world.one(Failed).message


def test_137_a_protocol_name_that_was_not_offered_is_fatal(world: Harness) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup), protocol_name=ProtocolName("range"))
    assert world.one(Failed).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_137_an_assignment_made_under_another_name_is_fatal(world: Harness) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup))
    world.sync_answer(world.send_of(SyncGroup), protocol_name="range")
    assert world.one(Failed).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_137_older_coordinators_do_not_tell_type_and_name(world: Harness) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup), protocol_type=None)
    world.sync_answer(world.send_of(SyncGroup), protocol_name=None)
    world.one(Joined)


def test_141_a_reason_is_sent_once_and_cut(world: Harness) -> None:
    world.stable()
    world.do(RequestRejoin(reason="x" * 300))
    world.prepared()
    assert world.sent(JoinGroup).reason == "x" * 255
    world.on_to(2)
    world.do(RequestRejoin(reason="second"))
    world.prepared()
    assert world.sent(JoinGroup).reason == "second"


def test_144_a_leaders_old_member_id_makes_the_returning_static_member_a_follower(
    world: Harness,
) -> None:
    """JoinGroup before version 9 answers so; only the bytes that the broker keeps count then."""
    world.start()
    world.join_answer(world.send_of(JoinGroup), leader=MemberId("its old id"))
    assert world.sent(SyncGroup).assignments == {}
    world.none_of(PerformAssignment)


def test_143_a_leader_told_to_skip_the_assignment_syncs_with_nothing(world: Harness) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup), leader=MemberId("m1"), skip_assignment=True)
    assert world.one(PerformAssignment).stands
    assert world.sent(SyncGroup).assignments == {}


def test_145_a_lookup_that_fails_for_good_is_told(world: Harness) -> None:
    world.do(Join())
    world.do(CoordinatorFailed(error=ErrorCode.GROUP_AUTHORIZATION_FAILED, message="not for you"))
    assert world.one(Failed).error is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_146_a_subscription_changed_while_joining_is_carried_by_the_next_join(
    world: Harness,
) -> None:
    world.start()
    world.do(SubscriptionChanged())
    world.none_of(Send)
    world.on_to(1)
    prepare = world.one(PrepareJoin)
    assert prepare.generation_id == 1
    world.prepared((JoinProtocol(ProtocolName("cooperative-sticky"), b"new"),))
    assert world.sent(JoinGroup).protocols[0].metadata == b"new"


def test_147_a_rejoin_asked_for_while_joining_sends_no_second_join(world: Harness) -> None:
    world.start()
    world.do(RequestRejoin(reason="r"))
    world.none_of(Send)
    joined = world.on_to(1)
    assert joined.generation_id == 1
    world.none_of(PrepareJoin)


def test_148_refused_several_times_in_a_row_it_waits_in_between(world: Harness) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup), ErrorCode.REBALANCE_IN_PROGRESS)
    world.join_answer(world.send_of(JoinGroup), ErrorCode.REBALANCE_IN_PROGRESS)
    world.none_of(Send)
    sent = 0
    for _ in range(10):
        world.pass_ms(1_200)
        world.join_answer(world.send_of(JoinGroup), ErrorCode.REBALANCE_IN_PROGRESS)
        sent += 1
    assert sent == 10


def test_the_leader_assigns_and_everybody_syncs(world: Harness) -> None:
    world.start()
    members = (
        JoinedMember(member_id=MemberId("m1"), group_instance_id=None, metadata=b"offer"),
        JoinedMember(member_id=MemberId("m2"), group_instance_id=None, metadata=b"other"),
    )
    world.join_answer(world.send_of(JoinGroup), leader=MemberId("m1"), members=members)
    perform = world.one(PerformAssignment)
    assert perform.members == members
    world.none_of(Send)
    world.do(AssignmentPerformed(generation_id=GenerationId(9), assignments={}))
    world.none_of(Send)
    plan = {MemberId("m1"): b"a", MemberId("m2"): b"b"}
    world.do(AssignmentPerformed(generation_id=GenerationId(1), assignments=plan))
    assert world.sent(SyncGroup).assignments == plan
    world.sync_answer(world.send_of(SyncGroup), assignment=b"a")
    joined = world.one(Joined)
    assert joined.is_leader
    assert joined.assignment == b"a"


def test_a_leader_that_cannot_assign_makes_room(world: Harness) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup), leader=MemberId("m1"))
    world.do(AssignmentFailed(generation_id=GenerationId(1), message="too many members"))
    assert world.sent(LeaveGroup).member_id == "m1"
    assert "too many members" in world.one(Failed).message


def test_heartbeats_go_on_while_the_leader_assigns(world: Harness) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup), leader=MemberId("m1"))
    world.pass_ms(3_000)
    assert world.sent(Heartbeat).generation_id == 1


def test_a_converted_group_answers_without_leader(world: Harness) -> None:
    """Once a broker assigns (KIP-848 conversion), the leader's id is empty (live_kafka, B16)."""
    world.start()
    world.join_answer(world.send_of(JoinGroup), leader=MemberId(""))
    assert world.sent(SyncGroup).assignments == {}


def test_a_prepared_cooperative_member_keeps_what_it_has_all_through_the_join(
    world: Harness,
) -> None:
    world.stable()
    world.do(RequestRejoin(reason="r"))
    prepare = world.one(PrepareJoin)
    assert (prepare.generation_id, prepare.protocol_name) == (1, "cooperative-sticky")
    world.prepared()
    join = world.send_of(JoinGroup)
    for _ in range(40):
        world.beat_answer(world.next_heartbeat(), ErrorCode.REBALANCE_IN_PROGRESS)
    world.none_of(Lost)
    assert world.member.synced_generation_id == 1
    world.join_answer(join, generation_id=GenerationId(2))
    world.sync_answer(world.send_of(SyncGroup))
    world.none_of(Lost)
    assert world.member.synced_generation_id == 2


@pytest.mark.parametrize(
    "error", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_codes_that_are_retriable_are_retried_with_the_same_bytes(
    world: Harness, error: ErrorCode
) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup), error, member_id="")
    world.none_of(Failed, FindCoordinator)
    world.pass_ms(120)
    world.join_answer(world.send_of(JoinGroup))
    world.sync_answer(world.send_of(SyncGroup), error)
    world.none_of(Failed, PrepareJoin)
    world.pass_ms(1_200)
    assert world.sent(JoinGroup).member_id == "m1"


@pytest.mark.parametrize("error", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR])
def test_another_coordinator_is_looked_for_and_the_id_kept(
    world: Harness, error: ErrorCode
) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup), ErrorCode.MEMBER_ID_REQUIRED)
    world.join_answer(world.send_of(JoinGroup), error)
    assert error.name in world.one(DropCoordinator).reason
    world.one(FindCoordinator)
    world.do(CoordinatorFound())
    world.pass_ms(1_200)
    assert world.sent(JoinGroup).member_id == "m1"


def test_every_event_has_a_handler() -> None:
    assert HANDLERS.keys() == set(get_args(Event))
