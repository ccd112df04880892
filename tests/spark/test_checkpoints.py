"""Checkpoints and their locks."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path
from typing import Any

import pytest

from kohort.model.errors import ConfigError
from kohort.spark.checkpoints import locked_checkpoint
from kohort.spark.draining import DrainFile, Draining

pipeline = pytest.importorskip("kohort.spark.pipeline", reason="pip install 'kohort[spark]'")
failures = pytest.importorskip("kohort.spark.failures")


def test_names_without_a_choice_are_numbered_and_each_is_used_once(tmp_path: Path) -> None:
    with locked_checkpoint(tmp_path, None) as first, locked_checkpoint(tmp_path, None) as second:
        assert (first.name, second.name) == ("application-1", "application-2")
        with pytest.raises(ConfigError, match="called application-1 already runs"):
            locked_checkpoint(tmp_path, "application-1").__enter__()
    with locked_checkpoint(tmp_path, "application-1") as again:
        assert again.path == first.path


@pytest.mark.parametrize("name", ["", "a/b", "a b", "x" * 101])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="--name is"):
        locked_checkpoint(tmp_path, name).__enter__()


def test_checkpoints_that_cannot_be_written_are_an_error(tmp_path: Path) -> None:
    """It was a stack trace. A file in place of the folder fails also for root."""
    (tmp_path / "_kohort").mkdir()
    (tmp_path / "_kohort" / "checkpoints").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write .*a\.lock.*: File exists; give this user"):
        locked_checkpoint(tmp_path, "a").__enter__()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_query_stops_when_its_lock_was_removed(tmp_path: Path, replaced: bool) -> None:
    """Finding S19: two queries ran on one checkpoint until Spark noticed."""
    stopped = []

    class Query:
        isActive = True
        recentProgress: tuple[Any, ...] = ()

        def stop(self) -> None:
            stopped.append(self)

    draining = Draining(wanted=threading.Event(), file=DrainFile(tmp_path / "d"), timeout_s=1)
    with locked_checkpoint(tmp_path, "a") as checkpoint:
        assert checkpoint.is_held()
        checkpoint.lock.unlink()
        if replaced:
            with checkpoint.lock.open("w") as other:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert not checkpoint.is_held()
        with pytest.raises(failures.PipelineFailed, match=r"a\.lock was removed, so a second"):
            pipeline._watch(
                Query(), print, threading.Event(), draining, print, checkpoint=checkpoint
            )
    assert len(stopped) == 1
