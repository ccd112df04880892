"""Signs of life: the sentences of member_and_policies 5.8, one test each."""

from __future__ import annotations

import pytest
from tests.member.conftest import Harness

from kohort.member.effects import (
    DropCoordinator,
    Failed,
    FindCoordinator,
    Lost,
    PrepareJoin,
    Send,
)
from kohort.member.events import (
    CommitAccepted,
    CommitRefused,
    CoordinatorFound,
    CoordinatorLost,
    Polled,
    RequestFailed,
    RequestRejoin,
    Stalled,
)
from kohort.member.requests import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from kohort.member.states import MemberState
from kohort.model.errors import ErrorCode
from kohort.model.ids import GenerationId, MemberId
from kohort.model.instants import Instant
from kohort.model.member_facts import PollIntervalExceeded, SessionUnconfirmed


def test_150_a_heartbeat_is_sent_while_waiting_for_sync(world: Harness) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup))
    world.sent(SyncGroup)
    world.pass_ms(3_000)
    assert world.sent(Heartbeat).generation_id == 1


def test_a_stable_member_beats_every_interval(world: Harness) -> None:
    world.stable()
    for _ in range(5):
        beat = world.next_heartbeat()
        request = world.sent(Heartbeat)
        assert (request.member_id, request.generation_id) == ("m1", 1)
        world.beat_answer(beat)


def test_heartbeats_go_on_while_a_join_is_parked_so_that_what_is_kept_stays_sure(
    world: Harness,
) -> None:
    world.stable()
    world.do(RequestRejoin(reason="r"))
    world.prepared()
    world.sent(JoinGroup)
    for _ in range(30):
        beat = world.next_heartbeat()
        assert world.sent(Heartbeat).generation_id == 1
        assert world.beat_answer(beat, ErrorCode.REBALANCE_IN_PROGRESS) == []
        assert world.sure_until >= (world.now_ms + 42_000) * 1_000
    assert world.member.state is MemberState.JOINING
    world.none_of(DropCoordinator)


def test_a_heartbeat_that_comes_after_the_join_phase_does_not_end_the_membership(
    world: Harness,
) -> None:
    world.stable()
    world.do(RequestRejoin(reason="r"))
    world.prepared()
    join = world.send_of(JoinGroup)
    assert world.beat_answer(world.next_heartbeat(), ErrorCode.ILLEGAL_GENERATION) == []
    world.join_answer(join, generation_id=GenerationId(2))
    assert world.member.state is MemberState.SYNCING


def test_a_member_that_is_removed_while_its_join_waits_hears_it_from_a_heartbeat(
    world: Harness,
) -> None:
    world.stable()
    world.do(RequestRejoin(reason="r"))
    world.prepared()
    world.beat_answer(world.next_heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID)
    assert world.one(Lost).member_id == "m1"
    world.one(PrepareJoin)


def test_a_join_that_nobody_answers_is_tried_elsewhere_after_a_session(world: Harness) -> None:
    world.stable()
    world.do(RequestRejoin(reason="r"))
    world.prepared()
    effects = world.pass_ms(45_000)
    assert [e for e in effects if isinstance(e, DropCoordinator)]
    world.do(CoordinatorFound())
    world.pass_ms(200)
    sent = {type(e.request) for e in world.effects if isinstance(e, Send)}
    assert sent == {Heartbeat, JoinGroup}
    assert world.last_send(JoinGroup).request.member_id == "m1"


def test_a_member_without_a_place_has_nothing_to_beat_for(world: Harness) -> None:
    world.start()
    world.pass_ms(60_000)
    world.none_of(Heartbeat, DropCoordinator)
    assert world.member.sure_until is None


def test_a_member_that_slept_through_its_session_sends_a_heartbeat_at_once(
    world: Harness,
) -> None:
    world.stable()
    world.beat_answer(world.next_heartbeat())
    world.now_ms += 46_000
    world.do(Stalled(micros=46_000_000))
    assert world.sure_until <= world.now, "deadlines moved with the process, certainty not"
    world.none_of(Lost)
    world.pass_ms(0)
    asked = world.send_of(Heartbeat)
    world.beat_answer(asked)
    assert world.member.sure_until == (world.now_ms + 45_000) * 1_000


def test_an_answer_from_before_the_sleep_confirms_nothing_but_another_is_asked_for(
    world: Harness,
) -> None:
    world.stable()
    old = world.next_heartbeat()
    world.now_ms += 46_000
    world.do(Stalled(micros=46_000_000))
    world.beat_answer(old)
    assert world.sure_until <= world.now
    world.pass_ms(0)
    world.sent(Heartbeat)


def test_an_assignment_that_waited_while_the_process_slept_is_not_sure(world: Harness) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup))
    sync = world.send_of(SyncGroup)
    world.now_ms += 46_000
    world.do(Stalled(micros=46_000_000))
    world.sync_answer(sync)
    assert world.member.state is MemberState.STABLE
    assert world.sure_until <= world.now
    world.pass_ms(0)
    world.beat_answer(world.send_of(Heartbeat), ErrorCode.UNKNOWN_MEMBER_ID)
    assert world.one(Lost).generation_id == 1


def test_a_session_counts_from_the_join_not_from_a_sync_that_came_late(world: Harness) -> None:
    """A coordinator that is stable answers a late sync and lets the session run on."""
    world.start()
    join = world.send_of(JoinGroup)
    joined_at = world.now_ms
    world.now_ms += 30_000
    world.join_answer(join)
    sync = world.send_of(SyncGroup)
    world.now_ms += 1_000
    world.sync_answer(sync)
    assert world.member.sure_until == (joined_at + 45_000) * 1_000


def test_heartbeats_go_on_while_the_owner_prepares(world: Harness) -> None:
    world.stable()
    world.beat_answer(world.next_heartbeat(), ErrorCode.REBALANCE_IN_PROGRESS)
    assert world.member.state is MemberState.PREPARING
    for _ in range(20):
        beat = world.next_heartbeat()
        assert world.beat_answer(beat, ErrorCode.REBALANCE_IN_PROGRESS) == []
    world.none_of(DropCoordinator)


def test_151_rebalance_in_progress_while_stable_starts_a_join(world: Harness) -> None:
    world.stable()
    world.beat_answer(world.next_heartbeat(), ErrorCode.REBALANCE_IN_PROGRESS)
    assert world.one(PrepareJoin).reason == "group is already rebalancing"
    world.none_of(Lost)


def test_151_rebalance_in_progress_while_syncing_is_ignored(world: Harness) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup))
    sync = world.send_of(SyncGroup)
    beat = world.next_heartbeat()
    assert world.beat_answer(beat, ErrorCode.REBALANCE_IN_PROGRESS) == []
    world.sync_answer(sync)
    assert world.member.state is MemberState.STABLE


@pytest.mark.parametrize(
    "error",
    [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID],
)
def test_152_errors_that_concern_an_older_generation_are_ignored(
    world: Harness, error: ErrorCode
) -> None:
    world.stable()
    old = world.next_heartbeat()
    world.do(RequestRejoin(reason="r"))
    world.prepared()
    world.on_to(2)
    assert world.beat_answer(old, error) == []
    assert world.member.state is MemberState.STABLE


def test_153_illegal_generation_ends_the_membership_and_keeps_the_id(world: Harness) -> None:
    world.stable()
    world.beat_answer(world.next_heartbeat(), ErrorCode.ILLEGAL_GENERATION)
    assert world.one(Lost).generation_id == 1
    world.prepared()
    assert world.sent(JoinGroup).member_id == "m1"


def test_153_unknown_member_id_ends_the_membership_and_forgets_the_id(world: Harness) -> None:
    world.stable()
    world.beat_answer(world.next_heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID)
    assert world.one(Lost).member_id == "m1"
    world.prepared()
    assert world.sent(JoinGroup).member_id == ""


def test_153_fenced_is_fatal_and_leaves_the_place_to_the_other(world: Harness) -> None:
    world.stable()
    world.beat_answer(world.next_heartbeat(), ErrorCode.FENCED_INSTANCE_ID)
    world.one(Lost)
    assert world.one(Failed).error is ErrorCode.FENCED_INSTANCE_ID
    world.none_of(LeaveGroup)


def test_155_a_session_without_answers_gives_the_coordinator_up(world: Harness) -> None:
    world.stable()
    effects = world.pass_ms(45_000)
    assert [e for e in effects if isinstance(e, DropCoordinator)]
    assert [e for e in effects if isinstance(e, FindCoordinator)]
    assert [f for f in world.facts if isinstance(f, SessionUnconfirmed)]
    world.none_of(Lost)
    world.do(CoordinatorFound())
    world.pass_ms(0)
    assert world.sent(Heartbeat).member_id == "m1"
    assert world.member.state is MemberState.STABLE, "only the coordinator can take the place"


def test_a_coordinator_found_again_hears_from_us_at_once(world: Harness) -> None:
    world.stable()
    world.do(CoordinatorLost())
    world.one(FindCoordinator)
    world.pass_ms(10_000)
    world.none_of(Send)
    world.do(CoordinatorFound())
    world.pass_ms(0)
    assert world.sent(Heartbeat).generation_id == 1


def test_156_the_poll_interval_runs_out_leave_with_reason_then_rejoin_on_the_next_poll(
    make_world: type[Harness],
) -> None:
    world = make_world(max_poll_interval_ms=10_000)
    world.stable()
    for _ in range(3):
        world.beat_answer(world.next_heartbeat())
    world.pass_ms(900)
    effects = world.pass_ms(100)
    leave = world.sent(LeaveGroup)
    assert leave.member_id == "m1"
    assert leave.reason is not None
    assert "max.poll.interval.ms" in leave.reason
    assert [type(e) for e in effects] == [Send, Lost]
    assert [f.limit_ms for f in world.facts if isinstance(f, PollIntervalExceeded)] == [10_000]
    assert world.pass_ms(60_000) == []
    world.do(Polled())
    world.prepared()
    assert world.sent(JoinGroup).member_id == ""


def test_156_a_static_member_does_not_leave_when_the_poll_interval_runs_out(
    make_world: type[Harness],
) -> None:
    world = make_world(max_poll_interval_ms=10_000, group_instance_id="i")
    world.stable()
    effects = world.pass_ms(10_000)
    assert [e for e in effects if isinstance(e, Lost)]
    world.none_of(LeaveGroup)


def test_polling_keeps_the_membership(make_world: type[Harness]) -> None:
    world = make_world(max_poll_interval_ms=10_000)
    world.stable()
    for _ in range(20):
        world.beat_answer(world.next_heartbeat())
        world.do(Polled())
    world.none_of(Lost)


def test_the_poll_interval_also_runs_while_a_join_is_parked(make_world: type[Harness]) -> None:
    world = make_world(max_poll_interval_ms=10_000)
    world.stable()
    world.do(RequestRejoin(reason="r"))
    world.prepared()
    world.pass_ms(10_000)
    assert world.sent(LeaveGroup).member_id == "m1"
    world.one(Lost)


def test_without_a_limit_nobody_has_to_poll(make_world: type[Harness]) -> None:
    world = make_world(max_poll_interval_ms=None)
    world.stable()
    world.do(CoordinatorLost())
    assert world.pass_ms(10_000_000) == []
    assert world.member.state is MemberState.STABLE


def test_157_timing_of_heartbeats_the_first_one_early_one_at_a_time(world: Harness) -> None:
    world.stable()
    world.pass_ms(499)
    world.none_of(Send)
    world.pass_ms(1)
    first = world.send_of(Heartbeat)
    world.beat_answer(first)
    for _ in range(5):
        world.pass_ms(499)
        world.none_of(Send)
        world.pass_ms(1)
        world.beat_answer(world.send_of(Heartbeat))
    world.pass_ms(499)
    world.none_of(Send)
    world.pass_ms(1)
    second = world.send_of(Heartbeat)
    world.pass_ms(6_000)
    world.none_of(Heartbeat)
    world.beat_answer(second)
    world.pass_ms(3_000)
    world.sent(Heartbeat)


def test_heartbeats_are_frequent_at_the_beginning_of_a_generation(
    make_world: type[Harness],
) -> None:
    """They end with the second usual heartbeat, and the usual ones keep their times."""
    world = make_world(heartbeat_interval_ms=1_200)
    world.stable()
    for pause in (500, 500, 500, 200, 1_200, 1_200):
        world.pass_ms(pause - 1)
        world.none_of(Send)
        world.pass_ms(1)
        world.beat_answer(world.send_of(Heartbeat))


def test_a_heartbeat_that_failed_is_repeated_soon(world: Harness) -> None:
    world.stable()
    beat = world.next_heartbeat()
    world.do(RequestFailed(request_id=beat.request_id))
    world.pass_ms(100)
    world.sent(Heartbeat)


def test_last_confirmed_is_when_the_confirmed_request_was_sent(world: Harness) -> None:
    before = world.member.last_confirmed
    assert before is None
    world.start()
    world.join_answer(world.send_of(JoinGroup))
    sync = world.send_of(SyncGroup)
    world.now_ms = 500
    world.sync_answer(sync)
    assert world.member.last_confirmed == 0
    world.pass_ms(500)
    beat = world.send_of(Heartbeat)
    world.pass_ms(400)
    world.beat_answer(beat)
    assert world.member.last_confirmed == 1_000_000, "when it was sent, not when answered"
    world.beat_answer(world.next_heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID)
    assert world.member.last_confirmed is None


def test_an_accepted_commit_confirms_like_a_heartbeat(world: Harness) -> None:
    world.stable()
    world.do(
        CommitAccepted(
            request_sent_at=Instant(2_000_000),
            generation_id=GenerationId(1),
            member_id=MemberId("m1"),
        )
    )
    assert world.member.last_confirmed == 2_000_000


def test_187_a_refused_commit_of_the_present_generation_ends_the_membership(world: Harness) -> None:
    world.stable()
    refused = CommitRefused(
        error=ErrorCode.ILLEGAL_GENERATION,
        generation_id=GenerationId(1),
        member_id=MemberId("m1"),
    )
    world.do(refused)
    assert world.one(Lost).generation_id == 1


def test_187_a_refused_commit_of_an_older_generation_changes_nothing(world: Harness) -> None:
    world.stable(generation=2)
    refused = CommitRefused(
        error=ErrorCode.UNKNOWN_MEMBER_ID,
        generation_id=GenerationId(1),
        member_id=MemberId("m1"),
    )
    assert world.do(refused) == []


def test_187_while_a_join_runs_a_refused_commit_changes_nothing(world: Harness) -> None:
    world.stable()
    world.do(RequestRejoin(reason="r"))
    world.prepared()
    refused = CommitRefused(
        error=ErrorCode.ILLEGAL_GENERATION,
        generation_id=GenerationId(1),
        member_id=MemberId("m1"),
    )
    assert world.do(refused) == []


def test_189_rebalance_in_progress_for_a_commit_requests_a_rejoin_and_resets_nothing(
    world: Harness,
) -> None:
    world.stable()
    world.do(
        CommitRefused(
            error=ErrorCode.REBALANCE_IN_PROGRESS,
            generation_id=GenerationId(1),
            member_id=MemberId("m1"),
        )
    )
    world.none_of(Lost)
    assert world.one(PrepareJoin).generation_id == 1


def test_a_stalled_process_loses_no_time(make_world: type[Harness]) -> None:
    world = make_world(max_poll_interval_ms=10_000)
    world.stable()
    world.now_ms = 3_600_000
    world.do(Stalled(micros=3_600_000_000))
    world.none_of(Lost, LeaveGroup, DropCoordinator)
    world.pass_ms(3_000)
    world.sent(Heartbeat)
