"""``kohort pipeline`` with wrong arguments: one sentence and status 2, before Spark starts.

Without a broker the status is 1: a supervisor starts the application again until a broker answers.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.spark.conftest import Feed

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")

from kohort.cli.main import main
from kohort.spark import pipeline

MakeFeed = Callable[..., Feed]
Refused = Callable[..., str]


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Refused]:
    """Runs the command with more arguments, which must be refused; the message."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    started: list[object] = []
    monkeypatch.setattr(pipeline, "make_session", lambda *given: started.append(given))
    query = tmp_path / "query.sql"
    query.write_text("SELECT value FROM records")

    def refused(source: Feed, *more: str, status: int = 2) -> str:
        where = ("--bootstrap", source.bootstrap, "--topic", source.topic, "--group", source.topic)
        files = ("--sql", str(query), "--output", str(tmp_path / "table"))
        with pytest.raises(SystemExit) as ended:
            main(["pipeline", *where, *files, *more])
        told = capsys.readouterr().err
        assert ended.value.code == status, told
        assert told.startswith("kohort: ")
        assert told.count("\n") == 1
        assert started == []
        assert not (tmp_path / "table").exists()
        return told

    yield refused
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_an_unknown_topic_is_an_error_before_anything_is_written(
    feed: MakeFeed, refused: Refused
) -> None:
    source = feed(1)
    source.topic = "nowhere"
    assert "topic nowhere does not exist" in refused(source)


def test_an_unreachable_broker_is_an_error_before_anything_is_written(refused: Refused) -> None:
    source = Feed("127.0.0.1:1", "t", 1)
    quickly = ("--set", "socket.connection.setup.timeout.ms=1000")
    assert "127.0.0.1:1" in refused(source, *quickly, status=1)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--set", "session.timeout=1"), "session.timeout"),
        (("--set", "nonsense"), "expected NAME=VALUE"),
        (("--set", "group.id=other"), "--set group.id would have no effect: give --group instead"),
        (("--set", "bootstrap_servers=h:1"), "give --bootstrap-server instead"),
        (("--set", "auto.offset.reset=latest"), "give --starting-offsets instead"),
        (("--name", "a/b"), "--name is"),
        (("--evolve", "--python", "x.py:X"), "--evolve does not work with --python (or --state)"),
        (("--sql", "/nowhere/at/all.sql"), "cannot read /nowhere/at/all.sql"),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_it(
    feed: MakeFeed, refused: Refused, more: tuple[str, ...], said: str
) -> None:
    assert said in refused(feed(1), *more)
