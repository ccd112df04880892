"""A broker in a process of its own is ready within a limit of time, or the message has its log."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kohort.cli.broker_ready import BrokerNotReady, wait_ready
from kohort.cli.lab import live


class Said:
    """The standard output of a process; only the pipe is real."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        self.out = os.fdopen(writing, "w")
        self.process = cast("subprocess.Popen[str]", SimpleNamespace(stdout=os.fdopen(reading)))

    def line(self, text: str) -> None:
        print(text, file=self.out, flush=True)

    def close(self) -> None:
        self.out.close()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def said() -> Iterator[Said]:
    said = Said()
    yield said
    said.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    log = tmp_path / "broker.log"
    log.write_text("".join(f"line {number}\n" for number in range(1, 31)))
    return log


def test_the_address_is_that_of_the_broker(said: Said, tmp_path: Path) -> None:
    said.line("kohort broker ready on 127.0.0.1:9092 (data in /var/lib/kohort)")
    assert wait_ready(said.process, [tmp_path / "none"]) == "127.0.0.1:9092"


def test_a_silent_broker_is_not_waited_for_for_ever(said: Said, log: Path) -> None:
    with pytest.raises(BrokerNotReady, match=r"but waited 0\.05 s\n") as raised:
        wait_ready(said.process, [log], 0.05)
    assert str(raised.value).splitlines()[-12:] == [f"line {number}" for number in range(19, 31)]


def test_a_broker_that_ended_is_told_with_its_files(said: Said, log: Path, tmp_path: Path) -> None:
    said.out.close()
    with pytest.raises(BrokerNotReady, match="but ended") as raised:
        wait_ready(said.process, [log, tmp_path / "broker.out"])
    assert "line 30" in str(raised.value)
    assert str(raised.value).endswith("(broker.out was not written)")


def test_another_first_line_is_shown(said: Said, log: Path) -> None:
    said.line("usage: kohort")
    with pytest.raises(BrokerNotReady, match="but said 'usage: kohort'"):
        wait_ready(said.process, [log])


@pytest.mark.slow
@pytest.mark.parametrize("raised", [BrokerNotReady, KeyboardInterrupt])
def test_a_broker_that_is_not_ready_does_not_outlive_the_lab(
    raised: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: Any) -> str:
        raise raised

    monkeypatch.setattr(live, "wait_ready", fail)
    broker = live.LiveBroker(tmp_path)
    with pytest.raises(raised):
        broker.start()
    assert broker._process is not None
    assert broker._process.returncode is not None
