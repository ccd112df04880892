"""Checkpoints and their locks."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path

import pytest

from kohort.model.errors import ConfigError
from kohort.spark.checkpoints import locked_checkpoint
from kohort.spark.draining import DrainFile, Draining

application = pytest.importorskip("kohort.spark.application", reason="pip install 'kohort[spark]'")
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


@pytest.mark.parametrize("given", [None, "a"])
def test_an_application_that_wrote_no_checkpoint_leaves_nothing(
    tmp_path: Path, given: str | None
) -> None:
    """A Spark that did not start left ``application-1.lock`` behind."""
    with locked_checkpoint(tmp_path / "table", given):
        pass
    assert list(tmp_path.iterdir()) == []
    mine = tmp_path / "table"
    mine.mkdir()
    with locked_checkpoint(mine, given) as first, locked_checkpoint(mine, "other") as other:
        other.path.mkdir()
    assert list(mine.rglob("*.lock")) == [other.lock]
    assert not first.lock.exists()
    assert not first.path.exists()


def test_a_lock_that_its_holder_removes_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock

    def removed_first(handle: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        next(tmp_path.rglob("a.lock")).unlink()
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    with locked_checkpoint(tmp_path, "a") as checkpoint:
        assert checkpoint.is_held()
        with pytest.raises(ConfigError, match="called a already runs"):
            locked_checkpoint(tmp_path, "a").__enter__()


def test_checkpoints_that_cannot_be_written_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a stack trace. A file in place of the folder fails also for root."""
    with pytest.raises(ConfigError, match=r"No such file or directory; a table needs a folder on"):
        locked_checkpoint(Path("/proc/table"), "a").__enter__()
    (tmp_path / "_kohort").mkdir()
    (tmp_path / "_kohort" / "checkpoints").write_text("")
    with pytest.raises(
        ConfigError, match=r"cannot write .*a\.lock.*: File exists; a table needs a"
    ):
        locked_checkpoint(tmp_path, "a").__enter__()
    for number, said in (
        (errno.EACCES, "Permission denied; give this user the right to write"),
        (errno.ENOSPC, "No space left on device; free some space"),
    ):

        def refuse(*_: object, number: int = number) -> int:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "open", refuse)
        with pytest.raises(ConfigError, match=said):
            locked_checkpoint(tmp_path / "table", "a").__enter__()
        monkeypatch.undo()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_query_stops_when_its_lock_was_removed(tmp_path: Path, replaced: bool) -> None:
    """Finding S19: two queries ran on one checkpoint until Spark noticed."""
    stopped = []

    class Query:
        isActive = True

        def stop(self) -> None:
            stopped.append(self)

    with locked_checkpoint(tmp_path, "a") as checkpoint:
        assert checkpoint.is_held()
        checkpoint.lock.unlink()
        if replaced:
            with checkpoint.lock.open("w") as other:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert not checkpoint.is_held()
        one = application.Application(
            spark=None,
            config=None,
            ledger=None,
            checkpoint=checkpoint,
            report=print,
            stop=threading.Event(),
            draining=Draining(
                wanted=threading.Event(), file=DrainFile(tmp_path / "d"), timeout_s=1
            ),
            own_session=True,
        )
        with pytest.raises(failures.PipelineFailed, match=r"a\.lock was removed, so a second"):
            one._watch(Query(), None)
    assert len(stopped) == 1
