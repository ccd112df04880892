"""A plan: a world as data, with its pods, their behaviour and the actions on them.

In: JSON. Out: frozen values, and JSON again. A plan and its seed decide everything that happens, so
a report needs only the plan to be replayed. Must not know: worlds, random plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from kohort.lab.actions import Action, action_from_json, action_to_json
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, Millis
from kohort.policies.deferred import Resolution
from kohort.policies.registry import assignors
from kohort.policies.rent_or_buy import most_wait_ms

T = TypeVar("T")

MAX_PODS = 10_000
MAX_NODES = 100
MAX_PARTITIONS = 100_000
MAX_DURATION_MS = 30 * 24 * 3_600_000

_SESSION_PIECES = 5
"""This many of the slowest pieces fit into a session: two heartbeats, their answers, a reserve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A topic and its rate of records."""

    name: str
    partitions: int
    records_per_second: float = 10.0
    """The rate of each partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """The settings of a consumer and the times of its application, in milliseconds."""

    strategy: str = "cooperative-sticky"
    topics: tuple[str, ...] = ("t",)
    scheduled_rebalance_max_delay_ms: int = 0
    move_cost_ms: int = 0
    """Above 0: the leader chooses each wait by this cost (``auto``)."""
    connect_rule: bool = False
    """Whether the leader waits as Kafka Connect does, for ``scheduled_rebalance_max_delay_ms``."""
    identity: bool = False
    """Whether the pod's name is the member's identity (``kohort.member.identity``)."""
    max_moves_per_round: int = 0
    """The limit of optional moves; 0 is no limit."""
    moves_interval_ms: int = 0
    handover_ms: int = 0
    """Above 0: all topics are stateful, and a preparation takes at most this long."""
    standbys: int = 0
    """Copies of each partition that other members keep, if the topics are stateful."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """Also the rebalance timeout, as in Kafka's consumer."""
    request_timeout_ms: int = 30_000
    metadata_max_age_ms: int = 300_000
    auto_commit_interval_ms: int | None = 5_000
    """None: the application never commits."""
    idle_ms: int = 1_000
    """The longest wait of a poll that finds no record."""
    look_ms: int = 0
    """The time between two looks of a waiting poll at the group; 0: it sees changes at once."""
    max_poll_records: int = 500
    batch_ms: int = 200
    """The mean processing time of a batch; exponential, at most four times the mean."""
    flush_ms: int = 0
    flush_each_ms: int = 0
    """The time of a revocation callback: once, and for each partition."""
    restore_cold_ms: int = 0
    restore_warm_ms: int = 0
    """The time before the first record of an assigned partition, without and with local state."""
    grace_ms: int = 30_000
    """The time between the request to end and the kill; 30 s is the default of Kubernetes."""
    state_survives: bool = True
    """Whether local state survives a restart."""

    @property
    def resolution(self) -> Resolution:
        """The waits and limits of a leader with this behaviour."""
        cost = Millis(self.move_cost_ms)
        return Resolution(
            most_wait_ms=most_wait_ms(cost)
            if cost
            else Millis(self.scheduled_rebalance_max_delay_ms),
            move_cost_ms=cost or None,
            most_moves=self.max_moves_per_round or None,
            moves_interval_ms=Millis(self.moves_interval_ms),
            stateful=self.stateful,
            handover_ms=Millis(self.handover_ms),
            standbys=self.standbys,
        )

    @property
    def stateful(self) -> frozenset[str]:
        """The topics with local state."""
        return frozenset(self.topics if self.handover_ms else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlan:
    """A pod: it runs consumer processes, one after the other."""

    name: str
    start_ms: int | None = 0
    """None: only an action starts the pod."""
    behaviour: Behaviour = field(default_factory=Behaviour)
    instance_id: str | None = None
    """``group.instance.id``: the same in every life of the pod (KIP-345). None: dynamic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlan:
    """Delays and faults of each direction; microseconds and parts per million of pieces."""

    delay_micros: int = 500
    jitter_micros: int = 0
    """Added, uniform. Connections may overtake each other; bytes of one connection may not."""
    slow_ppm: int = 0
    slow_factor: int = 20
    """The share of pieces that take ``slow_factor`` times longer."""
    reset_ppm: int = 0
    torn_ppm: int = 0
    """The share of sends that arrive in pieces, one after the other."""
    longest_piece: int = 39
    """The longest piece of such a send, in bytes."""
    merged_ppm: int = 0
    """The share of sends that wait for the next send and arrive together with its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskPlan:
    """The times of syncs of the broker's disk."""

    sync_micros: int = 2_000
    sync_jitter_micros: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything about one run.

    Raises:
        ConfigError: impossible sizes, names used twice, actions on pods that are not there.
    """

    seed: int
    name: str = "plan"
    duration_ms: int = 60_000
    group_id: str = "g"
    topics: tuple[TopicPlan, ...] = (TopicPlan(name="t", partitions=12),)
    pods: tuple[PodPlan, ...] = ()
    nodes: int = 1
    """Nodes of the cluster. Node 1 coordinates the group; all of them lead partitions."""
    network: NetworkPlan = field(default_factory=NetworkPlan)
    disk: DiskPlan = field(default_factory=DiskPlan)
    coordinator: tuple[tuple[str, str], ...] = ()
    """Dotted settings."""
    actions: tuple[Action, ...] = ()
    heal_ms: int | None = None
    """Liveness: after this time the core has no faults, and nothing else changes.

    The network becomes ``healed_network``.
    """
    core: tuple[str, ...] = ()
    """The pods that must converge after ``heal_ms``."""

    def __post_init__(self) -> None:
        names = [pod.name for pod in self.pods]
        _limit("pods", len(names), 1, MAX_PODS)
        _limit("nodes", self.nodes, 1, MAX_NODES)
        _limit("duration_ms", self.duration_ms, 1, MAX_DURATION_MS)
        for topic in self.topics:
            _limit(f"partitions of topic {topic.name}", topic.partitions, 1, MAX_PARTITIONS)
        if len(set(names)) != len(names):
            raise ConfigError(f"two pods have one name among {', '.join(sorted(names))}")
        known = {*names, None}
        for action in self.actions:
            if getattr(action, "pod", None) not in known:
                raise ConfigError(f"{action} is about a pod that the plan does not have")
        if unknown := sorted(set(self.core) - set(names)):
            raise ConfigError(f"core names pods that the plan does not have: {', '.join(unknown)}")
        for strategy in sorted({pod.behaviour.strategy for pod in self.pods}):
            assignors(strategy)

    @property
    def defers(self) -> bool:
        """Whether a possible leader lets partitions of lost members wait."""
        return any(pod.behaviour.resolution.most_wait_ms for pod in self.pods)

    @property
    def hands_over(self) -> bool:
        """Whether every possible leader lets partitions of all topics wait for warm copies."""
        topics = frozenset(topic.name for topic in self.topics)
        return all(topics <= pod.behaviour.stateful for pod in self.pods)

    @property
    def moves_per_step(self) -> int:
        """The limit of moves that every possible leader has; 0 without one."""
        limits = {pod.behaviour.max_moves_per_round for pod in self.pods}
        return limits.pop() if len(limits) == 1 else 0

    @property
    def step_interval_ms(self) -> Millis:
        """The time between two steps that every possible leader keeps at least."""
        return Millis(min((pod.behaviour.moves_interval_ms for pod in self.pods), default=0))

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """All partitions at the start."""
        return tuple(
            TopicPartition(topic.name, n) for topic in self.topics for n in range(topic.partitions)
        )

    @property
    def healed_network(self) -> NetworkPlan:
        """The network without faults: a session has room for two heartbeats and their answers.

        A slower network would cost members their sessions for ever. Until ``heal_ms`` the network
        may be slower. The delay of every piece stays as planned.
        """
        network = self.network
        usual = max(1, network.delay_micros + network.jitter_micros)
        session_ms = min((p.behaviour.session_timeout_ms for p in self.pods), default=0)
        longest = session_ms * MICROS_PER_MILLI // _SESSION_PIECES
        factor = min(network.slow_factor, max(1, longest // usual))
        return replace(network, slow_factor=factor)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self) | {
            "actions": [action_to_json(action) for action in self.actions],
            "coordinator": dict(self.coordinator),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Plan:
        """The plan that JSON values describe.

        Raises:
            ConfigError: an unknown field, a missing one, or a value out of range.
        """
        given = dict(values)
        try:
            given["actions"] = tuple(
                action_from_json(action) for action in given.get("actions", ())
            )
            given["topics"] = tuple(_make(TopicPlan, t) for t in given.get("topics", ()))
            given["pods"] = tuple(_pod(p) for p in given.get("pods", ()))
            given["network"] = _make(NetworkPlan, given.get("network", {}))
            given["disk"] = _make(DiskPlan, given.get("disk", {}))
            given["coordinator"] = tuple(
                (str(k), str(v)) for k, v in dict(given.get("coordinator", {})).items()
            )
            given["core"] = tuple(given.get("core", ()))
        except (TypeError, AttributeError, ValueError) as error:
            raise ConfigError(f"this is no plan: {error}") from error
        return _make(cls, given)


def _pod(values: Mapping[str, Any]) -> PodPlan:
    given = dict(values)
    behaviour = dict(given.get("behaviour", {}))
    if "topics" in behaviour:
        behaviour["topics"] = tuple(behaviour["topics"])
    given["behaviour"] = _make(Behaviour, behaviour)
    return _make(PodPlan, given)


def _make(kind: type[T], values: Mapping[str, Any]) -> T:
    try:
        return kind(**values)
    except TypeError as error:
        raise ConfigError(f"{kind.__name__}: {error}") from error


def _limit(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{what} must be between {low} and {high}, but is {value}")
