"""Shares files among the workers of a run: one worker runs all files that start Spark.

In: ids of tests. Out: the group of each test, and the order of groups. Must not know: the tests.

Two Sparks at a time need more than two cores: each start then takes minutes. Other files often wait
for other processes, so the other workers run them meanwhile. A file is never divided. The groups
of xdist have no effect with this version of pytest.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_SPARK: Final = "spark"
_ROOT: Final = Path(__file__).parent.parent


class OneSpark(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """``--dist loadfile``, with one group for the files that have the mark ``spark``."""

    def _split_scope(self, nodeid: str) -> str:
        path: str = super()._split_scope(nodeid)
        return _SPARK if _starts_spark(path) else path

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give a worker the next group. Spark's group is the longest and comes first."""
        if _SPARK in self.workqueue:
            self.workqueue.move_to_end(_SPARK, last=False)
        super()._assign_work_unit(node)


@cache
def _starts_spark(path: str) -> bool:
    return "mark.spark" in (_ROOT / path).read_text("utf-8")
