"""Whole trees are frozen and killed, also where a child made a process group of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import psutil
import pytest
from confluent_kafka import Producer

from kohort.cli.demo.feeder import LONGEST_LINE, Feeder, count_lines, lines_of
from kohort.cli.demo.processes import Tree, Undertaker, tail
from kohort.model.errors import ConfigError

PATIENCE_S = 120

# A parent, a child in a process group of its own as Spark's Python daemon makes one, a grandchild.
FAMILY = """
import os, sys, time
def leaf():
    while True:
        time.sleep(0.01)
if os.fork() == 0:
    os.setpgid(0, 0)
    if os.fork() == 0:
        leaf()
    leaf()
print("ready", flush=True)
leaf()
"""


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Tree]:
    tree = Tree([sys.executable, "-c", FAMILY], tmp_path / "log", piped=True)
    assert tree.stdout.readline() == "ready\n"
    _wait_until(lambda: len(psutil.Process(tree.pid).children(recursive=True)) == 2)
    yield tree
    tree.kill()


def test_a_kill_leaves_nobody(family: Tree) -> None:
    everybody = [psutil.Process(family.pid), *psutil.Process(family.pid).children(recursive=True)]
    family.kill()
    assert family.ended == -9
    _wait_until(lambda: not any(p.is_running() and p.status() != "zombie" for p in everybody))


def test_a_frozen_tree_stands_still_and_goes_on(family: Tree) -> None:
    everybody = [psutil.Process(family.pid), *psutil.Process(family.pid).children(recursive=True)]
    family.freeze()
    assert {p.status() for p in everybody} == {psutil.STATUS_STOPPED}
    family.thaw()
    _wait_until(lambda: all(p.status() != psutil.STATUS_STOPPED for p in everybody))


def test_an_end_is_asked_for_first(tmp_path: Path) -> None:
    script = (
        "import signal,sys,time; signal.signal(15, lambda *_: sys.exit(7)); print(1, flush=True)"
    )
    tree = Tree(
        [sys.executable, "-c", script + "\nwhile True: time.sleep(1)"], tmp_path / "l", piped=True
    )
    assert tree.stdout.readline()
    assert tree.end(PATIENCE_S) == 7


DEMO = """
import sys, time
from pathlib import Path
from kohort.cli.demo.processes import Tree, Undertaker
undertaker = Undertaker().__enter__()
tree = undertaker.watch(Tree([sys.executable, "-c", sys.argv[1]], Path(sys.argv[2]), piped=True))
tree.stdout.readline()
print(tree.pid, flush=True)
time.sleep(600)
"""


def test_a_demo_that_is_killed_takes_its_trees_along(tmp_path: Path) -> None:
    """Also those of its trees that made process groups of their own."""
    demo = subprocess.Popen(
        [sys.executable, "-c", DEMO, FAMILY, str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        text=True,
    )
    with demo:
        assert demo.stdout is not None
        root = psutil.Process(int(demo.stdout.readline()))
        _wait_until(lambda: len(root.children(recursive=True)) == 2)
        everybody = [root, *root.children(recursive=True)]
        demo.kill()
    _wait_until(lambda: not any(p.is_running() and p.status() != "zombie" for p in everybody))


def test_an_undertaker_outlives_nobody(family: Tree) -> None:
    with Undertaker() as undertaker:
        undertaker.watch(family)
        assert family.ended is None
    assert family.ended == -9


def test_the_tail_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("\n".join(map(str, range(100))))
    assert tail(tmp_path / "log", 2) == "98\n99"
    assert tail(tmp_path / "absent") == ""


@pytest.mark.parametrize(
    ("content", "lines"),
    [(b"", []), (b"a b\nc\n", [b"a b", b"c"]), (b"a\r\n\nb", [b"a", b"", b"b"])],
)
def test_every_line_is_a_record(content: bytes, lines: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(content)
    assert list(lines_of(path)) == lines
    assert count_lines(path) == len(lines)


def test_a_line_that_no_broker_takes_is_named(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"short\n" + b"x" * (LONGEST_LINE + 1) + b"\n")
    with pytest.raises(ConfigError, match=r"line 2 is longer than 1,000,000 bytes"):
        list(lines_of(path))
    path.write_bytes(b"x" * LONGEST_LINE + b"\r\n")
    assert [len(line) for line in lines_of(path)] == [LONGEST_LINE]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent: No such file or directory; name a text file"):
        count_lines(tmp_path / "absent")


class Broker:
    """Stands in for the producer: a queue that is full after every third record."""

    def __init__(self) -> None:
        self.kept: list[tuple[bytes, bytes]] = []
        self.waiting: list[Callable[..., None]] = []

    def produce(
        self, _: str, *, value: bytes, key: bytes, on_delivery: Callable[..., None]
    ) -> None:
        if len(self.waiting) == 3:
            raise BufferError
        self.kept.append((key, value))
        self.waiting.append(on_delivery)

    def poll(self, timeout: float) -> None:
        if timeout:
            self.flush(timeout)

    def flush(self, _: float) -> int:
        for told in self.waiting:
            told(None, None)
        self.waiting.clear()
        return 0


def test_the_feeder_sends_as_far_as_it_may_and_counts_what_arrived() -> None:
    broker = Broker()
    lines = [b"a 1", b"b 2", b"a 3", b"c 4", b"d 5"]
    feeder = Feeder(cast("Producer", broker), "t", iter(lines), 5)
    feeder.send(4)
    assert (feeder.sent, feeder.out) == (4, False)
    feeder.settle()
    assert feeder.acknowledged == 4
    feeder.send(5)
    feeder.settle()
    assert (feeder.sent, feeder.acknowledged, feeder.out) == (5, 5, True)
    assert broker.kept[2:] == [(b"a", b"a 3"), (b"c", b"c 4"), (b"d", b"d 5")]


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
