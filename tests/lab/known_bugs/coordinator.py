"""Known bugs of the group coordinator: phases, timers, static members."""

from __future__ import annotations

from typing import Any

from tests.lab.known_bugs import scenarios
from tests.lab.known_bugs.known_bug import KnownBug, Patch
from tests.lab.known_bugs.scenarios import scenario

from kohort.coordinator import coordinator, liveness, rebalancing, replacing, syncing
from kohort.coordinator.interface import Heartbeat
from kohort.engine.leader_duties import LeaderDuties
from kohort.model.facts import RebalanceCause
from kohort.model.group_state import GroupState


def _heartbeats_keep_the_sync_phase_open(patch: Patch) -> None:
    serve = coordinator._SERVE[Heartbeat]

    def heartbeat(registry: Any, event: Any) -> None:
        serve(registry, event)
        group = registry.groups.get(event.group_id)
        if group is not None and group.state is GroupState.COMPLETING_REBALANCE:
            registry.deadlines.cancel(group.sync_timer)

    patch.setitem(coordinator._SERVE, Heartbeat, heartbeat)


def _removal_does_not_end_the_join_phase(patch: Patch) -> None:
    patch.setattr(liveness, "try_complete", lambda *args, **more: None)


def _timers_of_removed_members_start_rebalances(patch: Patch) -> None:
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


def _no_rebalance_after_a_replacement_in_the_sync_phase(patch: Patch) -> None:
    rebalance = replacing._rebalance

    def without_rebalance(
        registry: Any, group: Any, who: Any, event: Any, cause: RebalanceCause
    ) -> None:
        if cause is RebalanceCause.STATIC_MEMBER_REPLACED:
            registry.respond(event.token, rebalancing.joined_answer(group, who))
        else:
            rebalance(registry, group, who, event, cause)

    stored = syncing.SyncWrite.stored

    def with_nothing_for_newcomers(self: Any, registry: Any, ticket: Any) -> None:
        for member_id in self.group.members:
            self.assignments.setdefault(member_id, b"")
        stored(self, registry, ticket)

    patch.setattr(replacing, "_rebalance", without_rebalance)
    patch.setattr(syncing.SyncWrite, "stored", with_nothing_for_newcomers)


def _replacement_is_not_stored(patch: Patch) -> None:
    def unstored(registry: Any, group: Any, who: Any, event: Any, former: Any) -> None:
        group.renamed.pop(who.group_instance_id, None)
        registry.respond(event.token, rebalancing.joined_answer(group, who))

    patch.setattr(replacing, "_keep_generation", unstored)


def leader_never_assigns(patch: Patch) -> None:
    """A condition: the first leader of a world never sends an assignment."""
    decide = LeaderDuties.decide
    hung: list[LeaderDuties] = []

    def hangs(self: LeaderDuties, *args: Any, **more: Any) -> Any:
        if not hung or hung[0] is self:
            hung[:] = [self]
            return None
        return decide(self, *args, **more)

    patch.setattr(LeaderDuties, "decide", hangs)


COORDINATOR = (
    KnownBug(
        name="heartbeats keep the sync phase open",
        incident="KAFKA-12890",
        breaks=frozenset({18, 48}),
        plant=_heartbeats_keep_the_sync_phase_open,
        condition=leader_never_assigns,
        scenario=lambda seed: scenario(seed, lambda random: [], seconds=5, initial_delay_ms=1_000),
        seeds=2,
    ),
    KnownBug(
        name="the removal of a member does not end the join phase",
        incident="streamnative/kop #380",
        breaks=frozenset({18}),
        plant=_removal_does_not_end_the_join_phase,
        scenario=scenarios.leavers,
        seeds=4,
    ),
    KnownBug(
        name="session timers of removed members start rebalances",
        incident="KAFKA-7196",
        breaks=frozenset({49}),
        plant=_timers_of_removed_members_start_rebalances,
        scenario=scenarios.departures,
        seeds=4,
    ),
    KnownBug(
        name="a static member is replaced in the sync phase without a rebalance",
        incident="KAFKA-9801",
        breaks=frozenset({6, 31}),
        not_by={
            14: "promise 14 is about a return to a stable group; this member returns while its "
            "group waits for an assignment"
        },
        plant=_no_rebalance_after_a_replacement_in_the_sync_phase,
        scenario=scenarios.static_returns_in_the_sync_phase,
        seeds=8,
    ),
    KnownBug(
        name="the replacement of a static member is not stored",
        incident="Kafka's system test static_consumer_persisted_after_rejoin",
        breaks=frozenset({13, 45}),
        plant=_replacement_is_not_stored,
        scenario=scenarios.static_zombies,
        seeds=3,
    ),
)
