"""Looks at a tree of processes while some of them end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from tests.spark.conftest import PATIENCE_S
from tests.spark.process_trees import below, executors_below, kill_each, kill_tree
from tests.waiting import until

pytestmark = pytest.mark.slow

PARENT = """
import subprocess, sys
ended = subprocess.Popen(["true"])
lives = subprocess.Popen(["sleep", "600"])
sys.stdin.read()
"""
"""Has a child that has ended and that nobody waits for, a zombie, and another child."""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, text=True) as made:
        until(lambda: len(below(made)) == 2, "two children", PATIENCE_S)
        ended = below(made)[0]
        until(lambda: ended.status() == psutil.STATUS_ZOMBIE, "a zombie", PATIENCE_S)
        yield made
        kill_tree(made)


def test_a_process_that_has_ended_is_no_executor(parent: subprocess.Popen[str]) -> None:
    assert executors_below(parent) == []


def test_a_tree_is_killed_with_the_children_that_still_run(parent: subprocess.Popen[str]) -> None:
    family = below(parent)
    kill_tree(parent)
    until(lambda: not any(p.is_running() for p in family), "no process", PATIENCE_S)
    assert kill_each(family) == 0


def test_a_tree_that_has_ended_has_no_processes(parent: subprocess.Popen[str]) -> None:
    kill_tree(parent)
    assert below(parent) == []
    kill_tree(parent)
