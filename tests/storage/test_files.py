"""The real file layer and the faulty one keep the same promises."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.storage.disks import content

from kohort.storage.faulty_files import UnsyncedLossFiles
from kohort.storage.files import Files, RealFiles, make_durable_directory, read_file, write_file


def disk_with_directory(capacity: int | None = None) -> UnsyncedLossFiles:
    """A disk with a durable directory ``/d``."""
    files = UnsyncedLossFiles(capacity=capacity)
    make_durable_directory(files, "/d")
    return files


@pytest.fixture(params=["real", "faulty"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    if request.param == "real":
        return RealFiles(), str(tmp_path)
    return disk_with_directory(), "/d"


def test_written_bytes_are_read_back(disk: tuple[Files, str]) -> None:
    files, root = disk
    file = files.open(f"{root}/f", create=True)
    file.pwrite([b"abc", b"", b"def"], 0)
    file.pwrite([b"X"], 2)
    file.pwrite([b"end"], 8)
    assert file.size() == 11
    assert file.pread(100, 0) == b"abXdef\0\0end"
    assert file.pread(3, 4) == b"ef\0"
    assert file.pread(3, 11) == b""
    file.truncate(4)
    assert file.pread(100, 0) == b"abXd"
    file.allocate(4, 3)
    assert file.pread(100, 0) == b"abXd\0\0\0"
    file.allocate(0, 2)
    assert file.size() == 7
    file.sync()
    file.close()
    file.close()
    with pytest.raises(OSError, match=r".*"):
        file.pread(1, 0)


def test_names(disk: tuple[Files, str]) -> None:
    files, root = disk
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/none")
    files.make_directory(f"{root}/a/b")
    files.make_directory(f"{root}/a/b")
    write_file(files, f"{root}/a/one", b"1")
    write_file(files, f"{root}/a/two", b"2")
    assert files.list_directory(f"{root}/a") == ["b", "one", "two"]
    files.replace(f"{root}/a/one", f"{root}/a/two")
    assert read_file(files, f"{root}/a/two") == b"1"
    assert read_file(files, f"{root}/a/one") is None
    assert files.exists(f"{root}/a/b")
    assert not files.exists(f"{root}/a/one")
    with pytest.raises(OSError, match=r".*"):
        files.remove_directory(f"{root}/a")
    files.remove(f"{root}/a/two")
    files.remove(f"{root}/a/two")
    files.remove_directory(f"{root}/a/b")
    files.remove_directory(f"{root}/a/b")
    assert files.list_directory(f"{root}/a") == []
    files.sync_directory(root)
    with pytest.raises(FileNotFoundError):
        files.list_directory(f"{root}/none")


def test_a_removed_file_can_still_be_read_where_it_is_open(disk: tuple[Files, str]) -> None:
    files, root = disk
    write_file(files, f"{root}/f", b"abc")
    file = files.open(f"{root}/f")
    files.remove(f"{root}/f")
    assert file.pread(3, 0) == b"abc"


def test_the_lock_is_held_by_one(disk: tuple[Files, str]) -> None:
    files, root = disk
    lock = files.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{root}/.lock")
    lock.release()
    lock.release()
    files.lock(f"{root}/.lock").release()


def test_the_boot_does_not_change_by_itself(disk: tuple[Files, str]) -> None:
    files, _ = disk
    assert files.boot_id() == files.boot_id()


def test_a_write_in_pieces_arrives_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealFiles().open(str(tmp_path / "f"), create=True)
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: os.pwrite(fd, parts[0][:2], at))
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:3], at))
    file.pwrite([b"abcdef", b"ghijkl"], 5)
    assert (tmp_path / "f").read_bytes() == b"\0" * 5 + b"abcdefghijkl"


def test_closing_waits_for_a_sync_in_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealFiles().open(str(tmp_path / "f"), create=True)
    syncing, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def slow(fd: int) -> None:
        syncing.set()
        assert go_on.wait(20)
        seen.append(os.fstat(fd).st_ino)

    monkeypatch.setattr(os, "fdatasync", slow)
    sync = threading.Thread(target=file.sync)
    close = threading.Thread(target=file.close)
    sync.start()
    assert syncing.wait(20)
    close.start()
    go_on.set()
    sync.join(20)
    close.join(20)
    # The descriptor still belonged to this file when the sync used it.
    assert seen == [(tmp_path / "f").stat().st_ino]


def test_a_durable_directory_survives_a_power_cut_with_parents_of_an_earlier_process() -> None:
    files = UnsyncedLossFiles()
    files.make_directory("/srv/a")
    files.kill()
    make_durable_directory(files, "/srv/a/b")
    files.power_cut(lambda n: 0)
    assert files.exists("/srv/a/b")


def test_a_durable_directory_may_lie_below_directories_that_may_not_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def refuse_above(files: RealFiles, path: str) -> None:
        if not path.startswith(str(tmp_path)):
            raise PermissionError(errno.EACCES, "not yours", path)
        synced.append(path)

    monkeypatch.setattr(RealFiles, "sync_directory", refuse_above)
    make_durable_directory(RealFiles(), str(tmp_path / "a" / "b"))
    assert synced == [str(tmp_path / "a"), str(tmp_path)]
    monkeypatch.setattr(RealFiles, "sync_directory", lambda files, path: os.fsync(1 << 20))
    with pytest.raises(OSError, match="Bad file descriptor"):
        make_durable_directory(RealFiles(), str(tmp_path / "a" / "b"))


def test_small_files_are_replaced_as_a_whole() -> None:
    for crash_kept in range(4):
        files = disk_with_directory()
        write_file(files, "/d/f", b"old")
        files.sync_directory("/d")
        write_file(files, "/d/f", b"new!")
        files.power_cut(partial(min, crash_kept))
        assert read_file(files, "/d/f") in (b"old", b"new!")


def keeping(answers: Iterator[int]) -> Callable[[int], int]:
    """A choice for ``power_cut``: the next answer for each choice with alternatives."""
    return lambda count: next(answers, 0) if count else 0


class TestFaults:
    def test_a_power_cut_keeps_what_was_synced(self) -> None:
        files = disk_with_directory()
        file = files.open("/d/f", create=True)
        file.pwrite([b"synced"], 0)
        file.sync()
        files.sync_directory("/d")
        file.pwrite([b" not"], 6)
        files.power_cut(lambda n: 0)
        assert content(files, "/d/f") == b"synced"

    def test_an_unsynced_name_is_lost(self) -> None:
        files = disk_with_directory()
        file = files.open("/d/f", create=True)
        file.pwrite([b"synced"], 0)
        file.sync()
        files.power_cut(lambda n: 0)
        assert not files.exists("/d/f")

    def test_an_unsynced_directory_is_lost_with_its_files(self) -> None:
        files = disk_with_directory()
        files.make_directory("/d/a/b")
        write_file(files, "/d/a/b/f", b"synced")
        files.sync_directory("/d/a/b")
        files.sync_directory("/d/a")
        files.power_cut(lambda n: 0)
        assert files.list_directory("/d") == []
        assert not files.exists("/d/a/b/f")

    def test_a_renamed_directory_keeps_one_of_its_names_in_a_power_cut(self) -> None:
        for kept in range(3):
            files = disk_with_directory()
            make_durable_directory(files, "/d/old")
            write_file(files, "/d/old/f", b"synced")
            files.sync_directory("/d/old")
            files.replace("/d/old", "/d/new")
            files.power_cut(partial(min, kept))
            found = files.list_directory("/d")
            assert found == [["old"], ["new", "old"], ["new"]][kept]
            assert all(read_file(files, f"/d/{name}/f") == b"synced" for name in found)

    def test_a_power_cut_may_keep_any_part(self) -> None:
        outcomes = set()
        for bits in range(8):
            files = disk_with_directory()
            file = files.open("/d/f", create=True)
            files.sync_directory("/d")
            file.pwrite([b"a" * 512, b"b" * 512, b"c" * 512], 0)
            files.power_cut(keeping(iter([0] + [bits >> i & 1 for i in range(3)])))
            outcomes.add(content(files, "/d/f")[:1536:512])
        assert len(outcomes) >= 4

    def test_a_kill_keeps_everything_and_ends_descriptors_and_locks(self) -> None:
        files = disk_with_directory()
        file = files.open("/d/f", create=True)
        file.pwrite([b"abc"], 0)
        files.lock("/d/.lock")
        files.kill()
        assert content(files, "/d/f") == b"abc"
        with pytest.raises(OSError, match="dead") as error:
            file.pread(1, 0)
        assert error.value.errno == errno.EBADF
        files.lock("/d/.lock")

    @pytest.mark.parametrize("kept", range(5))
    def test_a_kill_within_a_write_keeps_a_leading_part(self, kept: int) -> None:
        files = disk_with_directory()
        file = files.open("/d/f", create=True)
        file.pwrite([b"12345678"], 0)
        file.pwrite([b"abcd"], 6)
        files.kill(lambda n: kept)
        assert content(files, "/d/f") == (b"123456abcd"[: 6 + kept] + b"78"[kept:])

    def test_a_full_disk_takes_what_fits(self) -> None:
        files = disk_with_directory(5)
        file = files.open("/d/f", create=True)
        with pytest.raises(OSError, match="no space") as error:
            file.pwrite([b"12345678"], 0)
        assert error.value.errno == errno.ENOSPC
        assert content(files, "/d/f") == b"12345"

    def test_a_second_sync_does_not_repair_a_failed_one(self) -> None:
        files = disk_with_directory()
        file = files.open("/d/f", create=True)
        files.sync_directory("/d")
        file.pwrite([b"abc"], 0)
        files.fail_sync = lambda path: True
        with pytest.raises(OSError, match="sync failed"):
            file.sync()
        files.fail_sync = lambda path: False
        files.power_cut(lambda n: n)
        assert content(files, "/d/f") == b""
