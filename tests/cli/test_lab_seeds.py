"""``kohort lab seeds``, ``soak``, ``replay`` and ``exhaust``: output and refused input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kohort.cli.lab import seeds as lab_seeds
from kohort.cli.lab.commands import lab
from kohort.lab.plan import Plan
from kohort.lab.random_plans import draw
from kohort.lab.runs import Finding, Report, run_plan
from kohort.model.errors import ConfigError
from kohort.model.instants import Instant


def ran(*arguments: str, fails: bool = False) -> Result:
    return CliRunner().invoke(lab, arguments, catch_exceptions=not fails)


def test_seeds_runs_and_counts_worlds() -> None:
    result = ran("seeds", "--mode", "safety", "--first", "3", "--count", "1", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["runs"], summary["failures"]) == (1, 0)
    assert summary["marks_reached"] + len(summary["marks_missed"]) == summary["marks"]


def test_a_soak_runs_until_its_time_is_over() -> None:
    result = ran("soak", "--minutes", "0.001", "--mode", "safety")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("1 runs, 0 failed")
    assert "never reached:" in result.output


def broken(plan: Plan, **_more: object) -> Report:
    finding = Finding(rule="no-two-owners", message="t-0", at=Instant(5), story=("a", "b"))
    whole = run_plan(plan)
    return Report(
        plan=plan,
        findings=(finding,),
        arrivals=whole.arrivals,
        events=whole.events,
        facts=whole.facts,
        history=whole.history,
    )


@pytest.mark.slow
def test_a_failure_prints_seed_commit_story_and_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lab_seeds, "run_plan", broken)
    arguments = ("seeds", "--mode", "safety", "--first", "3", "--count", "1", "--commit", "abc")
    result = ran(*arguments)
    assert result.exit_code == 1
    assert "swarm safety, seed 3, commit abc" in result.output
    assert "again: kohort lab seeds --mode safety --first 3 --count 1" in result.output
    assert "no-two-owners at 0.000 s: t-0\n      a\n      b\n" in result.output
    kept = ran(*arguments, "--keep", str(tmp_path))
    (plan,) = tmp_path.glob("*.plan.json")
    assert f"kohort lab replay {plan}" in kept.output
    assert len(list(tmp_path.glob("*.history.jsonl"))) == 1


@pytest.mark.slow
def test_a_plan_is_replayed_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(draw(3).to_json()))
    result = ran("replay", str(path), "--json", "--history", str(tmp_path / "h.jsonl"))
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["digest"] == run_plan(draw(3)).digest
    assert (tmp_path / "h.jsonl").stat().st_size > 0


def test_a_history_that_cannot_be_written_is_an_error_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(draw(3).to_json()))
    with pytest.raises(ConfigError, match=r"absent/h.jsonl cannot be written: No such file"):
        ran("replay", str(path), "--history", str(tmp_path / "absent" / "h.jsonl"), fails=True)


@pytest.mark.parametrize(("content", "says"), [("{", "is not JSON"), ("[]", "is not a plan")])
def test_other_files_than_plans_are_refused(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=says):
        ran("replay", str(path), fails=True)


@pytest.mark.slow
def test_exhaust_runs_all_placements_in_a_small_world() -> None:
    result = ran("exhaust", "reset", "--last-ms", "6", "--depth", "1")
    assert result.exit_code == 0, result.output
    assert "0 failed" in result.output
    with pytest.raises(ConfigError, match="known: kill"):
        ran("exhaust", "bang", fails=True)
