"""Finds assignors by the names in partition.assignment.strategy.

In: names in the form of Kafka's clients, Java class names included. Out: assignors, best first.
Must not know: members, bytes, generations.
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.model.errors import ConfigError
from kohort.model.ids import ProtocolName
from kohort.policies.cooperative import CooperativeStickyAssignor
from kohort.policies.range_ import RangeAssignor
from kohort.policies.round_robin import RoundRobinAssignor
from kohort.policies.spec import Assignor, RebalanceProtocol
from kohort.policies.sticky import StickyAssignor

ASSIGNORS: dict[ProtocolName, Assignor] = {
    assignor.name: assignor
    for assignor in (
        RangeAssignor(),
        RoundRobinAssignor(),
        StickyAssignor(),
        CooperativeStickyAssignor(),
    )
}

_JAVA_NAMES: dict[str, ProtocolName] = {
    "org.apache.kafka.clients.consumer.RangeAssignor": ProtocolName("range"),
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": ProtocolName("roundrobin"),
    "org.apache.kafka.clients.consumer.StickyAssignor": ProtocolName("sticky"),
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": ProtocolName(
        "cooperative-sticky"
    ),
}


def assignor(name: str) -> Assignor:
    """The assignor of that wire name or Java class name.

    Raises:
        ConfigError: the name is unknown.
    """
    name = name.strip()
    found = ASSIGNORS.get(_JAVA_NAMES.get(name, ProtocolName(name)))
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
    return found is not None and found.rebalance_protocol is RebalanceProtocol.COOPERATIVE
