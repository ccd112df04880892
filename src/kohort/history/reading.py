"""Decodes the subscriptions and assignments of consumers in a history.

In: bytes of JoinGroup and SyncGroup. Out: topics, claims and partitions, or None for bytes of other
protocols. Must not know: groups, checks.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohort.embedded.consumer import (
    decode_assignment,
    decode_sticky_userdata,
    decode_subscription,
    generation_in_userdata,
)
from kohort.embedded.deferral import NO_ECHO, Echo, decode_echo
from kohort.history.views import Partitions
from kohort.model.errors import ProtocolError
from kohort.model.ids import NO_GENERATION, GenerationId
from kohort.model.wire_facts import JoinAsked

CONSUMERS = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The subscription of a consumer when it joined."""

    topics: frozenset[str]
    owned: Partitions
    """The partitions that the member keeps; under an eager protocol, those that it had before."""
    generation_id: GenerationId
    has_rack: bool = False
    """Racks may count for more than moves."""
    draining: bool = False
    """The member wants no partition any more."""
    prepares: bool = False
    """The member prepares for partitions before it gets them."""
    warm: Partitions = frozenset()
    """Partitions of others of which the member has a warm copy."""


def read_offer(asked: JoinAsked | None, protocol_name: str) -> Offer | None:
    """The offer of a member under the selected protocol."""
    if asked is None or asked.protocol_type != CONSUMERS:
        return None
    metadata = next((data for name, data in asked.protocols if name == protocol_name), None)
    if metadata is None:
        return None
    try:
        said = decode_subscription(metadata)
    except ProtocolError:
        return None
    owned, generation = said.owned, said.generation_id
    if generation == NO_GENERATION:
        generation = generation_in_userdata(said.user_data)
    sticky = decode_sticky_userdata(said.user_data)
    if not owned and sticky is not None:
        owned, generation = sticky
    echo = _echo(said.user_data)
    return Offer(
        topics=said.topics,
        owned=frozenset(owned),
        generation_id=generation,
        has_rack=said.rack_id is not None,
        draining=echo.draining,
        prepares=echo.prepares,
        warm=echo.warm,
    )


def _echo(user_data: bytes | None) -> Echo:
    try:
        return decode_echo(user_data)
    except ProtocolError:
        return NO_ECHO


def read_assignment(data: bytes) -> Partitions | None:
    """The partitions of one member's assignment."""
    try:
        return frozenset(decode_assignment(data).partitions)
    except ProtocolError:
        return None
