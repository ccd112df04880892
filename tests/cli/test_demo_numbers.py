"""The demo's generator, its reading of the broker's log, its counting of moves and pauses."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from kohort.cli.demo.picture import Rebalance
from kohort.cli.demo.rebalances import (
    AssignmentReader,
    Drought,
    Landing,
    LogReader,
    Moves,
    Pause,
    longest_retained_pause,
    pauses,
    usual_pause,
)
from kohort.cli.demo.verdict import Verdict
from kohort.cli.demo.web_events import VISITORS, first_field, web_events
from kohort.embedded.consumer import Assignment, encode_assignment
from kohort.model.facts import GroupStabilized, MemberAdded
from kohort.model.history_record import Recorded
from kohort.model.ids import GenerationId, GroupId, MemberId, TopicPartition
from kohort.model.instants import Instant
from kohort.storage.fact_files import fact_line

COMBINED = re.compile(
    rb"(\S+) - - \[\d{2}/[A-Z][a-z]{2}/\d{4}:\d{2}:\d{2}:\d{2} \+0000\] "
    rb'"(GET|POST|HEAD) /\S* HTTP/1\.1" \d{3} \d+ "[^"]*" "[^"]+"'
)


def test_the_same_seed_gives_the_same_lines() -> None:
    assert list(web_events(500, seed=7)) == list(web_events(500, seed=7))
    assert list(web_events(500, seed=7)) != list(web_events(500, seed=8))


def test_lines_are_access_log_lines_of_many_visitors() -> None:
    lines = list(web_events(20_000, seed=7))
    assert all(COMBINED.fullmatch(line) for line in lines)
    assert len({first_field(line) for line in lines}) > VISITORS * 0.9


@pytest.mark.parametrize(
    ("line", "key"),
    [(b"1.2.3.4 - x", b"1.2.3.4"), (b"  a b", b"a"), (b"one", b"one"), (b"", b""), (b" \t", b"")],
)
def test_the_key_is_the_first_field(line: bytes, key: bytes) -> None:
    assert first_field(line) == key


LOG = """\
[2026-11-21 10:00:01,000] INFO Preparing to rebalance group g in state PreparingRebalance with old \
generation 0 (reason: Adding new member app-1-x; client reason: not provided). (kohort.x)
[2026-11-21 10:00:01,100] INFO Preparing to rebalance group other in state PreparingRebalance with \
old generation 4 (reason: explicit `LeaveGroup` request for (m) members.). (kohort.x)
[2026-11-21 10:00:01,200] INFO Preparing to rebalance group g in state PreparingRebalance with old \
generation 0 (reason: Updating metadata for member app-1-x during PreparingRebalance). (kohort.x)
[2026-11-21 10:00:01,300] INFO Stabilized group g generation 1 with 1 members. (kohort.x)
[2026-11-21 10:00:01,350] INFO Assignment received from leader app-1-x for group g for generation \
1. The group has 1 members, 0 of which are static. (kohort.x)
nothing of a log line
[2026-11-21 10:00:09,000] INFO Preparing to rebalance group g in state PreparingRebalance with old \
generation 1 (reason: removing member app-2-y on heartbeat expiration.). (kohort.x)
[2026-11-21 10:00:09,500] INFO Assignment received from leader app-1-x for group g for generation \
2. The group has 1 members, 0 of which are static. (kohort.x)
"""


def test_rebalances_are_read_from_the_brokers_log() -> None:
    reader = LogReader("g", zero=0.0)
    first, second = [found for line in LOG.splitlines() if (found := reader.read(line))]
    assert (first.generation, first.cause) == (1, "member joined")
    assert first.seconds == pytest.approx(0.35)
    assert (second.generation, second.cause) == (2, "member expired")
    assert second.seconds == pytest.approx(0.5)
    assert second.began - first.began == pytest.approx(8.0)


def test_a_partition_moves_when_another_has_it_not_when_it_is_given_up() -> None:
    moves = Moves()
    moves.see(1, {0: "a", 1: "a", 2: "a"})
    moves.see(2, {0: "a", 1: "a"})
    moves.see(3, {0: "a", 1: "a", 2: "b"})
    moves.see(3, {0: "a", 1: "a", 2: "b"})
    rebalances = [
        Rebalance(generation=g, cause="", began=float(g), seconds=0.1) for g in (1, 2, 3, 4)
    ]
    assert [r.moved for r in moves.noted(rebalances)] == [0, 0, 1, None]


def _assigned(generation: int, **partitions: list[int]) -> GroupStabilized:
    members = [
        (MemberId(f"{name}-1f0c"), encode_assignment(Assignment(partitions=_of_topic(numbers))))
        for name, numbers in partitions.items()
    ]
    return GroupStabilized(
        group_id=GroupId("g"),
        generation_id=GenerationId(generation),
        assignments=(*members, (MemberId("new-1f0c"), b"")),
    )


def _of_topic(numbers: list[int]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("t", number) for number in numbers)


def _added(name: str, group: str = "g") -> MemberAdded:
    return MemberAdded(
        group_id=GroupId(group),
        member_id=MemberId(f"{name}-1f0c"),
        group_instance_id=None,
        client_id=name,
        client_host="",
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
    )


def test_moves_are_counted_from_the_brokers_history_however_short_a_generation_was() -> None:
    facts: list[MemberAdded | GroupStabilized] = [
        _added("a"),
        _assigned(1, a=[0, 1]),
        _added("b"),
        _assigned(2, a=[0], b=[]),
        _assigned(3, a=[0], b=[1]),
        _added("x", group="another"),
        _assigned(4, a=[0, 1], b=[]),
    ]
    reader, moves = AssignmentReader("g"), Moves()
    for number, fact in enumerate(facts):
        recorded = Recorded(
            sequence=number, at=Instant(number), incarnation=1, source="broker", fact=fact
        )
        line = fact_line(recorded)
        if (assigned := reader.read(line)) is not None:
            moves.see(assigned.generation, assigned.owners)
    assert reader.read('{"kohort.history":1,"clock":"monotonic","wall_micros":0}') is None
    told = [Rebalance(generation=g, cause="", began=float(g), seconds=0.1) for g in (1, 2, 3, 4)]
    assert [r.moved for r in moves.noted(told)] == [0, 0, 1, 1]


def _landing(partition: int, epoch: int, number: int, at: float) -> Landing:
    return Landing(partition=partition, epoch=epoch, begin=number, end=number + 1, at=at)


LANDINGS = [
    *(_landing(0, 1, n, at) for n, at in enumerate([1.0, 2.0, 3.0, 5.5, 6.5])),
    *(_landing(1, 1, n, at) for n, at in enumerate([1.0, 2.0])),
    *(_landing(1, 2, n, at) for n, at in enumerate([12.0, 13.0], start=2)),
    # Two files of one batch.
    *(_landing(2, 1, n, 4.0) for n in range(2)),
]


def test_a_hand_over_is_no_pause_of_a_retained_partition() -> None:
    found = pauses(LANDINGS)
    assert [(p.partition, p.seconds) for p in found] == [
        (0, 1.0),
        (0, 1.0),
        (0, 2.5),
        (0, 1.0),
        (1, 1.0),
        (1, 1.0),
    ]
    assert usual_pause(LANDINGS) == 1.0
    assert usual_pause([]) == 0.0


def test_only_pauses_that_a_rebalance_falls_into_count() -> None:
    during = Rebalance(generation=2, cause="", began=4.0, seconds=0.5)
    before = Rebalance(generation=1, cause="", began=1.2, seconds=0.1)
    assert longest_retained_pause(LANDINGS, [during], until=99) == Pause(
        partition=0, seconds=2.5, ended=5.5
    )
    assert longest_retained_pause(LANDINGS, [before], until=99) == Pause(
        partition=0, seconds=1.0, ended=2.0
    )
    assert longest_retained_pause(LANDINGS, [during], until=5.0) is None
    assert longest_retained_pause(LANDINGS, [], until=99) is None


def test_time_without_anything_to_read_is_no_pause() -> None:
    drought = Drought()
    for at, waiting in [(2.5, 9), (3.2, 0), (4.0, 0), (4.8, 0), (5.0, 7), (5.6, 7)]:
        drought.see(at, {0: waiting, 1: 5})
    during = Rebalance(generation=2, cause="", began=4.9, seconds=0.1)
    longest = longest_retained_pause(LANDINGS, [during], until=99, drought=drought)
    assert longest is not None
    assert longest.seconds == pytest.approx(5.5 - 4.8)
    dry_at_last = Drought()
    dry_at_last.see(5.9, {0: 0})
    assert [p.seconds for p in pauses(LANDINGS, dry_at_last)][3] == pytest.approx(6.5 - 5.9)


GOOD = Verdict(
    records_in=1_000_000,
    rows_out=999_990,
    dead_letters=10,
    filtered=0,
    untold=0,
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


def test_a_good_end_says_so_in_words_and_json() -> None:
    assert GOOD.exactly_once
    assert GOOD.lines()[-1] == "verdict: every record landed exactly once"
    assert "NOT SHOWN" not in "\n".join(GOOD.lines())
    told = json.loads(GOOD.as_json())
    assert told["verdict"] == "exactly once"
    assert told["records_in"] == 1_000_000


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"holes": 1, "rows_out": 999_989}, "lost"),
        ({"duplicates": 1, "rows_out": 999_991}, "doubled"),
        ({"holes": 1, "duplicates": 1}, "lost and doubled"),
        ({"foreign": 1}, "altered"),
        ({"unsound": 1}, "altered"),
        ({"rows_out": 5}, "altered"),
    ],
)
def test_a_bad_end_is_never_called_good(change: dict[str, Any], word: str) -> None:
    bad = replace(GOOD, **change)
    assert not bad.exactly_once
    assert bad.word == word
    assert word.upper() in bad.lines()[-1]


def test_what_was_not_shown_is_said() -> None:
    told = "\n".join(replace(GOOD, killed_under_backlog=False).lines())
    assert "NOT SHOWN: no backlog everywhere during the kill" in told
    unsure = replace(GOOD, rows_out=999_980, untold=10)
    assert unsure.exactly_once
    assert unsure.lines()[-1].endswith("exactly once, as far as can be told")
    assert "NOT SHOWN: whether 10 records without a row" in "\n".join(unsure.lines())
