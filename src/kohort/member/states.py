"""The states of a member, and the legal transitions between them.

In: nothing. Out: the states and the table of transitions. Must not know: the cause of a transition.

============  =====================================================================================
UNJOINED      no membership: not wanted, or it waits for a coordinator, a poll or a back-off
PREPARING     a join is due; the owner prepares it. Heartbeats are sent if there is a generation
JOINING       prepared; JoinGroup is sent (or parked), or waits for a coordinator or a back-off.
              Heartbeats are sent if there is a generation: a join may be parked for minutes
SYNCING       JoinGroup was answered; the leader assigns, or SyncGroup is sent. Heartbeats are sent
STABLE        the assignment was received. Heartbeats are sent
FENCED        a fatal answer came; the member sends nothing more
LEAVING       the owner wanted to leave and LeaveGroup is sent; UNJOINED follows
============  =====================================================================================
"""

from __future__ import annotations

from enum import StrEnum


class MemberState(StrEnum):
    """The state of a member; see the table of the module.

    Strings, because the hash of a plain enum is a call of Python code.
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
"""States in which a member with a generation sends heartbeats."""

REBALANCING = frozenset({_P, _J, _Y})
"""States between the decision to rejoin and the assignment of the new generation."""
