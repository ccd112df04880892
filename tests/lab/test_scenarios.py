"""Scenarios: each does what its description says, to the named pods, and can be repeated."""

from __future__ import annotations

import functools
import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

from kohort.history.checker import check_history
from kohort.lab.compared_policies import COMPARED_POLICIES, compared_policy
from kohort.lab.scenarios.base import COSTS, Setup, plan_of
from kohort.lab.scenarios.registry import SCENARIOS, scenario
from kohort.lab.scenarios.running import Run, run
from kohort.model.client_facts import ProcessKilled, ProcessStarted, ProcessStopped
from kohort.model.errors import ConfigError
from kohort.model.facts import JoinPhaseCompleted, MemberExpired
from kohort.model.ids import MemberId
from kohort.model.instants import Instant
from kohort.model.member_facts import PollIntervalExceeded

F = TypeVar("F")

ROOT = Path(__file__).parents[2]


@functools.cache
def happened(name: str, policy: str = "cooperative-sticky", *, seed: int = 1) -> Run:
    """A run; made once, since a run is the same every time and nobody here changes one."""
    setup = Setup(policy=compared_policy(policy), members=4, partitions=12, seed=seed)
    return run(scenario(name), setup)


POLICIES = [
    name
    if name == "cooperative-sticky"
    else pytest.param(name, marks=[pytest.mark.slow, pytest.mark.long])
    for name in COMPARED_POLICIES
]


WARM = {"handover", "standby"}
"""Policies that prepare copies, which the clairvoyant does not: they may cost less."""
SHORT = {"join-storm", "leader-death", "process-death-never", "scale-down"}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "name",
    [name if name in SHORT else pytest.param(name, marks=pytest.mark.slow) for name in SCENARIOS],
)
def test_every_group_is_whole_again_in_the_end_and_no_promise_was_broken(
    name: str, policy: str
) -> None:
    of = happened(name, policy)
    metrics = of.measured.metrics
    assert metrics.unserved_at_end == 0
    assert metrics.stable_after_ms is not None
    assert metrics.regret is None or metrics.regret >= 1 or policy in WARM
    assert check_history(of.history).violations == ()


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_policy_is_told_the_same_story(name: str) -> None:
    stories = {
        plan_of(scenario(name), Setup(policy=each, seed=7))[1]
        for each in COMPARED_POLICIES.values()
    }
    assert len(stories) == 1


@pytest.mark.parametrize("name", SCENARIOS)
def test_another_seed_tells_another_story(name: str) -> None:
    one, other = (scenario(name).tell(10, Random(seed)) for seed in (1, 2))
    assert one != other


@pytest.mark.slow
def test_a_run_is_the_same_in_another_process_and_under_any_hash_seed() -> None:
    script = (
        "import hashlib\n"
        "from tests.lab.test_scenarios import happened\n"
        "print(hashlib.sha256(repr(happened('restart').history).encode()).hexdigest())\n"
    )
    other = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)},
    )
    here = hashlib.sha256(repr(happened("restart").history).encode())
    assert other.stdout.strip() == here.hexdigest()


def facts(of: Run, kind: type[F]) -> list[tuple[Instant, str, F]]:
    begin = of.measured.begin
    return [
        (r.at, r.source, r.fact) for r in of.history if r.at >= begin and isinstance(r.fact, kind)
    ]


def test_in_time_is_before_the_dead_member_expires() -> None:
    of = happened("process-death-in-time")
    ((_, dead, _),) = facts(of, ProcessKilled)
    ((back_at, back, _),) = facts(of, ProcessStarted)
    ((expired_at, _, _),) = facts(of, MemberExpired)
    assert dead == back
    assert back_at < expired_at


def test_too_late_is_after_others_took_over() -> None:
    of = happened("process-death-too-late")
    ((back_at, _, _),) = facts(of, ProcessStarted)
    assert min(at for at, _, _ in facts(of, JoinPhaseCompleted)) < back_at


def test_never_is_never() -> None:
    of = happened("process-death-never")
    assert len(facts(of, ProcessKilled)) == 1
    assert facts(of, ProcessStarted) == []


def test_a_rolling_bounce_bounces_everybody_once_and_one_at_a_time() -> None:
    of = happened("rolling-bounce")
    stopped = [source for _, source, _ in facts(of, ProcessStopped)]
    assert sorted(stopped) == [f"pod-{n}" for n in range(4)]
    turns = sorted([*facts(of, ProcessStopped), *facts(of, ProcessStarted)], key=lambda t: t[0])
    assert [type(fact) for _, _, fact in turns] == [ProcessStopped, ProcessStarted] * 4


def test_scaling_is_by_a_fifth_and_by_one_at_least() -> None:
    ten = Setup(policy=compared_policy("sticky"))
    assert len(plan_of(scenario("scale-up"), ten)[0].pods) == 12
    assert len(plan_of(scenario("scale-down"), ten)[0].actions) == 2
    assert len(facts(happened("scale-up"), ProcessStarted)) == 1
    assert len(facts(happened("scale-down"), ProcessStopped)) == 1


def test_only_the_leader_dies_in_leader_death() -> None:
    for name, leads in (("leader-death", True), ("process-death-in-time", False)):
        of = happened(name)
        ((_, _, killed),) = facts(of, ProcessKilled)
        before = [r.fact for r in of.history if r.at < of.measured.begin]
        formed = [fact for fact in before if isinstance(fact, JoinPhaseCompleted)]
        assert (formed[-1].leader_id == killed.member_id) is leads


def test_the_slow_consumer_is_overdue_once() -> None:
    of = happened("slow-consumer")
    ((_, _, overdue),) = facts(of, PollIntervalExceeded)
    assert overdue.member_id != MemberId("")
    assert facts(of, ProcessKilled) == []


def test_a_crash_loop_crashes_five_times() -> None:
    killed = facts(happened("storm"), ProcessKilled)
    assert len(killed) == 5
    assert len({source for _, source, _ in killed}) == 1


def test_an_initial_delay_saves_a_join_storm_its_generations() -> None:
    with_delay = happened("join-storm", "sticky").measured.metrics
    without = happened("join-storm-no-delay", "sticky").measured.metrics
    assert with_delay.generations == 1
    assert without.generations > 1


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["cooperative-sticky", "wait-60s"])
def test_the_end_of_a_slow_revocation_is_noticed_soon(policy: str) -> None:
    """With usual heartbeats alone, others learn of the next round 3 s after the first early one."""
    costs = replace(COSTS, flush_ms=700)
    setup = Setup(policy=compared_policy(policy), members=5, partitions=30, costs=costs)
    assert run(scenario("scale-up"), setup).measured.metrics.longest_stop_ms < 6_500


@pytest.mark.parametrize(("members", "partitions"), [(1, 12), (1_001, 12), (4, 0), (4, 1 << 20)])
def test_impossible_sizes_are_refused_with_their_limits(members: int, partitions: int) -> None:
    setup = Setup(policy=compared_policy("range"), members=members, partitions=partitions)
    with pytest.raises(ConfigError, match=r"not -?\d+"):
        run(scenario("restart"), setup)


def test_more_members_than_partitions_and_a_single_one_are_possible() -> None:
    crowded = Setup(policy=compared_policy("cooperative-sticky"), members=6, partitions=2)
    assert run(scenario("scale-down"), crowded).measured.metrics.unserved_at_end == 0
    alone = Setup(policy=compared_policy("sticky"), members=1, partitions=2)
    assert run(scenario("scale-up"), alone).measured.metrics.unserved_at_end == 0


def test_unknown_names_are_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match="rolling-bounce"):
        scenario("nonsense")
    with pytest.raises(ConfigError, match="roundrobin"):
        compared_policy("nonsense")
