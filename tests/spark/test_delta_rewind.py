"""Rewinds of a Delta table: rows leave, and running applications write them again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.fake_engine import run_until

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import DataFile, NotedTopic, WrittenFile
from kohort.spark.source.planning import Piece
from kohort.spark.state.heads import StateHead
from kohort.spark.tables.layout import DEAD_LETTERS
from kohort.spark.tables.piece_files import DEAD_SCHEMA
from kohort.spark.tables.table import open_ledger, orphans_of, rewind_table

pytest.importorskip("deltalake", reason="pip install 'kohort[spark]'")

from tests.spark.delta_world import DeltaWorld, open_delta, replay, rows_of, start

from kohort.spark.delta.commits import head_numbers
from kohort.spark.delta.dead_letters import DeltaDeadLetters
from kohort.spark.delta.ledger import DeltaLedger
from kohort.spark.delta.log import Change, DeltaLog
from kohort.spark.delta.maintenance import compact

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
_COMMIT = DeltaLog.commit


@pytest.mark.parametrize("point", ["planned", "reading", "written", "sunk", "idle"])
@pytest.mark.parametrize("compacted", [True, False])
def test_a_running_application_writes_rewound_records_again_and_once(
    world: DeltaWorld, point: str, compacted: bool
) -> None:
    _, steps = start(world)
    for _ in range(2):
        run_until(steps, "committed")
    if compacted:
        compact(world.directory)
    run_until(steps, point)
    with closing(open_ledger(world.directory)) as ledger:
        before = ledger.all_positions()
    rewind_table(world.directory, {A: 3})
    kept = [row for row in world.expected() if row[0] == B or row[1] < 3]
    ends = {A: 3, B: before[B].next_offset or 0}
    assert rows_of(world.directory) == [row for row in kept if row[1] < ends[row[0]]]
    for _ in range(3):
        run_until(steps, "idle")
    assert rows_of(world.directory) == world.expected()
    with closing(open_ledger(world.directory)) as ledger:
        after, pieces = ledger.all_positions(), ledger.manifest()
    assert {p: at.next_offset for p, at in after.items()} == {A: 20, B: 20}
    assert after[A].epoch == before[A].epoch + 2, "the rewind and the acquisition after it"
    for partition in (A, B):
        tiles = [(p.begin, p.end) for p in pieces if p.partition == partition]
        assert [end for _, end in tiles[:-1]] == [begin for begin, _ in tiles[1:]]
        assert (tiles[0][0], tiles[-1][1]) == (0, 20)


def test_a_batch_that_commits_during_a_rewind_is_rewound_too(
    world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, steps = start(world)
    run_until(steps, "committed")
    run_until(steps, "written")
    ran: list[str] = []

    def commit(log: DeltaLog, change: Change) -> None:
        if not ran and change.takes_rows:
            ran.append("batch")
            run_until(steps, "committed")
        _COMMIT(log, change)

    monkeypatch.setattr(DeltaLog, "commit", commit)
    rewind_table(world.directory, {A: 0, B: 0})
    assert (ran, rows_of(world.directory)) == (["batch"], [])
    for _ in range(3):
        run_until(steps, "idle")
    assert rows_of(world.directory) == world.expected()


@pytest.mark.parametrize(
    ("partition", "offset", "refusal"),
    [
        (A, 21, "cannot be rewound to 21: .* from 0 up to 20"),
        (TopicPartition("t", 7), 0, "has no position of t-7"),
        (TopicPartition("u", 0), 0, "has no position of u-0"),
    ],
)
def test_a_position_that_the_table_does_not_have_is_refused_and_changes_nothing(
    world: DeltaWorld, partition: TopicPartition, offset: int, refusal: str
) -> None:
    _, steps = start(world)
    run_until(steps, "idle")
    before = replay(world.directory)
    for execute in (True, False):
        with pytest.raises(ConfigError, match=refusal):
            rewind_table(world.directory, {B: 0, partition: offset}, execute=execute)
    rewind_table(world.directory, {A: 0, B: 0}, execute=False)
    assert replay(world.directory) == before


def test_a_partition_with_state_is_not_rewound(world: DeltaWorld) -> None:
    _, steps = start(world)
    run_until(steps, "idle")
    head = StateHead(20, 1)
    DeltaLog(world.directory).commit(Change(numbers=head_numbers({A: head}), note={}))
    with pytest.raises(ConfigError, match="its state has seen the records up to 20"):
        rewind_table(world.directory, {A: 0})


def test_a_parquet_table_is_not_rewound(tmp_path: Path) -> None:
    open_ledger(tmp_path, "g", "parquet").close()
    with pytest.raises(ConfigError, match="holds a Parquet table, which cannot be rewound"):
        rewind_table(tmp_path, {A: 0})


@pytest.mark.parametrize("killed", [True, False])
def test_rewound_dead_letters_leave_their_table_also_after_a_kill_between_the_two_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    ledger = open_delta(tmp_path)
    ledger.note_topic("t", NotedTopic(topic_id="x", partitions=2))
    epochs = {p: a.epoch for p, a in ledger.acquire([A, B], 1, "m").items()}
    ledger.establish({A: 0, B: 0}, epochs)
    with monkeypatch.context() as broken:
        if killed:
            broken.setattr(DeltaDeadLetters, "follow", lambda self: None)
        for partition in (A, B):
            commit_dead(ledger, tmp_path, partition, 0, epochs[partition])
        rewind_table(tmp_path, {A: 4})
    again = open_delta(tmp_path)
    epochs |= {p: a.epoch for p, a in again.acquire([A], 2, "m").items()}
    commit_dead(again, tmp_path, A, 4, epochs[A])
    expected = [(A, n) for n in range(14)] + [(B, n) for n in range(10)]
    assert rows_of(tmp_path / DEAD_LETTERS) == expected
    # Readers of an older version still need the replaced files: they are no orphans for `clean`.
    compact(tmp_path)
    assert len(again.replaced_files()) == 4
    assert orphans_of(tmp_path) == []


def commit_dead(
    ledger: DeltaLedger, directory: Path, partition: TopicPartition, begin: int, epoch: int
) -> None:
    """Commit ten records that are all malformed."""
    ledger.intend("app", [Piece(partition=partition, begin=begin, end=begin + 10, epoch=epoch)])
    path = f"{DEAD_LETTERS}/{partition.partition}-{begin}.parquet"
    row = {"topic": "t", "partition": partition.partition, "record_hash": 0, "dead_letter": "no"}
    rows = [{**row, "key": None, "value": b"", "offset": begin + n} for n in range(10)]
    (directory / DEAD_LETTERS).mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, DEAD_SCHEMA), directory / path)
    file = WrittenFile(
        partition=partition,
        first_offset=begin,
        last_offset=begin + 9,
        dead=DataFile(path=path, rows=10),
    )
    ledger.commit("app", [file])
