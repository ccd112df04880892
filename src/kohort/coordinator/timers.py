"""The timers of a coordinator: every one has a name, a key and a sentence.

One live timer per key; arming again replaces it. Kinds are plain integers, since keys are hashed
on every heartbeat and an enum's hash is a Python call.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kohort.model.ids import NO_MEMBER, GroupId, MemberId

SESSION: Final = 0
"""A member, or a handed-out id, has shown no life. Also holds the five minutes of a new member."""

JOIN: Final = 1
"""The join phase, initial or not, has lasted as long as it may."""

SYNC: Final = 2
"""Members of the new generation have not asked for their assignment."""

SWEEP: Final = 3
"""Time to look for offsets that outlived their retention."""


class Timer(NamedTuple):
    """Key of a timer; fields that a kind does not use are empty."""

    kind: int
    group_id: GroupId
    member_id: MemberId


def session_timer(group_id: GroupId, member_id: MemberId) -> Timer:
    """Key of the session of a member or a handed-out id."""
    return Timer(SESSION, group_id, member_id)


def join_timer(group_id: GroupId) -> Timer:
    """Key of a group's join phase."""
    return Timer(JOIN, group_id, NO_MEMBER)


def sync_timer(group_id: GroupId) -> Timer:
    """Key of a group's sync phase."""
    return Timer(SYNC, group_id, NO_MEMBER)


SWEEP_TIMER: Final = Timer(SWEEP, GroupId(""), NO_MEMBER)
