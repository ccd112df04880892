"""Trees of processes are frozen, ended and killed; the guard leaves no process and no file."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

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
def family(tmp_path: Path) -> Iterator[Tree]:
    environ = os.environ | {"TMPDIR": str(tmp_path)}
    tree = Tree([sys.executable, "-c", FAMILY], tmp_path / "log", piped=True, environ=environ)
    assert tree.output.readline() == "ready\n"
    wait_until(lambda: len(psutil.Process(tree.pid).children(recursive=True)) == 2)
    yield tree
    tree.kill()


def processes_of(pid: int) -> list[psutil.Process]:
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def gone(processes: list[psutil.Process]) -> bool:
    return not any(p.is_running() and p.status() != "zombie" for p in processes)


def test_a_frozen_tree_stands_still_until_it_is_thawed_and_dies_as_a_whole(family: Tree) -> None:
    processes = processes_of(family.pid)
    family.freeze()
    assert {p.status() for p in processes} == {psutil.STATUS_STOPPED}
    family.thaw()
    wait_until(lambda: all(p.status() != psutil.STATUS_STOPPED for p in processes))
    family.freeze()
    family.kill()
    assert family.poll() == -9
    wait_until(lambda: gone(processes))


def test_a_tree_is_asked_to_end_before_it_is_killed(tmp_path: Path) -> None:
    script = (
        "import signal,sys,time; signal.signal(15, lambda *_: sys.exit(7))"
        "; print('last words', file=sys.stderr); print(1, flush=True)\nwhile True: time.sleep(1)"
    )
    tree = Tree([sys.executable, "-c", script], tmp_path / "log", piped=True)
    assert tree.output.readline()
    assert tree.end(PATIENCE_S) == 7
    assert tree.tail() == "last words"


DEMO = """
import sys, time
from pathlib import Path
from kohort.cli.demo.processes import Guard
guard = Guard().__enter__()
tree = guard.start([sys.executable, "-c", sys.argv[1]], Path(sys.argv[2]), piped=True)
tree.output.readline()
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
        wait_until(lambda: len(processes_of(int(pid))) == 3)
        processes = processes_of(int(pid))
        assert len(list(Path(folder).iterdir())) == 1, "a temporary file of the tree"
        demo.kill()
    wait_until(lambda: gone(processes))
    wait_until(lambda: not Path(folder).exists())


def test_leaving_the_guard_kills_its_trees_and_removes_its_folder(tmp_path: Path) -> None:
    with Guard() as guard:
        tree = guard.start([sys.executable, "-c", FAMILY], tmp_path / "log", piped=True)
        assert tree.output.readline()
        assert list(guard.folder.iterdir())
    assert not guard.folder.exists()
    assert tree.poll() == -9
    tree.kill()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
