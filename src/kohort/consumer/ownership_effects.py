"""The closed set of effects that ``Ownership`` returns, in the order to carry them out.

In: nothing. Out: orders to the owner of the resources, events for the member engine, complaints.
Must not know: the reason of an effect, and the kind of the resources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeAlias

from kohort.consumer.embedded_protocol import R
from kohort.member.events import OwnerEvent
from kohort.model.ids import GenerationId


def _listed(resources: frozenset[R]) -> str:
    return ", ".join(sorted(map(str, resources))) or "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp(Generic[R]):
    """Owner: stop work on these resources, commit, then call ``released``: the end of ownership."""

    resources: frozenset[R]

    def __str__(self) -> str:
        return f"gives up {_listed(self.resources)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Take(Generic[R]):
    """Owner: you own these from now on. Comes once for each generation, also when empty."""

    resources: frozenset[R]
    generation_id: GenerationId

    def __str__(self) -> str:
        return f"gets {_listed(self.resources)} in generation {self.generation_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseAll(Generic[R]):
    """Owner: other members may own these already; the coordinator refuses commits for them.

    Stop work on them and call ``let_go``: no join tells the group before that they are free.
    """

    resources: frozenset[R]
    reason: str

    def __str__(self) -> str:
        return f"lost {_listed(self.resources)}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare(Generic[R]):
    """Owner: make copies of these resources; call ``report_warm`` when they are warm.

    Other members own these now. Some come as soon as this member has a warm copy, or later without
    one. The others are standbys: they come only if their owner is lost, or for balance.
    """

    resources: frozenset[R]

    def __str__(self) -> str:
        return f"prepares copies of {_listed(self.resources)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard(Generic[R]):
    """Owner: the group wants no copies of these any more, and forgets that they were warm."""

    resources: frozenset[R]

    def __str__(self) -> str:
        return f"drops the copies of {_listed(self.resources)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Shell: hand this event to the member engine."""

    event: OwnerEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Complain:
    """Shell: raise this to the application; the cause changed nothing."""

    message: str


Change: TypeAlias = GiveUp[R] | Take[R] | LoseAll[R] | Prepare[R] | Discard[R]
OwnershipEffect: TypeAlias = Change[R] | Tell | Complain
