"""Whether a query that ended by itself is to be started again: its Python process was late.

What lives here: the decision and its wording. In go the texts of Spark's errors, out come waits and
sentences. It must not know Spark, a query or a ledger.

A streaming source in Python is a process that Spark starts for each query, and waits for 10 s to
connect back (``PythonWorkerFactory.createSimpleWorker``; no setting changes that, as of Spark 4.3).
On a machine that is busy enough it comes later, and the query ends before its source was asked
anything. A restart on the same checkpoint is then what a supervisor would do, without its costs.
"""

from __future__ import annotations

from typing import Final

SPARK_WAITS_S: Final = 10
STARTS: Final = 6
"""So many starts in a row: together as long as Spark waits for the workers that it forks, 60 s."""

_LATE: Final = "Python worker failed to connect back"


def is_late_worker(error: str) -> bool:
    """Whether this is what Spark says when a Python process did not connect to it in time."""
    return _LATE in error


class LateStarts:
    """Counts starts of a query that failed in a row because Python was late."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def worked(self) -> None:
        """A micro-batch was done: what failed before was another matter."""
        self._in_a_row = 0

    def failed(self) -> bool:
        """One more start failed; whether to try again."""
        self._in_a_row += 1
        return self._in_a_row < STARTS

    def __str__(self) -> str:
        """What happened, for a log."""
        return (
            f"Spark's Python process did not connect within {SPARK_WAITS_S} s "
            f"(start {self._in_a_row} of {STARTS})"
        )


def given_up(python: str) -> str:
    """The sentence for somebody whose Python is late each time.

    Args:
        python: the program that Spark starts.
    """
    return (
        f"the query stopped: {STARTS} times in a row Spark's Python process did not connect within "
        f"{SPARK_WAITS_S} s. Either the machine is overloaded, or {python} (PYSPARK_PYTHON) is no "
        "Python that has pyspark and kohort; `kohort pipeline` again goes on where this one stopped"
    )
