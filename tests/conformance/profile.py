"""The settings of a broker that scenarios depend on, as the broker reports them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

UNLIMITED = 2**31 - 1


@dataclass(frozen=True)
class Profile:
    """A broker's address and the settings of its groups; the defaults are Kafka's."""

    address: str
    initial_delay_ms: int = 3_000
    least_session_ms: int = 6_000
    greatest_session_ms: int = 1_800_000
    max_size: int = UNLIMITED
    sweep_ms: int = 600_000
    nodes: int = 1
    restarts: bool = False
    """The suite may stop and start the broker."""

    @property
    def brief_ms(self) -> int:
        """The shortest session that may be asked for and still be met by a busy machine."""
        return max(self.least_session_ms, 1_500)


SETTINGS = {
    "group.initial.rebalance.delay.ms": "initial_delay_ms",
    "group.min.session.timeout.ms": "least_session_ms",
    "group.max.session.timeout.ms": "greatest_session_ms",
    "group.max.size": "max_size",
    "offsets.retention.check.interval.ms": "sweep_ms",
}

NEEDS: dict[str, tuple[str, Callable[[Profile], bool]]] = {
    "a delay": (
        "group.initial.rebalance.delay.ms of 500 to 3000",
        lambda profile: 500 <= profile.initial_delay_ms <= 3_000,
    ),
    "no delay": (
        "group.initial.rebalance.delay.ms=0",
        lambda profile: profile.initial_delay_ms == 0,
    ),
    "a size": (
        "group.max.size of 2 to 8",
        lambda profile: 2 <= profile.max_size <= 8,
    ),
    "sweeps": (
        "offsets.retention.check.interval.ms of at most 2000",
        lambda profile: profile.sweep_ms <= 2_000,
    ),
    "nodes": ("two nodes", lambda profile: profile.nodes > 1),
    "a restart": ("a restart in the hands of the suite", lambda profile: profile.restarts),
    "one node": ("one node", lambda profile: profile.nodes == 1),
}
"""The possible needs of a scenario: in words, and as a test of a profile."""

ROOM = {"a delay", "a size", "sweeps"}
"""Needs of scenarios that do with little room and with a broker that sweeps often."""

ORDINARY = "group.max.size of 100 and offsets.retention.check.interval.ms of 60000 at least"


def is_ordinary(profile: Profile) -> bool:
    """Whether groups have room, and are not swept away between the two steps of a first join."""
    return profile.max_size >= 100 and profile.sweep_ms >= 60_000
