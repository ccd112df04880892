"""``kohort what-if``: the deployment, the table and the setting to change; bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.explain.test_deployments import RESTART
from tests.explain.test_stories import done, joins, member

from kohort.cli.explain.what_if import what_if
from kohort.cli.main import main


def run(*arguments: object) -> Result:
    return CliRunner().invoke(what_if, [str(each) for each in (*arguments, "--processes", 1)])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "broker.log"
    path.write_text("\n".join([*RESTART, ""]), encoding="utf-8")
    return path


def test_the_deployment_then_the_costs_then_the_setting_to_change(log: Path) -> None:
    changes = ["--set", "group.instance.id=each", "--assume", "restart.ms=6000"]
    more = ["--assume", "flush.ms=9000", "--assume", "records.per.second=0.1"]
    told = run(log, *changes, *more, "--seeds", 2)
    assert told.exit_code == 0, told.output
    first, figures, costs, verdict = told.stdout.split("\n\n")
    assert first == (
        "Group g: 3 members, 3 partitions, 2 rebalances in the evidence. Replayed: 1 time a member "
        "ended in order."
    )
    rows = {row.split("  ")[0]: row.split() for row in figures.splitlines()}
    assert rows["session.timeout.ms"][1:4] == ["45.0", "s", "assumed"]
    assert rows["restart.ms"][1:5] == ["6.0", "s", "assumed", "given"]
    head, present, static = costs.splitlines()
    assert head.split("  ")[0] == "POLICY AND SETTINGS"
    assert present.startswith("as it is")
    assert static.startswith("group.instance.id=each")
    assert " %)" in static
    lines = verdict.splitlines()
    assert lines[0].startswith("Best: group.instance.id=each, ")
    assert lines[1] == "  group.instance.id=each  (now none)"
    assert lines[-1].startswith("Assumed: partition.assignment.strategy, ")


def test_json_has_figures_events_outcomes_and_the_change(log: Path) -> None:
    told = run(log, "--policy", "cooperative-sticky", "--seeds", 1, "--json")
    found = json.loads(told.stdout)
    assert found["figures"]["members"] == {
        "value": 3,
        "known": "measured",
        "source": "members at the beginning of the evidence, 2 of them without a name",
    }
    assert [event["what"] for event in found["events"]] == ["ended in order"]
    present, other = found["outcomes"]
    assert (present["policy"], other["policy"]) == (None, "cooperative-sticky")
    assert [each["means"]["rebalances"] for each in (present, other)] == [2, 3]
    assert (found["best"] is None) is (found["change"] == [])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "no evidence: name log files, or --bootstrap-server of a cluster"),
        (["LOG", "--policy", "best"], "policy 'best' is unknown; choose among: range, "),
        (["LOG", "--set", "nonsense=1"], "setting 'nonsense' is unknown"),
        (["LOG", "--set", "session.timeout.ms"], "expected NAME=VALUE"),
        (["LOG", "--set", "batch.ms=1", "--set", "batch.ms=2"], "has 2 values, 1, 2; give one"),
        (["LOG", "--set", "session.timeout.ms=900"], "is not below session.timeout.ms=900"),
        (["LOG", "--assume", "session.timeout.ms=900"], "is not below session.timeout.ms=900"),
        (["LOG", "--group", "h"], "the evidence has no group 'h'"),
        (["EMPTY"], "tells anything about a group"),
        (["CALM"], "no rebalance in the evidence"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(
    log: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    empty, calm = log.with_name("empty.log"), log.with_name("calm.log")
    empty.write_text("nothing\n", encoding="utf-8")
    calm.write_text(f"{RESTART[0]}\n", encoding="utf-8")
    paths = {"LOG": str(log), "EMPTY": str(empty), "CALM": str(calm)}
    with pytest.raises(SystemExit) as ended:
        main(["what-if", *(paths.get(each, each) for each in arguments)])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kohort: ")
    assert says in line


def test_a_group_of_several_is_chosen_by_name(tmp_path: Path) -> None:
    path = tmp_path / "two.log"
    other = [joins(0, 4, member("a", 1)), *done(1, 5, members=2)]
    text = "\n".join([*RESTART, *(line.replace("group g ", "group h ") for line in other), ""])
    path.write_text(text, encoding="utf-8")
    told = run(path, "--group", "h", "--policy", "sticky", "--seeds", 1, "--assume", "batch.ms=900")
    assert told.stdout.startswith("Group h: 1 members")
