"""Documents: generated pages are fresh, links lead somewhere, decisions have their form."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tidy.pages import links
from tests.tidy.trees import ROOT, SOURCE

ADRS = sorted((ROOT / "docs" / "adr").glob("*.md"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SECTIONS = ["Status", "Context", "Decision", "Consequences"]
ADR_LINES = 60


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
def test_a_decision_has_its_form(adr: Path) -> None:
    text = adr.read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == SECTIONS
    assert text.startswith("# ")
    assert text.count("\n") <= ADR_LINES
    assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", adr.name)


def test_no_two_decisions_have_one_number() -> None:
    numbers = [adr.name[:4] for adr in ADRS]
    assert len(numbers) == len(set(numbers))


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
