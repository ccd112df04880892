"""``kohort check``: its output, and its errors for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import click
from click.testing import CliRunner, Result
from tests.history.tale import Tale

from kohort.cli.main import main
from kohort.storage.fact_files import write_history


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1)
def kohort(arguments: tuple[str, ...]) -> None:
    """The process's entry point, so that errors are told as users see them."""
    main(list(arguments))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(kohort, ["check", *arguments])


def good(folder: Path) -> str:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(6)
    write_history(folder / "good.jsonl", tale.history)
    return str(folder / "good.jsonl")


def bad(folder: Path) -> str:
    tale = Tale().stable(a=(0, 1), b=(1, 2, 3)).beat_all(6)
    write_history(folder / "bad.jsonl", tale.history)
    return str(folder / "bad.jsonl")


def test_a_clean_history_has_exit_status_0(tmp_path: Path) -> None:
    result = run(good(tmp_path))
    assert result.exit_code == 0
    assert "22     nothing-is-assigned-twice" in result.output
    assert "had nothing to judge" in result.output
    assert "VIOLATED" not in result.output


def test_a_violation_is_printed_with_its_story(tmp_path: Path) -> None:
    result = run(bad(tmp_path))
    assert result.exit_code == 1
    assert "VIOLATED 22 nothing-is-assigned-twice: group g" in result.output
    assert "t-1 is assigned to a-" in result.output
    assert "The story:" in result.output
    assert "GroupStabilized" in result.output


def test_json_has_the_whole_report(tmp_path: Path) -> None:
    result = run(bad(tmp_path), "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert told["clean"] is False
    assert len(told["checks"]) == 57
    assert told["violations"][0]["name"] == "nothing-is-assigned-twice"
    assert told["violations"][0]["story"]


def test_checks_can_be_selected_by_number_or_name(tmp_path: Path) -> None:
    result = run(bad(tmp_path), "--only", "1", "--only", "legal-transitions", "--explain")
    assert result.exit_code == 0
    assert "2 checks passed, 0 violated" in result.output
    assert "Fencing compares generations for equality" in result.output


def test_an_unknown_check_is_refused(tmp_path: Path) -> None:
    result = run(good(tmp_path), "--only", "nonsense")
    assert result.exit_code == 2
    assert "--only nonsense: unknown check; the checks are 1 to 57" in result.output


def test_a_truncated_history_is_checked_up_to_its_last_whole_fact(tmp_path: Path) -> None:
    path = Path(bad(tmp_path))
    path.write_bytes(path.read_bytes()[:-20])
    result = run(str(path))
    assert result.exit_code == 1
    assert "is truncated: line" in result.output
    assert "checked up to the fact before it" in result.output


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    result = run(str(path))
    assert result.exit_code == 2
    assert "is no history" in result.output


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    path.write_text('{"kohort_history":99,"clock":"x","wall_micros":0}\n')
    result = run(str(path))
    assert result.exit_code == 2
    assert "this kohort reads 1 to 1" in result.output


def test_gaps_of_a_sparse_topic_are_no_violation(tmp_path: Path) -> None:
    tale = Tale(booted=False).process("a").told("a", "assigned", 0)
    tale.position("a", 0, 0).deliver("a", 0, 0, 4).deliver("a", 0, 6, 9)
    path = tmp_path / "holes.jsonl"
    write_history(path, tale.history)
    assert run(str(path)).exit_code == 1
    assert run(str(path), "--sparse", "t").exit_code == 0
