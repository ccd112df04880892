"""The reference expectations of reliability.md 5.3, with the tolerance of each.

They come from a throwaway model in which members notice a rebalance one by one, at any moment
between two heartbeats. In the real protocol all members are answered at the same instant, so that
their heartbeats keep step: they stop together, and wait less for each other. So the cost of
an eager group, besides the lost member's partitions, is less here by a third to a half. The other
figures (a dead member's session, a restart, a restore) agree within about a tenth. The
closed forms below are those of 5.3 with the notice of a group in step (ADR 0034).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from random import Random
from statistics import fmean

import pytest

from kohort.history.clairvoyant import Costs
from kohort.lab.actions import KillPod
from kohort.lab.compared_policies import compared_policy
from kohort.lab.scenarios.base import COSTS, Setup, plan_of
from kohort.lab.scenarios.registry import join_storm, scenario
from kohort.lab.scenarios.running import Run, run
from kohort.member import joining
from kohort.member.heartbeating import EARLY_HEARTBEAT_MS
from kohort.member.member_data import MemberData, Timer
from kohort.model.instants import Instant, Millis, after

pytestmark = [pytest.mark.slow, pytest.mark.long]

EAGER, DESIGN_I, STATIC = "sticky", "cooperative-sticky", "static-cooperative-sticky"
HEARTBEAT, SESSION, BATCH = 3.0, 45.0, 0.2
FLUSH, COLD, WARM = (
    COSTS.flush_each_ms / 1e3,
    COSTS.restore_cold_ms / 1e3,
    COSTS.restore_warm_ms / 1e3,
)


@cache
def runs(name: str, policy: str, members: int = 10, seeds: int = 5) -> tuple[Run, ...]:
    def one(seed: int) -> Run:
        setup = Setup(
            policy=compared_policy(policy),
            members=members,
            partitions=20 * members,
            seed=seed,
        )
        return replace(run(scenario(name), setup), history=())

    return tuple(one(seed) for seed in range(1, seeds + 1))


def mean(of: tuple[Run, ...], name: str) -> float:
    return fmean(getattr(each.measured.metrics, name) for each in of)


def down(of: tuple[Run, ...]) -> float:
    return mean(of, "unavailable_ms") / 1_000


@pytest.mark.parametrize(
    ("name", "policy", "members", "expected"),
    [
        ("scale-down", EAGER, 5, 1),  # one member leaves for good
        ("scale-down", DESIGN_I, 5, 1),
        ("scale-down", STATIC, 5, 1),  # after its session
        ("restart", EAGER, 10, 2),
        ("restart", DESIGN_I, 10, 3),
        ("scale-up", EAGER, 5, 1),  # one member joins
        ("scale-up", DESIGN_I, 5, 2),
        ("scale-up", STATIC, 5, 2),  # as its base policy
        ("process-death-in-time", EAGER, 10, 1),
        ("process-death-in-time", DESIGN_I, 10, 1),
        ("process-death-in-time", STATIC, 10, 0),  # inside its session
    ],
)
def test_one_change_takes_the_expected_generations(
    name: str, policy: str, members: int, expected: int
) -> None:
    """Exact, but for one more in a run at most: a member may still flush when a round begins, and
    rounds do not wait for it (ADR 0034)."""
    counts = [each.measured.metrics.generations for each in runs(name, policy, members)]
    assert min(counts) == expected
    assert max(counts) <= expected + (policy == DESIGN_I and expected > 1)


@pytest.mark.parametrize(
    ("policy", "low", "high"),
    [(EAGER, 20, 20), (DESIGN_I, 30, 33), (STATIC, 0, 8)],
)
def test_a_rolling_bounce_takes_two_or_three_generations_a_member_and_few_if_static(
    policy: str, low: int, high: int
) -> None:
    """2N, 3N, and none but for restarts that outlast their session (few, each 1 to 3)."""
    for each in runs("rolling-bounce", policy, seeds=2):
        assert low <= each.measured.metrics.generations <= high


@pytest.mark.parametrize(
    ("name", "policy", "expected", "tolerance"),
    [
        ("restart", DESIGN_I, 274, 0.15),
        ("process-death-in-time", EAGER, 5181, 0.15),
        ("process-death-in-time", DESIGN_I, 873, 0.05),
        ("process-death-in-time", STATIC, 359, 0.25),  # the mean of five restarts
        ("rolling-bounce", DESIGN_I, 2811, 0.20),
        ("rolling-bounce", STATIC, 4551, 0.25),
        ("scale-down", DESIGN_I, 346, 0.15),
        ("scale-down", STATIC, 2603, 0.05),
        # In step, a third to a half less:
        ("restart", EAGER, 1217 * 0.6, 0.20),
        ("rolling-bounce", EAGER, 12145 * 0.6, 0.20),
        ("scale-down", EAGER, 1317 * 0.6, 0.20),
        ("scale-up", EAGER, 839 * 0.5, 0.20),
        ("scale-up", DESIGN_I, 267 * 0.65, 0.20),
    ],
)
def test_partition_seconds_not_served_agree_with_the_reference(
    name: str, policy: str, expected: int, tolerance: float
) -> None:
    of = runs(name, policy, seeds=2 if name == "rolling-bounce" else 5)
    assert down(of) == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize(("name", "expected"), [("restart", 1217), ("scale-down", 1317)])
def test_an_eager_group_out_of_step_costs_what_the_reference_says(
    name: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's members notice a rebalance at a moment of their own; so told, the lab agrees."""
    random = Random(7)

    def beat_at_a_moment_of_its_own(data: MemberData, now: Instant) -> None:
        moment = Millis(1 + random.randrange(data.config.heartbeat_interval_ms))
        data.deadlines.arm(Timer.HEARTBEAT, after(now, moment))

    monkeypatch.setattr(joining, "beat_early", beat_at_a_moment_of_its_own)
    of = runs.__wrapped__(name, EAGER)
    assert down(of) == pytest.approx(expected, rel=0.10)


@pytest.mark.parametrize(
    ("name", "policy", "moves", "cold"),
    [
        ("restart", EAGER, 40, 38),
        ("restart", DESIGN_I, 40, 38),
        ("process-death-in-time", EAGER, 20, 0),
        ("process-death-in-time", DESIGN_I, 20, 0),
        ("process-death-in-time", STATIC, 0, 0),
        ("scale-up", DESIGN_I, 32, 32),
        ("scale-down", DESIGN_I, 42, 42),
        ("scale-down", STATIC, 40, 40),
    ],
)
def test_moves_and_cold_restores_agree_with_the_reference(
    name: str, policy: str, moves: int, cold: int
) -> None:
    """To within one partition. The reference has 28 cold ones for a bounce: its policy gave the
    member more of its former partitions; a sticky policy has no reason to do so."""
    of = runs(name, policy)
    assert mean(of, "moves") == pytest.approx(moves, abs=1)
    assert mean(of, "cold_restores") == pytest.approx(cold, abs=1)


@pytest.mark.parametrize("name", ["restart", "rolling-bounce", "scale-up", "scale-down"])
def test_design_one_stops_for_a_fraction_of_the_time_of_eager(name: str) -> None:
    seeds = 2 if name == "rolling-bounce" else 5
    eager, cooperative = (runs(name, policy, seeds=seeds) for policy in (EAGER, DESIGN_I))
    assert down(cooperative) < down(eager) / 2
    assert all(each.measured.metrics.peak_share == 1 for each in eager)
    assert all(each.measured.metrics.peak_share <= 0.21 for each in cooperative)


def returned_after(of: Run) -> float:
    ((action,),) = (plan_of(of.scenario, of.setup)[0].actions,)
    assert isinstance(action, KillPod)
    assert action.back_after_ms is not None
    return action.back_after_ms / 1_000


def test_a_leave_under_design_one_costs_its_closed_form() -> None:
    """q (f + J + r), the join phase as it was; within 5 %."""
    of = runs("scale-down", DESIGN_I, 5)
    barrier = mean(of, "longest_barrier_ms") / 1_000
    assert down(of) == pytest.approx(20 * (20 * FLUSH + barrier + COLD), rel=0.05)


def test_a_leave_under_an_eager_policy_costs_its_closed_form() -> None:
    """The same, and everybody else's stop: own flush, the last batch, a warm start; within 10 %."""
    of = runs("scale-down", EAGER, 5)
    barrier = mean(of, "longest_barrier_ms") / 1_000
    lost = 20 * (20 * FLUSH + barrier + COLD)
    others = 80 * (20 * FLUSH + BATCH + WARM)
    assert down(of) == pytest.approx(lost + others, rel=0.10)


def test_a_death_inside_the_session_costs_its_closed_form() -> None:
    """q (S - h/2 + w); an eager group stops from the newcomer's joining on; within 10 %."""
    lost = 20 * (SESSION - HEARTBEAT / 2 + WARM)
    assert down(runs("process-death-in-time", DESIGN_I)) == pytest.approx(lost, rel=0.05)
    eager = runs("process-death-in-time", EAGER)
    waits = fmean(
        SESSION - HEARTBEAT / 2 - returned_after(each) - HEARTBEAT / 2 + WARM for each in eager
    )
    assert down(eager) == pytest.approx(lost + 180 * waits, rel=0.10)


def test_a_static_bounce_costs_its_closed_form() -> None:
    """q (R + w), nothing else; within 5 %."""
    of = runs("process-death-in-time", STATIC)
    expected = 20 * (fmean(returned_after(each) for each in of) + WARM)
    assert down(of) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("window_ms", "delay_ms", "low", "high"),
    [
        (10_000, 3_000, 1, 1),
        (10_000, 10_000, 1, 1),
        (10_000, 0, 4.8, 4.8 * 1.6),
        (60_000, 0, 11.4, 11.4 * 1.35),
        (60_000, 3_000, 9.9, 9.9 * 1.35),
        (60_000, 10_000, 1, 7),
    ],
)
def test_a_join_storm_of_twenty_takes_the_expected_generations(
    window_ms: int, delay_ms: int, low: float, high: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-134's measure for an eager group: 4.8, 1.0, 1.0 and 11.4, 9.9, 1.9 in the reference.

    There a member looks for the next round at its usual heartbeats. Here it also looks half a
    second after each round, so there are up to 60 % more rounds, and shorter ones (ADR 0034). Since
    ADR 0049 it looks each half second, which gives 11.8 generations in 10 s and 16.4 in 60 s; this
    is left out. A delay of 10 s against 60 s is decided by one gap in the starts, so the mean of
    few seeds says only that it mostly holds.
    """

    def beat_early_once(data: MemberData, now: Instant) -> None:
        data.deadlines.arm(Timer.HEARTBEAT, after(now, EARLY_HEARTBEAT_MS))

    monkeypatch.setattr(joining, "beat_early", beat_early_once)
    tell = partial(join_storm, window_ms=window_ms, delay_ms=delay_ms)
    storm = replace(scenario("join-storm"), tell=tell)
    counts = [
        run(
            storm,
            Setup(
                policy=compared_policy(EAGER),
                members=20,
                partitions=40,
                seed=seed,
                costs=Costs(),
            ),
        ).measured.metrics.generations
        for seed in range(1, 9)
    ]
    assert low <= fmean(counts) <= high
