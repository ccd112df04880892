"""Bugs planted by hand: the check that is made for them finds them in the history of a lab run.

Each plan is clean without the bug. Bugs that other systems had are in ``known_bugs``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.lab.test_world import QUICK, plan

from kohort.coordinator import rebalancing, views
from kohort.engine.cluster import Cluster
from kohort.engine.connection_pool import ConnectionPool
from kohort.engine.consumer_driver import ConsumerDriver
from kohort.history.checker import check_history
from kohort.lab import actions
from kohort.lab.application import Consuming
from kohort.lab.plan import NetworkPlan, Plan
from kohort.lab.world import World
from kohort.model.instants import Instant
from kohort.policies import deferred
from kohort.policies.handover import Preparation
from kohort.policies.pacing import paced
from kohort.storage.compaction import CompactionJob
from kohort.storage.flush_job import FlushJob

Patch = pytest.MonkeyPatch

SILENT = replace(QUICK, auto_commit_interval_ms=None)


def _records_stay_readable_after_the_revocation(patch: Patch) -> None:
    patch.setattr(Consuming, "_forget", lambda _self, _partitions: None)


def _join_phases_last_half_as_long(patch: Patch) -> None:
    def sooner(registry: Any, of: Any) -> None:
        registry.arm(of.join_timer, registry.rebalance_timeout_ms(of) // 2)

    patch.setattr(rebalancing, "_arm_join_timer", sooner)


def _unused_ids_hold_join_phases_open(patch: Patch) -> None:
    patch.setattr(rebalancing, "PENDING_MEMBER_GRACE_MS", 5_000)


def _syncs_are_skipped(patch: Patch) -> None:
    run = FlushJob.run
    done = []

    def skips(self: FlushJob) -> None:
        done.append(self)
        if len(done) % 3 == 0:
            run(self)

    patch.setattr(FlushJob, "run", skips)


def _an_answer_carries_another_correlation_id(patch: Patch) -> None:
    received = ConnectionPool.received
    seen = []

    def alters(self: ConnectionPool, conn: Any, data: bytes, now: Instant) -> Any:
        seen.append(conn)
        wrong = data[:4] + b"\x7f" + data[5:]
        return received(self, conn, wrong if len(seen) == 30 else data, now)

    patch.setattr(ConnectionPool, "received", alters)


def _a_pending_start_survives_a_seek(patch: Patch) -> None:
    patch.setattr(ConsumerDriver, "drop_start", lambda _self, _partition: False)


def _descriptions_show_former_members(patch: Patch) -> None:
    describe = views.describe_group
    seen: dict[str, Any] = {}

    def with_former(of: Any) -> Any:
        told = describe(of)
        members: dict[str, Any] = seen | {m.member_id: m for m in told.members}
        seen.update(members)
        return replace(told, members=tuple(members.values()))

    patch.setattr(views, "describe_group", with_former)


def _compaction_drops_the_group(patch: Patch) -> None:
    """The newest record of each key is dropped instead of the older ones."""
    latest = CompactionJob._latest_offsets
    patch.setattr(
        CompactionJob,
        "_latest_offsets",
        lambda self: {key: offset + 1 for key, offset in latest(self).items()},
    )


def _leaders_are_never_looked_up_again(patch: Patch) -> None:
    patch.setattr(Cluster, "_forget_leaders", lambda _self, _partitions: None)


def _rounds_move_one_more(patch: Patch) -> None:
    patch.setattr(deferred, "paced", lambda spec, target, most: paced(spec, target, most + 1))


def _no_pause_between_rounds(patch: Patch) -> None:
    moves = deferred._moves

    def at_once(spec: Any, target: Any, now: Any, memory: Any, resolution: Any) -> Any:
        return moves(spec, target, now, memory, replace(resolution, moves_interval_ms=0))

    patch.setattr(deferred, "_moves", at_once)


def _copies_count_as_warm(patch: Patch) -> None:
    def at_once(_spec: Any, target: Any, *_rest: Any, **_more: Any) -> Preparation:
        return Preparation(target=target, deadlines={})

    patch.setattr(deferred, "prepared", at_once)


def _warm_partitions_wait(patch: Patch) -> None:
    patch.setattr(deferred, "_without", lambda waits, _warm: waits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A bug, the number of the check that must find it, and the plan of the run."""

    check: int
    plant: Callable[[Patch], None]
    plan: Plan


_ONE_IS_PAUSED = plan(
    actions.PausePod(at_ms=19_000, pod="p1", for_ms=25_000),
    actions.Rejoin(at_ms=20_000, pod="p0"),
    behaviour=replace(QUICK, session_timeout_ms=45_000, max_poll_interval_ms=15_000),
    seconds=60,
)
_AN_ID_IS_NOT_USED = plan(
    actions.Rejoin(at_ms=20_000, pod="p0"),
    actions.StartPod(at_ms=20_000, pod="p3"),
    actions.KillPod(at_ms=20_560, pod="p3"),
    pods=4,
    network=NetworkPlan(delay_micros=50_000),
)

A_LEADER_MOVES = replace(
    plan(
        actions.MoveLeaders(at_ms=20_000, topic="t", node=2),
        actions.StopPod(at_ms=21_000, pod="p0"),
        behaviour=SILENT,
    ),
    nodes=3,
)
"""Without commits each new owner asks the leader of the partition for the first offset."""

PLANTED = {
    "a start at the committed offset undoes a seek": Planted(
        check=43,
        plant=_a_pending_start_survives_a_seek,
        plan=plan(
            actions.StopPod(at_ms=17_000, pod="p1"),
            *(actions.SeekPartitions(at_ms=18_400, pod=pod, to=3) for pod in ("p0", "p2")),
            behaviour=replace(QUICK, auto_commit_interval_ms=1_000, batch_ms=2_000),
            network=NetworkPlan(delay_micros=30_000),
            seed=6,
        ),
    ),
    "descriptions show former members": Planted(
        check=55,
        plant=_descriptions_show_former_members,
        plan=plan(
            actions.DescribeGroup(at_ms=15_000),
            actions.StopPod(at_ms=20_000, pod="p0"),
            actions.DescribeGroup(at_ms=30_000),
        ),
    ),
    "compaction drops the newest records": Planted(
        check=46,
        plant=_compaction_drops_the_group,
        plan=plan(
            actions.CompactLog(at_ms=25_000),
            actions.CrashBroker(at_ms=25_500, down_ms=500),
            behaviour=replace(QUICK, auto_commit_interval_ms=200, idle_ms=100, batch_ms=0),
            seconds=40,
        ),
    ),
    "records stay readable after the revocation": Planted(
        check=53,
        plant=_records_stay_readable_after_the_revocation,
        plan=plan(actions.StopPod(at_ms=20_000, pod="p0", back_after_ms=5_000), behaviour=SILENT),
    ),
    "a round makes one optional move too many": Planted(
        check=34,
        plant=_rounds_move_one_more,
        plan=plan(
            actions.StopPod(at_ms=20_000, pod="p0", back_after_ms=10_000),
            behaviour=replace(QUICK, max_moves_per_round=1),
        ),
    ),
    "rounds do not wait for the interval": Planted(
        check=34,
        plant=_no_pause_between_rounds,
        plan=plan(
            actions.StopPod(at_ms=20_000, pod="p0", back_after_ms=10_000),
            behaviour=replace(QUICK, max_moves_per_round=1, moves_interval_ms=5_000),
        ),
    ),
    "partitions move before the copies are warm": Planted(
        check=56,
        plant=_copies_count_as_warm,
        plan=plan(
            actions.StopPod(at_ms=20_000, pod="p0", back_after_ms=10_000),
            behaviour=replace(QUICK, handover_ms=60_000, restore_cold_ms=5_000),
        ),
    ),
    "a lost partition waits beside a warm copy": Planted(
        check=57,
        plant=_warm_partitions_wait,
        plan=plan(
            actions.StopPod(at_ms=30_000, pod="p0", back_after_ms=10_000),
            behaviour=replace(
                QUICK,
                handover_ms=60_000,
                restore_cold_ms=1_000,
                standbys=1,
                scheduled_rebalance_max_delay_ms=60_000,
            ),
        ),
    ),
    "join phases last half as long": Planted(
        check=54, plant=_join_phases_last_half_as_long, plan=_ONE_IS_PAUSED
    ),
    "unused ids hold join phases open": Planted(
        check=18,
        plant=_unused_ids_hold_join_phases_open,
        plan=replace(
            _AN_ID_IS_NOT_USED,
            pods=tuple(
                replace(pod, start_ms=None if pod.name == "p3" else 0)
                for pod in _AN_ID_IS_NOT_USED.pods
            ),
        ),
    ),
    "the log reports writes that it has not synced": Planted(
        check=45, plant=_syncs_are_skipped, plan=plan()
    ),
    "an answer carries another correlation id": Planted(
        check=51, plant=_an_answer_carries_another_correlation_id, plan=plan()
    ),
}


def test_a_consumer_reads_on_after_the_leader_of_its_partition_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a new lookup the partition would never be read, and no check of facts sees that."""
    assert found(A_LEADER_MOVES) == (set(), True)
    _leaders_are_never_looked_up_again(monkeypatch)
    assert found(A_LEADER_MOVES) == (set(), False)


def found(made: Plan) -> tuple[set[int], bool]:
    """The checks that a run breaks, and whether its members share all partitions in the end."""
    world = World(made)
    world.run()
    up = tuple(name for name, pod in world.pods.items() if pod.up)
    return {v.check for v in check_history(world.history).violations}, world.converged(up)


QUICKLY_FOUND = {
    "a start at the committed offset undoes a seek",
    "descriptions show former members",
    "unused ids hold join phases open",
}
"""The other runs are slow tests; tests/history has a short history for each check."""


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICKLY_FOUND else pytest.param(name, marks=pytest.mark.slow)
        for name in PLANTED
    ],
)
def test_a_planted_bug_is_found_by_its_check_and_by_no_check_without_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = PLANTED[name]
    assert found(planted.plan) == (set(), True)
    planted.plant(monkeypatch)
    assert planted.check in found(planted.plan)[0]
