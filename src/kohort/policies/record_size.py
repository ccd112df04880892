"""The size of a group's record at the coordinator.

In: the members' offers, their assignments. Out: an estimate, an error or a sentence. Must not know:
the bytes of subscriptions.

A coordinator keeps all members of a group in one record of the offsets topic. Kafka's answer to a
SyncGroup with too much data is an unknown error for all members, again and again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kohort.model.errors import ConfigError
from kohort.model.ids import MemberId
from kohort.model.join import JoinedMember
from kohort.policies.spec import Say

BROKERS_RECORD_LIMIT: Final = 1_048_588
"""A broker refuses a larger record of a group, by the default of message.max.bytes."""

_RECORD_BYTES: Final = 1_024
"""Estimate for the fields of a group's record that do not belong to a member."""

_MEMBER_RECORD_BYTES: Final = 72
"""Estimate for lengths, timeouts and the client's host in a member's part of the record."""


def record_bytes(members: Sequence[JoinedMember]) -> int:
    """The estimated size of a group's record, without assignments."""
    return _RECORD_BYTES + sum(map(_member_bytes, members))


def _member_bytes(member: JoinedMember) -> int:
    # The member id counts twice: a coordinator makes it from the client id, which is stored, too.
    ids = 2 * len(member.member_id.encode()) + len((member.group_instance_id or "").encode())
    return _MEMBER_RECORD_BYTES + ids + len(member.metadata)


def check_record(
    members: Sequence[JoinedMember],
    assignments: Mapping[MemberId, bytes],
    limit: int,
    advice: str,
    warn: Say,
) -> None:
    """Refuse a plan that the broker certainly cannot store; say if it perhaps cannot.

    Args:
        members: with their offers.
        assignments: the plan.
        limit: the broker's; 0 for no check.
        advice: how such a group becomes smaller, as the first half of a sentence.
        warn: takes the sentence.

    Raises:
        ConfigError: offers and assignments alone are larger than the limit.
    """
    assigned = sum(map(len, assignments.values()))
    if not limit or record_bytes(members) + assigned <= limit:
        return
    offered = sum(len(m.metadata) + len(m.member_id) for m in members)
    sentence = (
        f"the group's record has {offered:,} bytes of subscriptions and {assigned:,} bytes of "
        f"assignments for {len(members):,} members; a broker stores at most {limit:,} bytes. "
        f"{advice}; or raise message.max.bytes of the brokers "
        "(max.message.bytes of the topic __consumer_offsets) and "
        "kohort.max.group.record.bytes of the consumers"
    )
    if offered + assigned > limit:
        raise ConfigError(sentence)
    warn(sentence)
