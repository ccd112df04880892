"""A scenario: actions on a group, made from the size of the group and a seed, without a policy.

In: how many members and partitions, a seed, a policy; out: the plan of a world and the instant from
which on it is measured. The same seed tells every policy the same story. Must not know: any
scenario, how results are shown.

Durations, restarts and costs are those of reliability.md 5.1 and 5.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from kohort.history.clairvoyant import Costs
from kohort.lab.actions import Action, StopPod
from kohort.lab.compared_policies import ComparedPolicy
from kohort.lab.plan import MAX_PARTITIONS, Behaviour, NetworkPlan, Plan, PodPlan, TopicPlan
from kohort.model.errors import ConfigError

GROUP: Final = "orders"
TOPIC: Final = "orders"
MAX_MEMBERS: Final = 1_000
SETTLED_MS: Final = 120_000
"""The time of the first disturbance; all state is restored and has served long enough."""
CALM_MS: Final = 300_000
"""After the last disturbance: a session timeout, a wait and a long restore fit in."""
RECORDS_PER_SECOND: Final = 0.2
"""Of each partition: enough for duplicates, few enough for long stories."""

COSTS: Final = Costs(flush_each_ms=50, restore_cold_ms=5_000, restore_warm_ms=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Timeouts of all members in milliseconds; None keeps the scenario's own."""

    session_ms: int | None = None
    """``session.timeout.ms``. The heartbeat interval is then at most a third of it."""
    poll_ms: int | None = None
    """``max.poll.interval.ms``, which is also the rebalance timeout."""

    def within(self, behaviour: Behaviour) -> Behaviour:
        """The behaviour with these timeouts."""
        if self.session_ms is not None:
            beat = min(behaviour.heartbeat_interval_ms, self.session_ms // 3)
            behaviour = replace(
                behaviour, session_timeout_ms=self.session_ms, heartbeat_interval_ms=beat
            )
        if self.poll_ms is not None:
            behaviour = replace(behaviour, max_poll_interval_ms=self.poll_ms)
        return behaviour

    @property
    def more_calm_ms(self) -> int:
        """The time after the last disturbance that longer timeouts than the usual ones need."""
        usual = Behaviour()
        session = self.session_ms or usual.session_timeout_ms
        poll = self.poll_ms or usual.max_poll_interval_ms
        return max(0, session - usual.session_timeout_ms, poll - usual.max_poll_interval_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The choices for one run of a scenario."""

    policy: ComparedPolicy
    members: int = 10
    partitions: int = 200
    seed: int = 1
    costs: Costs = COSTS
    timeouts: Timeouts = field(default_factory=Timeouts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The plan of a scenario; times in milliseconds since the world began."""

    actions: tuple[Action, ...]
    begin_ms: int
    """When the first disturbance comes: measured from here on."""
    end_ms: int
    """When the last one is over, restarts included; the world goes on for a while."""
    starts_ms: tuple[int | None, ...]
    """When each pod's first process starts; None: an action starts it."""
    initial_delay_ms: int = 3_000
    behaviour: Behaviour = field(default_factory=Behaviour)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A named scenario."""

    name: str
    title: str
    about: str
    tell: Callable[[int, Random], Story]
    """The story of a group of this many members."""
    least_members: int = 2


def plan_of(scenario: Scenario, setup: Setup) -> tuple[Plan, Story]:
    """The world in which a scenario happens to a group.

    Raises:
        ConfigError: impossible sizes.
    """
    check_sizes(scenario, setup.members, setup.partitions)
    story = scenario.tell(setup.members, Random(f"{setup.seed}/{scenario.name}"))
    behaviour = setup.policy.adapt(_with_costs(story.behaviour, setup.costs))
    behaviour = setup.timeouts.within(behaviour)
    plan = Plan(
        seed=setup.seed,
        name=f"{scenario.name} under {setup.policy.name}",
        duration_ms=story.end_ms + CALM_MS + setup.timeouts.more_calm_ms,
        group_id=GROUP,
        topics=(
            TopicPlan(
                name=TOPIC, partitions=setup.partitions, records_per_second=RECORDS_PER_SECOND
            ),
        ),
        pods=tuple(
            PodPlan(
                name=pod_name(n),
                start_ms=start,
                behaviour=behaviour,
                instance_id=pod_name(n) if setup.policy.static else None,
            )
            for n, start in enumerate(story.starts_ms)
        ),
        network=NetworkPlan(delay_micros=250, jitter_micros=750, slow_ppm=10_000, slow_factor=20),
        coordinator=(("group.initial.rebalance.delay.ms", str(story.initial_delay_ms)),),
        actions=_actions_of(story.actions, setup.policy),
    )
    return plan, story


def check_sizes(scenario: Scenario, members: int, partitions: int) -> None:
    """Whether a scenario can happen to a group of that size.

    Raises:
        ConfigError: it cannot; the message has the limits.
    """
    least = scenario.least_members
    if not least <= members <= MAX_MEMBERS:
        raise ConfigError(
            f"scenario {scenario.name} needs {least} to {MAX_MEMBERS} members, not {members}"
        )
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise ConfigError(f"partitions must be 1 to {MAX_PARTITIONS}, not {partitions}")


def pod_name(number: int) -> str:
    """The name of a pod, from 0 on; the first pod leads the group while it is up."""
    return f"pod-{number}"


def settled_group(members: int, random: Random) -> tuple[int, ...]:
    """When the pods of a group start that has long been there; the first one leads it."""
    return (0, *(500 + random.randrange(1_500) for _ in range(members - 1)))


def first_disturbance(random: Random) -> int:
    """When it comes: at any moment between two heartbeats."""
    return SETTLED_MS + random.randrange(3_000)


def a_follower(members: int, random: Random) -> str:
    """A pod that does not lead."""
    return pod_name(random.randrange(1, members))


def restart_ms(random: Random, *, at_most: int = 120_000) -> int:
    """How long a container takes to come back in place: lognormal, median 20 s."""
    return min(at_most, round(20_000 * random.lognormvariate(0, 0.5)))


def _actions_of(actions: tuple[Action, ...], policy: ComparedPolicy) -> tuple[Action, ...]:
    """Static members do not leave when they are closed. An operator may drain before scale-down."""

    def adapted(action: Action) -> Action:
        if not isinstance(action, StopPod):
            return action
        drain = policy.drains_always or (policy.drains and action.back_after_ms is None)
        return replace(action, leave=action.leave and not policy.static, drain=drain)

    return tuple(map(adapted, actions))


def _with_costs(behaviour: Behaviour, costs: Costs) -> Behaviour:
    return replace(
        behaviour,
        topics=(TOPIC,),
        flush_ms=costs.flush_ms,
        flush_each_ms=costs.flush_each_ms,
        restore_cold_ms=costs.restore_cold_ms,
        restore_warm_ms=costs.restore_warm_ms,
        state_survives=costs.state_survives,
    )
