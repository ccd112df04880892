"""``kohort pipeline --state`` in a real Spark session: sessions and counts of an access log."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import Feed
from tests.tidy.blocks import block_with

from kohort.model.errors import ConfigError
from kohort.spark.state.stage import load_stage
from kohort.spark.tables.missing_rows import SparkQueryRunner
from kohort.spark.tables.verify import verify

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

LOG = Path(__file__).parents[1] / "data" / "access_log_1000.txt"
PAGE = "docs/howto/state-on-spark.md"
FAILING = """
class Failing:
    def schema(self, rows):
        return sessions.schema(rows)

    def process(self, rows, state):
        raise ValueError("no luck")
"""


def plain_sessions(lines: list[bytes]) -> list[tuple[Any, ...]]:
    """Sessions of one partition that end before its last record, row by row."""
    gap, grace = timedelta(minutes=10), timedelta(minutes=1)
    open_ones: list[list[Any]] = []
    done: list[tuple[Any, ...]] = []
    clock = datetime.min.replace(tzinfo=UTC)
    for line in lines:
        client, when, size = re.findall(rb'^(\S+).*\[([^\]]+)\].*?" \d{3} (\d+|-)', line)[0]
        at = datetime.strptime(when.decode(), "%d/%b/%Y:%H:%M:%S %z")
        number = 0 if size == b"-" else int(size)
        mine = [s for s in open_ones if s[0] == client and s[1] < at + gap and at < s[2]]
        if not mine and at + gap + grace <= clock:
            continue
        session = [client, at, at + gap, 1, number]
        for other in mine:
            open_ones.remove(other)
            session[1], session[2] = min(session[1], other[1]), max(session[2], other[2])
            session[3], session[4] = session[3] + other[3], session[4] + other[4]
        open_ones.append(session)
        clock = max(clock, at)
        for session in [s for s in open_ones if s[2] + grace <= clock]:
            open_ones.remove(session)
            done.append((session[0].decode(), *session[1:]))
    return done


@pytest.fixture
def stages(tmp_path: Path) -> Path:
    path = tmp_path / "stages.py"
    path.write_text(block_with(PAGE, "sessions = Windows(") + FAILING)
    return path


def test_sessions_of_an_access_log_equal_a_plain_computation_across_restarts(
    spark: Any,
    run: Callable[..., list[Any]],
    feed: Callable[..., Feed],
    stages: Path,
    tmp_path: Path,
) -> None:
    from kohort.spark import read_table

    sql = block_with(PAGE, "regexp_extract(")
    lines = LOG.read_bytes().splitlines()
    source = feed(2, [(None, line) for line in lines[:600]])
    named = {"state": f"{stages}:sessions", "table": "delta"}
    run(source, sql, limit=250, **named)
    source.put([(None, line) for line in lines[600:]])
    # Another application has no copies, and restores the states.
    run(source, sql, name="other", **named)
    frame = read_table(spark, tmp_path / "table")
    names = ("client", "window_begin", "window_end", "requests", "bytes")
    rows = [tuple(row) for row in frame.select(*names).collect()]
    rows = [(r[0], r[1].astimezone(UTC), r[2].astimezone(UTC), *r[3:]) for r in rows]
    expected = [
        row
        for records in source.records.values()
        for row in plain_sessions([value for _, value in records if value])
    ]
    assert expected
    assert sorted(rows) == sorted(expected)
    loaded = load_stage(f"{stages}:sessions")
    verdict = verify(tmp_path / "table", source.settings, SparkQueryRunner(spark), loaded)
    assert verdict.ok, verdict
    counted = [verdict.total(name) for name in ("records", "rows", "undecided")]
    assert counted == [len(lines), len(rows), 0]
    with pytest.raises(ConfigError, match=r"give --python \(or --state\) with the object sess"):
        run(source, sql, output=tmp_path / "table")


def test_a_failing_stage_is_one_sentence_with_the_place(
    run: Callable[..., list[Any]], feed: Callable[..., Feed], stages: Path, tmp_path: Path
) -> None:
    from kohort.spark.failures import RecordRefused

    sql = block_with(PAGE, "regexp_extract(")
    source = feed(1, [(None, line) for line in LOG.read_bytes().splitlines()[:5]])
    with pytest.raises(RecordRefused) as raised:
        run(source, sql, state=f"{stages}:Failing")
    assert f"function Failing: {source.topic}-0, offsets 0 to 4: ValueError: no luck" in str(
        raised.value
    )
    assert "\n" not in str(raised.value)
    assert not list((tmp_path / "table").rglob("*.parquet"))
