"""The bytes inside JoinGroup and SyncGroup, as a parameter of ownership.

In: the facts that a member offers. Out: `EmbeddedProtocol`, which each kind of group makes. Must
not know: partitions, connectors, the bytes themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from kohort.embedded.deferral import PARTITIONS, Words
from kohort.model.ids import GenerationId, ProtocolName
from kohort.model.instants import Millis
from kohort.model.join import JoinProtocol


class Resource(Hashable, Protocol):
    """A key that has an order: topic partitions are the resources of consumers."""

    def __lt__(self, other: Any, /) -> bool:
        """Whether this resource sorts before another."""
        ...


R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer(Generic[R]):
    """The facts that a member can offer to its group when it joins."""

    topics: frozenset[str]
    owned: frozenset[R]
    """Resources that the member still owns; empty under an eager protocol."""

    previous: frozenset[R]
    """The last assignment, for assignors that are sticky without ownership."""

    generation_id: GenerationId
    user_data: bytes | None = None
    """The userdata of the last assignment: an assignor may want the bytes back."""

    elapsed_ms: Millis | None = Millis(0)
    """The time since that assignment was made; None if it is not known."""
    draining: bool = False
    """Whether the member asks the group to take everything away from it."""
    warm: frozenset[R] = frozenset()
    """Resources of which the member has a warm copy, although it does not own them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced(Generic[R]):
    """The announcements in an assignment."""

    prepare: frozenset[R] = frozenset()
    """Resources that come to this member when it has a warm copy."""
    standbys: frozenset[R] = frozenset()
    """Resources of other members of which this member shall keep a copy."""
    postponed: bool = False
    """Whether the leader has moves to make later."""


def _nothing_announced(_user_data: bytes | None) -> Announced[Any]:
    return Announced()


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedProtocol(Generic[R]):
    """The bytes inside JoinGroup and SyncGroup, and the meaning of protocol names.

    Attributes:
        offer: writes the member's offers, best first.
        read_assignment: the resources and the userdata in an assignment, which is empty if the
            leader left this member out; raises ProtocolError.
        is_cooperative: whether members keep resources while they join under this protocol name.
        name_of: the name in a subscription that covers a resource: a partition's topic.
        offers_eager: whether one of the offers is an eager protocol.
        announced: the announcements, from the userdata of an assignment.
        words: for sentences about resources in userdata.
    """

    offer: Callable[[Offer[R]], tuple[JoinProtocol, ...]]
    read_assignment: Callable[[bytes], tuple[frozenset[R], bytes | None]]
    is_cooperative: Callable[[ProtocolName], bool]
    name_of: Callable[[R], str]
    offers_eager: bool = False
    announced: Callable[[bytes | None], Announced[R]] = _nothing_announced
    words: Words = PARTITIONS
