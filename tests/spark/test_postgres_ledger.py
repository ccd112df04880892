"""The ledger in PostgreSQL: the rules of all ledgers, several hosts, lost connections."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg", reason="pip install 'kohort[postgres]'")

import psycopg
from tests.spark import test_sqlite_ledger as of_sqlite
from tests.spark.postgres_server import PostgresServer, postgres_server
from tests.spark.test_sqlite_ledger import A, B, own, piece, written

from kohort.host.identity import VARIABLE
from kohort.model.errors import ConfigError, KohortError
from kohort.spark.ledgers import postgres_ledger as postgres
from kohort.spark.ledgers.committing import check_written
from kohort.spark.ledgers.ledger import DataFile, LedgerConflict, LedgerError, Seal, WrittenFile
from kohort.spark.ledgers.postgres_ledger import PostgresLedger, use_database
from kohort.spark.ledgers.postgres_note import NOTE
from kohort.spark.ledgers.sqlite_ledger import SqliteLedger
from kohort.spark.state.heads import StateHead, StateStep
from kohort.spark.tables.table import adopt, clean, open_ledger

pytestmark = pytest.mark.slow

RULES = (
    of_sqlite.test_each_owner_gets_the_next_fence_number_and_is_stored,
    of_sqlite.test_a_first_position_is_set_once_and_only_under_the_owner_s_fence,
    of_sqlite.test_a_commit_moves_the_position_and_writes_the_manifest,
    of_sqlite.test_a_piece_that_was_not_intended_is_not_committed,
    of_sqlite.test_a_commit_excludes_fenced_partitions_and_commits_the_others,
    of_sqlite.test_a_position_that_moved_without_a_fence_is_a_conflict_and_changes_nothing,
    of_sqlite.test_intended_pieces_with_a_gap_are_refused,
    of_sqlite.test_a_running_application_stops_at_a_ledger_of_a_newer_version,
    of_sqlite.test_intents_go_when_many_later_owners_have_fenced_them,
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def table(server: PostgresServer, tmp_path: Path) -> Path:
    """The directory of a new table with its ledger in the database."""
    directory = tmp_path / "table"
    use_database(directory, server.url)
    return directory


@pytest.fixture
def ledger(table: Path) -> Iterator[Any]:
    with closing(open_ledger(table, "g")) as ledger:
        assert isinstance(ledger, PostgresLedger)
        yield ledger


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__.removeprefix("test_"))
def test_the_rules_of_all_ledgers_hold(rule: Callable[[Any], None], ledger: Any) -> None:
    rule(ledger)


def test_notes_and_properties_are_kept(ledger: Any, table: Path) -> None:
    ledger.describe("rows", "counted")
    ledger.describe("rows", "sized")
    ledger.note_leaders({A: 3, B: 1})
    ledger.note_leaders({A: 2, B: 4})
    with closing(open_ledger(table)) as reader:
        assert reader.described("rows") == "sized"
        assert reader.noted_leaders([A, B]) == {A: 3, B: 4}
        assert reader.group_id == "g"
        with pytest.raises(LedgerError, match="read-only"):
            reader.describe("rows", "counted")


def test_the_head_of_a_state_moves_in_the_commit_of_its_rows(ledger: Any) -> None:
    own(ledger, A)
    heads = [None, StateHead(10, 1 << 62), StateHead(20, 7)]
    for base, head in pairwise(heads):
        assert head is not None
        first = head.offset - 10
        ledger.intend("app", [piece(A, first, head.offset, 1)])
        step = StateStep(base=base, head=head)
        ledger.commit("app", [replace(written(A, first, first, f"f{first}"), state=step)])
        assert ledger.states() == {A: head}
    ledger.intend("app", [piece(A, 20, 30, 1)])
    stale = StateStep(base=None, head=StateHead(30, 8))
    with pytest.raises(LedgerConflict, match="began with the state None"):
        ledger.commit("app", [replace(written(A, 20, 20, "f20"), state=stale)])
    assert ledger.states() == {A: heads[-1]}


def sealed(directory: Path, first: int) -> WrittenFile:
    """The file of five records, on disk below the directory."""
    path = f"data/t/0/{first}.parquet"
    (directory / path).parent.mkdir(parents=True, exist_ok=True)
    (directory / path).write_bytes(b"rows")
    files = (DataFile(path=path, rows=5, seal=Seal(4, 0)),)
    return replace(written(A, first, first + 4, path), files=files)


def test_only_one_of_two_copies_of_a_directory_goes_on_with_the_ledger(
    table: Path, ledger: Any
) -> None:
    """Each copy had the rows that it wrote itself, and the manifest named the files of both."""
    own(ledger, A)
    ledger.intend("app", [piece(A, 0, 5, 1)])
    ledger.commit("app", [sealed(table, 0)])
    copy = table.with_name("copy")
    shutil.copytree(table, copy)
    with closing(open_ledger(copy, "g")) as of_copy:
        of_copy.acquire([A], 1, "m")
        of_copy.intend("other", [piece(A, 5, 10, 2)])
        of_copy.commit("other", [sealed(copy, 5)])
        told = rf"{table} has no file data/t/0/5\.parquet, which .* is a copy of the table"
        with pytest.raises(ConfigError, match=told):
            ledger.acquire([A], 2, "n")
        with pytest.raises(ConfigError, match=told):
            open_ledger(table, "g")
        assert of_copy.all_positions()[A].epoch == 2
        with closing(open_ledger(table)) as reader:
            assert len(reader.files()) == 2, "a reader of the ledger is not refused"


def test_applications_on_two_hosts_commit_every_offset_once(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They fence each other all the time; the manifest has no gap and no overlap."""
    ledgers = []
    for host in ("one", "two", "three"):
        monkeypatch.setenv(VARIABLE, host)
        ledgers.append(open_ledger(table, "g"))
    begin = threading.Barrier(len(ledgers))

    def work(number: int) -> int:
        ledger, done = ledgers[number], 0
        begin.wait()
        for batch in range(30):
            got = ledger.acquire([A], batch, f"m{number}")[A]
            ledger.establish({A: 0}, {A: got.epoch})
            start = got.position or 0
            ledger.intend(f"a{number}", [piece(A, start, start + 10, got.epoch)])
            done += len(
                ledger.commit(f"a{number}", [written(A, start, start + 9, f"{number}")]).rows
            )
        return done

    with ThreadPoolExecutor(len(ledgers)) as pool:
        committed = sum(pool.map(work, range(len(ledgers))))
    rows = ledgers[0].manifest()
    for each in ledgers:
        each.close()
    assert committed == len(rows) > 0
    assert [(row.begin, row.end) for row in rows] == [
        (10 * n, 10 * n + 10) for n in range(len(rows))
    ]
    with pytest.raises(ConfigError, match="any host"):
        adopt(table)


def test_an_idle_connection_that_was_cut_is_opened_again(
    server: PostgresServer, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(ledger, A)
    server.stop()
    with monkeypatch.context() as patch:
        patch.setattr(postgres, "_RESTART_S", 0.3)
        with pytest.raises(LedgerError, match=r"cannot be used.*check the server.*start again"):
            ledger.positions([A])
    server.start()
    ledger.intend("app", [piece(A, 0, 10, 1)])
    assert ledger.commit("app", []).rows
    server.stop()
    server.start()
    assert ledger.acquire([A], 2, "m")[A].position == 10


@pytest.mark.parametrize("use", ["positions", "acquire"])
def test_a_restart_between_two_transactions_is_waited_for(
    server: PostgresServer, ledger: Any, use: str
) -> None:
    """An idle application looked into the ledger during a restart of two seconds, and ended."""
    own(ledger, A)
    server.stop()
    begin = threading.Timer(1.0, server.start)
    begin.start()
    arguments: tuple[Any, ...] = (1, "m") if use == "acquire" else ()
    found = getattr(ledger, use)([A], *arguments)
    begin.join()
    assert list(found) == [A]


@pytest.mark.parametrize("lost", ["DROP TABLE {}.manifest", "DROP SCHEMA {} CASCADE"])
def test_a_ledger_that_lost_tables_is_refused_and_nothing_is_made(
    server: PostgresServer, ledger: Any, table: Path, lost: str
) -> None:
    """Before, an empty table was made, and `clean` would have removed all files."""
    own(ledger, A)
    file = table / "data/t/0/a.parquet"
    file.parent.mkdir(parents=True)
    file.touch()
    schema = ledger._database.schema
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(lost.format(schema))
        with pytest.raises(LedgerError, match=r"is gone from the schema .*; nothing was changed"):
            ledger.manifest()
        for _ in range(2):
            with pytest.raises(KohortError, match=r"no table manifest any more|ledger is gone"):
                open_ledger(table, "g")
            with pytest.raises(LedgerError, match=r"no table manifest|is not a kohort ledger"):
                open_ledger(table)
            # A schema that is made again by hand has no tables.
            admin.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")


def test_rights_that_are_missing_are_named(
    server: PostgresServer, ledger: Any, table: Path
) -> None:
    schema = ledger._database.schema
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS reader")
        admin.execute("CREATE ROLE reader LOGIN")
        url = server.url.replace("postgres@", "reader@")
        with pytest.raises(LedgerError, match=r"the right to create a schema in the database"):
            use_database(table.with_name("new"), url)
        # The user of a moved database needs no right to make a schema.
        assert use_database(table, url) == schema
        told = rf"grant this user all rights on the schema {schema}|has no right there"
        with pytest.raises(LedgerError, match=told):
            open_ledger(table, "g")
        admin.execute(f"GRANT USAGE ON SCHEMA {schema} TO reader")
        with pytest.raises(LedgerError, match=told):
            open_ledger(table, "g")
        admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader")
        with pytest.raises(LedgerError, match=told):
            open_ledger(table, "g")
        with closing(open_ledger(table)) as reader:
            assert reader.group_id == "g"


def test_a_server_that_dies_within_a_commit_has_committed_nothing(
    server: PostgresServer, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(ledger, A)
    ledger.intend("app", [piece(A, 0, 10, 1)])

    def die(*args: Any) -> None:
        check_written(*args)
        server.stop()

    with monkeypatch.context() as patch:
        patch.setattr("kohort.spark.ledgers.sqlite_ledger.check_written", die)
        with pytest.raises(LedgerError, match="nothing was changed"):
            ledger.commit("app", [])
    server.start()
    assert ledger.positions([A])[A].next_offset == 0
    assert ledger.commit("app", []).rows


def test_a_commit_without_an_answer_may_have_happened(server: PostgresServer, ledger: Any) -> None:
    own(ledger, A)
    told = pytest.raises(LedgerError, match=r"may have happened.*goes on where the ledger is")
    with told, ledger._transaction():
        server.stop()
    server.start()


def test_clean_keeps_writers_out(ledger: Any, table: Path) -> None:
    own(ledger, A)
    ledger.intend("app", [piece(A, 0, 10, 1)])
    folder = table / "data" / "t" / "0"
    folder.mkdir(parents=True)
    (folder / "x.parquet").write_bytes(b"a batch may still commit this file")
    assert clean(table, 0) == []
    ledger.acquire([A], 2, "next")
    assert [orphan.path for orphan in clean(table, 0)] == ["data/t/0/x.parquet"]


def test_another_group_is_refused(ledger: Any, table: Path) -> None:
    with pytest.raises(ConfigError, match="group g writes the table"):
        open_ledger(table, "other")


def test_wrong_databases_are_refused_and_change_nothing(
    server: PostgresServer, tmp_path: Path, ledger: Any, table: Path
) -> None:
    new, used = tmp_path / "new", tmp_path / "used"
    with closing(SqliteLedger(used, "g")):
        pass
    secret = server.url.replace("postgres@", "postgres:secret@")
    for directory, url, told in (
        (new, secret, "~/.pgpass"),
        (new, "kafka://x", "expected postgresql://"),
        (used, server.url, "keeps its ledger in the directory"),
    ):
        with pytest.raises(ConfigError, match=told):
            use_database(directory, url)
    nobody = server.url.replace(str(server.port), "1")
    with pytest.raises(LedgerError, match=r"cannot be used.*refused.*; nothing was changed; check"):
        use_database(new, nobody)
    assert not new.exists()
    # A moved database has the schema of the table.
    noted = (table / NOTE).read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match="which this database does not have"):
        use_database(table, server.url.removesuffix("postgres") + "template1")
    assert (table / NOTE).read_text(encoding="utf-8") == noted
    use_database(table, server.url.replace("127.0.0.1", "localhost"))
    with closing(open_ledger(table)) as reader:
        assert reader.group_id == "g"


def test_a_position_conflict_is_told_as_in_other_ledgers(ledger: Any) -> None:
    own(ledger, A, position=5)
    ledger.intend("app", [piece(A, 0, 10, 1)])
    with pytest.raises(LedgerConflict, match="expected position 0 under epoch 1"):
        ledger.commit("app", [])


@pytest.mark.spark
def test_a_pipeline_writes_a_table_with_its_ledger_in_postgresql(
    feed: Callable[..., Any], run: Callable[..., list[Any]], table: Path
) -> None:
    source = feed(2, [(None, b"%d" % n) for n in range(50)])
    run(source, "SELECT value FROM records", table)
    source.put([(None, b"%d" % n) for n in range(50, 80)])
    run(source, "SELECT value FROM records", table, name="second")
    with closing(open_ledger(table)) as reader:
        assert sum(row.rows for row in reader.manifest()) == 80
        assert {str(p): at.next_offset for p, at in reader.all_positions().items()} == {
            f"{source.topic}-0": 40,
            f"{source.topic}-1": 40,
        }
    assert not (table / "_kohort" / "ledger.db").exists()
