"""The same events under other policies and settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kohort.explain.amounts import Known
from kohort.explain.deployments import Deployment, Incident, What
from kohort.explain.figures import Figure
from kohort.lab.actions import KillPod
from kohort.lab.changes import (
    Change,
    assumed,
    check_change,
    checked_setting,
    sensible_changes,
    steps,
)
from kohort.lab.what_if import Outcome, best, collect, do, jobs, plan_of
from kohort.model.errors import ConfigError

VALUES: dict[str, float | str] = {
    "partition.assignment.strategy": "range",
    "group.instance.id": "none",
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 2_000,
    "max.poll.interval.ms": 20_000,
    "group.initial.rebalance.delay.ms": 0,
    "auto.commit.interval.ms": 5_000,
    "scheduled.rebalance.max.delay.ms": 0,
    "batch.ms": 500,
    "records.per.second": 0.1,
    "flush.ms": 0,
    "flush.each.ms": 0,
    "restore.ms": 0,
    "restore.again.ms": 0,
    "members": 3,
    "partitions": 6,
    "restart.ms": 5_000,
}
STOPPED = Incident(what=What.STOPPED, at=50.0, pod="b", for_s=5.0)
LATE = Incident(what=What.SLOW, at=50.0, pod="b", for_s=23.0)
GROUP = Deployment(
    group="g",
    figures={
        name: Figure(value=value, known=Known.MEASURED, source="the test")
        for name, value in VALUES.items()
    },
    pods=("a", "b", "c"),
    later=(),
    topics=(("t", 6),),
    incidents=(STOPPED,),
)
BUSY = replace(GROUP, incidents=(LATE,))


def compare(deployment: Deployment, *changes: Change, seeds: int = 1) -> list[Outcome]:
    wanted = jobs(deployment, changes, range(1, seeds + 1))
    return collect(wanted, map(do, wanted))


def test_a_static_member_that_comes_back_in_time_costs_no_rebalance_and_nothing_moves() -> None:
    present, static = compare(GROUP, Change(title="s", policy="static-cooperative-sticky"))
    assert (present.mean("rebalances"), static.mean("rebalances")) == (2, 0)
    assert present.mean("moves") > static.mean("moves") == 0
    # Two partitions of six wait for the restart; the start itself takes some milliseconds.
    assert static.mean("unavailable_ms") == pytest.approx(2 * 5.0, rel=0.05)


def test_a_longer_poll_interval_keeps_a_busy_member_in_the_group() -> None:
    changes = sensible_changes(BUSY)
    (longer,) = [change for change in changes if change.settings]
    assert longer.title == "max.poll.interval.ms=40000"
    outcomes = compare(BUSY, longer)
    assert [each.mean("rebalances") for each in outcomes] == [2, 0]
    assert best(outcomes) is outcomes[1]
    assert steps(BUSY, longer) == [("max.poll.interval.ms", "20000", "40000")]


def test_equal_seeds_give_equal_runs_and_one_seed_has_no_spread() -> None:
    (first,), (second,) = compare(BUSY), compare(BUSY)
    assert first.runs == second.runs
    assert first.spread("unavailable_ms") == 0
    assert best([first]) is None


def test_a_change_is_best_only_beyond_the_spread() -> None:
    present, same = compare(GROUP, Change(title="the same", policy="range"))
    assert present.runs == same.runs
    assert best([present, same]) is None


@pytest.mark.parametrize(
    ("saved_s", "is_best"),
    [((5, 5, 5), True), ((4, 5, 6), True), ((20, -5, 0), False), ((0, 0, 0), False)],
)
def test_a_saving_counts_if_it_is_more_than_twice_its_standard_error(
    saved_s: tuple[int, ...], is_best: bool
) -> None:
    (present,) = compare(GROUP, seeds=3)
    runs = [replace(run, unavailable_ms=60_000) for run in present.runs]
    present = replace(present, runs=tuple(runs))
    less = [
        replace(run, unavailable_ms=60_000 - 1_000 * each)
        for run, each in zip(runs, saved_s, strict=True)
    ]
    other = Outcome(change=Change(title="other"), runs=tuple(less))
    assert best([present, other]) is (other if is_best else None)


def test_a_death_between_two_heartbeats_is_drawn_and_ends_at_its_known_time() -> None:
    """The evidence has the last heartbeat and the return; the death lies between."""
    kill = Incident(what=What.KILLED, at=50.0, pod="b", for_s=30.0, known=Known.BOUNDED)

    def deaths(incident: Incident) -> list[tuple[int, int]]:
        found = []
        for job in jobs(replace(GROUP, incidents=(incident,)), (), range(10)):
            plan, begin_ms, _ = plan_of(job)
            (action,) = plan.actions
            assert isinstance(action, KillPod)
            assert action.back_after_ms is not None
            found.append((action.at_ms - begin_ms, action.back_after_ms))
        return found

    bounded = deaths(kill)
    assert all(0 <= later < 2_000 and later + away == 30_000 for later, away in bounded)
    assert len({later for later, _ in bounded}) > 5
    assert deaths(replace(kill, known=Known.MEASURED)) == [(0, 30_000)] * 10


def test_a_deployment_takes_figures_that_the_user_knows_better() -> None:
    given = [("members", "5"), ("partitions", "12"), ("restart.ms", "7000")]
    found = assumed(GROUP, given)
    assert found.pods == ("a", "b", "c", "more 1", "more 2")
    assert found.topics == (("t", 12),)
    assert [incident.for_s for incident in found.incidents] == [7.0]
    assert found.figures["members"].known is Known.ASSUMED
    with pytest.raises(ConfigError, match="members=0"):
        checked_setting("members", "0")
    assert assumed(GROUP, [("members", "1")]).pods == ("b",), "only b has events"
    both = replace(GROUP, incidents=(STOPPED, replace(STOPPED, pod="a")))
    with pytest.raises(ConfigError, match="members=1 contradicts the evidence: 2 members"):
        assumed(both, [("members", "1")])


@pytest.mark.parametrize(
    ("policy", "settings", "says"),
    [
        ("sticky", {"partition.assignment.strategy": "range"}, "contradict each other"),
        ("static-wait-60s", {"group.instance.id": "none"}, "gives each member an instance id"),
        ("", {"session.timeout.ms": "1000"}, "is not below"),
        ("sticky", {"scheduled.rebalance.max.delay.ms": "5"}, "has no effect with sticky"),
        ("kip-848", {"kohort.max.moves.per.round": "5"}, "has no effect with kip-848"),
    ],
)
def test_contradictory_settings_are_refused(
    policy: str, settings: dict[str, str], says: str
) -> None:
    change = Change(title="x", policy=policy, settings=tuple(settings.items()))
    with pytest.raises(ConfigError, match=says):
        check_change(GROUP, change)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("nonsense", "1", "'nonsense' is unknown; choose among: partition.assignment"),
        ("session.timeout.ms", "soon", "expected a whole number from 1 to 86400000"),
        ("session.timeout.ms", "-1", "expected a whole number"),
        ("records.per.second", "nan", "expected a number above 0"),
        ("group.instance.id", "pod-7", "'each' "),
        ("partition.assignment.strategy", "best", "best"),
    ],
)
def test_unknown_names_and_impossible_values_are_refused(name: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        checked_setting(name, value)


def test_looks_of_waiting_polls_make_a_rebalance_longer() -> None:
    figure = Figure(value=400, known=Known.MEASURED, source="the test")
    looking = replace(GROUP, figures={**GROUP.figures, "look.ms": figure})
    (at_once,), (late,) = compare(GROUP, seeds=3), compare(looking, seeds=3)
    assert late.mean("unavailable_ms") > at_once.mean("unavailable_ms")
