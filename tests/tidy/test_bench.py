"""Tools of the measurements: warming up until nothing gets faster, and comparing two runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bench.results import compare, rows_in, save
from bench.warming import MOST_ROUNDS, warm
from tests.waiting import until


def test_warm_up_continues_while_rounds_get_cheaper() -> None:
    costs = iter([100.0, 80, 60, 40, *[40.0] * 20])
    assert warm(lambda: next(costs), window=5) == 9


def test_warm_up_ignores_gains_within_noise() -> None:
    costs = iter([100.0, 99.5, 99.0, 99.2, *[99.0] * 20])
    assert warm(lambda: next(costs), window=4) == 5


def test_warm_up_has_a_limit() -> None:
    cost = 1e30

    def cheaper() -> float:
        nonlocal cost
        cost /= 2
        return cost

    assert warm(cheaper) == MOST_ROUNDS


def test_rows_are_found_between_lines_for_people() -> None:
    assert rows_in("=== title ===\n") == []
    assert rows_in('{"bench": "x", "us": 1}\n') == [{"bench": "x", "us": 1}]
    assert rows_in('[{"bench": "x"}, {"bench": "y"}]\n') == [{"bench": "x"}, {"bench": "y"}]


def test_comparison_pairs_rows_by_names_and_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"bench": "coordinator", "server": "kohort", "load": [0.1, 1.0], "goal_s": 0.5}
    save(tmp_path / "a", [row | {"members": n, "median_s": n / 1000} for n in (1000, 5000)])
    save(tmp_path / "b", [row | {"members": 1000, "median_s": 0.5}, {"bench": "new"}])
    assert compare(tmp_path / "a", tmp_path / "b") == 1
    printed = capsys.readouterr().out
    assert "median_s" in printed
    assert "× 0.50" in printed
    assert "goal_s" not in printed
    assert "only before: coordinator kohort members=5000" in printed
    assert "only after: new" in printed
    assert json.loads((tmp_path / "a").read_text())["machine"]["processors"]


def members_of(group: int) -> int:
    """The number of processes in a process group."""
    count = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            count += int(stat.read_text().rpartition(")")[2].split()[2]) == group
        except OSError:
            continue
    return count


@pytest.mark.slow
def test_sigterm_ends_a_measurement_with_all_processes_that_it_started() -> None:
    command = [sys.executable, "-m", "bench", "--small", "--no-kafka", "coordinator"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, cwd=root, stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            until(  # the run, a measurement and its broker
                lambda: process.poll() is not None or members_of(process.pid) >= 3,
                "three processes of the run",
                60,
            )
            assert process.poll() is None
            process.terminate()
            assert process.wait(60) == 128 + signal.SIGTERM
            assert members_of(process.pid) == 0
        finally:
            if members_of(process.pid):
                os.killpg(process.pid, signal.SIGKILL)
