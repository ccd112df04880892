"""The states of a member, and which may follow which.

Read by `member.py`, which refuses any other transition. Must not know: why a transition happens.

============  =====================================================================================
UNJOINED      no place in the group: not wanted, or wanted but waiting (coordinator, poll, back-off)
PREPARING     a join is due; the owner was asked to prepare it. Heartbeats go on if there is a place
JOINING       prepared; JoinGroup is out (parked or not), or waits for coordinator or back-off.
              Heartbeats go on if there is a place: a join may be parked for minutes
SYNCING       JoinGroup answered; assigning (leader) or waiting for SyncGroup. Heartbeats on
STABLE        SyncGroup applied. Heartbeats on
FENCED        a fatal answer came; nothing is sent any more (also: refused for good)
LEAVING       LeaveGroup is out, at the owner's wish; ends UNJOINED
============  =====================================================================================
"""

from __future__ import annotations

from enum import StrEnum


class MemberState(StrEnum):
    """Where a member stands; see the module's table.

    Strings, since a plain enum's hash is a Python call.
    """

    UNJOINED = "unjoined"
    PREPARING = "preparing"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    FENCED = "fenced"
    LEAVING = "leaving"


_U, _P, _J, _Y, _S, _F, _L = MemberState

LEGAL_TRANSITIONS: dict[MemberState, frozenset[MemberState]] = {
    _U: frozenset({_P, _F, _L}),
    _P: frozenset({_J, _U, _F, _L}),
    _J: frozenset({_Y, _P, _U, _F, _L}),
    _Y: frozenset({_S, _J, _P, _U, _F, _L}),
    _S: frozenset({_P, _U, _F, _L}),
    _F: frozenset({_L, _U}),
    _L: frozenset({_U}),
}

BEATING = frozenset({_P, _J, _Y, _S})
"""States in which heartbeats are sent, provided that the member has a generation."""

REBALANCING = frozenset({_P, _J, _Y})
"""States between the wish for a new generation and its assignment."""
