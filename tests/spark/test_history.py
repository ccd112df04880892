"""Tables of many groups: the same values as `kohort explain`, from several kinds of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")

import pyarrow.parquet as pq
from click.testing import CliRunner

from kohort.cli.main import cli
from kohort.cli.spark.history import read_file
from kohort.lab.compared_policies import compared_policy
from kohort.lab.scenarios.base import Setup
from kohort.lab.scenarios.registry import scenario
from kohort.lab.scenarios.running import run
from kohort.model.errors import ConfigError
from kohort.spark.history import new_tables, write_tables
from kohort.storage.fact_files import write_history

pytestmark = [pytest.mark.slow, pytest.mark.spark]

LOG = """\
[2026-01-05 10:00:0{n},000] INFO [GroupCoordinator 1]: Preparing to rebalance group {group} in \
state PreparingRebalance with old generation {n} (__consumer_offsets-7) (reason: Adding new member \
c-{n}-0f1e2d3c-1111-2222-3333-444455556666 with group instance id None) \
(kafka.coordinator.group.GroupCoordinator)
[2026-01-05 10:00:0{n},400] INFO [GroupCoordinator 1]: Stabilized group {group} generation {next} \
(__consumer_offsets-7) with 2 members (kafka.coordinator.group.GroupCoordinator)
[2026-01-05 10:00:0{n},450] INFO [GroupCoordinator 1]: Assignment received from leader \
c-0-0f1e2d3c-1111-2222-3333-444455556666 for group {group} for generation {next}. The group has 2 \
members, 0 of which are static. (kafka.coordinator.group.GroupCoordinator)
"""


def columns(folder: Path) -> list[dict[str, Any]]:
    return list(pq.read_table(folder).to_pylist())


def test_tables_have_the_values_of_explain(spark: Any, tmp_path: Path) -> None:
    files = [tmp_path / "server.log", tmp_path / "other.log", tmp_path / "lab.jsonl"]
    steps = [LOG.format(group="orders", n=n, next=n + 1) for n in range(4)]
    files[0].write_text("".join(steps[:2]) + LOG.format(group="quiet", n=5, next=6))
    files[1].write_text("".join(steps[2:]))
    setup = Setup(policy=compared_policy("sticky"), members=2, partitions=3)
    write_history(files[2], run(scenario("restart"), setup).history)
    truncated = tmp_path / "cut.jsonl"
    truncated.write_bytes(files[2].read_bytes()[:-9])
    files[2] = truncated
    tables = tmp_path / "tables"
    groups, remarks = write_tables(files, tables, read_file, spark)
    told = CliRunner().invoke(cli, ["explain", "--json", *map(str, files)])
    assert len(remarks) == 1
    assert "is truncated" in remarks[0]
    # The lab's group and that of the logs have one name: the story is one, as with `explain`.
    by_name = {each["group"]: each for each in json.loads(told.stdout)["groups"]}
    assert {row["group"]: row["rebalances"] for row in groups.to_pylist()} == {
        name: each["rebalances_in_all"] for name, each in by_name.items()
    }
    rebalances = columns(tables / "rebalances")
    for name, each in by_name.items():
        mine = [row for row in rebalances if row["group"] == name]
        expected = each["rebalances"]
        for column in ("generation", "cause", "member", "join_s", "moved", "needless", "line"):
            found = [row[column] or None for row in mine]
            of_explain = [
                r["place"]["line"] if column == "line" else r[column] or None for r in expected
            ]
            assert found == of_explain, (name, column)
        costs = [None if r["cost"] is None else r["cost"]["value"] for r in expected]
        assert [row["partition_seconds"] for row in mine] == costs
    (storm,) = [row for row in columns(tables / "storms") if row["began"].year == 2026]
    assert (storm["group"], storm["rebalances"]) == ("orders", 4)
    owned = columns(tables / "ownership")
    assert {row["partition"] for row in owned} == {"orders-0", "orders-1", "orders-2"}
    assert all(row["began"] <= row["ended"] for row in owned)
    with pytest.raises(ConfigError, match="name a new folder"), new_tables(tables):
        raise AssertionError
    assert columns(tables / "ownership") == owned


def test_a_file_that_cannot_be_read_is_named(spark: Any, tmp_path: Path) -> None:
    history = tmp_path / "new.jsonl"
    history.write_text('{"kohort_history":99,"clock":"virtual","wall_micros":0}\n')
    tables = tmp_path / "tables"
    with pytest.raises(ConfigError, match=r"new\.jsonl.*schema 99"), new_tables(tables):
        write_tables([history], tables, read_file, spark)
    assert [*tables.iterdir()] == [], "the same command may be given again"


def test_two_commands_with_one_output_and_a_folder_that_cannot_be_made_are_refused(
    tmp_path: Path,
) -> None:
    with (
        new_tables(tmp_path / "a"),
        pytest.raises(ConfigError, match="name a new folder"),
        new_tables(tmp_path / "a"),
    ):
        raise AssertionError
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "below"
    with pytest.raises(ConfigError, match=r"below cannot be written: Not a dir"), new_tables(below):
        raise AssertionError

    def interrupted() -> None:
        (tmp_path / "a" / "groups").mkdir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), new_tables(tmp_path / "a"):
        interrupted()
    assert [*(tmp_path / "a").iterdir()] == []
