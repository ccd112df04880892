"""The values of a micro-batch, and its line in Spark's UI."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
