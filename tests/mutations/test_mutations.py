"""Every mutation of the table makes the test fail that is named for the broken promise."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tests.mutations.runner import FAILED, PASSED, Mutation, copied, mutate, run
from tests.tidy.trees import ROOT, SOURCE

TABLE = Path(__file__).with_name("mutations.toml")
MUTATIONS = [
    Mutation(**each) for each in tomllib.loads(TABLE.read_text(encoding="utf-8"))["mutation"]
]
SAMPLE = (MUTATIONS[0], MUTATIONS[5])
"""The mutations that every run of the suite tries; ``-m long`` tries all."""


def noticed(mutation: Mutation, folder: Path) -> None:
    package = copied(folder)
    assert (run(package, mutation.test))[0] == PASSED, "the test must pass without the mutation"
    mutate(package, mutation)
    status, output = run(package, mutation.test)
    assert status == FAILED, output[-2_000:]
    assert mutation.test.partition("[")[0].rpartition("::")[2] in output


def test_the_table_has_twenty_mutations_or_more_spread_over_the_rooms() -> None:
    assert len(MUTATIONS) >= 20
    assert len({mutation.promise for mutation in MUTATIONS}) == len(MUTATIONS)
    rooms = {mutation.file.partition("/")[0] for mutation in MUTATIONS}
    wanted = {
        "coordinator",
        "member",
        "consumer",
        "engine",
        "storage",
        "wire",
        "spark",
        "policies",
        "client",
        "fetch",
        "lab",
        "cli",
    }
    assert rooms == wanted


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.promise)
def test_the_text_and_the_test_of_a_mutation_exist(mutation: Mutation) -> None:
    assert (SOURCE / mutation.file).read_text(encoding="utf-8").count(mutation.text) == 1
    path, _, name = mutation.test.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("mutation", SAMPLE, ids=lambda mutation: mutation.promise)
def test_a_sample_of_mutations_is_noticed(mutation: Mutation, tmp_path: Path) -> None:
    noticed(mutation, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.promise)
def test_every_mutation_is_noticed(mutation: Mutation, tmp_path: Path) -> None:
    noticed(mutation, tmp_path)
