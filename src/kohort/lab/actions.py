"""The actions on a world as data: faults, operators, and calls of the application.

In: JSON. Out: frozen values, and JSON again. An action names the instant and the object, so that a
list of actions can be replayed. Must not know: worlds, how an action is performed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias, get_args

from kohort.model.errors import ConfigError

PERSIST_MOMENTS = ("before append", "appended", "synced", "told")
"""The moments of a write at which a coordinator can die: before the append, before the sync, before
the answers, after the answers."""

DIRECTIONS = ("both", "to broker", "from broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashBroker:
    """The broker dies and starts again later."""

    at_ms: int
    down_ms: int
    power_cut: bool = False
    """Unsynced writes may be lost; otherwise only the present write may be torn."""
    silent: bool = False
    """The machine sends nothing: connections stay half open until a client notices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashAtPersist:
    """The broker dies during its ``number``-th write, counted from 1."""

    number: int
    moment: str
    down_ms: int
    power_cut: bool = True
    at_ms: int = 0
    """Writes are counted from this instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallBroker:
    """The process of the broker is paused."""

    at_ms: int
    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JumpWallClock:
    """The time of day of the broker is set."""

    at_ms: int
    by_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPod:
    """The process of a pod starts, unless one is running."""

    at_ms: int
    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPod:
    """The consumer of a pod is closed; without ``leave`` it only commits (as Streams does)."""

    at_ms: int
    pod: str
    back_after_ms: int | None = None
    leave: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class KillPod:
    """The process of a pod is killed; with ``node_lost`` its connections stay half open."""

    at_ms: int
    pod: str
    back_after_ms: int | None = None
    node_lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PausePod:
    """The process of a pod is paused; for ever without ``for_ms``."""

    at_ms: int
    pod: str
    for_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPod:
    """The network between a pod and the broker is cut, in one or both directions."""

    at_ms: int
    pod: str
    for_ms: int | None = None
    direction: str = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetLines:
    """The connections of a pod are reset, and both ends learn it; of all pods without ``pod``."""

    at_ms: int
    pod: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfOpenLines:
    """The connections of a pod lose all bytes from now on; neither end learns it."""

    at_ms: int
    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """The network behaves differently for some time."""

    at_ms: int
    for_ms: int
    delay_micros: int
    jitter_micros: int = 0
    reset_ppm: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDisk:
    """Syncs take longer for some time."""

    at_ms: int
    for_ms: int
    sync_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FullDisk:
    """The disk of the broker is full for some time."""

    at_ms: int
    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailSync:
    """The next sync fails with EIO; an operator restarts the broker ``down_ms`` later."""

    at_ms: int
    down_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejoin:
    """The application of a pod asks for a rebalance (KIP-568)."""

    at_ms: int
    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resubscribe:
    """The application of a pod subscribes to other topics."""

    at_ms: int
    pod: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowTopic:
    """A topic gets more partitions."""

    at_ms: int
    topic: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowApplication:
    """The application of a pod takes this long for its next batch."""

    at_ms: int
    pod: str
    batch_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekPartitions:
    """The application of a pod seeks in all its partitions, between two polls."""

    at_ms: int
    pod: str
    to: int
    """The offset; the end of a partition if that comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPositions:
    """The application of a pod commits its positions, between two polls."""

    at_ms: int
    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PausePartitions:
    """The application of a pod pauses all its partitions."""

    at_ms: int
    pod: str
    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsubscribePod:
    """The application of a pod unsubscribes, and subscribes again ``again_ms`` later.

    A short time means: before the coordinator has answered.
    """

    at_ms: int
    pod: str
    again_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLeaders:
    """All partitions of a topic get this node as their leader."""

    at_ms: int
    topic: str
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNode:
    """A node that does not coordinate the group is down; the next node leads its partitions."""

    at_ms: int
    node: int
    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactLog:
    """The log of the coordinator is compacted."""

    at_ms: int
    power_cut: bool = False
    """The power fails just before the compacted segments replace the old ones."""
    down_ms: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroup:
    """An operator asks for ListGroups and DescribeGroups; the answers must tell the state."""

    at_ms: int


Action: TypeAlias = (
    CrashBroker
    | CrashAtPersist
    | StallBroker
    | JumpWallClock
    | StartPod
    | StopPod
    | KillPod
    | PausePod
    | CutPod
    | ResetLines
    | HalfOpenLines
    | Weather
    | SlowDisk
    | FullDisk
    | FailSync
    | Rejoin
    | Resubscribe
    | GrowTopic
    | SlowApplication
    | SeekPartitions
    | CommitPositions
    | PausePartitions
    | UnsubscribePod
    | MoveLeaders
    | StopNode
    | CompactLog
    | DescribeGroup
)

ACTIONS: dict[str, type[Any]] = {each.__name__: each for each in get_args(Action)}


def action_to_json(action: Action) -> dict[str, Any]:
    """An action as a JSON object; the key ``action`` has its kind."""
    values = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(action).items()}
    return {"action": type(action).__name__, **values}


def action_from_json(value: Mapping[str, Any]) -> Action:
    """The action that a JSON object describes.

    Raises:
        ConfigError: an unknown kind or field.
    """
    kind = ACTIONS.get(str(value.get("action")))
    if kind is None:
        known = ", ".join(ACTIONS)
        raise ConfigError(f"action {value.get('action')!r} is unknown; known: {known}")
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items() if k != "action"}
    names = {f.name for f in fields(kind)}
    if unknown := sorted(given.keys() - names):
        raise ConfigError(f"{kind.__name__} has no field {', '.join(unknown)}")
    try:
        made: Action = kind(**given)
    except TypeError as error:
        raise ConfigError(f"{kind.__name__}: {error}") from error
    return made
