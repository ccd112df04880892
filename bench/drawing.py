"""Measures the page of the dashboard in a headless Chromium: one frame of a large group.

A board has 1,000 partitions, 200 members and 60 generations, in each of which a fiftieth of the
partitions moves. The page is served over HTTP and follows the group live: a generation and a
lag come each second. Meanwhile a script pans, zooms and scrolls in each frame. The time of a frame
is that of drawing it; the CPU time is that of the page's main thread, all work included, for each
frame. Views: rows that fill the picture, all partitions at once, rows of members; then the matrix
of members and partitions of one rebalance, large and small, scrolled and pointed at in each frame.

    python -m bench.drawing [--partitions N] [--members N] [--frames N]
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.ending import end_with_children
from bench.results import emit
from tests.chromium import Chromium, program
from tests.dashboard.serving import served

from kohort.dashboard.board import Board, Seen
from kohort.explain.events import Place
from kohort.explain.offsets_topic.generations import Settled, SettledMember
from kohort.model.ids import TopicPartition

GENERATIONS = 60
APART_S = 10.0
VIEWS = {
    "rows that fill the picture": "",
    "all partitions at once": "timeline.squeeze()",
    "rows of members": "timeline.squeeze(); timeline.swap()",
}
FRAMES = """
new Promise((done) => {
  const drawn = [], gaps = [];
  let frame = 0, before = null;
  function next(at) {
    if (before !== null) gaps.push(at - before);
    before = at;
    const span = 20000 + 580000 * Math.abs(Math.sin(frame / 40));
    const to = timeline.data.now() - 100000 * Math.abs(Math.sin(frame / 25));
    timeline.view = { from: to - span, to };
    timeline.scroller.scrollTop = 40 * frame;
    timeline.pointer = { x: 400 + frame, y: 200 };
    const begin = performance.now();
    timeline.draw();
    drawn.push(performance.now() - begin);
    frame += 1;
    if (frame < FRAMES) requestAnimationFrame(next); else done({ drawn, gaps });
  }
  requestAnimationFrame(next);
})
"""


MATRIX = """
new Promise((done) => {
  const drawn = [], gaps = [], matrix = timeline.detail.matrix;
  let frame = 0, before = null;
  function next(at) {
    if (before !== null) gaps.push(at - before);
    before = at;
    matrix.scroller.scrollTo(25 * frame, 5 * frame);
    matrix.set(frame % matrix.columns.length, frame % matrix.rows.length);
    const begin = performance.now();
    matrix.draw();
    drawn.push(performance.now() - begin);
    frame += 1;
    if (frame < FRAMES) requestAnimationFrame(next); else done({ drawn, gaps });
  }
  requestAnimationFrame(next);
})
"""
MATRICES = {
    "the matrix of a rebalance, large cells": (
        "timeline.choose(30), timeline.detail.matrix.onlyButton.click()"
    ),
    "the matrix of a rebalance, small cells": "timeline.detail.matrix.sizeButton.click()",
}


class Group:
    """A group in which partitions move."""

    def __init__(self, partitions: int, members: int) -> None:
        self._random = random.Random(1)
        self._owner = [number % members for number in range(partitions)]
        self._members = members
        self._generation = 0

    def next(self, at: float) -> Settled:
        """The record of the next generation."""
        self._generation += 1
        for place in self._random.sample(range(len(self._owner)), len(self._owner) // 50):
            self._owner[place] = self._random.randrange(self._members)
        owned: list[list[TopicPartition]] = [[] for _ in range(self._members)]
        for number, owner in enumerate(self._owner):
            owned[owner].append(TopicPartition("orders", number))
        return Settled(
            group="g",
            generation=self._generation,
            at=at,
            protocol="cooperative-sticky",
            members=tuple(
                SettledMember(
                    member=f"pod-{number}",
                    topics=frozenset({"orders"}),
                    partitions=frozenset(parts),
                )
                for number, parts in enumerate(owned)
            ),
            place=Place("__consumer_offsets-0", self._generation),
        )


def main() -> int:
    end_with_children()
    parser = argparse.ArgumentParser(description="Measure the page of the dashboard.")
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--members", type=int, default=200)
    parser.add_argument("--frames", type=int, default=300)
    options = parser.parse_args()
    path = program()
    if path is None:
        print("no Chromium on the PATH: nothing is measured", file=sys.stderr)
        return 0
    board, group = Board("bench"), Group(options.partitions, options.members)
    begin = time.time() - GENERATIONS * APART_S
    for number in range(GENERATIONS):
        board.feed(group.next(begin + number * APART_S))
    ended = threading.Event()
    feeder = threading.Thread(target=feed, args=(board, group, ended))
    with served(board) as port, tempfile.TemporaryDirectory() as folder:
        feeder.start()
        try:
            with Chromium(path, Path(folder)) as browser:
                browser.open(f"http://127.0.0.1:{port}/#group=g")
                browser.until(f"timeline && timeline.data.order.length === {options.partitions}")
                for name, act in VIEWS.items():
                    browser.run(act or "0")
                    print_frames(name, options, measure(browser, FRAMES, options.frames))
                for name, act in MATRICES.items():
                    browser.run(act)
                    print_frames(name, options, measure(browser, MATRIX, options.frames))
        finally:
            ended.set()
            feeder.join()
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def feed(board: Board, group: Group, ended: threading.Event) -> None:
    """A generation and a lag each second."""
    while not ended.wait(1.0):
        now = time.time()
        board.feed(group.next(now))
        seen = Seen(group="g", state="Stable", protocol="", members=(), lag=int(now) % 1_000)
        board.looked([seen], now)


def measure(browser: Chromium, script: str, frames: int) -> dict[str, Any]:
    """Times of drawing and between frames in ms, and CPU time of the main thread in s."""
    browser.ask("Performance.enable", timeDomain="threadTicks")
    before = cpu_s(browser)
    found: dict[str, Any] = browser.run(script.replace("FRAMES", str(frames), 1))
    found["cpu"] = cpu_s(browser) - before
    browser.ask("Performance.disable")
    return found


def cpu_s(browser: Chromium) -> float:
    """CPU time of all tasks of the page's main thread so far."""
    metrics = browser.ask("Performance.getMetrics")["metrics"]
    return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))


def print_frames(name: str, options: argparse.Namespace, found: dict[str, Any]) -> None:
    drawn, gaps = sorted(found["drawn"]), sorted(found["gaps"])
    row = {
        "view": name,
        "partitions": options.partitions,
        "members": options.members,
        "draw_median_ms": round(statistics.median(drawn), 2),
        "draw_p95_ms": round(drawn[int(len(drawn) * 0.95)], 2),
        "draw_max_ms": round(drawn[-1], 2),
        "frame_median_ms": round(statistics.median(gaps), 1),
        "frame_p95_ms": round(gaps[int(len(gaps) * 0.95)], 1),
        "cpu_ms": round(found["cpu"] / len(drawn) * 1_000, 2),
    }
    print(
        f"{name}: drawing {row['draw_median_ms']} ms (p95 {row['draw_p95_ms']}, most "
        f"{row['draw_max_ms']}), between frames {row['frame_median_ms']} ms (p95 "
        f"{row['frame_p95_ms']}), CPU {row['cpu_ms']} ms a frame",
        flush=True,
    )
    emit("drawing", row)


if __name__ == "__main__":
    raise SystemExit(main())
