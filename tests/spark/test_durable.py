"""Folders that survive a loss of power: finding S9."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kohort.spark.tables.durable import make_folder


def test_each_new_folder_is_synced_in_the_folder_that_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")))
    )
    make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"]
    make_folder(tmp_path / "a" / "b" / "c")
    assert synced[2:] == [tmp_path / "a" / "b"]
    make_folder(tmp_path / "a")
    assert len(synced) == 3
