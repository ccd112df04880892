"""The parts of a world: broker, pods, network, disk, clock, and the recorded history.

In: a plan. Out: the parts, and facts. Must not know: actions, the checks of histories.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kohort.lab.leaders import Leaders
from kohort.lab.network import Network
from kohort.lab.node import Node
from kohort.lab.plan import Plan
from kohort.lab.pod import Pod
from kohort.lab.scheduler import Choose, Scheduler
from kohort.lab.topics import TopicBook
from kohort.model.group_config import GroupConfig
from kohort.model.history_record import AnyFact, Recorded
from kohort.model.instants import Instant
from kohort.model.world_facts import FaultBegan

WORLD = "world"


class WorldParts:
    """The parts that actions change.

    Args:
        plan: everything that will be.
        choose: decides between simultaneous arrivals at the broker; None keeps them in order.
        recording: whether facts are told; without it only the engines run.
        take: takes each fact as it comes, so that none is kept; None: ``history`` gathers them.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        choose: Choose | None,
        recording: bool,
        take: Callable[[Recorded], None] | None,
    ) -> None:
        self.plan = plan
        self.scheduler = Scheduler(choose)
        self.history: list[Recorded] = []
        self.facts = 0
        """The number of recorded facts."""
        self._take = self.history.append if take is None else take
        self.topics = TopicBook(plan.topics)
        self._recording = recording
        self.node = Node(
            self.scheduler,
            GroupConfig.from_settings(dict(plan.coordinator)),
            plan.disk,
            random=self._stream("broker"),
            topics=self.topics,
            leaders=Leaders(plan.nodes),
            record=self.record,
            recording=recording,
        )
        self.network = Network(self.scheduler, plan.network, self._stream("network"), self.node)
        self.node.network = self.network
        self.pods: dict[str, Pod] = {
            pod.name: Pod(
                self.scheduler,
                pod,
                group_id=plan.group_id,
                random=self._stream(f"pod {pod.name}"),
                network=self.network,
                topics=self.topics,
                record=self.record,
            )
            for pod in plan.pods
        }
        self.frozen = False
        """Whether only the core changes from now on."""

    def _stream(self, name: str) -> Random:
        """A generator for one part, so that the choices of other parts do not change with it."""
        return Random(f"{self.plan.seed}/{name}")

    @property
    def now(self) -> Instant:
        """The present instant."""
        return self.scheduler.now

    def record(self, source: str, incarnation: int, fact: AnyFact) -> None:
        """Record a fact."""
        if self._recording:
            self.facts = sequence = self.facts + 1
            self._take(
                Recorded(
                    sequence=sequence,
                    at=self.scheduler.now,
                    incarnation=incarnation,
                    source=source,
                    fact=fact,
                )
            )

    def note_fault(self, name: str, target: str) -> None:
        """Record a fault that was made on purpose."""
        self.record(WORLD, 1, FaultBegan(name=name, target=target))

    def after(self, millis: int | None, action: Any, *args: Any) -> None:
        """Undo an action later, unless the world is frozen; never if ``millis`` is None."""
        if millis is not None:
            self.scheduler.after(millis, None, self._unless_frozen, action, args)

    def _unless_frozen(self, action: Any, args: tuple[Any, ...]) -> None:
        if not self.frozen:
            action(*args)
