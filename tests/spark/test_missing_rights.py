"""A right that is missing is told as such, and not as a damaged or empty table."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake", reason="pip install 'kohort[spark]'")

from tests.spark.conftest import Feed
from tests.spark.tables import land

from kohort.model.errors import ConfigError
from kohort.spark.tables import partition_check
from kohort.spark.tables.descriptions import describe
from kohort.spark.tables.table import orphans_of
from kohort.spark.tables.verify import verify

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_file_that_this_user_may_not_read_is_no_lost_row(
    feed: Callable[..., Feed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """All rows of the file were reported as lost, with the status of a damaged table."""
    source = feed(1, [(b"k%d" % n, b"v") for n in range(20)])
    land(source, tmp_path, {0: (0, 20)}, kind=kind)

    def refuse(path: Path, *_: object, **more: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(partition_check, "seal_of", refuse)
    monkeypatch.setattr(pq, "ParquetFile", refuse)
    monkeypatch.setattr(pq, "read_metadata", refuse)
    told = r"cannot read \S+\.parquet, a file of the table: Permission denied; give this user the"
    with pytest.raises(ConfigError, match=told):
        verify(tmp_path, source.settings)
    with pytest.raises(ConfigError, match=told):
        describe(tmp_path)


def test_a_folder_that_this_user_may_not_read_may_hold_files(
    feed: Callable[..., Feed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kohort table verify` and `clean` told that there are no orphans."""
    land(feed(1, [(b"k", b"v")]), tmp_path, {0: (0, 1)}, kind="parquet")
    scan = os.scandir

    def refuse(path: Any) -> Any:
        if Path(path).name == "data":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(ConfigError, match=r"cannot read \S+data, a folder of the table: Permissi"):
        orphans_of(tmp_path)
