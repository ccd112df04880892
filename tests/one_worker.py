"""Shares tests among the workers of a run: one worker for Spark, one for a real Kafka (ADR 0101).

In: ids of tests. Out: the group of each test, and the order of groups. Must not know: the tests.

Two Sparks at a time need more than two cores: each start then takes minutes. Each worker with tests
on a real Kafka would start nodes of its own. Other tests often wait for other processes, so the
other workers run them meanwhile. A file is one group, apart from its tests with these marks. The
groups of xdist have no effect with this version of pytest.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

ONE_WORKER: Final = ("spark", "real_kafka")
"""Marks: all tests with one of them are one group, that of the first mark if they have both."""
_ROOT: Final = Path(__file__).parent.parent


class OneWorker(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """``--dist loadfile``, with one group for each mark of ``ONE_WORKER``."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give a worker the next group; a group that takes long must not be the last one."""
        self.workqueue.move_to_end(min(self.workqueue, key=_turn), last=False)
        super()._assign_work_unit(node)


def group_of(nodeid: str) -> str:
    """The group of a test: a mark of ``ONE_WORKER``, or the path of its file."""
    path, _, name = nodeid.partition("::")
    marks = (mark for mark in ONE_WORKER if name.partition("[")[0] in _tests_with(mark, path))
    return next(marks, path)


def _turn(group: str) -> tuple[int, int]:
    """The groups of marks are the longest and come first, then files with slow tests.

    Long files come before short ones. By chance the last file would take up to 18 s while the other
    workers have nothing to do.
    """
    if group in ONE_WORKER:
        return (0, ONE_WORKER.index(group))
    return (1 if "mark.slow" in _text(group) else 2, -len(_text(group)))


@cache
def _tests_with(mark: str, path: str) -> frozenset[str]:
    named = f"mark.{mark}"
    if named not in _text(path):
        return frozenset()
    body = ast.parse(_text(path)).body
    all_of_them = any(isinstance(node, ast.Assign) and named in ast.unparse(node) for node in body)
    return frozenset(
        node.name
        for node in body
        if isinstance(node, ast.FunctionDef)
        and (all_of_them or any(named in ast.unparse(each) for each in node.decorator_list))
    )


@cache
def _text(path: str) -> str:
    return (_ROOT / path).read_text("utf-8")
