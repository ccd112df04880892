"""Tests of ``kohort.host.large_pages``: memory in use moves to large pages, other memory stays."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kohort.host import large_pages
from kohort.host.large_pages import large_page_bytes, use_large_pages

MIB = 1 << 20

PROCESS = """
import mmap
import threading
from pathlib import Path
from kohort.host.large_pages import collapse, large_page_bytes, resident_bytes

def in_large_pages():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("AnonHuge"))

def memory_with_every(step):
    memory = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    for start in range(0, len(memory), step):
        memory[start] = start // step % 251
    memory.madvise(mmap.MADV_HUGEPAGE)
    return memory

go_on = threading.Event()
collapse(large_page_bytes(), go_on)
"""
"""The first lines of a process of its own. The memory that the process has then has moved."""


def numbers(body: str) -> list[int]:
    """The numbers that a process with these lines prints."""
    done = subprocess.run(
        [sys.executable, "-c", PROCESS + body], capture_output=True, text=True, check=True
    )
    return [int(word) for word in done.stdout.split()]


@pytest.fixture
def large_pages_exist() -> None:
    if not large_page_bytes():
        pytest.skip("this machine has no large pages or does not want any")
    body = "m = memory_with_every(4096); print(collapse(large_page_bytes(), go_on))"
    if numbers(body)[0] < 14 * MIB:
        pytest.skip("this kernel cannot move memory into large pages (Linux before 6.1)")


@pytest.mark.usefixtures("large_pages_exist")
def test_memory_in_use_moves_and_keeps_its_content() -> None:
    before, moved, after, wrong = numbers(
        "before = in_large_pages(); m = memory_with_every(4096)\n"
        "moved = collapse(large_page_bytes(), go_on)\n"
        "wrong = sum(m[i * 4096] != i % 251 for i in range(4096))\n"
        "print(before, moved, in_large_pages(), wrong)"
    )
    assert moved > before
    assert after == moved
    assert wrong == 0


@pytest.mark.usefixtures("large_pages_exist")
def test_memory_that_is_mostly_unused_stays_in_small_pages() -> None:
    before, after = numbers(
        "m = memory_with_every(4 * 4096); before = resident_bytes()\n"
        "collapse(large_page_bytes(), go_on); print(before, resident_bytes())"
    )
    assert after - before < 2 * MIB


@pytest.mark.usefixtures("large_pages_exist")
def test_a_set_stop_ends_the_move_before_the_next_page() -> None:
    body = "m = memory_with_every(4096); go_on.set(); print(collapse(large_page_bytes(), go_on))"
    assert numbers(body) == [0]


@pytest.mark.parametrize(
    ("enabled", "size"), [("always madvise [never]", 0), ("always [madvise] never", 2 * MIB)]
)
def test_the_machines_setting_decides_whether_large_pages_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enabled: str, size: int
) -> None:
    (tmp_path / "enabled").write_text(enabled)
    (tmp_path / "hpage_pmd_size").write_text("2097152\n")
    monkeypatch.setattr(large_pages, "_SETTINGS", tmp_path)
    assert large_page_bytes() == size


def test_a_machine_without_large_pages_has_size_zero_and_ends_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_pages, "_SETTINGS", tmp_path)
    assert large_page_bytes() == 0
    asyncio.run(asyncio.wait_for(use_large_pages(), 30))


def test_memory_is_looked_through_once_for_each_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    resident = iter([40 * MIB, 40 * MIB, 50 * MIB, 71 * MIB, 80 * MIB, 112 * MIB, 112 * MIB])
    moves: list[int] = []
    monkeypatch.setattr(large_pages, "CHECK_SECONDS", 0)
    monkeypatch.setattr(large_pages, "large_page_bytes", lambda: 2 * MIB)
    monkeypatch.setattr(large_pages, "resident_bytes", lambda: next(resident))

    def collapse(size: int, _: threading.Event) -> int:
        moves.append(size)
        return size

    monkeypatch.setattr(large_pages, "collapse", collapse)
    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(use_large_pages())
    assert moves == [2 * MIB, 2 * MIB]
