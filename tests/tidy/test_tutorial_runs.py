"""The tutorial works; it runs on a port of its own."""

from __future__ import annotations

import re
import signal

import pytest
from tests.tidy.blocks import block_with, commands_of, inline_commands_of
from tests.tidy.terminals import PATIENCE_S, Terminals
from tests.tidy.test_blocks_run import KOHORT, TUTORIAL, at, terminals
from tests.tidy.trees import ROOT
from tests.waiting import until

__all__ = ["terminals"]

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
SPARK_PATIENCE_S = 300
"""An application that starts beside a working one needs 25 s on idle cores, and 95 s at load 6."""


class Tutorial:
    """The commands of the tutorial, on a port of its own."""

    def __init__(self, terminals: Terminals) -> None:
        self._terminals = terminals
        (words,) = commands_of(block_with(TUTORIAL, "kohort broker"))
        words[words.index("9092")] = "0"
        terminals.start("broker", *KOHORT, *words)
        terminals.until("broker", lambda said: "ready on" in said)
        ready = re.search(r"ready on (\S+)", terminals.said("broker"))
        assert ready is not None
        self.address = ready[1]

    def words(self, part: str) -> tuple[str, ...]:
        (words,) = [w for w in commands_of(block_with(TUTORIAL, part)) if part in " ".join(w)]
        return (*KOHORT, *words, "--bootstrap-server", self.address)

    def until_caught_up(self) -> None:
        words = self.words("groups describe")
        until(
            lambda: re.search(r"TOTAL-LAG +0\n", self._terminals.run("lag", *words)),
            "a lag of 0",
            PATIENCE_S,
        )

    def file(self, part: str) -> str:
        return block_with(TUTORIAL, part)


def owned(said: str) -> int:
    """Partitions in the last line of a pipeline."""
    return len(said.rpartition("owns ")[2].split()) if "owns " in said else 0


def test_the_tutorial(terminals: Terminals) -> None:
    session = pytest.importorskip("kohort.spark.session", reason="pip install 'kohort[spark]'")
    quick = f"{JAVA_OPTIONS}={session.QUICK[JAVA_OPTIONS]}"
    tutorial = Tutorial(terminals)
    terminals.run("create", *tutorial.words("topics create"))
    feeder = terminals.python("feed", at(tutorial.file("producer.poll(0.005)"), tutorial.address))
    (terminals.folder / "visits.sql").write_text(tutorial.file("FROM records"), encoding="utf-8")

    pipeline = (*tutorial.words("pipeline"), "--conf", quick)
    one = terminals.start("one", *pipeline)
    terminals.until("one", lambda said: owned(said) == 6, SPARK_PATIENCE_S)
    two = terminals.start("two", *pipeline)
    terminals.until("two", lambda said: owned(said) == 3, SPARK_PATIENCE_S)
    terminals.until("one", lambda said: owned(said) == 3)
    described = terminals.run("describe", *tutorial.words("groups describe"))
    assert len(set(re.findall(r"application-\d-[0-9a-f-]{36}", described))) == 2

    two.kill()
    terminals.until("one", lambda said: owned(said) == 6)
    feeder.kill()
    tutorial.until_caught_up()
    one.send_signal(signal.SIGINT)
    assert one.wait(PATIENCE_S) == 0, terminals.said("one")

    (clean,) = [w for w in inline_commands_of(ROOT / TUTORIAL) if w[:2] == ["table", "clean"]]
    terminals.run("clean", *KOHORT, *clean)
    assert "every record once" in terminals.run("verify", *tutorial.words("table verify"))
    use = terminals.python("use", tutorial.file("read_table("))
    assert use.wait(SPARK_PATIENCE_S) == 0, terminals.said("use")
    assert re.search(r"\|/page-\d+ *\| *\d+\|", terminals.said("use"))
