"""Bugs planted by hand: the check that is made for them finds them in the history of a lab run.

Each plan is clean without the bug. Bugs that other systems had are in ``known_bugs``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.lab.test_world import QUICK, plan

from kohort.coordinator import group, rebalancing
from kohort.coordinator.timers import join_timer
from kohort.engine.connection_pool import ConnectionPool
from kohort.history.checker import check_history
from kohort.lab import actions
from kohort.lab.application import Consuming
from kohort.lab.plan import NetworkPlan, Plan
from kohort.lab.world import World
from kohort.model.instants import Instant
from kohort.storage.flush_job import FlushJob

Patch = pytest.MonkeyPatch

SILENT = replace(QUICK, auto_commit_interval_ms=None)


def _records_stay_readable_after_the_revocation(patch: Patch) -> None:
    patch.setattr(Consuming, "_forget", lambda _self, _partitions: None)


def _join_phases_last_half_as_long(patch: Patch) -> None:
    arm = rebalancing._arm_join_timer

    def sooner(registry: Any, of: Any) -> None:
        arm(registry, of)
        of.join_deadline = Instant((registry.now + of.join_deadline) // 2)
        registry.deadlines.arm(join_timer(of.group_id), of.join_deadline)

    patch.setattr(rebalancing, "_arm_join_timer", sooner)


def _unused_ids_hold_join_phases_open(patch: Patch) -> None:
    patch.setattr(group, "PENDING_MEMBER_GRACE_MS", 5_000)


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
    actions.StartPod(at_ms=20_100, pod="p3"),
    actions.KillPod(at_ms=20_660, pod="p3"),
    pods=4,
    network=NetworkPlan(delay_micros=50_000),
)

PLANTED = {
    "records stay readable after the revocation": Planted(
        check=53,
        plant=_records_stay_readable_after_the_revocation,
        plan=plan(actions.StopPod(at_ms=20_000, pod="p0", back_after_ms=5_000), behaviour=SILENT),
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


def found(made: Plan) -> set[int]:
    world = World(made)
    world.run()
    return {violation.check for violation in check_history(world.history).violations}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found_by_its_check_and_by_no_check_without_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = PLANTED[name]
    assert found(planted.plan) == set()
    planted.plant(monkeypatch)
    assert planted.check in found(planted.plan)
