"""The chain: the application's work for changes of ownership, one step after the other.

In: steps to do, the end of the first step, a lost membership. Out: the step to begin or to go on
with. Must not know: offsets, commits, the group.

A step ends before the next one begins. So the callback of a revocation comes before that of the
next assignment, and a commit goes out before its partitions do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from kohort.consumer.effects import Callback
from kohort.model.ids import GenerationId, TopicPartition


class Stage(Enum):
    """How far a step is."""

    NEW = "not begun"
    STOPPING = "the application stops reading"
    COMMITTING = "a commit is under way"
    CALLING = "the listener is being told"
    LEAVING = "the group is being left"


@dataclass(slots=True, kw_only=True)
class Step:
    """Partitions to start, to give up, or to count as lost; or the end of the membership."""

    number: int
    kind: Callback | None
    """None: the step that leaves the group."""
    partitions: frozenset[TopicPartition]
    generation_id: GenerationId
    stage: Stage = Stage.NEW
    reason: str = ""


class Chain(deque[Step]):
    """Steps in order; only the first has begun.

    Args:
        next_number: gives each step a higher number than the steps before.

    Attributes:
        void_before: steps with a lower number began under a lost membership.
    """

    __slots__ = ("_next", "void_before")

    def __init__(self, next_number: Callable[[], int]) -> None:
        super().__init__()
        self._next = next_number
        self.void_before = 0

    @property
    def first(self) -> Step | None:
        """The first step, if there is one."""
        return self[0] if self else None

    def head(self, number: int | None, stage: Stage) -> Step | None:
        """The first step, if it has this number and is at this stage."""
        head = self.first
        return head if head and head.number == number and head.stage is stage else None

    def step(
        self,
        kind: Callback | None,
        partitions: frozenset[TopicPartition],
        generation_id: GenerationId,
        reason: str = "",
    ) -> Step:
        """A new step, which is not in the chain yet."""
        return Step(
            number=self._next(),
            kind=kind,
            partitions=partitions,
            generation_id=generation_id,
            reason=reason,
        )

    def forget_new_assignments(self) -> None:
        """Drop assignments that the listener does not know yet."""
        self._replace(
            [s for s in self if s.kind is not Callback.ASSIGNED or s.stage is not Stage.NEW]
        )

    def lose(self, told: frozenset[TopicPartition], generation_id: GenerationId) -> None:
        """Drop every step of the lost membership except a callback that runs now.

        Args:
            told: the assigned partitions by the callbacks so far; a step for their loss follows.
            generation_id: the generation that was lost.
        """
        self.void_before = self._next()
        kept = [s for s in self if s.stage is Stage.CALLING or s.kind is None]
        loss = [self.step(Callback.LOST, told, generation_id)] if told else []
        callbacks = [s for s in kept if s.kind is not None]
        self._replace(callbacks + loss + [s for s in kept if s.kind is None])

    def _replace(self, steps: list[Step]) -> None:
        self.clear()
        self.extend(steps)

    @property
    def has_loss(self) -> bool:
        """Whether a loss was not told to the listener yet, or the listener works on lost ones."""
        return any(s.number < self.void_before or s.kind is Callback.LOST for s in self)
