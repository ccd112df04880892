"""Hunting grounds: worlds in which a mutation bites, drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from kohort.lab import acts
from kohort.lab.acts import Act
from kohort.lab.plan import Behaviour, NetworkPlan, Plan, PodPlan, TopicPlan
from kohort.lab.swarm import settle_ms

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


def ground(
    seed: int,
    planned: Callable[[Random], list[Act]],
    *,
    pods: int = 3,
    partitions: int = 6,
    static: bool = False,
    seconds: int = 60,
    behaviour: Behaviour = QUICK,
    network: NetworkPlan | None = None,
    initial_delay_ms: int = 0,
) -> Plan:
    """A healed world with some acts before."""
    random = Random(f"ground {seed}")
    names = [f"p{n}" for n in range(pods)]
    heal = seconds * 1_000
    return Plan(
        seed=seed,
        name="zoo",
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
        acts=tuple(planned(random)),
        heal_ms=heal,
        core=tuple(names),
    )


def crashes(seed: int) -> Plan:
    """The broker dies, with what was not synced."""

    def planned(random: Random) -> list[Act]:
        return [
            acts.CrashBroker(
                at_ms=at + random.randrange(2_000),
                down_ms=random.randrange(50, 3_000),
                power_cut=True,
            )
            for at in (10_000, 20_000, 30_000, 40_000)
        ]

    return ground(seed, planned)


def slow_disk_crashes(seed: int) -> Plan:
    """The broker dies while writes wait for a slow disk."""

    def planned(random: Random) -> list[Act]:
        planned: list[Act] = [acts.SlowDisk(at_ms=8_000, for_ms=50_000, sync_ms=400)]
        planned += (
            acts.CrashBroker(at_ms=at + random.randrange(3_000), down_ms=200, power_cut=True)
            for at in (10_000, 20_000, 30_000, 40_000)
        )
        return planned

    return ground(seed, planned)


def static_bounces(seed: int) -> Plan:
    """Static pods are killed and come back, also while others join; the broker dies, too."""

    def planned(random: Random) -> list[Act]:
        planned: list[Act] = []
        for at in range(10_000, 50_000, 5_000):
            pod = f"p{random.randrange(3)}"
            back = random.randrange(100, 1_500)
            planned.append(
                acts.KillPod(at_ms=at + random.randrange(300), pod=pod, back_after_ms=back)
            )
        planned.append(acts.CrashBroker(at_ms=32_000 + random.randrange(3_000), down_ms=100))
        return planned

    return ground(seed, planned, static=True)


def static_returns_in_the_sync_phase(seed: int) -> Plan:
    """A static pod is replaced while the group waits for its leader's assignment."""

    def planned(random: Random) -> list[Act]:
        planned: list[Act] = []
        for at in (12_000, 24_000, 36_000, 48_000):
            planned.append(acts.Rejoin(at_ms=at, pod="p0"))
            lag = random.randrange(700, 1_600)
            planned.append(acts.KillPod(at_ms=at + lag, pod="p1", back_after_ms=1))
        return planned

    return ground(seed, planned, static=True, network=NetworkPlan(delay_micros=120_000))


def churn(seed: int) -> Plan:
    """Pods come and go faster than rounds end."""

    def planned(random: Random) -> list[Act]:
        planned: list[Act] = []
        for at in range(10_000, 50_000, 2_500):
            pod = f"p{random.randrange(4)}"
            when = at + random.randrange(1_500)
            kind = random.randrange(4)
            if kind == 0:
                planned.append(
                    acts.StopPod(at_ms=when, pod=pod, back_after_ms=random.randrange(3_000))
                )
            elif kind == 1:
                planned.append(
                    acts.KillPod(at_ms=when, pod=pod, back_after_ms=random.randrange(3_000))
                )
            elif kind == 2:
                pause = random.choice((1_500, 3_000, 8_000))
                planned.append(acts.PausePod(at_ms=when, pod=pod, for_ms=pause))
            else:
                planned.append(
                    acts.CutPod(at_ms=when, pod=pod, for_ms=random.randrange(500, 9_000))
                )
        return planned

    return ground(seed, planned, pods=4, partitions=10)


def flushing_churn(seed: int) -> Plan:
    """As churn, with callbacks that take time and batches in between."""
    plan = churn(seed)
    slow = replace(QUICK, flush_ms=300, batch_ms=100, strategy="range")
    return replace(plan, pods=tuple(replace(pod, behaviour=slow) for pod in plan.pods))


def sticky_churn(seed: int) -> Plan:
    """Rounds of an eager sticky group that are overtaken by the next, on a slow network."""

    def planned(random: Random) -> list[Act]:
        planned: list[Act] = []
        for at in range(10_000, 50_000, 8_000):
            planned.append(acts.Rejoin(at_ms=at, pod="p0"))
            planned.append(acts.Rejoin(at_ms=at + random.randrange(300, 2_500), pod="p1"))
            when = at + random.randrange(300, 2_500)
            planned.append(
                acts.StopPod(at_ms=when, pod="p3", back_after_ms=random.randrange(100, 2_000))
            )
        return planned

    return ground(
        seed,
        planned,
        pods=4,
        partitions=11,
        behaviour=replace(QUICK, strategy="sticky"),
        network=NetworkPlan(delay_micros=150_000, jitter_micros=200_000),
    )


def busy_committers(seed: int) -> Plan:
    """Commits cross rebalances on a slow network."""
    plan = sticky_churn(seed)
    busy = replace(QUICK, auto_commit_interval_ms=100, idle_ms=50, flush_ms=500)
    return replace(plan, pods=tuple(replace(pod, behaviour=busy) for pod in plan.pods))


def outages(seed: int) -> Plan:
    """The broker's machine is silent for longer than sessions last."""

    def planned(random: Random) -> list[Act]:
        return [
            acts.CrashBroker(at_ms=10_000 + random.randrange(2_000), down_ms=20_000, silent=True)
        ]

    return ground(seed, planned)


def departures(seed: int) -> Plan:
    """Three of six members of an eager group leave within a moment, for good."""

    def planned(random: Random) -> list[Act]:
        return [
            acts.StopPod(at_ms=15_000 + 20 * n + random.randrange(20), pod=f"p{n}")
            for n in range(3)
        ]

    plan = ground(seed, planned, pods=6, behaviour=replace(QUICK, strategy="range"))
    return replace(plan, heal_ms=None, core=())


def leavers(seed: int) -> Plan:
    """A pod dies while the group waits for it to rejoin."""

    def planned(random: Random) -> list[Act]:
        planned: list[Act] = []
        for at in (12_000, 30_000):
            planned.append(acts.Rejoin(at_ms=at, pod="p0"))
            lag = random.randrange(100, 900)
            planned.append(acts.KillPod(at_ms=at + lag, pod="p2", back_after_ms=14_000))
        return planned

    return ground(seed, planned, behaviour=replace(QUICK, max_poll_interval_ms=40_000))


def missed_syncs(seed: int, strategy: str = "cooperative-sticky") -> Plan:
    """Some members join a round and sync when the next has begun, which somebody hasty began."""

    def planned(random: Random) -> list[Act]:
        planned: list[Act] = []
        for at in range(9_000, 57_000, 8_000):
            gone, too, hasty, *late = random.sample(range(7), 6)
            planned += (
                acts.StopPod(at_ms=at, pod=f"p{n}", back_after_ms=3_000) for n in (gone, too)
            )
            for n in late:
                sleeps_at, sleeps_ms = (
                    at + random.randrange(3_850, 4_000),
                    random.randrange(1_000, 1_600),
                )
                planned.append(acts.Rejoin(at_ms=at + 3_200, pod=f"p{n}"))
                planned.append(acts.PausePod(at_ms=sleeps_at, pod=f"p{n}", for_ms=sleeps_ms))
            planned += (acts.Rejoin(at_ms=at + lag, pod=f"p{hasty}") for lag in (4_300, 4_500))
        return planned

    return ground(
        seed,
        planned,
        pods=7,
        partitions=26,
        behaviour=replace(QUICK, strategy=strategy),
        network=NetworkPlan(delay_micros=5_000, jitter_micros=10_000),
    )


def missed_syncs_of_sticky_members(seed: int) -> Plan:
    """The same in an eager group, where members only remember what they had."""
    return missed_syncs(seed, "sticky")
