"""The short fuzzing run: every target reads its seeds, mutants of them, and former findings.

``make fuzz`` searches further, guided by coverage. The mutants here are the same on every run.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from random import Random

import pytest
from tests import examples
from tests.fuzz.mutate import mutant
from tests.fuzz.targets import TARGETS, seeds

SEED = 20_251
MUTANTS = 1_500
SLOW = {"journal": 250, "connection": 600}
"""The number of mutants of the targets that take long for one input."""

FOUND = Path(__file__).with_name("found")
MOST_MEMORY = 24 * 1024 * 1024
"""The largest memory for one input of at most 4 KiB."""


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_mutants_are_accepted_or_refused(name: str) -> None:
    start = seeds(name)
    rng = Random(f"{SEED} {name}")
    for data in start:
        TARGETS[name](data)
    for number in examples.seeds(SLOW.get(name, MUTANTS)):
        data = mutant(start, rng)
        try:
            TARGETS[name](data)
        except Exception as error:
            error.add_note(f"{name}, mutant {number} of seed {SEED}: {data.hex()}")
            raise


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_takes_much_memory(name: str) -> None:
    start = seeds(name)
    rng = Random(f"memory {SEED} {name}")
    inputs = [mutant(start, rng) for _ in examples.seeds(60)]
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


def test_former_findings_are_accepted_or_refused() -> None:
    found = sorted(FOUND.glob("*/*.hex"))
    assert {path.parent.name for path in found} <= TARGETS.keys()
    for path in found:
        TARGETS[path.parent.name](bytes.fromhex(path.read_text(encoding="ascii")))


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_accepts_most_of_its_seeds(name: str) -> None:
    """A target that refuses its seeds at the first byte reaches no code after that byte."""
    start = seeds(name)
    assert len(start) == len(set(start)) >= 3
    assert seeds(name) == start
    accepted = sum(TARGETS[name](data) for data in start)
    assert accepted >= 0.8 * len(start), f"{accepted} of {len(start)}"


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_refuses_some_mutants(name: str) -> None:
    """Otherwise the target cannot tell accepted bytes from refused bytes."""
    rng = Random(f"refused {SEED} {name}")
    start = seeds(name)
    assert not all(TARGETS[name](mutant(start, rng)) for _ in range(SLOW.get(name, MUTANTS) // 4))
