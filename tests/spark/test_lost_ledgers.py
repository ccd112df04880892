"""A ledger that goes away or cannot be written: applications stop, and no other table begins."""

from __future__ import annotations

import resource
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="pip install 'kohort[spark]'")

from tests.spark.delta_world import DeltaWorld, open_delta, start
from tests.spark.fake_engine import FakeTopics, run_until

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import LedgerError
from kohort.spark.ledgers.sqlite_ledger import LEDGER_PATH, SqliteLedger
from kohort.spark.tables.layout import COMPACTED
from kohort.spark.tables.table import open_ledger

A = TopicPartition("t", 0)


def test_a_log_that_cannot_be_written_is_one_line_and_the_ledger_works_again(
    tmp_path: Path,
) -> None:
    """The error of deltalake has lines, arrows and colours; only its first line was told."""
    ledger = open_delta(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        told = pytest.raises(LedgerError, match=r"cannot be written: .*File too large.*start")
        with told as error:
            ledger.acquire([A], 1, "m")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not {"\n", "\x1b", "↳"} & set(str(error.value))
    assert ledger.acquire([A], 1, "m")[A].position is None
    ledger.close()


def test_a_log_that_is_removed_stops_the_application(tmp_path: Path) -> None:
    with DeltaWorld(tmp_path, FakeTopics(2)) as world:
        world.topics.end[A] = 20
        _, steps = start(world)
        run_until(steps, "sunk")
        shutil.rmtree(tmp_path / "_delta_log")
        with pytest.raises(LedgerError, match=r"was removed: nothing was committed.*bring .* back"):
            run_until(steps, "idle")


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_removed_or_replaced_stops_its_writer(
    tmp_path: Path, replaced: bool
) -> None:
    """SQLite wrote on into the file without a name: rows that nobody ever saw."""
    ledger = SqliteLedger(tmp_path, "g")
    ledger.acquire([A], 1, "m")
    path = tmp_path / LEDGER_PATH
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    path.unlink()
    if replaced:
        copy.rename(path)
    with pytest.raises(LedgerError, match=r"was removed or replaced.*nothing of this batch was"):
        ledger.acquire([A], 2, "m")
    ledger.close()


@pytest.mark.parametrize("table", ["position", "manifest", "intent"])
def test_a_ledger_without_one_of_its_tables_is_refused(tmp_path: Path, table: str) -> None:
    """An empty table was made in its place, so `clean` removed all files, or all was read again."""
    SqliteLedger(tmp_path, "g").close()
    with closing(sqlite3.connect(tmp_path / LEDGER_PATH)) as base, base:
        base.execute(f"DROP TABLE {table}")
    told = rf"ledger.db has no table {table} any more.*bring"
    for _ in range(2):
        with pytest.raises(LedgerError, match=told):
            SqliteLedger(tmp_path, "g")
        with pytest.raises(LedgerError, match=told):
            SqliteLedger.of_table(tmp_path)
    with closing(sqlite3.connect(tmp_path / LEDGER_PATH)) as base:
        left = base.execute("SELECT name FROM sqlite_master WHERE name = ?", (table,)).fetchall()
    assert left == []


def test_an_empty_ledger_beside_data_files_is_no_new_table(tmp_path: Path) -> None:
    SqliteLedger(tmp_path, "g").close()
    file = tmp_path / "data/t/0/a.parquet"
    file.parent.mkdir(parents=True)
    file.touch()
    for path in (tmp_path / "_kohort").glob("ledger.db*"):
        path.unlink()
    (tmp_path / LEDGER_PATH).touch()
    with pytest.raises(ConfigError, match=r"its ledger is gone \(.*ledger.db has no tables\)"):
        open_ledger(tmp_path, "g")


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("parquet", "data/t/0"),
        ("delta", "data/t/0"),
        ("delta", "data/shared"),
        ("delta", COMPACTED),
    ],
)
def test_data_files_without_their_ledger_are_no_new_table(
    tmp_path: Path, kind: str, path: str
) -> None:
    """Before, another table was begun, and nobody read the files of the first one any more."""
    open_ledger(tmp_path, "g", kind).close()
    file = tmp_path / path / "a.parquet"
    file.parent.mkdir(parents=True)
    file.touch()
    open_ledger(tmp_path, "g").close()
    for folder in ("_delta_log", "_kohort"):
        shutil.rmtree(tmp_path / folder, ignore_errors=True)
    with pytest.raises(ConfigError, match="has data files of a table, but its ledger is gone"):
        open_ledger(tmp_path, "g", kind)
    assert [*tmp_path.rglob("*.*")] == [file]
