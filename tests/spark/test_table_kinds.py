"""A directory holds a table of one kind: Delta, which is the default, or Parquet."""

from __future__ import annotations

import errno
import os
from contextlib import closing
from pathlib import Path

import pytest

from kohort.model.errors import ConfigError
from kohort.spark.tables.layout import is_delta
from kohort.spark.tables.table import open_ledger

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


def test_a_directory_in_which_two_kinds_were_begun_at_once_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()  # as between the folder and its first commit
    open_ledger(tmp_path, "g", "parquet").close()
    open_delta(tmp_path)
    with pytest.raises(ConfigError, match="two applications with different --table began it"):
        open_ledger(tmp_path, "g")


@pytest.mark.parametrize("folder", ["_delta_log", "_kohort"])
def test_a_table_that_this_user_may_not_read_is_not_taken_for_a_lost_one(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The advice was to bring back a ledger that was there. Tests run as root and may read all."""
    open_ledger(tmp_path, "g").close()
    names = os.listdir

    def listdir(path: Path) -> list[str]:
        if path.name == folder:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return names(path)

    monkeypatch.setattr(os, "listdir", listdir)
    with pytest.raises(ConfigError, match=f"cannot read .*/{folder}, .*: Permission denied; give"):
        open_ledger(tmp_path, "g")
    with pytest.raises(ConfigError, match=f"cannot read .*/{folder}, .*: Permission denied; give"):
        open_ledger(tmp_path)
