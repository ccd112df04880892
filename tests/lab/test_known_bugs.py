"""Known bugs of other systems: the lab catches each, and the seeds are clean without the bug."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tests.lab.known_bugs.catalogue import KNOWN_BUGS
from tests.lab.known_bugs.known_bug import KnownBug

from kohort.history.checker import Checker
from kohort.history.registry import BY_NUMBER
from kohort.lab.runs import run_plan
from kohort.lab.world import World

PENDING = tomllib.loads((Path(__file__).parent / "known_bugs" / "pending.toml").read_text())[
    "pending"
]
NUMBERS = {check.name: number for number, check in BY_NUMBER.items()} | {"converges": 48}
TABLE_OF_1_4: dict[tuple[str, ...], set[int]] = {
    ("KAFKA-12890",): {18, 48},
    ("streamnative/kop #380",): {18},
    ("KAFKA-9801",): {6, 14, 31},
    ("Kafka's system test static_consumer_persisted_after_rejoin",): {13},
    ("KAFKA-13891", "KAFKA-14016"): {28, 49},  # the bug, and the harm of its first fix
    ("KAFKA-12984",): {22, 23},
    ("aio-libs/aiokafka #1176",): {23, 48},
    ("KAFKA-14196",): {42},
    ("seaweedfs/seaweedfs, Kafka gateway",): {38, 39, 45},
    ("confluentinc/librdkafka #4059",): {49},
    ("KAFKA-7196",): {49},
    ("KAFKA-9848",): {32, 35},
    ("redpanda-data/redpanda #3732",): {13, 38, 49},
    ("redpanda-data/redpanda #4327",): {48},
    ("dpkp/kafka-python #1310",): {48},
}
"""Incidents, and the promises that each breaks according to reliability.md."""


CONVERGES = 48
SLICE_MS = 1_000


def broken_promises(bug: KnownBug, seed: int) -> set[int]:
    """Numbers of the promises that a seed of the scenario breaks."""
    report = run_plan(bug.scenario(seed), check_cores=False)
    return {NUMBERS[finding.rule] for finding in report.findings}


def broken_with_the_bug(bug: KnownBug, seed: int, missing: set[int]) -> set[int]:
    """The promises that a planted bug breaks; the run ends as soon as all of ``missing`` are."""
    if CONVERGES in missing:
        return broken_promises(bug, seed)
    plan, checker = bug.scenario(seed), Checker()
    world = World(plan, take=checker.feed)
    for until in range(SLICE_MS, plan.duration_ms + SLICE_MS, SLICE_MS):
        world.run(min(until, plan.duration_ms))
        found = {violation.check for violation in checker.violations}
        if missing <= found:
            return found
    if plan.heal_ms is not None and world.converged():
        world.calm()
    return {violation.check for violation in checker.finish().violations}


def test_every_bug_of_the_table_is_in_the_catalogue_or_waits_for_its_feature() -> None:
    names = [bug.name for bug in KNOWN_BUGS] + [each["name"] for each in PENDING]
    incidents = [bug.incident for bug in KNOWN_BUGS] + [each["incident"] for each in PENDING]
    assert len(set(names)) == len(names)
    assert sorted(incidents) == sorted(each for row in TABLE_OF_1_4 for each in row)
    assert all(each["feature"] and each["incident"] for each in PENDING)
    for numbers in [bug.breaks for bug in KNOWN_BUGS] + [each["breaks"] for each in PENDING]:
        assert set(numbers) <= BY_NUMBER.keys()


@pytest.mark.parametrize("row", TABLE_OF_1_4, ids=" and ".join)
def test_a_bug_breaks_the_promises_of_the_table_or_gives_a_reason(row: tuple[str, ...]) -> None:
    bugs = [bug for bug in KNOWN_BUGS if bug.incident in row]
    waiting = {number for each in PENDING if each["incident"] in row for number in each["breaks"]}
    broken = waiting.union(*(bug.breaks for bug in bugs))
    explained = {number: why for bug in bugs for number, why in bug.not_by.items()}
    assert TABLE_OF_1_4[row] - broken == explained.keys()
    assert all(len(why.split()) > 10 for why in explained.values())


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", KNOWN_BUGS, ids=lambda bug: bug.name)
def test_a_known_bug_is_caught_by_seeds_that_are_clean_without_it(bug: KnownBug) -> None:
    missing = set(bug.breaks)
    for seed in range(bug.seeds):
        with pytest.MonkeyPatch.context() as patch:
            bug.condition(patch)
            assert not broken_promises(bug, seed), f"seed {seed}, without the bug"
        with pytest.MonkeyPatch.context() as patch:
            bug.condition(patch)  # again, since a condition may end after its first effect
            bug.plant(patch)
            missing -= broken_with_the_bug(bug, seed, missing)
        if not missing:
            return
    pytest.fail(f"{bug.name} ({bug.incident}): {bug.seeds} seeds do not break {missing}")
