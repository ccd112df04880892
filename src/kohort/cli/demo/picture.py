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
    """One Spark application.

    Attributes:
        name: its client id in the group.
        life: of its present process.
        starts: how often it was started.
        owned: the partitions that the group assigned to it.
        landed: records that it committed, over all its starts.
        pid: of its present process; 0 before the first start.
        since: the start of its present process, in seconds as ``Picture.at``.
    """

    name: str
    life: Life = Life.ABSENT
    starts: int = 0
    owned: frozenset[int] = frozenset()
    landed: int = 0
    pid: int = 0
    since: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The demo at one moment.

    Attributes:
        at: seconds since the demo began.
        zero: the beginning of the demo, in microseconds of the monotonic clock.
        applications: by name.
        stable: the group's state is Stable.
        ends: for each partition with records, the offset after its last acknowledged record.
        positions: for each partition, the offset that the group has committed.
        rebalances: all that led to a generation, in order.
    """

    at: float
    zero: int = 0
    applications: Mapping[str, Application] = field(default_factory=dict)
    stable: bool = False
    ends: Mapping[int, int] = field(default_factory=dict)
    positions: Mapping[int, int] = field(default_factory=dict)
    rebalances: tuple[Rebalance, ...] = ()

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
        """Records in the topic that are not committed, for each partition with records."""
        return {p: end - self.positions.get(p, 0) for p, end in self.ends.items()}

    @property
    def backlog_everywhere(self) -> bool:
        """Whether every partition with records has a backlog."""
        return bool(self.ends) and min(self.backlog.values()) > 0
