"""The bug zoo: every animal is caught, on ground where the healthy code breaks nothing."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tests.lab.zoo.animals import ZOO
from tests.lab.zoo.mutation import Mutation

from kohort.history.registry import BY_NUMBER
from kohort.lab.runs import run_plan

PENDING = tomllib.loads((Path(__file__).parent / "zoo" / "pending.toml").read_text())["pending"]
NUMBERS = {check.name: number for number, check in BY_NUMBER.items()} | {"converges": 48}
TABLE_OF_1_4: dict[tuple[str, ...], set[int]] = {
    ("KAFKA-12890",): {18, 48},
    ("streamnative/kop #380",): {18},
    ("KAFKA-9801",): {6, 14, 31},
    ("Kafka's system test static_consumer_persisted_after_rejoin",): {13},
    ("KAFKA-13891", "KAFKA-14016"): {28, 49},  # the bug, and the harm that its first mending did
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
"""Incidents, and the promises by which reliability.md says that each is caught."""


def broken(animal: Mutation, seed: int, *, planted: bool) -> set[int]:
    """Numbers of the promises that a seed breaks."""
    with pytest.MonkeyPatch.context() as patch:
        animal.circumstance(patch)
        if planted:
            animal.plant(patch)
        report = run_plan(animal.ground(seed), check_cores=False)
    return {NUMBERS[finding.rule] for finding in report.findings}


def test_every_mutation_is_in_the_zoo_or_waits_for_its_feature() -> None:
    names = [animal.name for animal in ZOO] + [each["name"] for each in PENDING]
    incidents = [animal.incident for animal in ZOO] + [each["incident"] for each in PENDING]
    assert len(set(names)) == len(names)
    assert sorted(incidents) == sorted(each for row in TABLE_OF_1_4 for each in row)
    assert all(each["feature"] and each["incident"] for each in PENDING)
    for numbers in [animal.breaks for animal in ZOO] + [each["breaks"] for each in PENDING]:
        assert set(numbers) <= BY_NUMBER.keys()


@pytest.mark.parametrize("row", TABLE_OF_1_4, ids=" and ".join)
def test_what_the_table_names_is_broken_or_the_animal_says_why_not(row: tuple[str, ...]) -> None:
    animals = [animal for animal in ZOO if animal.incident in row]
    waiting = {number for each in PENDING if each["incident"] in row for number in each["breaks"]}
    broken_by_them = waiting.union(*(animal.breaks for animal in animals))
    explained = {number: why for animal in animals for number, why in animal.not_by.items()}
    assert TABLE_OF_1_4[row] - broken_by_them == explained.keys()
    assert all(len(why.split()) > 10 for why in explained.values())


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("animal", ZOO, ids=lambda animal: animal.name)
def test_an_animal_is_caught(animal: Mutation) -> None:
    missing = set(animal.breaks)
    for seed in range(animal.seeds):
        missing -= broken(animal, seed, planted=True)
        if not missing:
            return
    pytest.fail(f"{animal.name} ({animal.incident}): {animal.seeds} seeds, not by {missing}")


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("animal", ZOO, ids=lambda animal: animal.name)
def test_the_ground_is_clean_without_the_animal(animal: Mutation) -> None:
    assert not broken(animal, 0, planted=False) & animal.breaks
