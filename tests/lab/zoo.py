"""The bug zoo: mutations of the real code, each after an incident, and where they are hunted.

A mutation patches functions of the cores for as long as a test runs; there is no switch for it in
production code. Each names the promises (numbers of ``kohort.history``) of which at least one must
be found broken within so many seeds of its hunting ground; on the same ground the code without the
mutation breaks none. Mutations of features that do not exist yet are in ``zoo_pending.toml``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from kohort.coordinator import (
    coordinator,
    liveness,
    offsets,
    rebalancing,
    replacing,
    syncing,
)
from kohort.coordinator.events import Heartbeat
from kohort.coordinator.records import GroupRecord
from kohort.coordinator.timers import sync_timer
from kohort.engine.coordinator_engine import CoordinatorEngine
from kohort.engine.member_commits import Commits
from kohort.engine.member_coordinator import CoordinatorLookup
from kohort.engine.member_leading import Leading
from kohort.lab import acts
from kohort.lab.acts import Act
from kohort.lab.application import Consuming
from kohort.lab.plan import Behaviour, NetworkPlan, Plan, PodPlan, TopicPlan
from kohort.lab.swarm import settle_ms
from kohort.member.events import SubscriptionChanged
from kohort.model.errors import ErrorCode
from kohort.model.facts import RebalanceCause
from kohort.model.group_state import GroupState
from kohort.policies import cooperative, sticky

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One animal."""

    name: str
    incident: str
    breaks: frozenset[int]
    """Numbers of promises; 48 also stands for a core that never converges."""
    plant: Callable[[Patch], None]
    ground: Callable[[int], Plan]
    """The plan of a seed."""
    seeds: int
    """Within so many seeds it must be caught."""


# -- hunting grounds ------------------------------------------------------------------------------

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


# -- animals --------------------------------------------------------------------------------------


def _heartbeats_satisfy_the_sync_timer(patch: Patch) -> None:
    serve = coordinator._SERVE[Heartbeat]

    def heartbeat(registry: Any, event: Any) -> None:
        serve(registry, event)
        group = registry.groups.get(event.group_id)
        if group is not None and group.state is GroupState.COMPLETING_REBALANCE:
            registry.deadlines.cancel(sync_timer(group.group_id))

    patch.setitem(coordinator._SERVE, Heartbeat, heartbeat)


def leader_that_hangs(patch: Patch) -> None:
    """Not an animal: the circumstance of one. The first leader of a world never decides."""
    decide = Leading.decide
    hung: list[Leading] = []

    def hangs(self: Leading, *args: Any) -> Any:
        if not hung or hung[0] is self:
            hung[:] = [self]
            return None
        return decide(self, *args)

    patch.setattr(Leading, "decide", hangs)


def _removal_does_not_look_at_the_barrier(patch: Patch) -> None:
    patch.setattr(liveness, "try_complete", lambda *args, **more: None)


def _replaced_in_the_sync_phase_without_a_rebalance(patch: Patch) -> None:
    rebalance = replacing._rebalance

    def quietly(registry: Any, group: Any, who: Any, event: Any, cause: RebalanceCause) -> None:
        if cause is RebalanceCause.STATIC_MEMBER_REPLACED:
            registry.respond(event.token, rebalancing.joined_answer(group, who))
        else:
            rebalance(registry, group, who, event, cause)

    stored = syncing.SyncWrite.stored

    def with_nothing_for_newcomers(self: Any, registry: Any, ticket: Any) -> None:
        for member_id in self.group.members:
            self.assignments.setdefault(member_id, b"")
        stored(self, registry, ticket)

    patch.setattr(replacing, "_rebalance", quietly)
    patch.setattr(syncing.SyncWrite, "stored", with_nothing_for_newcomers)


def _replacement_is_not_stored(patch: Patch) -> None:
    def unstored(registry: Any, group: Any, who: Any, event: Any, former: Any) -> None:
        group.renamed.pop(who.group_instance_id, None)
        registry.respond(event.token, rebalancing.joined_answer(group, who))

    patch.setattr(replacing, "_keep_generation", unstored)


def _double_claims_are_trusted(patch: Patch) -> None:
    def all_claims(spec: Any) -> dict[Any, Any]:
        return {claim: name for name in spec.member_order() for claim in spec.members[name].owned}

    patch.setattr(sticky, "valid_claims", all_claims)
    patch.setattr(cooperative, "claimants", lambda spec: {}, raising=False)


def _fetching_goes_on_until_the_callback(patch: Patch) -> None:
    forget = Consuming._forget
    called_back = Consuming._called_back

    def later(self: Consuming, step: int, told: dict[str, Any]) -> None:
        self._take_records()
        forget(self, frozenset(told["partitions"]) if told["kind"] != "assigned" else frozenset())
        called_back(self, step, told)

    patch.setattr(Consuming, "_forget", lambda self, partitions: None)
    patch.setattr(Consuming, "_called_back", later)


def _commits_are_acknowledged_before_they_are_stored(patch: Patch) -> None:
    write_offsets = offsets.write_offsets

    def early(registry: Any, write: Any, *args: Any, **more: Any) -> Any:
        if isinstance(write, offsets.CommitWrite):
            answer = offsets._answer(write.event, write.errors, ErrorCode.NONE)
            registry.respond(write.event.token, answer)
        return write_offsets(registry, write, *args, **more)

    patch.setattr(offsets, "write_offsets", early)
    patch.setattr(offsets.CommitWrite, "stored", _stored_without_an_answer)


def _stored_without_an_answer(self: Any, registry: Any, ticket: Any) -> None:
    offsets.settle_offsets(self.group, ticket, self.offsets, durable=True)


def _any_refused_commit_makes_the_member_join_again(patch: Patch) -> None:
    worth = Commits._worth_repeating

    def rejoins(self: Commits, commit: Any, refusal: Any) -> bool:
        self._feed(SubscriptionChanged(reason="a commit was refused"))
        return worth(self, commit, refusal)

    patch.setattr(Commits, "_worth_repeating", rejoins)


def _timers_of_removed_members_fire(patch: Patch) -> None:
    remove, fired = liveness.remove_member, liveness.session_timer_fired

    def remove_member(registry: Any, group: Any, member_id: Any) -> Any:
        gone = remove(registry, group, member_id)
        registry.arm(gone.session_timer, gone.session_timeout_ms)
        return gone

    def session_timer_fired(registry: Any, group: Any, member_id: Any) -> None:
        if member_id in group.members or member_id in group.pending:
            fired(registry, group, member_id)
        elif group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            cause = RebalanceCause.MEMBER_EXPIRED
            rebalancing.prepare_rebalance(registry, group, cause, member_ids=(member_id,))

    patch.setattr(liveness, "remove_member", remove_member)
    patch.setattr(liveness, "session_timer_fired", session_timer_fired)


def _recovery_forgets_groups(patch: Patch) -> None:
    replay = CoordinatorEngine.replay
    group_key = b"\x00\x02"

    def offsets_only(self: CoordinatorEngine, records: Any, now: Any) -> Any:
        kept = [(key, value) for key, value in records if not (key or b"").startswith(group_key)]
        return replay(self, kept, now)

    patch.setattr(CoordinatorEngine, "replay", offsets_only)


def _large_groups_do_not_fit_into_a_record(patch: Patch) -> None:
    encoded = CoordinatorEngine._encoded

    def too_large(self: CoordinatorEngine, effect: Any) -> Any:
        for record in effect.records:
            if isinstance(record, GroupRecord) and record.value and len(record.value.members) > 2:
                return None
        return encoded(self, effect)

    patch.setattr(CoordinatorEngine, "_encoded", too_large)


def _the_coordinator_is_not_looked_up_again(patch: Patch) -> None:
    forget = CoordinatorLookup.forget

    def for_good(self: CoordinatorLookup, now: Any) -> None:
        forget(self, now)
        self.asking = True  # who waits for an answer asks no more, and none will come

    patch.setattr(CoordinatorLookup, "forget", for_good)


ZOO = (
    Mutation(
        name="heartbeats satisfy the sync timer",
        incident="KAFKA-12890",
        breaks=frozenset({18, 48}),
        plant=_heartbeats_satisfy_the_sync_timer,
        ground=lambda seed: ground(seed, lambda random: [], seconds=5, initial_delay_ms=1_000),
        seeds=2,
    ),
    Mutation(
        name="a removal does not look at the barrier",
        incident="streamnative/kop #380",
        breaks=frozenset({18}),
        plant=_removal_does_not_look_at_the_barrier,
        ground=leavers,
        seeds=4,
    ),
    Mutation(
        name="replaced in the sync phase without a rebalance",
        incident="KAFKA-9801",
        breaks=frozenset({6, 14, 31}),
        plant=_replaced_in_the_sync_phase_without_a_rebalance,
        ground=static_returns_in_the_sync_phase,
        seeds=8,
    ),
    Mutation(
        name="a replacement is not stored",
        incident="Kafka's system test static_consumer_persisted_after_rejoin",
        breaks=frozenset({13, 45}),
        plant=_replacement_is_not_stored,
        ground=static_bounces,
        seeds=3,
    ),
    Mutation(
        name="double claims are trusted",
        incident="KAFKA-12984",
        breaks=frozenset({22, 23}),
        plant=_double_claims_are_trusted,
        ground=churn,
        seeds=10,
    ),
    Mutation(
        name="fetching goes on until the callback",
        incident="KAFKA-14196",
        breaks=frozenset({42}),
        plant=_fetching_goes_on_until_the_callback,
        ground=flushing_churn,
        seeds=4,
    ),
    Mutation(
        name="commits are acknowledged before they are stored",
        incident="seaweedfs/seaweedfs, Kafka gateway",
        breaks=frozenset({38, 39, 45}),
        plant=_commits_are_acknowledged_before_they_are_stored,
        ground=slow_disk_crashes,
        seeds=2,
    ),
    Mutation(
        name="any refused commit makes the member join again",
        incident="confluentinc/librdkafka #4059",
        breaks=frozenset({49}),
        plant=_any_refused_commit_makes_the_member_join_again,
        ground=busy_committers,
        seeds=20,
    ),
    Mutation(
        name="timers of removed members fire",
        incident="KAFKA-7196",
        breaks=frozenset({49}),
        plant=_timers_of_removed_members_fire,
        ground=departures,
        seeds=4,
    ),
    Mutation(
        name="recovery forgets groups",
        incident="redpanda-data/redpanda #3732",
        breaks=frozenset({13, 38, 46, 49}),
        plant=_recovery_forgets_groups,
        ground=crashes,
        seeds=2,
    ),
    Mutation(
        name="large groups do not fit into a record",
        incident="redpanda-data/redpanda #4327",
        breaks=frozenset({48}),
        plant=_large_groups_do_not_fit_into_a_record,
        ground=lambda seed: ground(seed, lambda random: [], seconds=5),
        seeds=2,
    ),
    Mutation(
        name="the coordinator is not looked up again",
        incident="dpkp/kafka-python #1310",
        breaks=frozenset({48}),
        plant=_the_coordinator_is_not_looked_up_again,
        ground=outages,
        seeds=2,
    ),
)
