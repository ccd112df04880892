"""Scenarios in which the known bugs become visible: plans drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from kohort.lab import actions
from kohort.lab.actions import Action
from kohort.lab.plan import Behaviour, NetworkPlan, Plan, PodPlan, TopicPlan
from kohort.lab.random_plans import settle_ms

QUICK = Behaviour(
    session_timeout_ms=6_000,
    heartbeat_interval_ms=1_000,
    max_poll_interval_ms=10_000,
    request_timeout_ms=5_000,
    metadata_max_age_ms=5_000,
    auto_commit_interval_ms=1_000,
    idle_ms=500,
    batch_ms=50,
)

_COOPERATIVE = replace(QUICK, strategy="cooperative-sticky")


def scenario(
    seed: int,
    planned: Callable[[Random], list[Action]],
    *,
    pods: int = 3,
    partitions: int = 6,
    static: bool = False,
    seconds: int = 60,
    behaviour: Behaviour = QUICK,
    network: NetworkPlan | None = None,
    initial_delay_ms: int = 0,
) -> Plan:
    """A plan with some events, then a healed world."""
    random = Random(f"scenario {seed}")
    names = [f"p{n}" for n in range(pods)]
    heal = seconds * 1_000
    return Plan(
        seed=seed,
        name="known bug",
        duration_ms=heal + settle_ms(behaviour) + 20_000,
        topics=(TopicPlan(name="t", partitions=partitions, records_per_second=5.0),),
        pods=tuple(
            PodPlan(
                name=name,
                start_ms=random.randrange(500),
                behaviour=behaviour,
                instance_id=name if static else None,
            )
            for name in names
        ),
        network=network or NetworkPlan(delay_micros=2_000, jitter_micros=4_000),
        coordinator=(
            ("group.initial.rebalance.delay.ms", str(initial_delay_ms)),
            ("offsets.topic.num.partitions", "1"),
        ),
        actions=tuple(planned(random)),
        heal_ms=heal,
        core=tuple(names),
    )


def static_zombies(seed: int) -> Plan:
    """A process is cut off, and another process starts with its instance id; the broker crashes.

    Then the network of the first process heals. The last pod has the instance id of the first pod.
    """

    def planned(random: Random) -> list[Action]:
        return [
            actions.CutPod(at_ms=14_000 + random.randrange(200), pod="p0", for_ms=4_500),
            actions.CrashBroker(at_ms=16_500 + random.randrange(500), down_ms=100),
        ]

    plan = scenario(seed, planned, pods=4, static=True)
    first, *others, last = plan.pods
    takes_over = replace(last, start_ms=14_500, instance_id=first.instance_id)
    return replace(plan, pods=(first, *others, takes_over), core=plan.core[1:])


def everybody_dies(seed: int) -> Plan:
    """Broker and pods die together twice: before the first commits are synced, and later."""

    def planned(random: Random) -> list[Action]:
        planned: list[Action] = [actions.SlowDisk(at_ms=1_000, for_ms=40_000, sync_ms=1_500)]
        for at in (3_000 + random.randrange(2_000), 25_000 + random.randrange(1_000)):
            planned.append(actions.CrashBroker(at_ms=at, down_ms=200, power_cut=True))
            planned += (actions.KillPod(at_ms=at, pod=f"p{n}", back_after_ms=500) for n in range(3))
        return planned

    return scenario(seed, planned)


def static_returns_in_the_sync_phase(seed: int) -> Plan:
    """A static pod restarts while the group waits for the assignment of its leader."""

    def planned(random: Random) -> list[Action]:
        planned: list[Action] = []
        for at in (12_000, 24_000, 36_000, 48_000):
            planned.append(actions.Rejoin(at_ms=at, pod="p0"))
            lag = random.randrange(700, 1_600)
            planned.append(actions.KillPod(at_ms=at + lag, pod="p1", back_after_ms=1))
        return planned

    return scenario(seed, planned, static=True, network=NetworkPlan(delay_micros=120_000))


def churn(seed: int) -> Plan:
    """Pods start and stop faster than rebalances end."""

    def planned(random: Random) -> list[Action]:
        planned: list[Action] = []
        for at in range(10_000, 50_000, 2_500):
            pod = f"p{random.randrange(4)}"
            when = at + random.randrange(1_500)
            kind = random.randrange(4)
            if kind == 0:
                planned.append(
                    actions.StopPod(at_ms=when, pod=pod, back_after_ms=random.randrange(3_000))
                )
            elif kind == 1:
                planned.append(
                    actions.KillPod(at_ms=when, pod=pod, back_after_ms=random.randrange(3_000))
                )
            elif kind == 2:
                pause = random.choice((1_500, 3_000, 8_000))
                planned.append(actions.PausePod(at_ms=when, pod=pod, for_ms=pause))
            else:
                planned.append(
                    actions.CutPod(at_ms=when, pod=pod, for_ms=random.randrange(500, 9_000))
                )
        return planned

    return scenario(seed, planned, pods=4, partitions=10)


def flushing_churn(seed: int) -> Plan:
    """As ``churn``, with slow callbacks and with batches between polls."""
    plan = churn(seed)
    slow = replace(QUICK, flush_ms=300, batch_ms=100, strategy="range")
    return replace(plan, pods=tuple(replace(pod, behaviour=slow) for pod in plan.pods))


def sticky_churn(seed: int) -> Plan:
    """Rebalances of an eager sticky group begin before the previous one ends; a slow network."""

    def planned(random: Random) -> list[Action]:
        planned: list[Action] = []
        for at in range(10_000, 50_000, 8_000):
            planned.append(actions.Rejoin(at_ms=at, pod="p0"))
            planned.append(actions.Rejoin(at_ms=at + random.randrange(300, 2_500), pod="p1"))
            when = at + random.randrange(300, 2_500)
            planned.append(
                actions.StopPod(at_ms=when, pod="p3", back_after_ms=random.randrange(100, 2_000))
            )
        return planned

    return scenario(
        seed,
        planned,
        pods=4,
        partitions=11,
        behaviour=replace(QUICK, strategy="sticky"),
        network=NetworkPlan(delay_micros=150_000, jitter_micros=200_000),
    )


def busy_committers(seed: int) -> Plan:
    """Commits are on their way while a rebalance begins, on a slow network."""
    plan = sticky_churn(seed)
    busy = replace(QUICK, auto_commit_interval_ms=100, idle_ms=50, flush_ms=500)
    return replace(plan, pods=tuple(replace(pod, behaviour=busy) for pod in plan.pods))


def outages(seed: int) -> Plan:
    """The machine of the broker is silent for longer than a session."""

    def planned(random: Random) -> list[Action]:
        return [
            actions.CrashBroker(at_ms=10_000 + random.randrange(2_000), down_ms=20_000, silent=True)
        ]

    return scenario(seed, planned)


def departures(seed: int) -> Plan:
    """Three of six members of an eager group leave at almost the same time."""

    def planned(random: Random) -> list[Action]:
        return [
            actions.StopPod(at_ms=15_000 + 20 * n + random.randrange(20), pod=f"p{n}")
            for n in range(3)
        ]

    plan = scenario(seed, planned, pods=6, behaviour=replace(QUICK, strategy="range"))
    return replace(plan, heal_ms=None, core=())


def leavers(seed: int) -> Plan:
    """A pod dies while the join phase waits for its JoinGroup."""

    def planned(random: Random) -> list[Action]:
        planned: list[Action] = []
        for at in (12_000, 30_000):
            planned.append(actions.Rejoin(at_ms=at, pod="p0"))
            lag = random.randrange(100, 900)
            planned.append(actions.KillPod(at_ms=at + lag, pod="p2", back_after_ms=14_000))
        return planned

    return scenario(seed, planned, behaviour=replace(QUICK, max_poll_interval_ms=40_000))


def missed_syncs(seed: int, strategy: str = "cooperative-sticky") -> Plan:
    """Some members send SyncGroup after another member has begun the next rebalance."""

    def planned(random: Random) -> list[Action]:
        planned: list[Action] = []
        for at in range(9_000, 57_000, 8_000):
            gone, too, hasty, *late = random.sample(range(7), 6)
            planned += (
                actions.StopPod(at_ms=at, pod=f"p{n}", back_after_ms=3_000) for n in (gone, too)
            )
            for n in late:
                sleeps_at, sleeps_ms = (
                    at + random.randrange(3_850, 4_000),
                    random.randrange(1_000, 1_600),
                )
                planned.append(actions.Rejoin(at_ms=at + 3_200, pod=f"p{n}"))
                planned.append(actions.PausePod(at_ms=sleeps_at, pod=f"p{n}", for_ms=sleeps_ms))
            planned += (actions.Rejoin(at_ms=at + lag, pod=f"p{hasty}") for lag in (4_300, 4_500))
        return planned

    return scenario(
        seed,
        planned,
        pods=7,
        partitions=26,
        behaviour=replace(QUICK, strategy=strategy),
        network=NetworkPlan(delay_micros=5_000, jitter_micros=10_000),
    )


def a_newcomer_and_missed_syncs(seed: int) -> Plan:
    """Half of a group never receives the assignment that moves its partitions to a new member."""

    def planned(random: Random) -> list[Action]:
        planned: list[Action] = []
        for at in (20_000, 40_000):
            planned.append(actions.StopPod(at_ms=at - 9_000, pod="p0", back_after_ms=9_000))
            # The join phase waits for this pod while the others are paused.
            planned.append(actions.PausePod(at_ms=at - 50, pod="p4", for_ms=1_250))
            for n in (1, 2, 3):
                sleeps_at = at + random.randrange(1_050, 1_150)
                sleeps_ms = random.randrange(1_400, 1_600)
                planned.append(actions.PausePod(at_ms=sleeps_at, pod=f"p{n}", for_ms=sleeps_ms))
            # When the pod is gone, the others may own again what they gave up.
            planned.append(actions.StopPod(at_ms=at + 1_900, pod="p4", back_after_ms=5_000))
        return planned

    plan = scenario(seed, planned, pods=6, partitions=24)
    *others, leader = plan.pods
    pods = (*(replace(pod, start_ms=(pod.start_ms or 0) + 1_500) for pod in others), leader)
    return replace(plan, pods=pods)


def missed_syncs_of_a_balanced_group(seed: int) -> Plan:
    """No member joins or leaves; most members miss the assignment of a rebalance.

    They are paused when the assignment is sent. Another member has begun the next rebalance when
    they resume. Some pieces travel slowly, so that the members return in another order.
    """

    def planned(random: Random) -> list[Action]:
        planned: list[Action] = []
        for at in (20_000, 33_000, 46_000):
            hasty, *late = random.sample(range(14), 12)
            for n in late:
                sleeps_at = at + random.randrange(100, 200)
                sleeps_ms = random.randrange(1_700, 2_000)
                planned.append(actions.Rejoin(at_ms=at, pod=f"p{n}"))
                planned.append(actions.PausePod(at_ms=sleeps_at, pod=f"p{n}", for_ms=sleeps_ms))
            planned.append(actions.Rejoin(at_ms=at + 1_400, pod=f"p{hasty}"))
        return planned

    plan = scenario(
        seed,
        planned,
        pods=14,
        partitions=4 * 14,
        network=NetworkPlan(delay_micros=5_000, slow_ppm=60_000, slow_factor=300),
    )
    # One pod after the other: the assignment must differ from the one of a new group.
    pods = tuple(
        replace(pod, start_ms=(pod.start_ms or 0) + 700 * n, behaviour=_COOPERATIVE)
        for n, pod in enumerate(plan.pods)
    )
    return replace(plan, pods=pods)


def missed_syncs_while_partitions_wait(seed: int) -> Plan:
    """The same in a group that waits for lost members."""
    plan = missed_syncs_of_a_balanced_group(seed)
    waits = replace(_COOPERATIVE, scheduled_rebalance_max_delay_ms=10_000)
    return replace(plan, pods=tuple(replace(pod, behaviour=waits) for pod in plan.pods))


def missed_syncs_of_sticky_members(seed: int) -> Plan:
    """The same in an eager group, where members claim their previous partitions."""
    return missed_syncs(seed, "sticky")
