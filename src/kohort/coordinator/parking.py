"""Taking a member's JoinGroup in hand: its token parked, what it says about itself kept.

Comes in: calls from the ways into the join phase. Goes out: a parked token, and an answer to the
one whose place it takes. Must not know: who may join, or what the request sets off.
"""

from __future__ import annotations

from kohort.coordinator.group import Group, Member
from kohort.coordinator.interface import JoinAnswer, JoinGroup
from kohort.coordinator.registry import Registry
from kohort.model.errors import ErrorCode
from kohort.model.facts import MemberRejoined
from kohort.model.ids import Token


def take_over(group: Group, member: Member, event: JoinGroup) -> None:
    """Keep what a known member says about itself now."""
    if member.protocols != event.protocols:
        group.change_protocols(member, event.protocols)
    member.session_timeout_ms = event.session_timeout_ms
    member.rebalance_timeout_ms = (
        event.rebalance_timeout_ms if event.rebalance_timeout_ms > 0 else event.session_timeout_ms
    )


def park(registry: Registry, group: Group, member: Member, token: Token) -> None:
    """Park a JoinGroup. One that is parked already is answered, so that its connection goes on.

    Kafka never answers it, nor anything behind it on that connection. The client is told to join
    again, which it has done.
    """
    superseded = group.park_join(member, token)
    registry.parked[token] = (group, member)
    if superseded is not None:
        answer = JoinAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
        registry.respond(superseded, answer)
    registry.observe(
        MemberRejoined(
            group_id=group.group_id,
            member_id=member.member_id,
            generation_id=group.generation_id,
        )
    )
