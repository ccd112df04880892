"""Facts of a history as events: those that tell nothing need not be read."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.storage.test_fact_files import make, minimal

from kohort.cli.main import cli
from kohort.explain.events import Event, Kind, Place, Side
from kohort.explain.facts import UNUSED, HistoryReader
from kohort.host.group_log import line_for
from kohort.model.facts import Fact
from kohort.model.history_record import FACT_TYPES, Recorded
from kohort.model.instants import Instant
from kohort.model.member_facts import PollIntervalExceeded
from kohort.model.wire_facts import AnswerSent, RequestReceived
from kohort.storage.fact_files import write_history


def words(fact: Fact) -> str:
    line = line_for(fact)
    return "" if line is None else line.text


@pytest.mark.parametrize("name", sorted(UNUSED))
def test_unused_facts_tell_nothing(name: str) -> None:
    reader = HistoryReader("h", words, wall_s=0.0, dated=False)
    facts = [make(FACT_TYPES[name], n) for n in range(5)] + [minimal(FACT_TYPES[name])]
    for number, fact in enumerate(facts):
        recorded = Recorded(sequence=number, at=Instant(7), incarnation=1, source="a", fact=fact)
        assert not [*reader.read(recorded)]
    counts = reader.log.counts
    assert (counts.lines, counts.others) == (6, 6)


def test_a_history_with_unused_facts_is_explained_like_one_without(tmp_path: Path) -> None:
    kinds = [RequestReceived, PollIntervalExceeded, AnswerSent] * 2
    facts = [
        Recorded(sequence=n, at=Instant(n), incarnation=1, source="a", fact=make(kind))
        for n, kind in enumerate(kinds, 1)
    ]
    found = {}
    for name, kept in {"all": facts, "few": facts[1::3]}.items():
        for suffix in (".jsonl", ".parquet"):
            path = tmp_path / (name + suffix)
            write_history(path, kept)
            done = CliRunner().invoke(cli, ["explain", "--json", str(path)])
            assert done.exit_code == 0, done.output
            told = json.loads(done.stdout.replace(str(path), "h"))
            (file,) = told["logs"]
            found[name, suffix] = (told["groups"], file["lines"], file["others"])
    assert found["all", ".jsonl"] == found["all", ".parquet"]
    assert found["few", ".jsonl"] == found["few", ".parquet"]
    assert found["all", ".jsonl"][0] == found["few", ".jsonl"][0]
    assert found["all", ".jsonl"][1:] == (6, 4)


def test_an_event_without_details_travels_to_another_process() -> None:
    event = Event(kind=Kind.STABILIZED, side=Side.BROKER, place=Place(file="f", line=1), text="")
    assert pickle.loads(pickle.dumps(event)) == event
