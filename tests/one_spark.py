"""Shares tests among the workers of a run: one worker runs all tests that start Spark.

In: ids of tests. Out: the group of each test, and the order of groups. Must not know: the tests.

Two Sparks at a time need more than two cores: each start then takes minutes. Other tests often wait
for other processes, so the other workers run them meanwhile. A file is one group, apart from its
tests with Spark. The groups of xdist have no effect with this version of pytest.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

SPARK: Final = "spark"
_ROOT: Final = Path(__file__).parent.parent


class OneSpark(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """``--dist loadfile``, with one group for the tests that have the mark ``spark``."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give a worker the next group; a group that takes long must not be the last one."""
        self.workqueue.move_to_end(min(self.workqueue, key=_turn), last=False)
        super()._assign_work_unit(node)


def group_of(nodeid: str) -> str:
    """The group of a test: ``SPARK``, or the path of its file."""
    path, _, name = nodeid.partition("::")
    return SPARK if name.partition("[")[0] in _tests_with_spark(path) else path


def _turn(group: str) -> tuple[int, int]:
    """Spark's group is the longest and comes first, then files with slow tests, then long files.

    By chance the last file would take up to 18 s while the other workers have nothing to do.
    """
    if group == SPARK:
        return (0, 0)
    return (1 if "mark.slow" in _text(group) else 2, -len(_text(group)))


@cache
def _tests_with_spark(path: str) -> frozenset[str]:
    mark = f"mark.{SPARK}"
    if mark not in _text(path):
        return frozenset()
    body = ast.parse(_text(path)).body
    all_of_them = any(isinstance(node, ast.Assign) and mark in ast.unparse(node) for node in body)
    return frozenset(
        node.name
        for node in body
        if isinstance(node, ast.FunctionDef)
        and (all_of_them or any(mark in ast.unparse(each) for each in node.decorator_list))
    )


@cache
def _text(path: str) -> str:
    return (_ROOT / path).read_text("utf-8")
