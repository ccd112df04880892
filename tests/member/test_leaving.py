"""Leaving and asking for rebalances: the sentences of 5.11 that the core can answer."""

from __future__ import annotations

from typing import Any

import pytest
from tests.member.conftest import Harness

from kohort.member.config import MemberConfig
from kohort.member.effects import FindCoordinator, Left, Lost, PrepareJoin
from kohort.member.events import (
    CoordinatorFound,
    CoordinatorLost,
    Join,
    Leave,
    RequestFailed,
    RequestRejoin,
)
from kohort.member.requests import JoinGroup, LeaveGroup
from kohort.member.states import MemberState
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import GroupId


def test_196_a_dynamic_member_leaves_once_with_a_reason(world: Harness) -> None:
    world.stable()
    world.do(Leave(reason="scaling down"))
    leave = world.sent(LeaveGroup)
    assert (leave.member_id, leave.reason) == ("m1", "scaling down")
    world.none_of(Lost)
    world.leave_answer(world.send_of(LeaveGroup))
    assert world.one(Left).error is ErrorCode.NONE
    assert world.member.state is MemberState.UNJOINED
    assert world.pass_ms(600_000) == []


def test_196_without_a_coordinator_nothing_is_sent(world: Harness) -> None:
    world.stable()
    world.do(CoordinatorLost())
    assert world.do(Leave()) == [Left(error=ErrorCode.NONE)]


def test_196_no_answer_ends_leaving_all_the_same(world: Harness) -> None:
    world.stable()
    world.do(Leave())
    request = world.send_of(LeaveGroup)
    world.do(RequestFailed(request_id=request.request_id, timed_out=True))
    assert world.one(Left).error is ErrorCode.REQUEST_TIMED_OUT


def test_a_coordinator_lost_while_leaving_ends_it(world: Harness) -> None:
    world.stable()
    world.do(Leave())
    world.do(CoordinatorLost())
    assert world.one(Left).error is ErrorCode.NETWORK_EXCEPTION
    world.none_of(FindCoordinator)


def test_197_a_pending_member_leaves_too(world: Harness) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup), ErrorCode.MEMBER_ID_REQUIRED)
    world.do(Leave())
    assert world.sent(LeaveGroup).member_id == "m1"


def test_198_errors_of_leaving_are_only_told(world: Harness) -> None:
    world.stable()
    world.do(Leave())
    world.leave_answer(world.send_of(LeaveGroup), ErrorCode.UNKNOWN_MEMBER_ID)
    assert world.one(Left).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_199_a_static_member_does_not_leave_unless_told_to(make_world: type[Harness]) -> None:
    world = make_world(group_instance_id="i")
    world.stable()
    assert world.do(Leave()) == [Left(error=ErrorCode.NONE)]
    world = make_world(group_instance_id="i")
    world.stable()
    world.do(Leave(even_if_static=True))
    assert world.sent(LeaveGroup).group_instance_id == "i"


def test_each_leave_is_answered_once(world: Harness) -> None:
    world.stable()
    world.do(Leave())
    request = world.send_of(LeaveGroup)
    assert world.do(Leave()) == []
    world.leave_answer(request)
    assert world.effects == [Left(error=ErrorCode.NONE)] * 2
    assert world.do(Leave()) == [Left(error=ErrorCode.NONE)]


def test_joining_while_leaving_starts_when_leaving_is_over(world: Harness) -> None:
    world.stable()
    world.do(Leave())
    leave = world.send_of(LeaveGroup)
    assert world.do(Join()) == []
    world.leave_answer(leave)
    world.one(Left)
    assert world.one(PrepareJoin).generation_id == -1


def test_leaving_before_joining_is_nothing(world: Harness) -> None:
    assert world.do(Leave()) == [Left(error=ErrorCode.NONE)]


def test_leaving_while_a_join_is_parked_ignores_its_late_answer(world: Harness) -> None:
    world.start()
    world.join_answer(world.send_of(JoinGroup), ErrorCode.MEMBER_ID_REQUIRED)
    parked = world.send_of(JoinGroup)
    world.do(Leave())
    leave = world.send_of(LeaveGroup)
    assert world.join_answer(parked, ErrorCode.UNKNOWN_MEMBER_ID) == []
    world.leave_answer(leave)
    world.one(Left)


def test_204_a_requested_rejoin_is_one_join_and_none_while_one_runs(world: Harness) -> None:
    world.stable()
    world.do(RequestRejoin(reason="because"))
    assert world.one(PrepareJoin).reason == "because"
    assert world.do(RequestRejoin(reason="again")) == []
    world.prepared()
    assert world.sent(JoinGroup).reason == "because"
    assert world.do(RequestRejoin(reason="and again")) == []
    world.on_to(2)
    world.none_of(PrepareJoin)


def test_a_rejoin_asked_for_without_membership_is_nothing(world: Harness) -> None:
    assert world.do(RequestRejoin(reason="r")) == []
    world.do(CoordinatorFound())
    assert world.effects == []


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"group_id": GroupId("")}, "group.id is empty"),
        ({"heartbeat_interval_ms": 45_000}, "must be below session.timeout.ms"),
        ({"rebalance_timeout_ms": 0}, "must be above 0"),
        ({"max_poll_interval_ms": 0}, "max.poll.interval.ms"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        MemberConfig(**{"group_id": GroupId("g"), **settings})
