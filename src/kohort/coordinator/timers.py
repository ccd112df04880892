"""The keys of a coordinator's timers.

A key has one live timer; to arm it again replaces the timer. Kinds are plain integers: keys are
hashed on every heartbeat, and to hash an enum is a Python call.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kohort.model.ids import NO_MEMBER, GroupId, MemberId

SESSION: Final = 0
"""A member, or a handed-out id, was silent too long. Also the five minutes of a new member."""

JOIN: Final = 1
"""The join phase, initial or not, has lasted as long as it may."""

SYNC: Final = 2
"""Members of the new generation have not asked for their assignment."""

SWEEP: Final = 3
"""The next search for offsets that outlived their retention."""

HOLD: Final = 4
"""A handed-out id has held up the join phase as long as it may."""


class Timer(NamedTuple):
    """Key of a timer. A field that a kind does not use is empty."""

    kind: int
    group_id: GroupId
    member_id: MemberId


def session_timer(group_id: GroupId, member_id: MemberId) -> Timer:
    """Key of the session of a member or a handed-out id."""
    return Timer(SESSION, group_id, member_id)


SWEEP_TIMER: Final = Timer(SWEEP, GroupId(""), NO_MEMBER)
