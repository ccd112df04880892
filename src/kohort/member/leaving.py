"""Giving up the place at the owner's wish.

In: ``Leave``, LeaveGroup's answer. Out: LeaveGroup, once, and ``Left``. Must not know: what the
owner did with its partitions before.
"""

from __future__ import annotations

from kohort.member.events import Leave, LeaveAnswered
from kohort.member.place import Place, Timer
from kohort.member.states import MemberState
from kohort.model.errors import ErrorCode
from kohort.model.instants import Instant


def leave(place: Place, event: Leave, now: Instant) -> None:
    """One try, no retry: who is not heard is removed at the end of its session anyway."""
    place.wanted = False
    place.poll_expired = False
    place.leaves_wanted += 1
    if place.state is MemberState.LEAVING:
        return
    for timer in (Timer.POLL, Timer.BACKOFF):
        place.deadlines.cancel(timer)
    may = place.may_leave(even_if_static=event.even_if_static)
    request_id = place.send_leave(event.reason, now) if may else None
    place.forget(keep_member_id=False)
    place.reason = None
    place.go(MemberState.LEAVING, now, event.reason)
    place.leave_request = request_id
    if request_id is None:
        place.left(ErrorCode.NONE, now)


def leave_answered(place: Place, event: LeaveAnswered, now: Instant) -> None:
    """Whatever it says, we are gone."""
    if event.request_id != place.leave_request:
        return
    if event.error is not ErrorCode.NONE:
        place.refused("LeaveGroup", event.error, now)
    place.left(event.error, now)
