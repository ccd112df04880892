"""The ledger's transactions, alone and with several processes at once."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers import sqlite_files, sqlite_ledger
from kohort.spark.ledgers.ledger import (
    DataFile,
    LedgerConflict,
    LedgerError,
    ManifestRow,
    Seal,
    WrittenFile,
)
from kohort.spark.ledgers.sqlite_ledger import LEDGER_PATH, SqliteLedger
from kohort.spark.source.planning import Piece
from kohort.spark.tables.layout import DATA
from kohort.spark.tables.table import adopt, clean

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger(tmp_path, "g")
    yield ledger
    ledger.close()


def piece(partition: TopicPartition, begin: int, end: int, epoch: int) -> Piece:
    return Piece(partition=partition, begin=begin, end=end, epoch=epoch)


def written(partition: TopicPartition, first: int, last: int, path: str) -> WrittenFile:
    return WrittenFile(
        partition=partition,
        first_offset=first,
        last_offset=last,
        files=(DataFile(path=path, rows=last - first + 1),),
    )


def own(
    ledger: SqliteLedger, *partitions: TopicPartition, position: int = 0
) -> dict[TopicPartition, int]:
    epochs = {p: a.epoch for p, a in ledger.acquire(partitions, 1, "m").items()}
    ledger.establish(dict.fromkeys(partitions, position), epochs)
    return epochs


def test_each_owner_gets_the_next_fence_number_and_is_stored(ledger: SqliteLedger) -> None:
    assert ledger.acquire([A], 7, "first")[A].epoch == 1
    assert ledger.acquire([A, B], 9, "second")[A].epoch == 2
    position = ledger.positions([A])[A]
    assert (position.epoch, position.generation, position.member) == (2, 9, "second")
    assert position.next_offset is None


def test_a_first_position_is_set_once_and_only_under_the_owner_s_fence(
    ledger: SqliteLedger,
) -> None:
    ledger.acquire([A], 1, "old")
    ledger.acquire([A], 2, "new")
    ledger.establish({A: 100}, {A: 1})
    assert ledger.positions([A])[A].next_offset is None
    ledger.establish({A: 5}, {A: 2})
    ledger.establish({A: 6}, {A: 2})
    assert ledger.acquire([A], 3, "next")[A].position == 5


def test_a_commit_moves_the_position_and_writes_the_manifest(ledger: SqliteLedger) -> None:
    epochs = own(ledger, A, B)
    ledger.intend("app", [piece(A, 0, 10, epochs[A]), piece(A, 10, 20, 1), piece(B, 0, 5, 1)])
    done = ledger.commit("app", [written(A, 12, 15, "a2")])
    assert not done.fenced
    assert [(r.partition, r.begin, r.end, r.path, r.rows) for r in ledger.manifest()] == [
        (A, 0, 10, None, 0),
        (A, 10, 20, "a2", 4),
        (B, 0, 5, None, 0),
    ]
    assert ledger.manifest() == list(done.rows)
    assert ledger.positions([A])[A].next_offset == 20
    assert ledger.commit("app", []).rows == []


def test_a_piece_that_was_not_intended_is_not_committed(ledger: SqliteLedger) -> None:
    own(ledger, A, B)
    ledger.intend("app", [piece(A, 0, 10, 1)])
    ledger.intend("app", [piece(B, 0, 10, 1)])
    ledger.commit("app", [])
    assert ledger.positions([A])[A].next_offset == 0
    assert ledger.positions([B])[B].next_offset == 10


def test_a_commit_excludes_fenced_partitions_and_commits_the_others(ledger: SqliteLedger) -> None:
    own(ledger, A, B)
    ledger.intend("old", [piece(A, 0, 10, 1), piece(B, 0, 10, 1)])
    assert ledger.acquire([A], 2, "new")[A].position == 0
    done = ledger.commit("old", [written(A, 0, 9, "a"), written(B, 0, 9, "b")])
    assert done.fenced == {A}
    assert [row.path for row in ledger.manifest()] == ["b"]
    assert ledger.positions([A])[A].next_offset == 0


def test_a_position_that_moved_without_a_fence_is_a_conflict_and_changes_nothing(
    ledger: SqliteLedger,
) -> None:
    own(ledger, A, B)
    ledger.intend("app", [piece(A, 0, 5, 1), piece(B, 3, 10, 1)])
    with pytest.raises(LedgerConflict, match="expected position 3 under epoch 1"):
        ledger.commit("app", [])
    assert ledger.positions([A])[A].next_offset == 0
    assert ledger.manifest() == []


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([written(A, 5, 10, "x")], "no intended piece of this batch"),
        ([written(B, 0, 3, "x")], "no intended piece of this batch"),
        ([written(A, 0, 3, "x"), written(A, 4, 9, "y")], "two files"),
    ],
)
def test_files_outside_the_intended_pieces_are_refused(
    ledger: SqliteLedger, files: list[WrittenFile], said: str
) -> None:
    own(ledger, A)
    ledger.intend("app", [piece(A, 0, 10, 1)])
    with pytest.raises(LedgerConflict, match=said):
        ledger.commit("app", files)
    assert ledger.manifest() == []
    assert ledger.positions([A])[A].next_offset == 0


def test_intended_pieces_with_a_gap_are_refused(ledger: SqliteLedger) -> None:
    own(ledger, A)
    ledger.intend("app", [piece(A, 0, 10, 1), piece(A, 11, 20, 1)])
    with pytest.raises(LedgerConflict, match="do not join"):
        ledger.commit("app", [])


def test_the_table_of_one_group_is_refused_to_another_group(
    ledger: SqliteLedger, tmp_path: Path
) -> None:
    own(ledger, A)
    with pytest.raises(ConfigError, match=r"group g writes the table .* is in group other"):
        SqliteLedger(tmp_path, "other")
    with closing(SqliteLedger.of_table(tmp_path)) as same:
        assert same.positions([A]) == ledger.positions([A])


def test_a_commit_waits_for_the_disk(ledger: SqliteLedger) -> None:
    (mode,) = ledger._connection.execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = ledger._connection.execute("PRAGMA synchronous").fetchone()
    assert (mode, synchronous) == ("wal", 2), "2 is FULL: the log is synced at every commit"


def test_a_directory_without_a_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no kohort table"):
        SqliteLedger.of_table(tmp_path)


def test_a_damaged_ledger_is_an_error_that_names_its_file(tmp_path: Path) -> None:
    (tmp_path / LEDGER_PATH).parent.mkdir()
    (tmp_path / LEDGER_PATH).write_bytes(b"not a database, " * 100)
    with pytest.raises(LedgerError, match="ledger"):
        SqliteLedger(tmp_path, "g")
    with pytest.raises(LedgerError, match="ledger"):
        SqliteLedger.of_table(tmp_path)


@pytest.mark.parametrize("size", [0, 4096])
def test_a_file_that_is_no_ledger_says_what_was_expected(tmp_path: Path, size: int) -> None:
    path = tmp_path / LEDGER_PATH
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as other:
        if size:
            other.execute("CREATE TABLE other (name TEXT)")
    with pytest.raises(LedgerError, match=r"ledger.db is not a kohort ledger.*--output") as caught:
        SqliteLedger.of_table(tmp_path)
    assert "\n" not in str(caught.value)


READS = [
    ("described", ("schema",)),
    ("queries", ()),
    ("noted_topics", ()),
    ("all_positions", ()),
    ("positions", ([A],)),
    ("manifest", ()),
    ("describe", ("a", "b")),
    ("acquire", ([A], 1, "m")),
    ("commit", ("app", [])),
]


@pytest.mark.parametrize(("method", "arguments"), READS, ids=[name for name, _ in READS])
def test_a_ledger_that_is_damaged_while_it_is_open_is_an_error_with_its_file(
    ledger: SqliteLedger, tmp_path: Path, method: str, arguments: tuple[object, ...]
) -> None:
    """The reads raised sqlite3.DatabaseError, and so did a damaged page in a transaction."""
    own(ledger, A, B)
    ledger._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = tmp_path / LEDGER_PATH
    path.write_bytes(b"\xff" * path.stat().st_size)
    ledger._connection.execute("PRAGMA shrink_memory")  # SQLite has kept all pages so far
    with pytest.raises(LedgerError, match=r"ledger.db cannot be used as a ledger.*restore a copy"):
        getattr(ledger, method)(*arguments)


def test_a_ledger_of_another_version_is_refused(ledger: SqliteLedger, tmp_path: Path) -> None:
    ledger.describe("version", "99")
    # A newer kohort may keep states in another table: this one must not be made again.
    ledger._connection.execute("DROP TABLE state")
    for use in (
        lambda: SqliteLedger(tmp_path, "g"),
        lambda: SqliteLedger.of_table(tmp_path),
        lambda: adopt(tmp_path),
    ):
        with pytest.raises(LedgerError, match="is a ledger of version 99"):
            use()
    tables = ledger._connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert ("state",) not in tables


def test_a_running_application_stops_at_a_ledger_of_a_newer_version(ledger: SqliteLedger) -> None:
    own(ledger, A)
    ledger.describe("version", "99")
    with pytest.raises(LedgerError, match="version 99, this kohort reads version 1; use the"):
        ledger.acquire([A], 2, "m")
    assert ledger.all_positions()[A].epoch == 1


def test_an_output_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write to the output directory"):
        SqliteLedger(tmp_path / "file", "g")


def test_a_failed_transaction_changes_nothing(ledger: SqliteLedger, tmp_path: Path) -> None:
    own(ledger, A)
    with pytest.raises(sqlite3.IntegrityError):
        ledger.intend("app", [piece(A, 0, 5, 1), piece(A, 0, 6, 1)])
    other = SqliteLedger(tmp_path, "g")
    assert other.commit("app", []).rows == []
    other.close()


WORKER = """
import sys
from pathlib import Path
from kohort.model.ids import TopicPartition
from kohort.spark.source.planning import Piece
from kohort.spark.ledgers.sqlite_ledger import SqliteLedger

directory, name, goal = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
partition = TopicPartition("t", 0)
ledger = SqliteLedger(directory, "g")
print("ready", flush=True)
sys.stdin.readline()
while True:
    mine = ledger.acquire([partition], 1, name)[partition]
    ledger.establish({partition: 0}, {partition: mine.epoch})
    begin = ledger.positions([partition])[partition].next_offset
    for _ in range(5):
        if begin >= goal:
            sys.exit(0)
        piece = Piece(partition=partition, begin=begin, end=begin + 1, epoch=mine.epoch)
        ledger.intend(name, [piece])
        if ledger.commit(name, []).fenced:
            break
        begin += 1
"""


@pytest.fixture
def beginner(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Another process that is making the file of the ledger."""
    path = tmp_path / LEDGER_PATH
    path.parent.mkdir()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("CREATE TABLE first (id INTEGER)")
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


def test_two_applications_can_make_the_same_ledger_at_once(
    beginner: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If two connections make a write-ahead log at once, SQLite refuses one without a wait."""
    impatient = sqlite3.connect(tmp_path / LEDGER_PATH, timeout=3_600)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        impatient.execute("PRAGMA journal_mode = WAL")
    impatient.close()

    naps = 0

    def nap(_: float) -> None:
        nonlocal naps
        naps += 1
        if naps == 3:
            beginner.execute("COMMIT")

    monkeypatch.setattr(sqlite_files, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=nap))
    SqliteLedger(tmp_path, "g").close()
    assert naps == 3


@pytest.mark.usefixtures("beginner")
def test_a_ledger_that_stays_locked_is_an_error_after_60_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(0, 10_000, 30))
    clock = SimpleNamespace(monotonic=lambda: float(next(now)), sleep=lambda _: None)
    monkeypatch.setattr(sqlite_files, "time", clock)
    with pytest.raises(LedgerError, match="another process has held it for 60 s"):
        SqliteLedger(tmp_path, "g")


@pytest.mark.slow
def test_processes_that_fence_each_other_commit_every_offset_once(tmp_path: Path) -> None:
    goal = 150
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path), f"w{n}", str(goal)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(3)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        worker.communicate(timeout=280)
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    ledger = SqliteLedger.of_table(tmp_path)
    rows: list[ManifestRow] = ledger.manifest()
    ledger.close()
    assert [(row.begin, row.end) for row in rows] == [(n, n + 1) for n in range(goal)]
    assert [row.epoch for row in rows] == sorted(row.epoch for row in rows)


def test_a_clock_that_is_days_ahead_deletes_nobody_s_intents(
    ledger: SqliteLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding S14: the neighbour stopped with a message that blamed it."""
    own(ledger, A, B)
    ledger.intend("slow", [piece(A, 0, 10, 1)])
    eight_days = 8 * 24 * 3_600 * 10**9
    ahead = SimpleNamespace(time_ns=lambda: time.time_ns() + eight_days)
    monkeypatch.setattr(sqlite_ledger, "time", ahead)
    with closing(SqliteLedger(tmp_path, "g")) as other:
        other.intend("ahead", [piece(B, 0, 5, 1)])
    assert [row.partition for row in ledger.commit("slow", []).rows] == [A]


def test_intents_go_when_many_later_owners_have_fenced_them(ledger: SqliteLedger) -> None:
    own(ledger, A)
    ledger.intend("gone", [piece(A, 0, 10, 1)])
    for fences, left in ((100, 1), (1, 0)):
        for _ in range(fences):
            ledger.acquire([A], 2, "other")
        ledger.intend("other", [])
        assert len(ledger._connection.execute("SELECT * FROM intent").fetchall()) == left


def sealed(tmp_path: Path, name: str) -> WrittenFile:
    path = tmp_path / name
    path.write_bytes(b"rows")
    return replace(written(A, 0, 4, name), files=(DataFile(path=name, rows=5, seal=Seal(4, 0)),))


@pytest.mark.parametrize("harm", ["gone", "cut"])
def test_a_file_that_is_not_as_it_was_written_is_not_committed(
    ledger: SqliteLedger, tmp_path: Path, harm: str
) -> None:
    """Finding S1: the manifest named files that `table clean` had removed."""
    own(ledger, A)
    ledger.intend("app", [piece(A, 0, 5, 1)])
    file = sealed(tmp_path, "f.parquet")
    if harm == "gone":
        (tmp_path / "f.parquet").unlink()
    else:
        (tmp_path / "f.parquet").write_bytes(b"ro")
    with pytest.raises(LedgerError, match="is gone" if harm == "gone" else "has 2 bytes"):
        ledger.commit("app", [file])
    assert ledger.manifest() == []
    assert ledger.positions([A])[A].next_offset == 0
    (tmp_path / "f.parquet").write_bytes(b"rows")
    assert len(ledger.commit("app", [file]).rows) == 1


def test_clean_spares_files_of_a_batch_that_may_still_be_committed(
    ledger: SqliteLedger, tmp_path: Path
) -> None:
    own(ledger, A, B)
    ledger.intend("app", [piece(A, 0, 5, 1)])
    for partition in (A, B):
        folder = tmp_path / DATA / partition.topic / str(partition.partition)
        folder.mkdir(parents=True)
        (folder / "x.parquet").write_bytes(b"rows")
    (tmp_path / DATA / "x.parquet").write_bytes(b"rows")
    removed = [orphan.path for orphan in clean(tmp_path, older_than_s=0)]
    assert removed == [f"{DATA}/t/1/x.parquet", f"{DATA}/x.parquet"]
    ledger.acquire([A], 2, "other")
    assert [orphan.path for orphan in clean(tmp_path, 0)] == [f"{DATA}/t/0/x.parquet"], "fenced"


def test_a_full_disk_is_named_and_the_ledger_works_again(ledger: SqliteLedger) -> None:
    """Finding S7: SQLite had rolled back by itself, and the ROLLBACK hid the cause."""
    own(ledger, A)
    (pages,) = ledger._connection.execute("PRAGMA page_count").fetchone()
    ledger._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(LedgerError, match=r"disk is full; nothing .* free space"):
        ledger.describe("long", "x" * 100_000)
    ledger._connection.execute("PRAGMA max_page_count = 1000000")
    ledger.describe("long", "x")
    assert ledger.described("long") == "x"


def test_a_table_is_read_without_a_right_to_write_it(ledger: SqliteLedger, tmp_path: Path) -> None:
    """Finding S6: readers took the lock of writers, and made tables."""
    own(ledger, A)
    with ledger.held(), closing(SqliteLedger.of_table(tmp_path)) as reader:
        assert reader.positions([A])[A].epoch == 1
        with pytest.raises(LedgerError, match="readonly database; give this user the right"):
            reader.describe("a", "b")
    ledger.close()
    folder = (tmp_path / LEDGER_PATH).parent
    before = sorted(folder.iterdir())
    real = os.access
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: mode != os.W_OK and real(path, mode))
        with closing(SqliteLedger.of_table(tmp_path)) as reader:
            assert reader.group_id == "g"
            assert reader.positions([A])[A].epoch == 1
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("blocked", ["ledger.db", "ledger.db-shm", "ledger.db-wal"])
def test_a_ledger_that_may_not_be_written_asks_for_the_right_and_not_for_a_copy(
    tmp_path: Path, blocked: str
) -> None:
    """Finding S17: the message advised an older copy, or another table. Both double rows.

    A folder in place of a file gives SQLite's error of a read-only output, also for root.
    """
    SqliteLedger(tmp_path, "g").close()
    path = (tmp_path / LEDGER_PATH).with_name(blocked)
    path.unlink(missing_ok=True)
    path.mkdir()
    with pytest.raises(LedgerError, match="give this user the right to write") as caught:
        SqliteLedger(tmp_path, "g")
    assert not re.search(r"restore|another output", str(caught.value))
    path.rmdir()
    SqliteLedger(tmp_path, "g").close()


def test_a_reader_without_the_newest_commits_says_so_and_its_advice_helps(
    ledger: SqliteLedger, tmp_path: Path
) -> None:
    """A writer was killed: SQLite left commits in the log, which needs a right to be read."""
    own(ledger, A, position=1)
    ledger._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    own(ledger, B, position=2)
    killed = tmp_path / "killed"
    killed.joinpath(LEDGER_PATH).parent.mkdir(parents=True)
    for end in ("", "-wal"):
        name = f"{LEDGER_PATH}{end}"
        shutil.copy(tmp_path / name, killed / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        with pytest.raises(LedgerError, match=r"has the newest commits.*copy the directory"):
            SqliteLedger.of_table(killed)
    shutil.copytree(killed, tmp_path / "copy")
    with closing(SqliteLedger.of_table(tmp_path / "copy")) as reader:
        assert {p: at.next_offset for p, at in reader.all_positions().items()} == {A: 1, B: 2}
