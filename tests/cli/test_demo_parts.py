"""The parts of the demo: generator, feeder, observer, view, outcome."""

from __future__ import annotations

import io
import json
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from rich.console import Console
from tests.history.tale import G, Tale, m, tps

from kohort.cli.demo.feeder import LONGEST_LINE, Feeder, first_field, lines_of
from kohort.cli.demo.observer import Observer
from kohort.cli.demo.outcome import Outcome
from kohort.cli.demo.picture import Application, Life, Picture
from kohort.cli.demo.view import View, spans
from kohort.cli.demo.web_events import VISITORS, web_events
from kohort.history.cost_values import Rebalance
from kohort.model.errors import ConfigError
from kohort.model.facts import OffsetsCommitted, RebalanceCause
from kohort.model.ids import GenerationId
from kohort.model.instants import Instant
from kohort.spark.ledgers.ledger import Acquired, NotedTopic
from kohort.spark.source.planning import Piece
from kohort.spark.tables.table import open_ledger
from kohort.storage.fact_files import Header, fact_line, write_history

COMBINED = re.compile(
    rb"(\S+) - - \[\d{2}/[A-Z][a-z]{2}/\d{4}:\d{2}:\d{2}:\d{2} \+0000\] "
    rb'"(GET|POST|HEAD) /\S* HTTP/1\.1" \d{3} \d+ "[^"]*" "[^"]+"'
)


def test_the_generator_gives_access_log_lines_of_many_visitors_for_a_seed() -> None:
    lines = list(web_events(20_000, seed=7))
    assert lines == list(web_events(20_000, seed=7))
    assert lines[:500] != list(web_events(500, seed=8))
    assert all(COMBINED.fullmatch(line) for line in lines)
    assert len({first_field(line) for line in lines}) > VISITORS * 0.9


@pytest.mark.parametrize(
    ("line", "key"),
    [(b"1.2.3.4 - x", b"1.2.3.4"), (b"  a b", b"a"), (b"one", b"one"), (b"", b""), (b" \t", b"")],
)
def test_the_key_of_a_record_is_its_first_field(line: bytes, key: bytes) -> None:
    assert first_field(line) == key


@pytest.mark.parametrize(
    ("content", "lines"),
    [(b"", []), (b"a b\nc\n", [b"a b", b"c"]), (b"a\r\n\nb", [b"a", b"", b"b"])],
)
def test_every_line_is_a_record(content: bytes, lines: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(content)
    assert list(lines_of(path)) == lines


def test_a_line_that_is_too_long_for_a_record_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"short\n" + b"x" * (LONGEST_LINE + 1) + b"\n")
    with pytest.raises(ConfigError, match=r"line 2 is longer than 1,000,000 bytes"):
        list(lines_of(path))
    path.write_bytes(b"x" * LONGEST_LINE + b"\r\n")
    assert [len(line) for line in lines_of(path)] == [LONGEST_LINE]


def commit(tale: Tale, member: str, partition: int, offset: int) -> None:
    offsets = ((tps(partition)[0], offset),)
    tale.add(OffsetsCommitted(G, m(member), GenerationId(1), offsets))


class Message:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def partition(self) -> int:
        return self._offset % 2

    def offset(self) -> int:
        return self._offset // 2


class Queue:
    """A producer with two partitions and a queue that is full after every third record."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, bytes]] = []
        self.waiting: list[tuple[Message, Callable[..., None]]] = []
        self.error: str | None = None

    def produce(
        self, _: str, value: bytes, key: bytes, *, on_delivery: Callable[..., None]
    ) -> None:
        if len(self.waiting) == 3:
            raise BufferError
        self.waiting.append((Message(len(self.sent)), on_delivery))
        self.sent.append((key, value))

    def poll(self, _: float) -> None:
        for message, on_delivery in self.waiting:
            on_delivery(self.error, message)
        self.waiting.clear()


def feed(queue: Queue, upto: int, until: Callable[[Feeder], bool]) -> Feeder:
    lines = [b"a 1", b"b 2", b"a 3", b"c 4", b"d 5"]
    feeder = Feeder(cast("Producer", queue), "t", iter(lines))
    feeder.feed(upto)
    while not until(feeder):
        feeder.send_for(0.001)
    return feeder


def test_the_feeder_sends_as_many_records_as_wanted_and_knows_the_ends() -> None:
    queue = Queue()
    feeder = feed(queue, 4, lambda f: sum(f.ends.values()) == 4)
    assert queue.sent == [(b"a", b"a 1"), (b"b", b"b 2"), (b"a", b"a 3"), (b"c", b"c 4")]
    assert feeder.ends == {0: 2, 1: 2}


def test_the_feeder_reports_a_refused_record() -> None:
    queue = Queue()
    queue.error = "too large"
    feeder = feed(queue, 4, lambda f: f.failure is not None)
    assert feeder.failure == "the broker refused a record: too large"


def test_the_observer_reads_members_partitions_and_commits_as_they_are_written(
    tmp_path: Path,
) -> None:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3)
    commit(tale, "a", 0, 10)
    *lines, last = [fact_line(recorded) + "\n" for recorded in tale.history]
    history = tmp_path / "history.jsonl"
    history.write_text(Header().line() + "\n" + "".join(lines) + last[:20])
    observer = Observer(history, G, tmp_path / "table")
    observer.follow(Instant(tale.now), {0: 10})
    assert observer.stable
    assert observer.members("c", Instant(0)) == [m("a"), m("b")]
    assert observer.members("c", Instant(tale.now)) == []
    assert observer.members("other", Instant(0)) == []
    assert observer.owned([m("a")]) == {0, 1}
    assert [r.generation_id for r in observer.rebalances] == [1]
    assert observer.positions == {}
    with history.open("a") as file:
        file.write(last[20:])
    observer.follow(Instant(tale.now), {0: 10})
    assert observer.positions == {0: 10}
    assert observer.landed["c"] == 10


def test_a_pause_begins_when_there_are_records_to_read(tmp_path: Path) -> None:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3)
    history = tmp_path / "history.jsonl"
    observer = Observer(history, G, tmp_path / "table")
    commit(tale, "a", 0, 10)
    write_history(history, tale.history)
    observer.follow(Instant(tale.now), {0: 10})
    fed_at = tale.wait(2_000).now
    observer.follow(Instant(fed_at), {0: 20})
    tale.again(a=(0, 1), b=(2,), c=(3,)).wait(500)
    commit(tale, "a", 0, 20)
    write_history(history, tale.history)
    observer.follow(Instant(tale.now), {0: 20})
    longest, usual = observer.pauses(Instant(tale.now))
    assert longest is not None
    assert (longest.begin, longest.end) == (fed_at, tale.now)
    assert usual == pytest.approx((longest.micros + 2_000_000) / 1e6)
    assert observer.pauses(Instant(tale.now - 1))[0] is None


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_micro_batch_is_under_way_from_its_intent_to_its_commit(
    tmp_path: Path, kind: str
) -> None:
    observer = Observer(tmp_path / "history", "g", tmp_path)
    assert not observer.in_batch([m("a")])
    ledger = open_ledger(tmp_path, "g", kind)
    (partition,) = tps(0)
    ledger.note_topic(partition.topic, NotedTopic(topic_id=None, partitions=1))
    acquired: Acquired = ledger.acquire([partition], 1, m("a"))[partition]
    assert not observer.in_batch([m("a")])
    piece = Piece(partition=partition, begin=0, end=5, epoch=acquired.epoch)
    ledger.intend("application", [piece])
    assert observer.in_batch([m("b"), m("a")])
    assert not observer.in_batch([m("b")])
    ledger.acquire([partition], 2, m("b"))
    assert not observer.in_batch([m("a"), m("b")])
    again = Piece(partition=partition, begin=0, end=5, epoch=acquired.epoch + 1)
    ledger.establish({partition: 0}, {partition: again.epoch})
    ledger.intend("application", [again])
    assert observer.in_batch([m("b")])
    ledger.commit("application", [])
    assert not observer.in_batch([m("b")])
    ledger.close()


APP = Application(
    name="app-1",
    life=Life.MEMBER,
    starts=1,
    owned=frozenset({0, 1, 2, 5}),
    landed=1_000,
    pid=4_711,
)
REBALANCE = Rebalance(
    cause=RebalanceCause.MEMBER_ADDED,
    member_ids=(),
    started_at=Instant(8_000_000),
    ended_at=Instant(8_250_000),
    generation_id=GenerationId(1),
    moved=2,
)
PICTURE = Picture(
    at=10.0,
    applications={
        "app-1": APP,
        "app-2": Application(name="app-2", life=Life.STARTING, starts=1, since=3.0),
    },
    ends={0: 2_500, 1: 2_500},
    positions={0: 1_000, 1: 0},
    rebalances=(REBALANCE,),
)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((3,), "3"), ((0, 1, 2, 5), "0-2,5"), ((5, 4), "4-5"), ((1, 3, 5), "1,3,5")],
)
def test_partition_numbers_are_shown_as_ranges(numbers: tuple[int, ...], text: str) -> None:
    assert spans(numbers) == text


def test_rates_are_those_of_the_last_seconds() -> None:
    view = View(Console(file=io.StringIO()), live=False)
    for second in range(20):
        landed = 100 * second if second < 10 else 900 + 300 * (second - 9)
        applications = {"app-1": replace(APP, landed=landed)}
        view.show(replace(PICTURE, at=float(second), applications=applications, rebalances=()))
        if second == 0:
            assert view.rate("app-1") == 0.0
    assert view.rate("app-1") == pytest.approx(300)


def test_plain_text_has_a_line_for_each_event() -> None:
    out = io.StringIO()
    view = View(Console(file=out, width=200), live=False)
    view.say(1.0, "starting [app-1]")
    view.show(PICTURE)
    view.show(replace(PICTURE, at=12.0))
    again = replace(PICTURE.applications["app-2"], starts=2, since=14.0)
    view.show(replace(PICTURE, at=16.0, applications={"app-2": again}))
    view.close()
    assert out.getvalue().splitlines() == [
        "   1.0 s  starting [app-1]",
        "   8.2 s  rebalance to generation 1 (member added) took 0.25 s, 2 partitions moved",
        "  10.0 s  fed 5,000  landed 1,000  backlog 4,000 | "
        "app-1 member 0-2,5, 0/s; app-2 Spark starts, 7 s",
        "  16.0 s  fed 5,000  landed 1,000  backlog 4,000 | app-2 Spark starts again, 2 s",
    ]


def test_on_a_terminal_lines_scroll_above_a_table_of_the_applications() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, height=24, force_terminal=True, color_system=None)
    view = View(console, live=True)
    view.say(1.0, "starting [app-1]")
    names = ("app-1", "app-2", "app-3")
    applications = {name: replace(APP, name=name) for name in names}
    for at in (10.0, 11.0):
        view.show(replace(PICTURE, at=at, applications=applications))
    view.close()
    assert out.getvalue().count("   1.0 s  starting [app-1]\n") == 1
    assert out.getvalue().count("rebalance to generation 1 (member added) took 0.25 s") == 1
    drawn = out.getvalue().rpartition("fed 5,000")[2]
    assert drawn.count("\n") <= 12
    for part in (*names, "member", "0-2,5", "4711", "backlog 4,000"):
        assert part in drawn


GOOD = Outcome(
    records_in=1_000_000,
    rows_out=999_990,
    dead_letters=10,
    filtered=0,
    undecided=0,
    holes=0,
    duplicates=0,
    foreign=0,
    unsound=0,
    orphans=2,
    rebalances=7,
    longest_pause_s=1.25,
    usual_pause_s=1.0,
    joined_under_backlog=True,
    killed_under_backlog=True,
    killed_in_batch=True,
    output="out/demo",
    seconds=120.0,
)


def test_a_good_outcome_is_told_in_words_and_json() -> None:
    assert GOOD.exactly_once
    assert GOOD.lines()[-1] == "verdict: every record landed exactly once"
    assert "NOT SHOWN" not in "\n".join(GOOD.lines())
    told = json.loads(GOOD.as_json())
    assert told["verdict"] == "exactly once"
    assert told["records_in"] == 1_000_000


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"holes": 1, "rows_out": 999_989}, "lost"),
        ({"duplicates": 1, "rows_out": 999_991}, "doubled"),
        ({"holes": 1, "duplicates": 1}, "lost and doubled"),
        ({"foreign": 1}, "altered"),
        ({"unsound": 1}, "altered"),
        ({"rows_out": 5}, "altered"),
    ],
)
def test_a_bad_outcome_is_never_called_good(change: dict[str, Any], verdict: str) -> None:
    bad = replace(GOOD, **change)
    assert not bad.exactly_once
    assert bad.verdict == verdict
    assert verdict.upper() in bad.lines()[-1]


def test_claims_that_were_not_shown_are_named() -> None:
    told = "\n".join(replace(GOOD, killed_under_backlog=False).lines())
    assert "NOT SHOWN: no backlog in every partition during the kill" in told
    unsure = replace(GOOD, rows_out=999_980, undecided=10)
    assert unsure.exactly_once
    assert unsure.lines()[-1].endswith("exactly once, as far as can be told")
    assert "NOT SHOWN: whether 10 records without a row" in "\n".join(unsure.lines())


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_a_delivery_callback_interrupts_and_another_system_error_is_not_swallowed() -> (
    None
):
    class Interrupted:
        def poll(self, _timeout: float) -> int:
            signal.raise_signal(signal.SIGINT)
            return 0

    feeder = Feeder(cast("Producer", Interrupted()), "t", iter(()))
    with pytest.raises(KeyboardInterrupt):
        feeder.send_for(1)

    class Broken:
        def poll(self, _timeout: float) -> int:
            raise SystemError("returned NULL without setting an exception")

    feeder = Feeder(cast("Producer", Broken()), "t", iter(()))
    with pytest.raises(SystemError, match="returned NULL"):
        feeder.send_for(1)
