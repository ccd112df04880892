"""What can be seen of the demo at one moment, and what can be asked for next.

Values only. Pictures are taken by ``observing``, understood by ``script``, drawn by ``view``; cues
are given by ``script`` and carried out by ``stage``. Times are seconds since the demo began.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias


class Life(Enum):
    """What an application's process does."""

    ABSENT = "not started"
    STARTING = "starting"
    MEMBER = "member"
    KILLED = "killed"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """One Spark application.

    Attributes:
        name: as it calls itself in the group.
        life: of its present process.
        starts: how often it was started.
        owned: partitions that the group has given it.
        acquired: partitions of these that it has taken over at the ledger.
        landed: records that it has committed to the table, over all its starts.
        in_batch: it has planned a micro-batch that is not committed yet.
        pid: of its present process; 0 before the first.
        since: when its process began or became a member, what came last; seconds as ``Picture.at``.
    """

    name: str
    life: Life
    starts: int = 0
    owned: frozenset[int] = frozenset()
    acquired: frozenset[int] = frozenset()
    landed: int = 0
    in_batch: bool = False
    pid: int = 0
    since: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """One change of generation.

    Attributes:
        generation: that it led to.
        cause: in Kafka's words, shortened.
        began: when the group began to prepare it, by the broker's log.
        seconds: until the leader's assignment arrived.
        moved: partitions whose owner differs from their last one; None while that is not known.
    """

    generation: int
    cause: str
    began: float
    seconds: float
    moved: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything that the script decides on.

    Attributes:
        at: seconds since the demo began.
        applications: by name, in the order of their first start.
        stable: the group's coordinator calls it Stable.
        fed: records that the broker has acknowledged to the feeder.
        fed_out: the feeder has nothing left.
        ends: per partition, the offset after its last record.
        positions: per partition, the offset after the last record in the table.
        rebalances: in order.
    """

    at: float
    applications: Mapping[str, Application]
    stable: bool = False
    fed: int = 0
    fed_out: bool = False
    ends: Mapping[int, int] = field(default_factory=dict)
    positions: Mapping[int, int] = field(default_factory=dict)
    rebalances: tuple[Rebalance, ...] = ()

    @property
    def backlog(self) -> dict[int, int]:
        """Per partition that holds records, how many of them are not in the table."""
        return {p: end - self.positions.get(p, 0) for p, end in self.ends.items() if end}

    @property
    def landed(self) -> int:
        """Records in the table, by the ledger."""
        return sum(self.positions.values())

    @property
    def backlog_everywhere(self) -> bool:
        """Whether every partition that holds records has some that are not in the table."""
        return bool(self.backlog) and min(self.backlog.values()) > 0


@dataclass(frozen=True, slots=True)
class Start:
    """Start an application, for the first time or again."""

    name: str


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL an application's whole process tree, if a micro-batch of it is under way.

    ``anyway``: also when none is.
    """

    name: str
    anyway: bool = False


@dataclass(frozen=True, slots=True)
class Feed:
    """Let the feeder go on until it has sent this many records in all."""

    upto: int


@dataclass(frozen=True, slots=True)
class Say:
    """A line for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Everything is consumed: end the applications and judge."""


Cue: TypeAlias = Start | Kill | Feed | Say | Finish
