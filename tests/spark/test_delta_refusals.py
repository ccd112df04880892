"""Delta tables that kohort refuses: of other groups, newer versions and unknown features."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pyarrow as pa
import pytest

from kohort.model.errors import ConfigError, KohortError
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import LedgerError
from kohort.spark.tables.partition_columns import NewTable
from kohort.spark.tables.table import clean, open_ledger, rewind_table

pytest.importorskip("deltalake", reason="pip install 'kohort[spark]'")

from deltalake import DeltaTable, Schema, TableFeatures
from tests.spark.delta_world import open_delta, replay

from kohort.spark.delta.ledger import DeltaLedger
from kohort.spark.delta.log import DeltaLog
from kohort.spark.delta.maintenance import compact, vacuum

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_table_of_another_group_is_refused(tmp_path: Path) -> None:
    open_delta(tmp_path)
    with pytest.raises(ConfigError, match="group g writes the table"):
        DeltaLedger(tmp_path, "h")


def test_a_delta_table_that_kohort_did_not_make_is_refused(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path), Schema.from_arrow(pa.schema([("a", pa.int64())])))
    with pytest.raises(ConfigError, match="was not made by kohort"):
        open_delta(tmp_path)


def test_a_table_of_a_newer_version_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    ledger = open_delta(tmp_path)
    table = DeltaTable(str(tmp_path))
    table.alter.set_table_properties({"kohort.version": "2"}, raise_if_not_exists=False)
    before = replay(tmp_path)
    for use in (
        lambda: open_delta(tmp_path),
        lambda: open_ledger(tmp_path),
        lambda: compact(tmp_path),
        lambda: vacuum(tmp_path),
        # An application that ran when a newer kohort changed the table:
        lambda: ledger.acquire([A], 1, "m"),
    ):
        told = r"has version 2 .* reads version 1; use the kohort that"
        with pytest.raises(LedgerError, match=told):
            use()
    assert replay(tmp_path) == before


def test_a_table_with_positions_that_could_expire_is_refused(tmp_path: Path) -> None:
    open_delta(tmp_path)
    DeltaLog(tmp_path).set_properties({"delta.setTransactionRetentionDuration": "interval 1 days"})
    with pytest.raises(ConfigError, match="could expire"):
        open_delta(tmp_path)


def test_a_table_with_features_that_kohort_does_not_know_is_refused(tmp_path: Path) -> None:
    ledger = open_delta(tmp_path)
    DeltaTable(str(tmp_path)).alter.add_feature(
        TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
    )
    with pytest.raises(LedgerError, match="features deletionVectors"):
        open_delta(tmp_path)
    with pytest.raises(LedgerError, match="features deletionVectors"):
        ledger.acquire([A], 1, "m")


@pytest.mark.parametrize("feature", ["fromTheFuture", "catalogManaged"])
def test_a_table_of_a_newer_protocol_is_refused_with_fitting_advice(
    tmp_path: Path, feature: str
) -> None:
    open_delta(tmp_path)
    version, names = DeltaTable(str(tmp_path)).version() + 1, [feature]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    newer = {"protocol": {**protocol, "readerFeatures": names, "writerFeatures": names}}
    (tmp_path / "_delta_log" / f"{version:020d}.json").write_text(json.dumps(newer))
    with pytest.raises(LedgerError, match="another program switched that on") as told:
        open_delta(tmp_path)
    assert "remove that file" not in str(told.value)


@pytest.mark.parametrize("kind", ["void", "interval day to second", "time(6)", "timestamp_ntz"])
def test_a_column_that_delta_does_not_know_is_refused(tmp_path: Path, kind: str) -> None:
    inner = {"type": "array", "elementType": kind, "containsNull": True}
    field = {"name": "odd", "type": inner, "nullable": True, "metadata": {}}
    with pytest.raises(ConfigError, match="odd has the type"):
        open_delta(tmp_path).describe("schema", json.dumps({"type": "struct", "fields": [field]}))


def test_a_timestamp_without_a_zone_is_refused_before_the_table_is_made(tmp_path: Path) -> None:
    """deltalake gave the table a feature that kohort refused at once, with status 2."""
    field = {"name": "at", "type": "timestamp_ntz", "nullable": True, "metadata": {}}
    new = NewTable(schema=json.dumps({"type": "struct", "fields": [field]}), partition_by=())
    with pytest.raises(ConfigError, match=r"cast it in the SQL to TIMESTAMP, or give it a time z"):
        open_ledger(tmp_path, "g", "delta", new=new)
    assert [*tmp_path.iterdir()] == []


def test_a_foreign_table_is_neither_compacted_nor_vacuumed(tmp_path: Path) -> None:
    """`vacuum --older-than 0` would have removed files that its readers need."""
    DeltaTable.create(str(tmp_path), Schema.from_arrow(pa.schema([("a", pa.int64())])))
    for use in (compact, vacuum):
        with pytest.raises(ConfigError, match="was not made by kohort"):
            use(tmp_path)


def test_a_lock_that_cannot_be_opened_is_an_error_that_changes_nothing(tmp_path: Path) -> None:
    """It was a stack trace. A folder in place of the file fails also for root."""
    ledger = open_delta(tmp_path)
    epoch = ledger.acquire([A], 1, "m")[A].epoch
    ledger.establish({A: 5}, {A: epoch})
    before = ledger.all_positions()
    lock = tmp_path / "_kohort" / "writers.lock"
    lock.unlink(missing_ok=True)
    lock.mkdir(parents=True)
    for use in (
        lambda: clean(tmp_path, 0),
        lambda: compact(tmp_path),
        lambda: rewind_table(tmp_path, {A: 5}),
    ):
        with pytest.raises(KohortError, match=r"writers.lock cannot be opened.*right to write"):
            use()
    assert ledger.all_positions() == before


def test_an_orphan_that_cannot_be_removed_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_delta(tmp_path)
    orphan = tmp_path / "data/t/0/x.parquet"
    orphan.parent.mkdir(parents=True)
    orphan.touch()

    def refuse(path: Path, *, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(ConfigError, match=r"x.parquet does not count any more, and cannot be rem"):
        clean(tmp_path, 0)


def test_a_cut_off_commit_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    ledger = open_delta(tmp_path)
    ledger.acquire([A], 1, "m")
    newest = tmp_path / "_delta_log" / f"{1:020d}.json"
    newest.write_text(newest.read_text()[:40])
    with pytest.raises(LedgerError, match="remove that file"):
        open_delta(tmp_path)


def test_a_commit_that_is_gone_is_an_error_that_removes_nothing(tmp_path: Path) -> None:
    ledger = open_delta(tmp_path)
    ledger.acquire([A], 1, "m")
    ledger.acquire([B], 1, "m")
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(LedgerError, match="bring back the files") as told:
        open_delta(tmp_path)
    assert "remove that file" not in str(told.value)
