"""Small ranges of a batch share a file of a Delta table, and a fenced range leaves the file."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="pip install 'kohort[spark]'")

import pyarrow.parquet as pq
from deltalake import DeltaTable
from tests.spark.delta_world import DeltaWorld, WritingApplication, open_delta, replay, start
from tests.spark.fake_engine import run_until, survives
from tests.spark.test_piece_files import A0, A1, AB0, B0, rows, written

from kohort.model.ids import TopicPartition
from kohort.spark.delta.log import Change, DeltaConflict, DeltaLog
from kohort.spark.ledgers.ledger import LedgerError, WrittenFile
from kohort.spark.tables import parquet_output
from kohort.spark.tables.layout import SHARED, partition_of_file
from kohort.spark.tables.parquet_output import ParquetOutput
from kohort.spark.tables.seals import seal_of
from kohort.spark.tables.table import clean, orphans_of

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
_COMMIT = DeltaLog.commit


@pytest.mark.parametrize(
    ("room", "shared"), [(parquet_output.SHARED_BYTES, [[A0, A1, B0], [A0]]), (1, [])]
)
def test_small_pieces_share_a_file_until_it_has_enough_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, shared: list[list[TopicPartition]]
) -> None:
    """A partition that comes again begins a new file: its offsets need not follow."""
    monkeypatch.setattr(parquet_output, "SHARED_BYTES", room)
    places = [A0, A0, A1, A1, A1, B0, B0, A0]
    files = written(tmp_path, iter([rows(places[:4]), rows(places[4:], 4, dead=[5])]), share=True)
    assert [(f.partition, f.rows, f.dead.rows if f.dead else 0) for f in files] == [
        (A0, 2, 0), (A1, 3, 0), (B0, 1, 1), (A0, 1, 0)
    ]  # fmt: skip
    assert [(f.first_offset, f.last_offset) for f in files] == [(0, 1), (2, 4), (5, 6), (7, 7)]
    paths = list(dict.fromkeys(part.path for f in files for part in f.files))
    owners = [[f.partition for f in files if path in paths_of(f)] for path in paths]
    assert [some for some in owners if len(some) > 1] == [some for some in shared if len(some) > 1]
    for path, some in zip(paths, owners, strict=True):
        assert path.startswith(f"{SHARED}/") == (len(some) > 1)
        table = pq.read_table(tmp_path / path, partitioning=None)
        parts = [part for f in files for part in f.files if part.path == path]
        assert table.num_rows == sum(part.rows for part in parts)
        seals = {part.seal for part in parts}
        assert seals == {seal_of(tmp_path / path)}


def test_a_large_piece_has_a_file_of_its_own_among_small_ones(tmp_path: Path) -> None:
    large = rows([A1] * (parquet_output.ROWS_PER_GROUP + 1))
    files = written(tmp_path, iter([large, rows([B0]), rows([AB0])]), share=True)
    assert [partition_of_file(path) for path in paths_of(files[0])] == [A1]
    assert paths_of(files[1]) == paths_of(files[2]) != paths_of(files[0])


def paths_of(file: WrittenFile) -> list[str]:
    return [each.path for each in file.all_files]


def test_small_ranges_of_a_batch_share_a_file(world: DeltaWorld) -> None:
    _, steps = start(world, make=WritingApplication)
    run_until(steps, "committed")
    run_until(steps, "sunk")
    [added] = replay(world.directory).files.values()
    assert added["path"].startswith(SHARED)
    stats = json.loads(added["stats"])
    assert stats["numRecords"] == len(world.table()) == 10
    assert stats["minValues"] == {"topic": "t", "partition": 0, "offset": 0}
    assert stats["maxValues"] == {"topic": "t", "partition": 1, "offset": 4}


def test_a_fenced_partition_leaves_the_file_that_it_shares(
    world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the file is written again; that holds for a commit that landed unnoticed, too."""
    reported = itertools.count()

    def commit(log: DeltaLog, change: Change) -> None:
        _COMMIT(log, change)
        if change.files and not next(reported):
            other.acquire([B], 9, "other")
            raise DeltaConflict("reported after the commit")

    app, steps = start(world, make=WritingApplication)
    run_until(steps, "committed")
    run_until(steps, "written")
    other = open_delta(world.directory)
    [before] = orphans_of(world.directory)
    assert clean(world.directory, 0) == [], "the batch may be committed"
    other.acquire([A], 9, "other")
    monkeypatch.setattr(DeltaLog, "commit", commit)
    run_until(steps, "sunk")
    assert world.table() == [(B, n) for n in range(5) if survives(n)]
    [added] = replay(world.directory).files.values()
    assert added["path"] != before.path
    assert json.loads(added["stats"])["numRecords"] == 5
    app.kill()
    assert [gone.path for gone in clean(world.directory, 0)] == [before.path]


def full(output: ParquetOutput) -> None:
    raise OSError(28, "No space left on device")


def test_a_shared_file_that_cannot_be_written_again_stops_the_batch(
    world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, steps = start(world, make=WritingApplication)
    run_until(steps, "committed")
    run_until(steps, "written")
    open_delta(world.directory).acquire([A], 9, "other")
    with monkeypatch.context() as broken:
        broken.setattr(ParquetOutput, "finish", full)
        with pytest.raises(LedgerError, match=r"have new owners.*No space left"):
            next(steps)
    assert world.table() == []
    assert orphans_of(world.directory) == []
    assert not list(world.directory.rglob("*.writing"))


def test_a_batch_that_is_refused_before_its_commit_leaves_no_file(
    world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: DeltaTable) -> None:
        raise OSError("Input/output error")

    _, steps = start(world)
    run_until(steps, "committed")
    run_until(steps, "written")
    [*there] = orphans_of(world.directory)
    with monkeypatch.context() as broken:
        broken.setattr(DeltaTable, "update_incremental", fails)
        with pytest.raises(LedgerError, match="Input/output error"):
            next(steps)
    assert there
    assert orphans_of(world.directory) == []
    assert world.table() == []
