"""``kohort dashboard``: a live cluster, files that grow, and wrong words."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.explain.test_stories import done, joins, member
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.cli.dashboard_sources import FileSource, follow_records, look_often
from kohort.cli.groups.choice import Groups
from kohort.cli.main import cli
from kohort.client.admin import Admin
from kohort.client.membership import GroupMembership
from kohort.dashboard.board import Board, Reader
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position


class Shown:
    """A reader of a board, with all that it got so far."""

    def __init__(self, board: Board, group: str) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.remarks: list[str] = []
        self.rebalances: list[str] = []
        self.owners: list[str] = []
        self.open: list[list[int]] = []
        self._board = board
        self._reader = Reader(group)

    def read(self) -> Shown:
        for name, values in self._board.news(self._reader):
            if name == "groups":
                self.remarks = values["remarks"]
                self.rows |= {row["group"]: row for row in values["rows"]}
            elif name == "group":
                picture = values["picture"]
                told = [each["told"] for each in picture["rebalances"]]
                self.rebalances[picture["from"] :] = told
                self.owners += [owner for owner, *_ in picture["owners"]]
                self.open = picture["open"]
        return self


def test_a_live_cluster_is_shown(kohort_broker: EmbeddedBroker) -> None:
    server = kohort_broker.bootstrap_servers
    board, ended = Board(server), threading.Event()
    shown = Shown(board, "g")
    settings = {"bootstrap.servers": server}
    groups = Groups(names=(), every=True)
    with Admin(bootstrap_servers=server) as admin:
        admin.create_topic("t", 4)
        admin.alter_offsets("g", {TopicPartition("t", 0): Position(0)})
    threads = [
        threading.Thread(target=follow_records, args=(board, settings, ended)),
        threading.Thread(target=look_often, args=(board, settings, groups, 0.1, ended)),
    ]
    for thread in threads:
        thread.start()
    try:
        told = {**settings, "group.id": "g", "heartbeat.interval.ms": 100}
        with GroupMembership(["t"], told) as first:
            until(lambda: len(shown.read().open) == 4, "the first member owns all")
            with GroupMembership(["t"], told):

                def shared() -> bool:
                    first.release(first.snapshot().revoking)
                    return len({owner for _, owner, _ in shown.read().open}) == 2

                until(shared, "both own partitions")
                until(lambda: shown.read().rows["g"]["members"] == 2, "a look sees both")
        until(lambda: not shown.read().open, "nobody owns anything")
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert any("a new member joined (likely)" in told for told in shown.rebalances)
    assert shown.rows["g"]["lag"] == 0
    assert shown.remarks == []


def test_a_cluster_that_does_not_answer_is_a_remark() -> None:
    board, ended = Board("nowhere"), threading.Event()
    settings = {
        "bootstrap.servers": "127.0.0.1:1",
        "default.api.timeout.ms": 200,
        "socket.connection.setup.timeout.ms": 200,
    }
    groups = Groups(names=(), every=True)
    threads = [
        threading.Thread(target=follow_records, args=(board, settings, ended)),
        threading.Thread(target=look_often, args=(board, settings, groups, 0.1, ended)),
    ]
    for thread in threads:
        thread.start()
    try:
        shown = Shown(board, "")
        until(lambda: len(shown.read().remarks) == 2, "both failures are told")
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert all(remark.endswith("trying again") for remark in shown.remarks)


def test_files_that_grow_are_read_again(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    first, second = (
        [joins(60 * n, 4 + n, member("svc", n)), *done(60 * n + 1, 5 + n)] for n in (0, 1)
    )
    log.write_text("".join(f"{line}\n" for line in first), encoding="utf-8")
    board, ended = Board("folder"), threading.Event()
    source, shown = FileSource(board, [tmp_path]), Shown(board, "g")
    source.read()
    assert shown.read().rows["g"]["rebalances"] == 1
    thread = threading.Thread(target=source.follow, args=(0.05, ended))
    thread.start()
    try:
        with log.open("a", encoding="utf-8") as more:
            more.write("".join(f"{line}\n" for line in second))
        until(lambda: len(shown.read().rebalances) == 2, "the second rebalance is shown")
        log.unlink()
        until(lambda: bool(shown.read().remarks), "a missing file is told")
    finally:
        ended.set()
        thread.join()
    assert shown.rebalances[1].startswith("generation 6: a new member joined")
    assert "no file in" in shown.remarks[0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "expected files, or --bootstrap-server"),
        (["a.log", "--bootstrap", "h:1"], "and not both"),
        (["absent.log"], "absent.log is absent; name a log, a history, or a folder"),
        (["absent.log", "--listen", "9309"], "--listen is '9309', expected HOST:PORT"),
        (["absent.log", "--listen", "h:99999"], "expected HOST:PORT"),
        (["absent.log", "--listen", ":9309"], "expected HOST:PORT"),
        (["absent.log", "--allow-host", "*"], "--allow-host is '*', expected one name"),
    ],
)
def test_wrong_words_are_told(words: list[str], told: str) -> None:
    result = CliRunner().invoke(cli, ["dashboard", *words])
    assert isinstance(result.exception, ConfigError)
    assert told in str(result.exception)


@pytest.mark.slow
def test_the_page_is_served_until_sigterm(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    lines = [joins(0, 4, member("svc", 1)), *done(1, 5)]
    log.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    words = ["dashboard", str(log), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [sys.executable, "-m", "kohort", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        with urllib.request.urlopen(f"{url}events?group=g", timeout=20) as stream:
            read = b"".join(next(stream) for _ in range(8)).decode()
            process.terminate()
            rest = stream.read()
    assert process.returncode == 0
    assert "generation 5: a new member joined" in read
    assert b"event: group" not in rest
