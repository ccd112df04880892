"""The bug zoo: every animal is caught, on ground where the healthy code breaks nothing."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tests.lab.zoo.animals import ZOO
from tests.lab.zoo.coordinator import leader_that_hangs
from tests.lab.zoo.mutation import Mutation

from kohort.history.registry import BY_NUMBER
from kohort.lab.runs import run_plan

PENDING = tomllib.loads((Path(__file__).parent / "zoo" / "pending.toml").read_text())["pending"]
NUMBERS = {check.name: number for number, check in BY_NUMBER.items()} | {"converges": 48}
MUTATIONS_OF_1_4 = 15
TWO_ANIMALS_OF_ONE_ROW = ("KAFKA-13891", "KAFKA-14016")
"""The bug, and the harm that its first mending did."""


def broken(animal: Mutation, seed: int, *, planted: bool) -> set[int]:
    """Numbers of the promises that a seed breaks."""
    with pytest.MonkeyPatch.context() as patch:
        if animal.incident == "KAFKA-12890":
            leader_that_hangs(patch)
        if planted:
            animal.plant(patch)
        report = run_plan(animal.ground(seed), check_cores=False)
    return {NUMBERS[finding.rule] for finding in report.findings}


def test_every_mutation_is_in_the_zoo_or_waits_for_its_feature() -> None:
    names = [animal.name for animal in ZOO] + [each["name"] for each in PENDING]
    incidents = [animal.incident for animal in ZOO] + [each["incident"] for each in PENDING]
    assert len(set(names)) == len(set(incidents)) == len(names) == MUTATIONS_OF_1_4 + 1
    assert set(TWO_ANIMALS_OF_ONE_ROW) <= set(incidents)
    assert all(each["feature"] and each["incident"] for each in PENDING)
    for numbers in [animal.breaks for animal in ZOO] + [each["breaks"] for each in PENDING]:
        assert set(numbers) <= BY_NUMBER.keys()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("animal", ZOO, ids=lambda animal: animal.name)
def test_an_animal_is_caught(animal: Mutation) -> None:
    for seed in range(animal.seeds):
        if broken(animal, seed, planted=True) & animal.breaks:
            return
    pytest.fail(f"{animal.name} ({animal.incident}) escaped {animal.seeds} seeds")


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("animal", ZOO, ids=lambda animal: animal.name)
def test_the_ground_is_clean_without_the_animal(animal: Mutation) -> None:
    assert not broken(animal, 0, planted=False) & animal.breaks
