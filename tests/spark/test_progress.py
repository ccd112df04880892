"""The values of a micro-batch, and its line in Spark's UI."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kohort.spark.progress import EndedBatches, Progress, description_of, progress_of

OFFSET = {
    "v": 1,
    "p": {"t-10": [5, 9, 2], "t-2": [0, 1_000, 1]},
    "lag": 1_234,
    "generation": 7,
    "rebalances": 1,
    "held_ms": 2_340,
}


def test_the_progress_of_a_batch_has_the_counts_of_the_source() -> None:
    told = {
        "batchId": 3,
        "sources": [{"endOffset": json.dumps(OFFSET), "numInputRows": 1_004}],
        "durationMs": {"triggerExecution": 500},
    }
    assert progress_of(told) == Progress(
        batch=3,
        rows=1_004,
        seconds=0.5,
        partitions=("t-2", "t-10"),
        lag=1_234,
        generation=7,
        rebalances=1,
        held_s=2.34,
    )


def test_the_line_of_a_batch_tells_its_size_and_the_counts(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text("v1\n{}\n" + json.dumps(OFFSET))
    assert description_of(3, tmp_path) == (
        "batch 3: 1,004 offsets, owns 2, lag 1,234, generation 7, rebalances 1, held 2.3 s"
    )


@pytest.mark.parametrize("text", [None, "", "v1\n{}\n-", 'v1\n{}\n{"p": 3}', "v1\n{}\n[]"])
def test_without_a_readable_offset_the_line_has_the_number(
    tmp_path: Path, text: str | None
) -> None:
    (tmp_path / "offsets").mkdir()
    if text is not None:
        (tmp_path / "offsets" / "3").write_text(text)
    assert description_of(3, tmp_path) == "batch 3"


class Trigger:
    """Spark's progress of one trigger, as its JVM has it; counts the times it is read."""

    def __init__(self, number: int, batch: int, *, work: bool = True) -> None:
        self._number, self._batch = number, batch
        self._durations = {"addBatch": 1} if work else {}
        self.read = 0

    def batchId(self) -> int:
        return self._batch

    def timestamp(self) -> str:
        return f"2026-11-28T05:00:{self._number:02}.000Z"

    def json(self) -> str:
        self.read += 1
        return json.dumps({"batchId": self._batch, "durationMs": self._durations})


class Query:
    """A running query that has ended some triggers."""

    def __init__(self) -> None:
        self.ended: list[Trigger] = []
        self._jsq = self

    def lastProgress(self) -> Trigger | None:
        return self.ended[-1] if self.ended else None

    def recentProgress(self) -> list[Trigger]:
        return self.ended[-100:]


def test_each_batch_is_told_once_and_progress_is_read_again_only_after_several_batches() -> None:
    query = Query()
    batches = EndedBatches(query)  # type: ignore[arg-type]
    assert batches.new() == []
    told: list[list[int]] = []
    for ended in (
        [Trigger(0, 0)],
        [],
        [Trigger(1, 1, work=False)],
        [],
        [Trigger(2, 1), Trigger(3, 2, work=False)],
        [Trigger(4, 2)],
        [Trigger(5, 3), Trigger(6, 4), Trigger(7, 5)],
        [],
    ):
        query.ended += ended
        told.append([progress["batchId"] for progress in batches.new()])
    assert told == [[0], [], [], [], [1], [2], [3, 4, 5], []]
    # All were read after batch 1 with an idle trigger behind it, and after three batches.
    assert [trigger.read for trigger in query.ended] == [3, 3, 2, 2, 2, 1, 1, 1]
