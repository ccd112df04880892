"""What is done to a world, as data: faults, and what operators do.

In: JSON; out: frozen values, and back. An act names an instant and what it is done to, so a list of
acts replays; nothing in here acts. Must not know: worlds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias

from kohort.model.errors import ConfigError

PERSIST_MOMENTS = ("before append", "appended", "synced", "told")
"""Where in a persist a coordinator can die: nothing written; written and not synced; synced and
not told; told, with the answers on their way."""

DIRECTIONS = ("both", "to broker", "from broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashBroker:
    """The broker dies and is started again later."""

    at_ms: int
    down_ms: int
    power_cut: bool = False
    """Unsynced writes may be lost; else only a write under way may be torn."""
    silent: bool = False
    """Nobody is told: connections stay half open until a client notices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashAtPersist:
    """The broker dies at a moment of its ``number``-th persist (from 1)."""

    number: int
    moment: str
    down_ms: int
    power_cut: bool = True
    at_ms: int = 0
    """From when on persists are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallBroker:
    """The broker's process stands still."""

    at_ms: int
    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JumpWallClock:
    """The time of day is set."""

    at_ms: int
    by_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPod:
    """A pod's process starts, if it is not running."""

    at_ms: int
    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPod:
    """A pod's consumer is closed in order; without ``leave`` it only goes (as Streams does)."""

    at_ms: int
    pod: str
    back_after_ms: int | None = None
    leave: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class KillPod:
    """A pod's process is killed; ``node_lost`` closes no connection."""

    at_ms: int
    pod: str
    back_after_ms: int | None = None
    node_lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PausePod:
    """A pod's process stands still; for ever without ``for_ms``."""

    at_ms: int
    pod: str
    for_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPod:
    """Nothing passes between a pod and the broker, in one or both directions."""

    at_ms: int
    pod: str
    for_ms: int | None = None
    direction: str = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetLines:
    """Connections break, and both ends hear of it; all pods' without ``pod``."""

    at_ms: int
    pod: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfOpenLines:
    """A pod's connections carry nothing any more, and nobody is told."""

    at_ms: int
    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """The network is different for a while."""

    at_ms: int
    for_ms: int
    delay_micros: int
    jitter_micros: int = 0
    reset_ppm: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDisk:
    """Syncs take longer for a while."""

    at_ms: int
    for_ms: int
    sync_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FullDisk:
    """There is no room on the broker's disk for a while."""

    at_ms: int
    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailSync:
    """The next sync fails with EIO; the broker is restarted by its operator ``down_ms`` later."""

    at_ms: int
    down_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejoin:
    """A pod's application asks for a rebalance (KIP-568)."""

    at_ms: int
    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resubscribe:
    """A pod's application subscribes to other topics."""

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
    """A pod's application takes this long for its next batch."""

    at_ms: int
    pod: str
    batch_ms: int


Act: TypeAlias = (
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
)

ACTS: dict[str, type[Any]] = {
    each.__name__: each
    for each in (
        CrashBroker,
        CrashAtPersist,
        StallBroker,
        JumpWallClock,
        StartPod,
        StopPod,
        KillPod,
        PausePod,
        CutPod,
        ResetLines,
        HalfOpenLines,
        Weather,
        SlowDisk,
        FullDisk,
        FailSync,
        Rejoin,
        Resubscribe,
        GrowTopic,
        SlowApplication,
    )
}


def act_to_json(act: Act) -> dict[str, Any]:
    """An act as a JSON object; ``act`` has its kind."""
    values = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(act).items()}
    return {"act": type(act).__name__, **values}


def act_from_json(value: Mapping[str, Any]) -> Act:
    """The act that a JSON object describes.

    Raises:
        ConfigError: an unknown kind or field.
    """
    kind = ACTS.get(str(value.get("act")))
    if kind is None:
        known = ", ".join(ACTS)
        raise ConfigError(f"act {value.get('act')!r} is unknown; known: {known}")
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items() if k != "act"}
    names = {f.name for f in fields(kind)}
    if unknown := sorted(given.keys() - names):
        raise ConfigError(f"{kind.__name__} has no field {', '.join(unknown)}")
    try:
        made: Act = kind(**given)
    except TypeError as error:
        raise ConfigError(f"{kind.__name__}: {error}") from error
    return made
