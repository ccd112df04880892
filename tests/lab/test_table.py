"""The table: which runs it needs, how they are gathered, how it reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from kohort.history.cost_values import Metrics
from kohort.lab.compared_policies import (
    _ALL,
    COMPARED_POLICIES,
    ComparedPolicy,
    compared_policy,
    strategy,
)
from kohort.lab.table import COLUMNS, Cell, Job, collect, do, jobs, number
from kohort.model.errors import ConfigError


def metrics(**changed: int | None) -> Metrics:
    values: dict[str, Any] = dict.fromkeys(Metrics.__dataclass_fields__, 0)
    values.update({"partitions": 12, "best_ms": 2_000, "stable_after_ms": 1_000, **changed})
    return Metrics(**values)


def wanted(
    scenarios: Sequence[str] = ("restart", "scale-up"),
    policies: Sequence[str] = ("range", "sticky"),
    seeds: Sequence[int] = (1, 2),
) -> list[Job]:
    return jobs(scenarios, policies, members=4, partitions=12, seeds=seeds)


def test_every_scenario_meets_every_policy_under_every_seed() -> None:
    assert [(j.scenario, j.policy, j.seed) for j in wanted()] == [
        (scenario, policy, seed)
        for scenario in ("restart", "scale-up")
        for policy in ("range", "sticky")
        for seed in (1, 2)
    ]


@pytest.mark.parametrize(
    ("change", "choices"),
    [
        ({"scenarios": ("nonsense",)}, "rolling-bounce"),
        ({"policies": ("nonsense",)}, "cooperative-sticky"),
        ({"seeds": ()}, "at least one"),
        ({"scenarios": ()}, "at least one"),
    ],
)
def test_an_impossible_run_is_refused_before_any_run(change: dict[str, Any], choices: str) -> None:
    with pytest.raises(ConfigError, match=choices):
        wanted(**change)


@pytest.mark.parametrize(("members", "partitions"), [(1, 12), (1_001, 12), (4, 0), (4, 100_001)])
def test_impossible_sizes_are_refused_with_their_limits(members: int, partitions: int) -> None:
    with pytest.raises(ConfigError, match=r"1000|100000"):
        jobs(("restart",), ("range",), members=members, partitions=partitions, seeds=(1,))


def test_the_order_in_which_runs_were_done_changes_nothing() -> None:
    all_of_them = wanted()
    done = [(job, metrics(moves=job.seed)) for job in all_of_them]
    assert collect(all_of_them, done).to_json() == collect(all_of_them, reversed(done)).to_json()


def test_a_missing_run_is_named() -> None:
    all_of_them = wanted()
    with pytest.raises(ConfigError, match="restart/range/1"):
        collect(all_of_them, [(job, metrics()) for job in all_of_them[1:]])


def test_cells_are_means_and_regret_is_weighted_by_cost() -> None:
    two = (metrics(unavailable_ms=1_000, moves=1), metrics(unavailable_ms=9_000, moves=2))
    means = Cell(scenario="restart", policy="range", runs=two).means()
    assert means["unavailable_s"] == 5.0
    assert means["moves"] == 1.5
    assert means["regret"] == 10_000 / 4_000
    assert set(means) == {name for name, _ in COLUMNS}


def test_one_run_that_never_settled_leaves_no_mean_of_settling() -> None:
    two = (metrics(), metrics(stable_after_ms=None))
    assert Cell(scenario="restart", policy="range", runs=two).means()["stable_after_s"] is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0"), (3.0, "3"), (0.126, "0.13"), (2.46, "2.5"), (123.4, "123")],
)
def test_numbers_are_as_short_as_they_may_be(value: float | None, text: str) -> None:
    assert number(value) == text


def test_markdown_has_a_row_for_each_scenario_and_a_table_of_every_metric_for_each() -> None:
    all_of_them = wanted()
    text = collect(all_of_them, [(job, metrics()) for job in all_of_them]).to_markdown(full=True)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == (2 + 2) + 2 * (2 + len(COLUMNS))
    assert "4 members, 12 partitions, mean of 2 seeds" in text
    for block in (lines[:4], lines[4:]):
        assert len({line.count("|") for line in block}) == 1


@pytest.mark.parametrize(
    ("cost", "answer"), [(3_000, "YES"), (8_900, "IMPROVED"), (9_100, "NO"), (20_000, "NO")]
)
def test_a_cell_says_whether_the_policy_solves_the_scenario(cost: int, answer: str) -> None:
    """The clairvoyant pays 2 s and the eager group 10 s."""
    all_of_them = wanted(("restart",), ("sticky", "wait-60s"), (1,))
    costs = {"sticky": 10_000, "wait-60s": cost}
    done = [(job, metrics(unavailable_ms=costs[job.policy])) for job in all_of_them]
    _, ((_, eager, policy),) = collect(all_of_them, done).short()
    assert policy.endswith(f" {answer}")
    assert eager.endswith(" NO")


def test_markdown_says_how_much_seeds_differ_where_they_do() -> None:
    all_of_them = wanted(("restart",), ("range",))
    done = [(job, metrics(moves=3 + 2 * job.seed)) for job in all_of_them]
    text = collect(all_of_them, done).to_markdown(full=True)
    assert "| moves | 6 ± 1.4 |" in text
    assert "| stops | 0 |" in text
    alone = collect(all_of_them[:1], done[:1]).to_markdown(full=True)
    assert "| moves | 5 |" in alone


def test_json_survives_being_written() -> None:
    all_of_them = wanted()
    values = collect(all_of_them, [(job, metrics()) for job in all_of_them]).to_json()
    assert json.loads(json.dumps(values)) == values
    assert len(values["cells"]) == 4
    assert len(values["cells"][0]["runs"]) == 2


def test_each_policy_has_a_name_of_its_own() -> None:
    assert len(COMPARED_POLICIES) == len(_ALL)


@pytest.mark.slow
def test_a_new_policy_takes_part_by_being_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = ComparedPolicy(name="mine", title="Mine", adapt=compared_policy("sticky").adapt)
    monkeypatch.setitem(COMPARED_POLICIES, mine.name, mine)
    same = [do(job)[1] for job in wanted(("scale-up",), ("mine", "sticky"), (1,))]
    assert same[0] == same[1]


def test_a_strategy_that_no_assignor_has_cannot_be_registered() -> None:
    with pytest.raises(ConfigError, match="unknown"):
        strategy("nonsense", "Nonsense")
