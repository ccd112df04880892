"""Groups change from eager to cooperative and back by rolling restarts, without two owners.

Other clients with an eager assignor are replaced one after the other by kohort's consumers with
both assignors, these by consumers with the cooperative one; then the same back. Everybody's
histories go through ``kohort check``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.client.stage import Feeder
from tests.verifiable.conftest import PARTITIONS, MakeGroup
from tests.verifiable.facts import write_events
from tests.verifiable.group import (
    AIOKAFKA,
    BOTH,
    CONFLUENT,
    COOPERATIVE,
    JAVA,
    KAFKA_PYTHON,
    KOHORT,
    KOHORT_ASYNCIO,
    RANGE,
    Make,
    Process,
    VerifiableGroup,
)

from kohort.cli.check import check
from kohort.history.checker import Checker, Report
from kohort.history.endings import with_endings
from kohort.model.member_facts import GenerationJoined
from kohort.storage.fact_files import read_histories
from kohort.testing.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One rolling restart: the processes before and after, and when both kinds ran."""

    before: list[Process]
    after: list[Process]
    micros: tuple[int, int]


def now() -> int:
    return time.monotonic_ns() // 1_000


def roll(group: VerifiableGroup, make: Make, members: list[Process]) -> Phase:
    """Replace each member in turn, the leader last if kohort leads; the group works in between."""
    order = sorted(members, key=leads)
    begin, after = now(), []
    for member in order:
        after.append(group.bounce(member, make))
        group.await_members(len(members))
        group.await_consumed(20)
    return Phase(before=order, after=after, micros=(begin, now()))


def joined(process: Process) -> list[tuple[int, GenerationJoined]]:
    """The generations that one of kohort's consumers joined, with their instants."""
    if process.history is None or not process.history.exists():
        return []
    facts = read_histories([process.history]).facts
    return [(r.at, r.fact) for r in facts if isinstance(r.fact, GenerationJoined)]


def leads(process: Process) -> bool:
    generations = joined(process)
    return bool(generations) and generations[-1][1].is_leader


def led_by_kohort(phase: Phase) -> set[bool]:
    """Whether kohort led, for each generation of kohort's members in this phase."""
    begin, end = phase.micros
    return {
        fact.is_leader
        for process in phase.before + phase.after
        for at, fact in joined(process)
        if begin <= at <= end
    }


def checked(group: VerifiableGroup, folder: Path) -> Report:
    """The judgement of ``kohort check`` over the histories of all processes."""
    files = [
        p.history or write_events(p.member, group.topic, folder / f"{p.member.name}.events")
        for p in group.all
    ]
    result = CliRunner().invoke(check, [str(file) for file in files])
    assert result.exit_code == 0, result.output
    return Checker().feed_all(list(with_endings(read_histories(files).facts))).finish()


def protocols(phase: Phase) -> list[str]:
    """The assignor of the last generation of each of kohort's members in a phase."""
    return [joined(p)[-1][1].protocol_name for p in phase.after]


SHORT = [CONFLUENT]
LONG = [KOHORT, KAFKA_PYTHON, AIOKAFKA, JAVA]


@pytest.mark.parametrize(
    "make",
    [*SHORT, *(pytest.param(make, marks=pytest.mark.long) for make in LONG)],
    ids=lambda make: make.name,
)
def test_two_rolling_restarts_lead_to_cooperative_and_two_back_without_two_owners(
    real_kafka: RealKafka, make_group: MakeGroup, tmp_path: Path, make: Make
) -> None:
    group = make_group(real_kafka.bootstrap_servers)
    with Feeder(group.bootstrap, group.topic, PARTITIONS, 100) as feeder:
        # Two members in the suite. The first one joins alone, so it leads.
        members = [group.start(make.using(RANGE), "m0")]
        group.await_members(1)
        members += [group.start(make.using(RANGE), f"m{n}") for n in range(1, size(make))]
        group.await_members(len(members))

        first = roll(group, KOHORT.using(BOTH), list(reversed(members)))
        second = roll(group, KOHORT_ASYNCIO.using(COOPERATIVE), first.after)
        assert set(protocols(second)) == {COOPERATIVE}
        third = roll(group, KOHORT.using(BOTH), second.after)
        fourth = roll(group, make.using(RANGE), third.after)
        feeder.stop()
        group.finish()
    # The other client led kohort's consumers, and kohort's consumers led the other client.
    assert False in led_by_kohort(first)
    assert True in led_by_kohort(fourth)
    report = checked(group, tmp_path)
    assert report.clean
    judged = {r.number: r.judged for r in report.results}
    assert all(judged[number] for number in (24, 27, 41, 43, 44, 53)), judged
    staying = [p for p in second.after if p.member.assignments > 1]
    assert any(p.member.revocations < p.member.assignments for p in staying)


def size(make: Make) -> int:
    return 2 if make in SHORT else 3


@pytest.mark.long
@pytest.mark.parametrize("make", [CONFLUENT, KAFKA_PYTHON, JAVA], ids=lambda make: make.name)
def test_cooperative_members_of_other_clients_are_replaced_in_one_restart(
    real_kafka: RealKafka, make_group: MakeGroup, tmp_path: Path, make: Make
) -> None:
    group = make_group(real_kafka.bootstrap_servers)
    with Feeder(group.bootstrap, group.topic, PARTITIONS, 100) as feeder:
        members = [group.start(make.using(COOPERATIVE), f"m{n}") for n in range(3)]
        group.await_members(3)
        there = roll(group, KOHORT.using(COOPERATIVE), members)
        roll(group, make.using(COOPERATIVE), there.after)
        feeder.stop()
        group.finish()
    assert checked(group, tmp_path).clean


@pytest.mark.parametrize(
    ("before", "skipped_to"), [(RANGE, COOPERATIVE), (COOPERATIVE, RANGE)], ids=["there", "back"]
)
def test_a_skipped_step_is_refused_and_the_others_work_on(
    real_kafka: RealKafka,
    make_group: MakeGroup,
    tmp_path: Path,
    before: str,
    skipped_to: str,
) -> None:
    group = make_group(real_kafka.bootstrap_servers)
    with Feeder(group.bootstrap, group.topic, PARTITIONS, 100) as feeder:
        stays, goes = [group.start(KOHORT.using(before), name) for name in ("stays", "goes")]
        group.await_members(2)
        refused = group.bounce(goes, KOHORT.using(skipped_to))
        assert refused.wait() == 2
        told = refused.log.read_text(encoding="utf-8")
        assert "INCONSISTENT_GROUP_PROTOCOL" in told
        assert f"this member offers {skipped_to}" in told
        assert "two rolling restarts" in told
        group.await_members(1)
        group.await_consumed()
        feeder.stop()
        group.finish()
    assert stays.member.clean
    assert checked(group, tmp_path).clean
