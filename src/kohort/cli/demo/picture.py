"""The state of the demo at one moment. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from kohort.history.cost_values import Rebalance


class Life(Enum):
    """The state of an application's process."""

    ABSENT = "not started"
    STARTING = "starting"
    MEMBER = "member"
    KILLED = "killed"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """One Spark application; its name is its client id in the group."""

    name: str
    life: Life = Life.ABSENT
    starts: int = 0
    owned: frozenset[int] = frozenset()
    landed: int = 0
    """Records that it committed, over all its starts."""
    pid: int = 0
    since: float = 0.0
    """The start of its present process, in seconds as ``Picture.at``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The demo at one moment."""

    at: float
    """Seconds since the demo began."""
    zero: int = 0
    """The beginning of the demo, in microseconds of the monotonic clock."""
    applications: Mapping[str, Application] = field(default_factory=dict)
    stable: bool = False
    ends: Mapping[int, int] = field(default_factory=dict)
    """For each partition with records, the offset after its last acknowledged record."""
    positions: Mapping[int, int] = field(default_factory=dict)
    """For each partition, the offset that the group has committed."""
    rebalances: tuple[Rebalance, ...] = ()
    """All that led to a generation, in order."""

    @property
    def fed(self) -> int:
        """Records in the topic."""
        return sum(self.ends.values())

    @property
    def landed(self) -> int:
        """Records that the group has committed."""
        return sum(self.positions.values())

    @property
    def backlog(self) -> dict[int, int]:
        """Records that are not committed, for each partition with records."""
        return {p: end - self.positions.get(p, 0) for p, end in self.ends.items()}

    @property
    def backlog_everywhere(self) -> bool:
        """Whether every partition with records has a backlog."""
        return bool(self.ends) and min(self.backlog.values()) > 0
