"""Warns of a cluster that gives an application no executors.

In: a session and its master. Out: one warning. Must not know: queries, groups. Spark itself only
logs that its first job waits, and kohort's sessions show no logs of Spark.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

LOG: Final = logging.getLogger(__name__)

WAIT_S: Final = 30.0

_ELSEWHERE: Final = (
    "other applications may have all cores (on a standalone cluster each takes all of them unless "
    "--conf spark.cores.max=N is given), or no worker has the memory of spark.executor.memory"
)
_ON_KUBERNETES: Final = (
    "`kubectl describe pods -l spark-role=executor` tells why its pods do not run; there are none "
    "without --conf spark.kubernetes.container.image=IMAGE"
)


@contextlib.contextmanager
def warned_without_executors(
    spark: SparkSession, master: str, also: Callable[[], None], wait_s: float = WAIT_S
) -> Iterator[None]:
    """Warn once, and call ``also``, if there is still no executor after ``wait_s`` seconds."""
    if master.startswith("local"):
        yield
        return
    timer = threading.Timer(wait_s, _warn, (spark, master, also, wait_s))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _warn(spark: SparkSession, master: str, also: Callable[[], None], wait_s: float) -> None:
    # The application may end meanwhile.
    with contextlib.suppress(Py4JError, OSError):
        found = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1  # the driver
        if found == 0:
            LOG.warning(
                "%s has given this application no executor for %d s, so nothing is read: %s",
                master, wait_s, _ON_KUBERNETES if master.startswith("k8s") else _ELSEWHERE,
            )  # fmt: skip
            also()
