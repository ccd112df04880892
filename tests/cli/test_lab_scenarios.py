"""``kohort lab scenarios``, ``run`` and ``table``: output, files, refused arguments."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from kohort.cli.lab import scenarios as lab_scenarios
from kohort.cli.main import cli, main
from kohort.lab.compared_policies import COMPARED_POLICIES
from kohort.lab.scenarios.registry import SCENARIOS
from kohort.lab.scenarios.running import run
from kohort.lab.table import do
from kohort.model.ids import MemberId
from kohort.policies.numbering import Claims, Numbering
from kohort.storage.fact_files import read_histories

SMALL = ("--members", "3", "--partitions", "6")


same_run = functools.cache(run)


@pytest.fixture
def one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal commands get the same run, which is computed once."""
    monkeypatch.setattr(lab_scenarios, "run_scenario", same_run)


def invoke(*words: str) -> Result:
    result = CliRunner().invoke(cli, ["lab", *words])
    assert result.exit_code == 0, result.output
    return result


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(["lab", *words])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("kohort: ")
    assert said.count("\n") == 1
    return said


def test_scenarios_lists_every_scenario_and_policy() -> None:
    listed = invoke("scenarios").stdout
    assert all(name in listed for name in (*SCENARIOS, *COMPARED_POLICIES))
    held = json.loads(invoke("scenarios", "--json").stdout)
    assert list(held["scenarios"]) == list(SCENARIOS)
    assert list(held["policies"]) == list(COMPARED_POLICIES)


@pytest.mark.usefixtures("one_run")
def test_run_prints_the_cost() -> None:
    shown = invoke("run", "restart", "--policy", "sticky", *SMALL).stdout
    assert "One member bounces · Eager, sticky" in shown
    assert "generations" in shown
    assert "regret" in shown


@pytest.mark.usefixtures("one_run")
def test_run_ends_with_status_1_if_a_promise_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "0 violated" in invoke("run", "restart", *SMALL).stdout
    assert json.loads(invoke("run", "restart", "--json", *SMALL).stdout)["check"]["clean"]
    unchecked = invoke("run", "restart", "--no-check", *SMALL).stdout
    assert "violated" not in unchecked
    assert (
        json.loads(invoke("run", "restart", "--json", "--no-check", *SMALL).stdout)["check"] is None
    )
    claims = Numbering.claims

    def forgetful(self: Numbering, order: Sequence[MemberId]) -> Claims:
        none: list[list[int]] = [[] for _ in order]
        return replace(claims(self, order), rightful=none, left=self.left(none))

    monkeypatch.setattr(Numbering, "claims", forgetful)
    monkeypatch.setattr(lab_scenarios, "run_scenario", functools.cache(run))
    words = ["lab", "run", "restart", "--policy", "sticky", *SMALL]
    broken = CliRunner().invoke(cli, words)
    assert broken.exit_code == 1
    assert "VIOLATED 30 moves-are-minimal" in broken.stdout
    assert CliRunner().invoke(cli, [*words, "--no-check"]).exit_code == 0


@pytest.mark.slow
def test_run_prints_the_same_bytes_for_the_same_seed_only() -> None:
    words = ("run", "restart", "--json", *SMALL)
    one, same, other = (invoke(*words, "--seed", seed).stdout for seed in ("4", "4", "5"))
    assert one == same
    assert json.loads(one)["metrics"] != json.loads(other)["metrics"]


@pytest.mark.usefixtures("one_run")
def test_run_writes_a_picture_and_a_history(tmp_path: Path) -> None:
    svg, history = tmp_path / "a.svg", tmp_path / "a.jsonl"
    invoke("run", "scale-up", "--svg", str(svg), "--history", str(history), *SMALL)
    assert ET.parse(svg).getroot().tag.endswith("svg")
    read = read_histories([history])
    assert read.remarks == []
    assert {fact.source for fact in read.facts} >= {"broker", "pod-0", "pod-3"}


@pytest.mark.slow
def test_table_prints_text_markdown_and_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lab_scenarios, "do", functools.cache(do))  # the same runs, printed
    words = ("table", "--scenario", "restart", "--seeds", "1", "--processes", "1", *SMALL)
    for_people = invoke(*words).stdout
    assert "3 members, 6 partitions, seed 1" in for_people
    assert "One member" in for_people
    full = invoke(*words, "--full").stdout
    assert all(name in full for name in COMPARED_POLICIES)
    assert invoke(*words, "--full", "--markdown").stdout.count("\n| ") >= len(COMPARED_POLICIES)
    cells = json.loads(invoke(*words, "--json").stdout)["cells"]
    assert [cell["policy"] for cell in cells] == list(COMPARED_POLICIES)


@pytest.mark.slow
def test_table_draws_a_picture_for_each_cell(tmp_path: Path) -> None:
    words = ("table", "--scenario", "scale-up", "--policy", "range", "--seeds", "1")
    invoke(*words, "--processes", "1", "--svg-dir", str(tmp_path / "new"), *SMALL)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["scale-up.range.svg"]


@pytest.mark.slow
def test_a_table_is_the_same_with_any_number_of_processes() -> None:
    policies = [word for name in ("range", "wait-60s", "kip-848") for word in ("--policy", name)]
    words = ("table", "--scenario", "scale-up", *policies, "--seeds", "2", "--json", *SMALL)
    alone, shared = (invoke(*words, "--processes", n).stdout for n in ("1", "2"))
    assert alone == shared


@pytest.mark.parametrize(
    ("words", "choice"),
    [
        (("run", "nonsense"), "rolling-bounce"),
        (("run", "restart", "--policy", "nonsense"), "cooperative-sticky"),
        (("run", "restart", "--members", "1"), "2 to 1000"),
        (("run", "restart", "--members", "100000"), "2 to 1000"),
        (("run", "restart", "--partitions", "0"), "1 to 100000"),
        (("run", "restart", "--partitions", "-5"), "1 to 100000"),
        (("table", "--scenario", "nonsense"), "join-storm"),
        (("table", "--policy", "nonsense"), "roundrobin"),
        (("table", "--members", "0"), "1000"),
        (("table", "--seeds", "0"), "at least"),
    ],
)
def test_wrong_arguments_are_refused_with_the_choices(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], choice: str
) -> None:
    assert choice in refused(capsys, *words)


@pytest.mark.usefixtures("one_run")
def test_the_error_names_a_file_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    nowhere = str(tmp_path / "missing" / "a.svg")
    assert nowhere in refused(capsys, "run", "scale-up", "--svg", nowhere, *SMALL)
    assert nowhere in refused(capsys, "run", "scale-up", "--history", nowhere, *SMALL)


PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "policies-compared.md"


TABLES = re.findall(
    r"^```\n(kohort lab table .+?)\n```\n\n(.+?\n)(?=\n[^|\n]|\Z)",
    PAGE.read_text(encoding="utf-8").replace("\\\n", ""),
    re.DOTALL | re.MULTILINE,
)
"""The commands of the page, each with the table below it."""


def test_the_page_that_compares_policies_has_two_tables_with_a_row_for_each_scenario() -> None:
    rows = [[line for line in shown.splitlines() if line[:2] == "| "] for _, shown in TABLES]
    assert [len(table) for table in rows] == [2 + len(SCENARIOS)] * 2


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("table", [0, 1])
def test_the_page_that_compares_policies_has_the_output_of_its_commands(
    table: int, scenario: str
) -> None:
    """A part for each scenario, since both tables together are more than 3,000 runs."""
    command, shown = TABLES[table]
    printed = invoke(*command.split()[2:], "--scenario", scenario).stdout.splitlines()
    assert sum(line.startswith("| ") for line in printed) == 3
    assert [line for line in printed if line not in shown.splitlines()] == []
