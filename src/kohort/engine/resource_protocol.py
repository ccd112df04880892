"""The protocol of groups that share named resources.

In: the leader's assigner, the member's identity. Out: a ``GroupProtocol`` with names as resources.
Must not know: callbacks. See `policies/resource_groups.py` for the bytes.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from kohort.consumer.embedded_protocol import EmbeddedProtocol, Offer
from kohort.embedded.consumer import decode_assignment
from kohort.engine.consumer_driver import GroupProtocol
from kohort.engine.consumer_protocol import announced, echo_of, readable
from kohort.model.ids import NO_GENERATION, GenerationId, ProtocolType
from kohort.model.join import JoinProtocol
from kohort.policies.consumer_groups import join_protocols
from kohort.policies.registry import is_cooperative
from kohort.policies.resource_groups import (
    WORDS,
    ResourceAssigner,
    name_of,
    resource_of,
    resources_in,
    since_text,
)
from kohort.policies.spec import Say, say_nothing
from kohort.policies.sticky import COOPERATIVE

PROTOCOL_TYPE: Final = ProtocolType("kohort-resources")
EVERY: Final = "every"
"""The name under which a member wants each resource."""


def resource_protocol(
    assigner: ResourceAssigner,
    identity: int | None = None,
    *,
    prepares: bool = False,
    warn: Say = say_nothing,
) -> GroupProtocol[str]:
    """The protocol of one member.

    Args:
        assigner: decides if this member leads.
        identity: the number of a member that is the same in its next process.
        prepares: whether the member prepares resources before it gets them.
        warn: takes a sentence about a fault, for the log of the member's process.
    """
    member = _Offers(identity, prepares=prepares)

    def read(data: bytes) -> tuple[frozenset[str], bytes | None]:
        assigned = resources_in(data), readable(decode_assignment(data).user_data, warn)
        assigner.remember()
        return assigned

    return GroupProtocol(
        type=PROTOCOL_TYPE,
        embedded=EmbeddedProtocol(
            offer=member.offer,
            read_assignment=read,
            is_cooperative=is_cooperative,
            name_of=lambda _name: EVERY,
            announced=partial(announced, resource_of=name_of),
            words=WORDS,
        ),
        assigner=assigner,
    )


class _Offers:
    """Writes the offers of one member, which remembers its first generation."""

    def __init__(self, identity: int | None, *, prepares: bool) -> None:
        self._identity, self._prepares = identity, prepares
        self._since = GenerationId(NO_GENERATION)

    def offer(self, value: Offer[str]) -> tuple[JoinProtocol, ...]:
        if NO_GENERATION in (value.generation_id, self._since):
            self._since = value.generation_id
        return join_protocols(
            (COOPERATIVE,),
            (since_text(self._since),),
            owned={resource_of(name) for name in value.owned},
            previous={resource_of(name) for name in value.previous},
            generation_id=value.generation_id,
            echo=echo_of(value, self._identity, resource_of, prepares=self._prepares),
        )
