"""Values of JoinGroup: the protocols that a member offers, and a member as the leader sees it.

In: nothing. Out: values that coordinator, member and policies share; the metadata are opaque here.
Must not know: requests, embedded protocols.
"""

from __future__ import annotations

from typing import NamedTuple

from kohort.model.ids import GroupInstanceId, MemberId, ProtocolName
from kohort.model.values import value


class JoinProtocol(NamedTuple):
    """A protocol name that a member offers, and its metadata for that name.

    The order of several of them is the member's preference, best first.
    """

    name: ProtocolName
    metadata: bytes


@value(frozen=True, slots=True, kw_only=False)
class JoinedMember:
    """A member of the new generation with its metadata for the selected protocol."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    metadata: bytes
