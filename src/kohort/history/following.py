"""Changes of the world by the facts of a history.

In: a world and recorded facts, in order. Out: the changed world. Whether a fact was legal is not
judged here. Must not know: checks, files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kohort.history import coordinator_side, process_side
from kohort.history.world import TopicView, World
from kohort.model.history_record import Recorded
from kohort.model.world_facts import FaultBegan, FaultsHealed, PolicyDeclared, TopicSized


def follow(world: World, recorded: Recorded) -> None:
    """Change the world by one fact."""
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
    world.policies[fact.protocol_name] = fact


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
