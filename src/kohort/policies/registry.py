"""Finds assignors by the names in partition.assignment.strategy.

In: names in the form of Kafka's clients, Java class names included. Out: assignors, best first.
Must not know: members, bytes, generations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kohort.model.errors import ConfigError
from kohort.model.ids import ProtocolName
from kohort.policies.range_ import RANGE
from kohort.policies.round_robin import ROUND_ROBIN
from kohort.policies.spec import Assignor
from kohort.policies.sticky import COOPERATIVE, STICKY

JAVA_CLASSES: Final[Mapping[str, Assignor]] = {
    "RangeAssignor": RANGE,
    "RoundRobinAssignor": ROUND_ROBIN,
    "StickyAssignor": STICKY,
    "CooperativeStickyAssignor": COOPERATIVE,
}
"""The assignors by the names of Kafka's classes."""

ASSIGNORS: dict[ProtocolName, Assignor] = {each.name: each for each in JAVA_CLASSES.values()}

_JAVA_PACKAGE: Final = "org.apache.kafka.clients.consumer."


def assignor(name: str) -> Assignor:
    """The assignor of that wire name or Java class name.

    Raises:
        ConfigError: the name is unknown.
    """
    name = name.strip()
    found = ASSIGNORS.get(ProtocolName(name))
    if found is None and name.startswith(_JAVA_PACKAGE):
        found = JAVA_CLASSES.get(name.removeprefix(_JAVA_PACKAGE))
    if found is None:
        known = ", ".join(ASSIGNORS)
        raise ConfigError(f"partition.assignment.strategy: {name!r} is unknown; known: {known}")
    return found


def assignors(names: str | Iterable[str]) -> tuple[Assignor, ...]:
    """Several assignors, best first; a string is split at commas.

    Raises:
        ConfigError: no name, an unknown name or a repeated name.
    """
    wanted = names.split(",") if isinstance(names, str) else list(names)
    found = tuple(assignor(name) for name in wanted if name.strip())
    if not found:
        raise ConfigError("partition.assignment.strategy is empty; name at least one assignor")
    if len({a.name for a in found}) != len(found):
        raise ConfigError(f"partition.assignment.strategy names one twice: {', '.join(wanted)}")
    return found


def is_cooperative(name: str | None) -> bool:
    """Whether members keep partitions of this protocol name while they join.

    Unknown names count as eager: giving up too much is safe, keeping too much is not.
    """
    found = ASSIGNORS.get(ProtocolName(name)) if name is not None else None
    return found is not None and found.cooperative
