"""Trees of processes are frozen, ended and killed; the guard leaves no process and no file."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.waiting import until

from kohort.cli.demo.processes import Guard, Tree

PATIENCE_S = 120

# A parent, a child in a process group of its own like Spark's Python daemon, and a grandchild.
FAMILY = """
import os, sys, tempfile, time
def leaf():
    while True:
        time.sleep(0.01)
if os.fork() == 0:
    os.setpgid(0, 0)
    if os.fork() == 0:
        leaf()
    leaf()
tempfile.mkstemp()
print("ready", flush=True)
leaf()
"""


@pytest.fixture
def guard() -> Iterator[Guard]:
    with Guard() as guard:
        yield guard


def processes_of(pid: int) -> list[psutil.Process]:
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def gone(processes: list[psutil.Process]) -> bool:
    return not any(runs(process) for process in processes)


def runs(process: psutil.Process) -> bool:
    """Whether a process still runs; it may end between two looks."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def first_line(tree: Tree) -> str:
    assert tree.stdout is not None
    return tree.stdout.readline()


def family(guard: Guard, log: Path) -> tuple[Tree, list[psutil.Process]]:
    tree = guard.start([sys.executable, "-c", FAMILY], log, piped=True)
    assert first_line(tree) == "ready\n"
    until(lambda: len(processes_of(tree.pid)) == 3, "three processes", PATIENCE_S)
    return tree, processes_of(tree.pid)


def test_a_tree_dies_as_a_whole_also_while_its_first_process_is_stopped(
    guard: Guard, tmp_path: Path
) -> None:
    tree, processes = family(guard, tmp_path / "log")
    tree.send_signal(signal.SIGSTOP)
    tree.kill()
    assert tree.poll() == -9
    until(lambda: gone(processes), "the end of all processes", PATIENCE_S)


def test_the_kill_of_a_tree_spares_the_other_trees(guard: Guard, tmp_path: Path) -> None:
    one, _ = family(guard, tmp_path / "log")
    other, processes = family(guard, tmp_path / "log")
    one.kill()
    assert all(p.is_running() and p.status() != "zombie" for p in processes)
    other.kill()


def test_a_tree_is_asked_to_end_before_it_is_killed(guard: Guard, tmp_path: Path) -> None:
    script = (
        "import signal,sys,time; signal.signal(15, lambda *_: sys.exit(7))"
        "; print('last words', file=sys.stderr); print(1, flush=True)\nwhile True: time.sleep(1)"
    )
    tree = guard.start([sys.executable, "-c", script], tmp_path / "log", piped=True)
    assert first_line(tree)
    assert tree.end(PATIENCE_S) == 7
    assert tree.tail() == "last words"


DEMO = """
import sys, time
from pathlib import Path
from kohort.cli.demo.processes import Guard
guard = Guard().__enter__()
tree = guard.start([sys.executable, "-c", sys.argv[1]], Path(sys.argv[2]), piped=True)
tree.stdout.readline()
print(tree.pid, guard.folder, flush=True)
time.sleep(600)
"""


def test_a_killed_demo_leaves_no_process_and_no_temporary_file(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DEMO, FAMILY, str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        pid, folder = demo.stdout.readline().split()
        until(lambda: len(processes_of(int(pid))) == 3, "three processes", PATIENCE_S)
        processes = processes_of(int(pid))
        assert len(list(Path(folder).iterdir())) == 1, "a temporary file of the tree"
        demo.kill()
    until(lambda: gone(processes), "the end of all processes", PATIENCE_S)
    until(lambda: not Path(folder).exists(), "the end of the folder", PATIENCE_S)


def test_leaving_the_guard_kills_its_trees_and_removes_its_folder(tmp_path: Path) -> None:
    with Guard() as guard:
        tree = guard.start([sys.executable, "-c", FAMILY], tmp_path / "log", piped=True)
        assert first_line(tree)
        assert list(guard.folder.iterdir())
    assert not guard.folder.exists()
    assert tree.poll() == -9
    tree.kill()
