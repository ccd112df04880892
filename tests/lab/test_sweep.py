"""A sweep: its runs, the order of settings by cost, chance, and the picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from kohort.history.cost_values import Metrics
from kohort.lab.compared_policies import compared_policy
from kohort.lab.plan import Behaviour
from kohort.lab.scenarios.base import Setup, Timeouts
from kohort.lab.scenarios.registry import scenario
from kohort.lab.scenarios.running import run
from kohort.lab.sweep import Deployment, Setting, Sweep
from kohort.lab.sweep_picture import MOST_BARS, sweep_svg
from kohort.lab.table import Job
from kohort.model.errors import ConfigError

SVG = "{http://www.w3.org/2000/svg}"
SMALL = Deployment(members=4, partitions=12, restore_ms=1_000)


def sweep(**changed: Any) -> Sweep:
    values: dict[str, Any] = {
        "scenarios": {"restart": 10.0, "scale-up": 1.0},
        "policies": ("range", "sticky"),
        "deployments": (SMALL,),
        "seeds": (1, 2, 3),
    }
    return Sweep(**{**values, **changed})


def metrics(**values: int) -> Metrics:
    return Metrics(**{**dict.fromkeys(Metrics.__dataclass_fields__, 0), **values})


def costs(wanted: Sweep, by_policy: Mapping[str, tuple[int, ...]]) -> dict[Job, Metrics]:
    """Results in which a policy has this cost, in seconds, with the seeds 1, 2 and 3."""
    return {
        job: metrics(unavailable_ms=1_000 * by_policy[job.policy][job.seed - 1], relocations=2)
        for job in wanted.jobs()
    }


def test_every_setting_meets_every_scenario_in_every_deployment_with_every_seed() -> None:
    wanted = sweep(
        deployments=(SMALL, Deployment()), sessions_ms=(10_000, 45_000), polls_ms=(60_000,)
    )
    found = wanted.jobs()
    assert len(set(found)) == len(found) == 2 * 2 * 2 * 2 * 3
    assert {job.timeouts for job in found} == {
        Timeouts(session_ms=10_000, poll_ms=60_000),
        Timeouts(session_ms=45_000, poll_ms=60_000),
    }
    assert {(job.members, job.partitions, job.costs.restore_cold_ms) for job in found} == {
        (4, 12, 1_000),
        (10, 200, 5_000),
    }


def test_a_value_given_twice_is_run_once() -> None:
    twice = sweep(policies=("range", "range"), seeds=(1, 1), deployments=(SMALL, SMALL))
    assert len(twice.jobs()) == 2
    rated = twice.rate({job: metrics(unavailable_ms=1_000) for job in twice.jobs()})
    assert [each.cost for each in rated[SMALL]] == [11.0]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"scenarios": {"nonsense": 1.0}}, "rolling-bounce"),
        ({"scenarios": {"restart": 0.0}}, "more than 0"),
        ({"policies": ("nonsense",)}, "cooperative-sticky"),
        ({"sessions_ms": (5_000,)}, r"6 to 1800 s, not 5 s"),
        ({"polls_ms": (10,)}, "not 0.01 s"),
        ({"seeds": ()}, "at least one"),
        ({"seeds": tuple(range(500_000))}, "1000000 runs, not 2000000"),
        ({"deployments": (Deployment(members=1),)}, "2 to 1000 members, not 1"),
    ],
)
def test_an_impossible_sweep_is_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        sweep(**change).jobs()


def test_settings_are_ordered_by_the_cost_of_all_events() -> None:
    wanted = sweep()
    rated = wanted.rate(costs(wanted, {"range": (3, 4, 5), "sticky": (1, 2, 3)}))[SMALL]
    assert [each.setting for each in rated] == [Setting(policy="sticky"), Setting(policy="range")]
    assert [each.cost for each in rated] == [22.0, 44.0]  # 10 restarts and one scale-up
    assert rated[0].parts == {"restart": 20.0, "scale-up": 2.0}
    assert rated[0].moves == 22.0
    assert rated[0].longest_stop_s == 0.0


def test_a_difference_that_may_be_chance_is_told() -> None:
    wanted = sweep()
    rated = wanted.rate(costs(wanted, {"range": (1, 9, 5), "sticky": (5, 1, 5)}))[SMALL]
    assert [each.as_good for each in rated] == [True, True]
    # The same seed tells both policies the same story: a steady difference is no chance.
    rated = wanted.rate(costs(wanted, {"range": (2, 52, 102), "sticky": (1, 50, 100)}))[SMALL]
    assert [each.as_good for each in rated] == [True, False]


def test_another_criterion_gives_another_order() -> None:
    wanted = sweep(seeds=(1,))
    done = {
        job: metrics(unavailable_ms=1_000, relocations=3, duplicates=1)
        if job.policy == "range"
        else metrics(unavailable_ms=2_000, relocations=1, duplicates=5)
        for job in wanted.jobs()
    }
    best = {by: str(wanted.rate(done, by)[SMALL][0].setting) for by in ("down", "moves")}
    assert best == {"down": "range", "moves": "sticky"}
    assert wanted.rate(done, "duplicates")[SMALL][0].cost == 11.0


def test_timeouts_change_the_run() -> None:
    """A dead member is noticed after the session timeout; the heartbeat interval follows it."""
    setup = Setup(policy=compared_policy("cooperative-sticky"), members=2, partitions=4)
    short = replace(setup, timeouts=Timeouts(session_ms=6_000))
    what = scenario("process-death-never")
    stops = [run(what, each).measured.metrics.longest_stop_ms for each in (short, setup)]
    assert stops[1] - stops[0] == pytest.approx(39_000, abs=3_000)
    assert Timeouts(session_ms=6_000).within(Behaviour()).heartbeat_interval_ms == 2_000
    assert Timeouts(poll_ms=60_000).within(Behaviour()).max_poll_interval_ms == 60_000
    assert Timeouts(session_ms=345_000).more_calm_ms == 300_000


def test_the_picture_has_a_bar_for_each_setting_with_its_parts() -> None:
    wanted = sweep(deployments=(SMALL, Deployment(members=6)))
    rated = wanted.rate(costs(wanted, {"range": (3, 4, 5), "sticky": (1, 2, 3)}))
    root = ET.fromstring(sweep_svg(rated))
    told = [each.text or "" for each in root.iter(f"{SVG}text")]
    assert str(SMALL) in told
    assert told.count("sticky") == 2
    widths = {
        (rect.findtext(f"{SVG}title"), float(rect.get("width", "")))
        for rect in root.iter(f"{SVG}rect")
        if rect.find(f"{SVG}title") is not None
    }
    by_text = dict(widths)
    restarts = by_text["One member bounces: 40"]
    assert by_text["One member bounces: 20"] == pytest.approx(restarts / 2, abs=0.1)
    assert by_text["Scale up by a fifth: 4"] == pytest.approx(restarts / 10, abs=0.1)


def test_a_picture_of_many_settings_shows_the_best_and_the_worst() -> None:
    sessions = tuple(range(6_000, 6_000 + 2 * MOST_BARS))
    wanted = sweep(policies=("range",), sessions_ms=sessions, seeds=(1,))
    done = {
        job: metrics(unavailable_ms=(job.timeouts.session_ms or 0) - 5_999) for job in wanted.jobs()
    }
    shown = sweep_svg(wanted.rate(done))
    assert f"the best {MOST_BARS - 1} and the worst of {2 * MOST_BARS} settings" in shown
    assert "session 6.047 s" in shown
    assert "session 6.046 s" not in shown
