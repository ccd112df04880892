"""Runs tests against a copy of the package in which one piece of text is replaced.

In: a folder, a mutation (file, text, replacement), names of tests. Out: whether the tests passed.
The package in the source tree stays untouched. Must not know: which mutations exist.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.tidy.trees import ROOT, SOURCE

PASSED, FAILED = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A promise that is broken in one file, and the test that must notice."""

    promise: str
    file: str
    text: str
    replacement: str
    test: str


def copied(folder: Path) -> Path:
    """A copy of the package, in a folder that can be put on the import path."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCE, folder / "kohort", ignore=ignored)
    return folder


def mutate(folder: Path, mutation: Mutation) -> None:
    """Replace the text, which must occur exactly once, in the copy."""
    path = folder / "kohort" / mutation.file
    source = path.read_text(encoding="utf-8")
    assert source.count(mutation.text) == 1
    path.write_text(source.replace(mutation.text, mutation.replacement), encoding="utf-8")


def run(folder: Path, *tests: str) -> tuple[int, str]:
    """Exit status and output of these tests with the package in ``folder``."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
