"""The fuzz targets on their seeds, on mutants of these and on what was ever found: the short run.

``make fuzz`` searches on, guided by coverage. The mutants here are the same on every run.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from random import Random

import pytest
from tests.fuzz.mutate import mutant
from tests.fuzz.targets import TARGETS, seeds

SEED = 20_251
MUTANTS = 1_500
SLOW = {"journal": 250, "connection": 600}
"""Targets of which one run costs much: how many mutants they get."""

FOUND = Path(__file__).with_name("found")
MOST_MEMORY = 24 * 1024 * 1024
"""For one input of at most 4 KiB: a request of 250,000 array elements is not among these."""


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_mutants_are_read_or_refused(name: str) -> None:
    start = seeds(name)
    rng = Random(f"{SEED} {name}")
    for data in start:
        TARGETS[name](data)
    for number in range(SLOW.get(name, MUTANTS)):
        data = mutant(start, rng)
        try:
            TARGETS[name](data)
        except Exception as error:
            error.add_note(f"{name}, mutant {number} of seed {SEED}: {data.hex()}")
            raise


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_makes_much_of_itself(name: str) -> None:
    start = seeds(name)
    rng = Random(f"memory {SEED} {name}")
    inputs = [mutant(start, rng) for _ in range(60)]
    TARGETS[name](inputs[0])
    tracemalloc.start()
    try:
        for data in inputs:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            TARGETS[name](data)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < MOST_MEMORY, f"{name}: {peak - before} bytes for {data.hex()}"
    finally:
        tracemalloc.stop()


def test_what_was_found_once_is_read_or_refused() -> None:
    found = sorted(FOUND.glob("*/*.hex"))
    assert {path.parent.name for path in found} <= TARGETS.keys()
    for path in found:
        TARGETS[path.parent.name](bytes.fromhex(path.read_text(encoding="ascii")))


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_has_seeds_of_which_most_are_taken(name: str) -> None:
    """A target whose seeds are all refused at the first byte fuzzes nothing."""
    start = seeds(name)
    assert len(start) == len(set(start)) >= 3
    assert seeds(name) == start
