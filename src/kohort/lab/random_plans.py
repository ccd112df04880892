"""Plans drawn from a seed (swarm testing): each seed draws its own world and its own faults.

In: a seed and a mode. Out: a plan. Each kind of fault is first switched on or off for the whole
plan, so that many plans lack most kinds. Otherwise frequent faults would hide the effects of rare
ones. Must not know: worlds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from kohort.lab import actions
from kohort.lab.actions import Action
from kohort.lab.plan import Behaviour, DiskPlan, NetworkPlan, Plan, PodPlan, TopicPlan
from kohort.model.errors import ConfigError

MODES: Final = ("safety", "liveness")
_STRATEGIES: Final = ("range", "roundrobin", "sticky", "cooperative-sticky", "cooperative-sticky")
_REBALANCE_TIMEOUTS: Final = (10_000, 20_000, 60_000)
_CALM_MS: Final = 15_000
"""The time at the beginning without any action."""

_STATIC: Final = 0.3
"""The share of groups with static members."""

_ALIKE: Final = 0.6
"""The share of groups in which all members have the same assignors and rebalance timeout."""

_PLAIN: Final = 0.5
"""The share of groups without waits and without a limit of moves."""
_IDENTITIES: Final = 0.5
"""The share of members with an identity, in the other groups."""
_DRAINS: Final = 0.3
"""The share of orderly ends that begin with a drain."""

_MOST_PARTITIONS: Final = 24
"""Three topics of eight partitions."""

_ACTIONS_MS: Final = 150_000
_SAFETY_TAIL_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class _Draw:
    """The generator of a plan's choices, with the things to choose from."""

    random: Random
    pods: tuple[str, ...]
    topics: tuple[TopicPlan, ...]
    nodes: int

    @property
    def at_ms(self) -> int:
        return self.random.randrange(_CALM_MS, _CALM_MS + _ACTIONS_MS)

    @property
    def pod(self) -> str:
        return self.random.choice(self.pods)

    def ms(self, low: int, high: int) -> int:
        """A duration; short ones as likely as long ones, by order of magnitude."""
        return int(low * (high / low) ** self.random.random())

    def maybe(self, value: int, percent: int) -> int | None:
        """The value; None in this many of 100 cases."""
        return None if self.random.randrange(100) < percent else value


def draw(seed: int, mode: str = "safety") -> Plan:
    """The plan of a seed.

    Raises:
        ConfigError: an unknown mode.
    """
    if mode not in MODES:
        raise ConfigError(f"mode {mode!r} is unknown; known: {', '.join(MODES)}")
    random = Random(f"swarm {mode} {seed}")
    count = random.choice((1, 2, 2, 3, 3, 4, 5, 7))
    topics = tuple(
        TopicPlan(name=f"t{n}", partitions=random.randrange(1, 9), records_per_second=2.0)
        for n in range(random.choice((1, 1, 2, 3)))
    )
    names = tuple(f"pod-{n}" for n in range(count))
    behaviour = _behaviour(random, topics)
    static = random.random() < _STATIC
    delay_ms = random.choice((0, 0, 500, 3_000))
    alike = random.random() < _ALIKE
    pods = tuple(
        _pod(
            random,
            name,
            behaviour if alike else _different(random, behaviour),
            topics,
            static=static,
            trickle_ms=random.choice((2_000, 2_000, 2 * delay_ms or 2_000)),
        )
        for name in names
    )
    pods = _resolving(Random(f"resolution {mode} {seed}"), pods)
    nodes = random.choice((1, 1, 1, 2, 3))
    drawn = _Draw(random, names, topics, nodes)
    planned = _actions(drawn)
    end = _CALM_MS + _ACTIONS_MS
    heal_ms: int | None = None
    core: tuple[str, ...] = ()
    duration = end + _SAFETY_TAIL_MS
    if mode == "liveness":
        heal_ms = end
        core = tuple(sorted(random.sample(names, random.randrange(1, count + 1))))
        duration = end + max(settle_ms(pod.behaviour) for pod in pods) + 60_000
    return Plan(
        seed=seed,
        name=f"swarm {mode}",
        duration_ms=duration,
        topics=topics,
        pods=pods,
        nodes=nodes,
        network=_network(random),
        disk=DiskPlan(
            sync_micros=drawn.ms(100, 20_000), sync_jitter_micros=random.choice((0, 5_000))
        ),
        coordinator=(
            ("group.initial.rebalance.delay.ms", str(delay_ms)),
            ("group.min.session.timeout.ms", "1000"),
            ("offsets.topic.num.partitions", str(random.choice((1, 1, 3)))),
        ),
        actions=planned,
        heal_ms=heal_ms,
        core=core,
    )


def settle_ms(behaviour: Behaviour) -> int:
    """The longest time in which a healed core becomes stable.

    A silent member delays the others by one session, and its successor may first have to notice
    that its own session was not confirmed. A slow member delays the join phase by a rebalance
    timeout, and the sync phase by another. A few heartbeats and the wait for metadata follow. So do
    a wait for a lost member, a preparation, and the pauses between rounds with a limit of moves.
    """
    waits = behaviour.resolution.most_wait_ms + behaviour.handover_ms
    if behaviour.max_moves_per_round:
        pause = behaviour.moves_interval_ms + 2 * behaviour.heartbeat_interval_ms
        if behaviour.handover_ms:
            pause += behaviour.restore_cold_ms + behaviour.heartbeat_interval_ms
        waits += _MOST_PARTITIONS // behaviour.max_moves_per_round * pause
    rounds = 2 * behaviour.session_timeout_ms + 2 * behaviour.max_poll_interval_ms
    beats = 5 * behaviour.heartbeat_interval_ms
    return rounds + beats + waits + behaviour.request_timeout_ms + behaviour.metadata_max_age_ms


def _behaviour(random: Random, topics: tuple[TopicPlan, ...]) -> Behaviour:
    session = random.choice((6_000, 10_000, 10_000, 45_000))
    poll = random.choice(_REBALANCE_TIMEOUTS)
    return Behaviour(
        strategy=random.choice(_STRATEGIES),
        topics=tuple(topic.name for topic in topics),
        session_timeout_ms=session,
        # A member with a longer interval may miss a whole rebalance.
        heartbeat_interval_ms=min(session, poll) // random.choice((3, 5)),
        max_poll_interval_ms=poll,
        request_timeout_ms=random.choice((3_000, 10_000, 30_000)),
        metadata_max_age_ms=random.choice((5_000, 30_000)),
        auto_commit_interval_ms=random.choice((1_000, 5_000, None)),
        idle_ms=random.choice((200, 1_000)),
        batch_ms=random.choice((0, 50, 500, 2_000)),
        flush_ms=random.choice((0, 0, 100, 3_000)),
        flush_each_ms=random.choice((0, 50)),
        restore_cold_ms=random.choice((0, 0, 2_000)),
        state_survives=random.random() < 0.5,
    )


def _resolving(random: Random, pods: tuple[PodPlan, ...]) -> tuple[PodPlan, ...]:
    """The pods with waits and limits of moves: none in half of the plans, else mostly equal."""

    def drawn() -> dict[str, Any]:
        found: dict[str, Any] = {
            "scheduled_rebalance_max_delay_ms": random.choice((0, 1_000, 10_000, 60_000)),
            "max_moves_per_round": random.choice((0, 0, 1, 3)),
            "moves_interval_ms": random.choice((0, 2_000)),
            "move_cost_ms": random.choice((0, 0, 0, 5_000)),
            "identity": random.random() < _IDENTITIES,
            "handover_ms": random.choice((0, 0, 5_000, 60_000)),
        }
        # Not drawn: the plans of known seeds stay as they are.
        found["standbys"] = 1 if found["handover_ms"] == 5_000 else 0
        return found

    if random.random() < _PLAIN:
        return pods
    common = drawn()
    return tuple(
        replace(
            pod,
            behaviour=replace(pod.behaviour, **(common if random.random() < _ALIKE else drawn())),
        )
        for pod in pods
    )


def _different(random: Random, behaviour: Behaviour) -> Behaviour:
    """The behaviour of one pod: more assignors than the common one, another rebalance timeout."""
    offered = [behaviour.strategy]
    for strategy in _STRATEGIES[:3]:
        if strategy not in offered and random.random() < 0.4:
            offered.insert(random.randrange(len(offered) + 1), strategy)
    session = behaviour.session_timeout_ms
    beats = min(session, *_REBALANCE_TIMEOUTS) // 3
    return replace(
        behaviour,
        strategy=",".join(offered),
        max_poll_interval_ms=random.choice(_REBALANCE_TIMEOUTS),
        heartbeat_interval_ms=min(behaviour.heartbeat_interval_ms, beats),
    )


def _pod(
    random: Random,
    name: str,
    behaviour: Behaviour,
    topics: tuple[TopicPlan, ...],
    *,
    static: bool,
    trickle_ms: int,
) -> PodPlan:
    """A pod; a few subscribe to other topics, or start late.

    Most start within ``trickle_ms``, which may be longer than the initial delay of the group.
    """
    mine = behaviour
    if len(topics) > 1 and random.random() < 0.15:
        some = random.sample([t.name for t in topics], random.randrange(1, len(topics)))
        mine = replace(behaviour, topics=tuple(sorted(some)))
    late = random.random() < 0.2
    return PodPlan(
        name=name,
        start_ms=random.randrange(60_000 if late else trickle_ms),
        behaviour=mine,
        instance_id=name if static else None,
    )


def _network(random: Random) -> NetworkPlan:
    def sometimes(*values: int) -> int:
        return random.choice(values) if random.random() < 0.4 else 0

    return NetworkPlan(
        delay_micros=random.choice((100, 500, 5_000, 50_000)),
        jitter_micros=sometimes(1_000, 20_000, 200_000),
        slow_ppm=sometimes(10_000, 50_000),
        reset_ppm=sometimes(500, 5_000),
        torn_ppm=sometimes(10_000, 500_000),
        merged_ppm=sometimes(10_000, 300_000),
    )


# -- actions ------------------------------------------------------------------------------------


def _actions(drawn: _Draw) -> tuple[Action, ...]:
    random = drawn.random
    planned: list[Action] = []
    for draw_some in _ACTIONS:
        if random.random() < 0.25:
            for _ in range(random.choice((1, 1, 2, 4))):
                planned += draw_some(drawn)
    return tuple(sorted(planned, key=lambda action: (action.at_ms, repr(action))))


def _kills(d: _Draw) -> list[Action]:
    back = d.maybe(d.ms(100, 40_000), 20)
    lost = d.random.random() < 0.4
    return [actions.KillPod(at_ms=d.at_ms, pod=d.pod, back_after_ms=back, node_lost=lost)]


def _stops(d: _Draw) -> list[Action]:
    back = d.maybe(d.ms(100, 40_000), 20)
    leave = d.random.random() < 0.8
    drain = leave and d.random.random() < _DRAINS
    return [actions.StopPod(at_ms=d.at_ms, pod=d.pod, back_after_ms=back, leave=leave, drain=drain)]


def _rolling(d: _Draw) -> list[Action]:
    at, gap, back = d.at_ms, d.ms(500, 20_000), d.ms(100, 10_000)
    return [
        actions.StopPod(at_ms=at + n * gap, pod=pod, back_after_ms=back)
        for n, pod in enumerate(d.pods)
    ]


def _swizzle(d: _Draw) -> list[Action]:
    """Cut the pods one after another, and heal them in another order."""
    at, step = d.at_ms, d.ms(200, 5_000)
    healing = d.random.sample(d.pods, len(d.pods))
    return [
        actions.CutPod(
            at_ms=at + n * step,
            pod=pod,
            for_ms=(len(d.pods) + healing.index(pod) - n + 1) * step,
        )
        for n, pod in enumerate(d.pods)
    ]


def _rejoins(d: _Draw) -> list[Action]:
    at = d.at_ms
    pods = d.pods if d.random.random() < 0.3 else (d.pod,)
    return [actions.Rejoin(at_ms=at, pod=pod) for pod in pods]


def _resubscribes(d: _Draw) -> list[Action]:
    names = [topic.name for topic in d.topics]
    some = tuple(sorted(d.random.sample(names, d.random.randrange(1, len(names) + 1))))
    return [actions.Resubscribe(at_ms=d.at_ms, pod=d.pod, topics=some)]


def _growth(d: _Draw) -> list[Action]:
    topic = d.random.choice(d.topics)
    more = topic.partitions + d.random.randrange(1, 5)
    return [actions.GrowTopic(at_ms=d.at_ms, topic=topic.name, partitions=more)]


def _moves_of_leaders(d: _Draw) -> list[Action]:
    topic = d.random.choice(d.topics).name
    node = d.random.randrange(1, d.nodes + 1)
    return [actions.MoveLeaders(at_ms=d.at_ms, topic=topic, node=node)]


def _stopped_nodes(d: _Draw) -> list[Action]:
    if d.nodes == 1:
        return []
    node = d.random.randrange(2, d.nodes + 1)
    return [actions.StopNode(at_ms=d.at_ms, node=node, for_ms=d.ms(500, 30_000))]


_ACTIONS: Final[tuple[Callable[[_Draw], list[Action]], ...]] = (
    lambda d: [
        actions.CrashBroker(
            at_ms=d.at_ms,
            down_ms=d.ms(100, 20_000),
            power_cut=d.random.random() < 0.5,
            silent=d.random.random() < 0.3,
        )
    ],
    lambda d: [
        actions.CrashAtPersist(
            at_ms=d.random.choice((0, d.at_ms)),
            number=d.random.randrange(1, 12),
            moment=d.random.choice(actions.PERSIST_MOMENTS),
            down_ms=d.ms(50, 5_000),
            power_cut=d.random.random() < 0.7,
        )
    ],
    lambda d: [actions.StallBroker(at_ms=d.at_ms, for_ms=d.ms(100, 20_000))],
    lambda d: [actions.JumpWallClock(at_ms=d.at_ms, by_ms=d.random.choice((-1, 1)) * 86_400_000)],
    _kills,
    _stops,
    _rolling,
    lambda d: [actions.PausePod(at_ms=d.at_ms, pod=d.pod, for_ms=d.maybe(d.ms(200, 60_000), 15))],
    lambda d: [
        actions.CutPod(
            at_ms=d.at_ms,
            pod=d.pod,
            for_ms=d.maybe(d.ms(200, 60_000), 15),
            direction=d.random.choice(actions.DIRECTIONS),
        )
    ],
    _swizzle,
    lambda d: [actions.ResetLines(at_ms=d.at_ms, pod=d.random.choice((None, d.pod)))],
    lambda d: [actions.HalfOpenLines(at_ms=d.at_ms, pod=d.pod)],
    lambda d: [
        actions.Weather(
            at_ms=d.at_ms,
            for_ms=d.ms(1_000, 30_000),
            delay_micros=d.ms(1_000, 2_000_000),
            jitter_micros=d.ms(1_000, 2_000_000),
            reset_ppm=d.random.choice((0, 10_000, 100_000)),
        )
    ],
    lambda d: [
        actions.SlowDisk(at_ms=d.at_ms, for_ms=d.ms(1_000, 30_000), sync_ms=d.ms(50, 8_000))
    ],
    lambda d: [actions.FullDisk(at_ms=d.at_ms, for_ms=d.ms(500, 20_000))],
    lambda d: [actions.FailSync(at_ms=d.at_ms, down_ms=d.ms(500, 10_000))],
    _rejoins,
    _resubscribes,
    _growth,
    lambda d: [actions.SlowApplication(at_ms=d.at_ms, pod=d.pod, batch_ms=d.ms(2_000, 90_000))],
    lambda d: [actions.SeekPartitions(at_ms=d.at_ms, pod=d.pod, to=d.ms(1, 300))],
    lambda d: [actions.CommitPositions(at_ms=d.at_ms, pod=d.pod) for _ in range(5)],
    lambda d: [actions.PausePartitions(at_ms=d.at_ms, pod=d.pod, for_ms=d.ms(500, 30_000))],
    lambda d: [actions.UnsubscribePod(at_ms=d.at_ms, pod=d.pod, again_ms=d.ms(1, 15_000))],
    _moves_of_leaders,
    _stopped_nodes,
    lambda d: [actions.LoseCoordinator(at_ms=d.at_ms, for_ms=d.ms(100, 20_000))],
    lambda d: [actions.CompactLog(at_ms=d.at_ms, power_cut=d.random.random() < 0.5)],
    lambda d: [actions.DescribeGroup(at_ms=d.at_ms) for _ in range(5)],
)
"""The kinds of actions, each drawn with its values. Another order draws other plans from a seed."""
