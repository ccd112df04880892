"""Animals of the group coordinator: phases, timers, static members."""

from __future__ import annotations

from typing import Any

from tests.lab.zoo import grounds
from tests.lab.zoo.grounds import ground
from tests.lab.zoo.mutation import Mutation, Patch

from kohort.coordinator import coordinator, liveness, rebalancing, replacing, syncing
from kohort.coordinator.events import Heartbeat
from kohort.coordinator.timers import sync_timer
from kohort.engine.leader_duties import LeaderDuties
from kohort.model.facts import RebalanceCause
from kohort.model.group_state import GroupState


def _heartbeats_satisfy_the_sync_timer(patch: Patch) -> None:
    serve = coordinator._SERVE[Heartbeat]

    def heartbeat(registry: Any, event: Any) -> None:
        serve(registry, event)
        group = registry.groups.get(event.group_id)
        if group is not None and group.state is GroupState.COMPLETING_REBALANCE:
            registry.deadlines.cancel(sync_timer(group.group_id))

    patch.setitem(coordinator._SERVE, Heartbeat, heartbeat)


def _removal_does_not_look_at_the_barrier(patch: Patch) -> None:
    patch.setattr(liveness, "try_complete", lambda *args, **more: None)


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


def leader_that_hangs(patch: Patch) -> None:
    """Not an animal: the circumstance of one. The first leader of a world never decides."""
    decide = LeaderDuties.decide
    hung: list[LeaderDuties] = []

    def hangs(self: LeaderDuties, *args: Any, **more: Any) -> Any:
        if not hung or hung[0] is self:
            hung[:] = [self]
            return None
        return decide(self, *args, **more)

    patch.setattr(LeaderDuties, "decide", hangs)


COORDINATOR = (
    Mutation(
        name="heartbeats satisfy the sync timer",
        incident="KAFKA-12890",
        breaks=frozenset({18, 48}),
        plant=_heartbeats_satisfy_the_sync_timer,
        circumstance=leader_that_hangs,
        ground=lambda seed: ground(seed, lambda random: [], seconds=5, initial_delay_ms=1_000),
        seeds=2,
    ),
    Mutation(
        name="a removal does not look at the barrier",
        incident="streamnative/kop #380",
        breaks=frozenset({18}),
        plant=_removal_does_not_look_at_the_barrier,
        ground=grounds.leavers,
        seeds=4,
    ),
    Mutation(
        name="timers of removed members fire",
        incident="KAFKA-7196",
        breaks=frozenset({49}),
        plant=_timers_of_removed_members_fire,
        ground=grounds.departures,
        seeds=4,
    ),
    Mutation(
        name="replaced in the sync phase without a rebalance",
        incident="KAFKA-9801",
        breaks=frozenset({6, 31}),
        not_by={
            14: "it speaks of a return to a stable group, whose generation goes on; this member "
            "returns while its group waits for an assignment"
        },
        plant=_replaced_in_the_sync_phase_without_a_rebalance,
        ground=grounds.static_returns_in_the_sync_phase,
        seeds=8,
    ),
    Mutation(
        name="a replacement is not stored",
        incident="Kafka's system test static_consumer_persisted_after_rejoin",
        breaks=frozenset({13, 45}),
        plant=_replacement_is_not_stored,
        ground=grounds.static_zombies,
        seeds=3,
    ),
)
