"""Generated pages are up to date, links lead to files, decisions have their form."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tidy.advice import ADVICE
from tests.tidy.pages import links
from tests.tidy.rules import tracked_texts
from tests.tidy.trees import ROOT, SOURCE

from kohort.client.config import ClientSettings
from kohort.host.settings import dotted

ADRS = sorted((ROOT / "docs" / "adr").glob("*.md"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SECTIONS = ["Context", "Decision", "Consequences"]
ADR_LINES = 40
ADR_WIDTH = 130


def test_pages_made_from_code_are_fresh() -> None:
    # In a process of its own: click remembers how a command was invoked in this one.
    done = subprocess.run(
        [sys.executable, "-m", "tests.tidy.pages", "--check"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, f"run `make docs`: {done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page: Path) -> None:
    broken = [target for target in links(page) if not (page.parent / target).exists()]
    assert not broken


@pytest.mark.parametrize("adr", ADRS, ids=lambda adr: adr.name)
def test_decision_has_title_status_and_three_short_sections(adr: Path) -> None:
    text = adr.read_text(encoding="utf-8")
    assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", adr.name)
    title, _, status = text.splitlines()[:3]
    assert re.fullmatch(rf"# {adr.name[:4]}\. [A-Z][\w -]+: \S.+[^.]", title)
    assert status.startswith("Status: ")
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == SECTIONS
    assert text.count("\n") <= ADR_LINES
    assert max(map(len, text.splitlines())) <= ADR_WIDTH


def test_no_two_decisions_have_one_number() -> None:
    numbers = [adr.name[:4] for adr in ADRS]
    assert len(numbers) == len(set(numbers))


def test_every_decision_that_is_named_exists() -> None:
    numbers = {adr.name[:4] for adr in ADRS}
    named = {
        (name, number)
        for name, text in tracked_texts()
        for found in re.findall(r"\bADRs? (\d{4})|\badr/(\d{4})", text)
        for number in found
        if number and not name.startswith("tests/tidy/")
    }
    assert named
    assert not [(name, number) for name, number in sorted(named) if number not in numbers]


def test_every_page_can_be_found_from_the_readme() -> None:
    found, pending = set(), [ROOT / "README.md"]
    while pending:
        page = pending.pop().resolve()
        if page in found or page.suffix != ".md":
            continue
        found.add(page)
        pending += [page.parent / target for target in links(page)]
    lost = [page for page in DOCUMENTS if page.resolve() not in found and page not in ADRS]
    assert not lost


def test_every_make_goal_that_documents_name_exists() -> None:
    goals = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for page in DOCUMENTS:
        named = set(
            re.findall(r"\bmake (run|test|check|bench|setup|format|docs|clean)\b", page.read_text())
        )
        assert named <= goals, page


def test_the_map_names_every_room() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| \d \| `([a-z]+)` \|", text, flags=re.MULTILINE))
    assert named == {path.parent.name for path in SOURCE.glob("*/__init__.py")}


def test_every_file_that_the_map_starts_at_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", text)
    missing = [name for name in named if not ((SOURCE / name).exists() or (ROOT / name).exists())]
    assert not missing


def test_every_setting_of_a_policy_has_advice() -> None:
    names = {dotted(field.name) for field in dataclasses.fields(ClientSettings)}
    policies = {name for name in names if name.startswith(("scheduled.", "kohort."))}
    assert policies - {"kohort.history.file"} <= ADVICE.keys() <= names
