"""How a world follows a history: which fact changes it in which way.

In: a world and recorded facts, in order. Out: the world, changed. It believes what it is told:
whether that was allowed is for checks to say. Must not know: checks, files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kohort.history import coordinator_side, process_side
from kohort.history.world import TopicView, World
from kohort.model.history_record import Recorded
from kohort.model.world_facts import FaultBegan, FaultsHealed, PolicyDeclared, TopicSized


def follow(world: World, recorded: Recorded) -> None:
    """Take note of a fact."""
    world.now = recorded.at
    apply = _APPLIERS.get(type(recorded.fact))
    if apply is not None:
        apply(world, recorded, recorded.fact)


def _topic(world: World, recorded: Recorded, fact: TopicSized) -> None:
    topic = world.topics.setdefault(fact.topic, TopicView())
    if topic.partitions != fact.partitions:
        topic.resize(fact.partitions, recorded.at)
        world.disturbed_at = recorded.at


def _policy(world: World, _recorded: Recorded, fact: PolicyDeclared) -> None:
    world.declare(fact)


def _disturb(world: World, recorded: Recorded, _fact: FaultBegan | FaultsHealed) -> None:
    world.disturbed_at = recorded.at


_APPLIERS: Final[dict[type[Any], Callable[[World, Recorded, Any], None]]] = {
    **coordinator_side.APPLIERS,
    **process_side.APPLIERS,
    TopicSized: _topic,
    PolicyDeclared: _policy,
    FaultBegan: _disturb,
    FaultsHealed: _disturb,
}
