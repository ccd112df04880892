"""Runs of a sweep as Spark tasks: the same results, whole files, and no run twice."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")

import pyarrow.parquet as pq
from click.testing import CliRunner

import kohort.spark.sweep as spark_sweep
from kohort.cli.main import cli
from kohort.lab.sweep import Deployment, Sweep
from kohort.lab.table import Job, do
from kohort.model.errors import ConfigError, KohortError
from kohort.spark.sweep import RUNS, SCHEMA, finished, read_runs, run_jobs

pytestmark = [pytest.mark.slow, pytest.mark.spark]

SWEEP = Sweep(
    scenarios={"scale-up": 1.0},
    policies=("sticky",),
    deployments=(Deployment(members=1, partitions=2, restore_ms=100),),
    sessions_ms=(6_000,),
    seeds=(1, 2, 3),
)


def test_results_are_those_of_the_lab_and_a_stopped_sweep_goes_on(
    spark: Any, tmp_path: Path
) -> None:
    jobs = SWEEP.jobs()
    told: list[tuple[int, int]] = []
    first = run_jobs(jobs[:1], tmp_path, spark, lambda *at: told.append(at))
    assert first == dict([do(jobs[0])])
    assert told[0] == (0, 1)
    assert told[-1] == (1, 1)
    ages = {path: path.stat().st_mtime_ns for path in (tmp_path / RUNS).iterdir()}
    told.clear()
    everything = run_jobs(jobs, tmp_path, spark, lambda *at: told.append(at))
    assert told[0] == (1, 3)
    assert set(everything) == set(jobs)
    assert {path: path.stat().st_mtime_ns for path in ages} == ages
    assert read_runs(tmp_path).num_rows == len(jobs)
    # A sweep that has all results needs no Spark.
    args = [
        "--scenario",
        "scale-up",
        "--policy",
        "sticky",
        "--seeds",
        "2",
        "--session-timeout",
        "6",
    ]
    sizes = "members=1,partitions=2,restore-s=0.1"
    result = CliRunner().invoke(
        cli, ["spark", "sweep", "--output", str(tmp_path), "--deployment", sizes, *args]
    )
    assert result.exit_code == 0, result
    assert "use sticky, session 6 s" in result.stdout
    assert (tmp_path / "settings.svg").read_text(encoding="utf-8").startswith("<svg")


def test_a_failed_run_is_named_and_leaves_no_file(spark: Any, tmp_path: Path) -> None:
    bad = Job(scenario="restart", policy="range", members=1, partitions=1, seed=7)
    with pytest.raises(KohortError, match=r"a run of the lab failed.*seed=7.*2 to 1000 members"):
        run_jobs([bad], tmp_path, spark)
    assert os.listdir(tmp_path / RUNS) == []


def test_damaged_results_and_those_of_another_version_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / RUNS
    folder.mkdir()
    (folder / "a.parquet").write_bytes(b"PAR1 torn")
    with pytest.raises(ConfigError, match=r"a\.parquet is no whole Parquet file.*remove it"):
        finished([], tmp_path)
    old = SCHEMA.with_metadata({spark_sweep._VERSION: b"0.0.1"})
    pq.write_table(old.empty_table(), folder / "a.parquet")
    with pytest.raises(ConfigError, match=r"results of kohort 0\.0\.1.*name another folder"):
        finished([], tmp_path)
