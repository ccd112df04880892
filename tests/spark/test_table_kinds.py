"""A directory holds a table of one kind: Delta, which is the default, or Parquet."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from kohort.model.errors import ConfigError
from kohort.spark.layout import is_delta
from kohort.spark.table import open_ledger

pytest.importorskip("deltalake", reason="pip install 'kohort[spark]'")

from tests.spark.delta_world import open_delta


@pytest.mark.parametrize("there", ["parquet", "delta"])
def test_a_table_keeps_its_kind(tmp_path: Path, there: str) -> None:
    other = "delta" if there == "parquet" else "parquet"
    open_ledger(tmp_path, "g", there).close()
    with pytest.raises(ConfigError, match=f"holds a table of kind {there}"):
        open_ledger(tmp_path, "g", other)
    open_ledger(tmp_path, "g").close()
    with closing(open_ledger(tmp_path)) as reader:
        assert reader.names_files_of_pieces is (there == "parquet")


def test_a_new_table_is_a_delta_table(tmp_path: Path) -> None:
    open_ledger(tmp_path / "table", "g").close()
    assert is_delta(tmp_path / "table")
    with pytest.raises(ConfigError, match="holds no kohort table, neither _delta_log nor"):
        open_ledger(tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_data_files_without_their_ledger_are_no_new_table(tmp_path: Path, kind: str) -> None:
    """Before, another table was begun, and nobody read the files of the first one any more."""
    open_ledger(tmp_path, "g", kind).close()
    file = tmp_path / "data" / "t" / "0" / "a.parquet"
    file.parent.mkdir(parents=True)
    file.touch()
    open_ledger(tmp_path, "g").close()
    for folder in ("_delta_log", "_kohort"):
        shutil.rmtree(tmp_path / folder, ignore_errors=True)
    with pytest.raises(ConfigError, match="has data files of a table, but its ledger is gone"):
        open_ledger(tmp_path, "g", kind)
    assert [*tmp_path.rglob("*.*")] == [file]


def test_a_directory_in_which_two_kinds_were_begun_at_once_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()  # as between the folder and its first commit
    open_ledger(tmp_path, "g", "parquet").close()
    open_delta(tmp_path)
    with pytest.raises(ConfigError, match="two applications with different --table began it"):
        open_ledger(tmp_path, "g")
