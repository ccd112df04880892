"""Tables with state: their state is shown, their rows and their state are computed again."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="pip install 'kohort[spark]'")

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner
from tests.spark.conftest import Feed
from tests.spark.tables import as_rows

from kohort.cli.spark.table import table as table_command
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.delta.commits import head_numbers
from kohort.spark.delta.ledger import DeltaLedger
from kohort.spark.delta.log import Change
from kohort.spark.ledgers.ledger import NotedQuery, NotedTopic
from kohort.spark.source.planning import Piece
from kohort.spark.source.reading import read_pieces
from kohort.spark.state.files import StateFolder
from kohort.spark.state.heads import STATE
from kohort.spark.state.pieces import StateWork, write_with_state
from kohort.spark.state.showing import heads_of, shown
from kohort.spark.state.stage import Loaded
from kohort.spark.tables.piece_files import written_file
from kohort.spark.tables.table import open_ledger
from kohort.spark.tables.verify import Verdict, verify

QUERY = NotedQuery(sql="SELECT value FROM records", settings={}, filtering=False, unrepeatable=None)


class Visits:
    """Each second visit of a client makes a row; a client without a name is a dead letter."""

    def schema(self, rows: pa.Schema) -> pa.Schema:
        return pa.schema([("client", pa.string()), ("visit", pa.int64())])

    def process(self, rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
        made: list[dict[str, Any]] = []
        for row in rows.to_pylist():
            client = row["value"]
            visit = int(state.get(client, b"0")) + 1
            state[client] = b"%d" % visit
            if not client:
                made.append({"offset": row["offset"], "dead_letter": "no name"})
            elif visit % 2 == 0:
                made.append(
                    {
                        "offset": row["offset"],
                        "client": client.decode(errors="replace"),
                        "visit": visit,
                    }
                )
        schema = {"offset": pa.int64(), "client": pa.string(), "visit": pa.int64()}
        return pa.RecordBatch.from_pylist(
            made, pa.schema([*schema.items(), ("dead_letter", pa.string())])
        )


class Values:
    """Makes the rows of the query without Spark."""

    def rows(self, query: NotedQuery, records: pa.Table) -> pa.Table:
        assert query == QUERY
        return records.select(["offset", "value"])


JUDGED = (Values(), Loaded("Visits", Visits(), None))


def land(source: Feed, directory: Path, begin: int, end: int) -> None:
    """One batch with the records of both partitions in a range."""
    with closing(open_ledger(directory, "g")) as ledger:
        ledger.note_topic(source.topic, NotedTopic(topic_id=None, partitions=2))
        partitions = [TopicPartition(source.topic, n) for n in (0, 1)]
        epochs = {p: each.epoch for p, each in ledger.acquire(partitions, 1, "m").items()}
        ledger.establish(dict.fromkeys(partitions, begin), epochs)
        ledger.describe(STATE, "Visits")
        pieces = [Piece(partition=p, begin=begin, end=end, epoch=epochs[p]) for p in partitions]
        ledger.intend("app", pieces)
        work = StateWork(
            directory=str(directory),
            copies=str(directory / "copies"),
            heads=ledger.states(),
            name="Visits",
            stage=Visits(),
            columns=("offset", "value"),
            schema=Visits().schema(pa.schema([])),
        )
        batches = map(with_record, read_pieces(source.settings, pieces))
        reports = write_with_state(work, "mark", batches)
        files = [written_file(r["file"]) for report in reports for r in report.to_pylist()]
        ledger.commit("app", files, ledger.note_query(QUERY))


def with_record(batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = as_rows(batch)
    for name in ("key", "value"):
        rows = rows.append_column(f"__kohort_{name}", batch.column(name))
    return rows


@pytest.fixture
def table(feed: Callable[..., Feed], tmp_path: Path) -> tuple[Feed, Path]:
    clients = [b"anna", b"bob", b"anna", b"", b"\xff\n"]
    source = feed(2, [(None, clients[n % 5]) for n in range(60)])
    for begin, end in ((0, 10), (10, 24), (24, 30)):
        land(source, tmp_path, begin, end)
    return source, tmp_path


def troubles(verdict: Verdict) -> str:
    return "\n".join(each for p in verdict.partitions for each in p.troubles)


@pytest.mark.slow
def test_rows_and_state_are_computed_again(table: tuple[Feed, Path]) -> None:
    source, directory = table
    whole = verify(directory, source.settings, *JUDGED)
    assert whole.ok, whole
    totals = {name: whole.total(name) for name in ("records", "rows", "dead_letters", "undecided")}
    assert totals == {"records": 60, "rows": 24, "dead_letters": 12, "undecided": 0}
    without = verify(directory, source.settings)
    assert (without.ok, without.total("undecided")) == (True, 60)
    with pytest.raises(ConfigError, match="--state names Other, but the function Visits made"):
        verify(directory, source.settings, Values(), Loaded("Other", Visits(), None))
    [path, *_] = [directory / p for p in open_ledger(directory).files()]
    rows = pq.read_table(path, partitioning=None)
    changed = rows.set_column(
        rows.schema.get_field_index("visit"), "visit", pa.array([99] * rows.num_rows, pa.int64())
    )
    pq.write_table(changed, path)
    verdict = verify(directory, source.settings, *JUDGED)
    assert (verdict.total("holes"), verdict.total("strangers")) == (rows.num_rows,) * 2
    assert "rows are missing: " in troubles(verdict)
    assert ", 99" in troubles(verdict)
    pq.write_table(pa.concat_tables([rows, rows]), path)
    assert verify(directory, source.settings, *JUDGED).total("duplicates") == rows.num_rows


@pytest.mark.slow
def test_a_wrong_or_lost_state_is_found(table: tuple[Feed, Path]) -> None:
    source, directory = table
    partition, head = next(iter(heads_of(directory).items()))
    folder = StateFolder(directory, partition)
    note = folder.note(head)
    other = folder.write(head.offset, [(b"anna", b"7")], note)
    with closing(open_ledger(directory, "g")) as ledger:
        # A commit that only moves the head of the state, as no pipeline does it.
        assert isinstance(ledger, DeltaLedger)
        ledger._log.commit(Change(numbers=head_numbers({partition: other}), note={}))
    said = troubles(verify(directory, source.settings, *JUDGED))
    assert "the state differs from the computed one in " in said
    assert "anna" in said
    (folder.path / str(other)).unlink()
    assert "is gone" in troubles(verify(directory, source.settings, *JUDGED))


@pytest.mark.slow
def test_the_state_of_a_key_is_shown(table: tuple[Feed, Path]) -> None:
    source, directory = table
    done = CliRunner().invoke(table_command, ["state", str(directory), "--key", "ann", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [(row["partition"], row["offset"], row["key"], row["value"]) for row in found] == [
        (f"{source.topic}-{n}", 30, "anna", "12") for n in (0, 1)
    ]
    done = CliRunner().invoke(
        table_command, ["state", str(directory), "--topic", f"{source.topic}:1", "--limit", "3"]
    )
    assert [line.split()[2:] for line in done.stdout.splitlines()[1:]] == [
        ["6"], ["anna", "12"], ["bob", "6"],
    ]  # fmt: skip
    assert f"{source.topic}-1: 1 more entries" in done.stderr
    assert shown(b"\xff\n") == "\\xff\\n"
    done = CliRunner().invoke(table_command, ["state", str(directory), "--topic", "nowhere"])
    assert isinstance(done.exception, ConfigError)
    assert f"it has states of {source.topic}-0, {source.topic}-1" in str(done.exception)
