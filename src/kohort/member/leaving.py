"""Leaves the group when the owner wants to.

In: ``Leave``, the answer to LeaveGroup. Out: at most one LeaveGroup, and ``Left``. Must not know:
partitions.
"""

from __future__ import annotations

from kohort.member.events import Leave, LeaveAnswered
from kohort.member.member_data import MemberData, Timer
from kohort.member.states import MemberState
from kohort.model.errors import ErrorCode
from kohort.model.instants import Instant


def leave(data: MemberData, event: Leave, now: Instant) -> None:
    """Send LeaveGroup once: the coordinator removes a silent member at the end of its session."""
    data.wanted = False
    data.poll_expired = False
    data.leaves_wanted += 1
    if data.state is MemberState.LEAVING:
        return
    for timer in (Timer.POLL, Timer.BACKOFF):
        data.deadlines.cancel(timer)
    may = data.may_leave(even_if_static=event.even_if_static)
    request_id = data.send_leave(event.reason, now) if may else None
    data.forget(keep_member_id=False)
    data.reason = None
    data.go(MemberState.LEAVING, now, event.reason)
    data.leave_request = request_id
    if request_id is None:
        data.left(ErrorCode.NONE, now)


def leave_answered(data: MemberData, event: LeaveAnswered, now: Instant) -> None:
    """End the membership; the error changes nothing."""
    if event.request_id != data.leave_request:
        return
    if event.error is not ErrorCode.NONE:
        data.refused("LeaveGroup", event.error, now)
    data.left(event.error, now)
