"""The values of a micro-batch, and its line in Spark's UI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kohort.spark.pipeline import _report_new
from kohort.spark.progress import Progress, description_of, progress_of

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
        "sources": [{"endOffset": json.dumps(OFFSET), "numInputRows": 1_004}],
        "durationMs": {"triggerExecution": 500},
    }
    assert progress_of(3, told) == Progress(
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
        "batch 3: 1,004 offsets of 2 owned partitions, lag 1,234, generation 7, 1 rebalance, "
        "2.3 s held by the group"
    )


@pytest.mark.parametrize("text", [None, "", "v1\n{}\n-", 'v1\n{}\n{"p": 3}', "v1\n{}\n[]"])
def test_without_a_readable_offset_the_line_has_the_number(
    tmp_path: Path, text: str | None
) -> None:
    (tmp_path / "offsets").mkdir()
    if text is not None:
        (tmp_path / "offsets" / "3").write_text(text)
    assert description_of(3, tmp_path) == "batch 3"


def trigger(batch: int, *, work: bool = True) -> dict[str, Any]:
    """Spark's progress of one trigger."""
    return {
        "batchId": batch,
        "sources": [{"endOffset": json.dumps(OFFSET), "numInputRows": 10 * batch}],
        "durationMs": {"triggerExecution": 500, **({"addBatch": 1} if work else {})},
    }


class Query:
    """A running query that has ended some triggers; counts the reads of all progress."""

    def __init__(self) -> None:
        self.ended: list[dict[str, Any]] = []
        self.all_read = 0

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return self.ended[-1] if self.ended else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        self.all_read += 1
        return self.ended[-100:]


def test_each_batch_is_reported_once_and_all_progress_is_read_only_after_several_batches() -> None:
    query = Query()
    reported: list[Progress] = []
    last = _report_new(query, reported.append, -1)  # type: ignore[arg-type]
    for ended in (
        [trigger(0)],
        [],
        [trigger(1, work=False)],
        [trigger(1), trigger(2, work=False)],
        [trigger(2)],
        [trigger(3), trigger(4), trigger(5)],
    ):
        query.ended += ended
        last = _report_new(query, reported.append, last)  # type: ignore[arg-type]
    assert [progress.batch for progress in reported] == [0, 1, 2, 3, 4, 5]
    assert query.all_read == 2, "after batch 1 with an idle trigger, and after three batches"
