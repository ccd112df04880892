"""The actions on a world as data: faults, operators, and calls of the application.

In: JSON. Out: frozen values, and JSON again. An action names the instant and the object, so that a
list of actions can be replayed. Must not know: worlds, how an action is performed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from kohort.model.errors import ConfigError
from kohort.model.values import kinds_of

PERSIST_MOMENTS = ("before append", "appended", "synced", "told")
"""The moments of a write at which a coordinator can die: before the append, before the sync, before
the answers, after the answers."""

DIRECTIONS = ("both", "to broker", "from broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Base of the actions."""

    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAction(Action):
    """Base of the actions on one pod."""

    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashBroker(Action):
    """The broker dies and starts again later."""

    down_ms: int
    power_cut: bool = False
    """Unsynced writes may be lost; otherwise only the present write may be torn."""
    silent: bool = False
    """The machine sends nothing: connections stay half open until a client notices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashAtPersist(Action):
    """The broker dies during its ``number``-th write, counted from 1."""

    number: int
    moment: str
    down_ms: int
    power_cut: bool = True
    at_ms: int = 0
    """Writes are counted from this instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallBroker(Action):
    """The process of the broker is paused."""

    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JumpWallClock(Action):
    """The time of day of the broker is set."""

    by_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPod(PodAction):
    """The process of a pod starts, unless one is running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPod(PodAction):
    """The consumer of a pod is closed; without ``leave`` it only commits (as Streams does).

    With ``drain`` the group first takes every partition away from the consumer.
    """

    back_after_ms: int | None = None
    leave: bool = True
    drain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KillPod(PodAction):
    """The process of a pod is killed; with ``node_lost`` its connections stay half open."""

    back_after_ms: int | None = None
    node_lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PausePod(PodAction):
    """The process of a pod is paused; for ever without ``for_ms``."""

    for_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPod(PodAction):
    """The network between a pod and the broker is cut, in one or both directions."""

    for_ms: int | None = None
    direction: str = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetLines(Action):
    """The connections of a pod are reset, and both ends learn it; of all pods without ``pod``."""

    pod: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfOpenLines(PodAction):
    """The connections of a pod lose all bytes from now on; neither end learns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather(Action):
    """The network behaves differently for some time."""

    for_ms: int
    delay_micros: int
    jitter_micros: int = 0
    reset_ppm: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDisk(Action):
    """Syncs take longer for some time."""

    for_ms: int
    sync_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FullDisk(Action):
    """The disk of the broker is full for some time."""

    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailSync(Action):
    """The next sync fails with EIO; an operator restarts the broker ``down_ms`` later."""

    down_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejoin(PodAction):
    """The application of a pod asks for a rebalance (KIP-568)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resubscribe(PodAction):
    """The application of a pod subscribes to other topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowTopic(Action):
    """A topic gets more partitions."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowApplication(PodAction):
    """The application of a pod takes this long for its next batch."""

    batch_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekPartitions(PodAction):
    """The application of a pod seeks in all its partitions, between two polls."""

    to: int
    """The offset; the end of a partition if that comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPositions(PodAction):
    """The application of a pod commits its positions, between two polls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PausePartitions(PodAction):
    """The application of a pod pauses all its partitions."""

    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsubscribePod(PodAction):
    """The application of a pod unsubscribes, and subscribes again ``again_ms`` later.

    A short time means: before the coordinator has answered.
    """

    again_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLeaders(Action):
    """All partitions of a topic get this node as their leader."""

    topic: str
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNode(Action):
    """A node that does not coordinate the group is down; the next node leads its partitions."""

    node: int
    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseCoordinator(Action):
    """The node refuses requests about groups with NOT_COORDINATOR.

    That is how members see a coordinator that moves to a node that cannot be reached yet. The node
    keeps the state of its groups, and their timers run on.
    """

    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactLog(Action):
    """The log of the coordinator is compacted."""

    power_cut: bool = False
    """The power fails just before the compacted segments replace the old ones."""
    down_ms: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroup(Action):
    """An operator asks for ListGroups and DescribeGroups; the answers must tell the state."""


ACTIONS: dict[str, type[Any]] = {each.__name__: each for each in kinds_of(globals(), Action)}


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
