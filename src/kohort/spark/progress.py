"""The progress of a query: a value for each micro-batch, and a line for Spark's UI.

In: a query, the offsets that Spark stored for a batch. Out: a ``Progress``, a text. Must not know:
the control of queries, sinks.

The source adds counts for people to its offset of each batch (``kohort.spark.source.offsets``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from kohort.model.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One committed micro-batch.

    Attributes:
        batch: its number in Spark.
        rows: the number of records read.
        seconds: the time of the whole batch with planning and commits.
        partitions: the owned partitions when the batch was planned.
        lag: the records behind the batch in these partitions then; None if unknown.
        generation: of the group then; None if unknown.
        rebalances: the assignments that the group has given this application since its start; None
            if unknown.
        held_s: the time since the start in which the application had no batch because of the group:
            it owned no partition, or a rebalance was under way. None if unknown.
    """

    batch: int
    rows: int
    seconds: float
    partitions: tuple[str, ...]
    lag: int | None = None
    generation: int | None = None
    rebalances: int | None = None
    held_s: float | None = None

    @property
    def rows_per_second(self) -> float:
        """The rate of this batch."""
        return self.rows / self.seconds if self.seconds else 0.0


class EndedBatches:
    """Tells the batches of a query that have ended, each once.

    Spark keeps the progress of 100 triggers. Java writes each of them as JSON and Python reads it.
    So the last one is read once, and all of them only if several batches ended since the last call.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._looked: object = None
        """The batch and the time of the last trigger that was read."""
        self._last = -1

    def new(self) -> list[dict[str, Any]]:
        """Spark's progress of the batches that ended since the last call.

        Raises:
            PySparkException, Py4JError, OSError: the JVM has ended.
        """
        newest = self._query._jsq.lastProgress()
        if newest is None or (looked := (newest.batchId(), newest.timestamp())) == self._looked:
            return []
        self._looked = looked
        # Spark also reports triggers without work, under the number of the next batch.
        ended = [
            progress
            for progress in self._read(newest)
            if int(progress["batchId"]) > self._last and "addBatch" in progress["durationMs"]
        ]
        if ended:
            self._last = int(ended[-1]["batchId"])
        return ended

    def _read(self, newest: Any) -> Iterator[dict[str, Any]]:
        several = newest.batchId() > self._last + 1
        for progress in self._query._jsq.recentProgress() if several else [newest]:
            yield json.loads(progress.json())


def progress_of(progress: Mapping[str, Any]) -> Progress:
    """The values in Spark's progress of a batch."""
    source = progress["sources"][0]
    end = source["endOffset"]
    document = json.loads(end) if isinstance(end, str) else (end or {})
    held_ms = document.get("held_ms")
    return Progress(
        batch=int(progress["batchId"]),
        rows=int(source["numInputRows"]),
        seconds=progress["durationMs"]["triggerExecution"] / 1000,
        partitions=tuple(sorted(document.get("p", {}), key=TopicPartition.of)),
        lag=document.get("lag"),
        generation=document.get("generation"),
        rebalances=document.get("rebalances"),
        held_s=None if held_ms is None else held_ms / 1000,
    )


def description_of(batch: int, checkpoint: Path) -> str:
    """The line of a running batch in Spark's UI; its number alone if Spark's file is not readable.

    Args:
        batch: the number of the batch.
        checkpoint: the folder of the query. Spark writes the offsets of a batch there before the
            batch begins.
    """
    try:
        last = (checkpoint / "offsets" / str(batch)).read_text("utf-8").splitlines()[-1]
        document = json.loads(last)
        ranges = [end - begin for begin, end, _ in document["p"].values()]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return f"batch {batch}"
    # Spark's UI cuts descriptions after about 80 characters.
    told = [f"{sum(ranges):,} offsets", f"owns {len(ranges)}", *_counts(document)]
    return f"batch {batch}: {', '.join(told)}"


_COUNTS: Final[Mapping[str, Callable[[int], str]]] = {
    "lag": "lag {:,}".format,
    "generation": "generation {}".format,
    "rebalances": "rebalances {}".format,
    "held_ms": lambda held_ms: f"held {held_ms / 1000:.1f} s",
}


def _counts(document: Mapping[str, int]) -> list[str]:
    known = {name: count for name in _COUNTS if (count := document.get(name)) is not None}
    return [_COUNTS[name](count) for name, count in known.items()]
