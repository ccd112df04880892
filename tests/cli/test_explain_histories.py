"""``kohort explain`` on histories: of the lab, of a live broker and of its consumers."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.cli.test_explain import two_members_come_and_one_goes
from tests.client.stage import QUICK, topic

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.cli.explain.command import explain
from kohort.cli.explain.files import open_file
from kohort.cli.explain.process import merged
from kohort.cli.lab.scenarios import run as lab_run
from kohort.explain.events import Event


def explained(*files: Path) -> list[dict[str, Any]]:
    done = CliRunner().invoke(explain, [*map(str, files), "--json"])
    assert done.exit_code == 0, done.output
    groups: list[dict[str, Any]] = json.loads(done.stdout)["groups"]
    return groups


def plain(*files: Path) -> Result:
    done = CliRunner().invoke(explain, [*map(str, files)])
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.slow
def test_stops_moves_and_duplicates_of_a_history_are_those_that_the_lab_measured(
    tmp_path: Path,
) -> None:
    history = tmp_path / "lab.jsonl"
    options = ["--members", "4", "--partitions", "12", "--restore-s", "0", "--no-check", "--json"]
    run = CliRunner().invoke(
        lab_run, ["process-death-in-time", *options, "--history", str(history)]
    )
    (told,) = json.loads(run.stdout) if run.stdout.startswith("[") else [json.loads(run.stdout)]
    real = told.get("metrics", told)
    (group,) = explained(history)
    assert "session expired" in {finding["name"] for finding in group["findings"]}
    rows = group["rebalances"][1:]
    assert {row["dead"]["known"] for row in rows} == {"measured"}
    cost = sum(row["cost"]["value"] for row in rows if row["stops"])
    assert cost == pytest.approx(real["unavailable_ms"] / 1_000, rel=0.02)
    longest = max(row["dead"]["value"] for row in rows)
    assert longest == pytest.approx(real["longest_stop_ms"] / 1_000, rel=0.02)
    assert sum(row["moved"] for row in rows) == real["moves"]
    assert sum(row["duplicates"]["value"] for row in rows) == real["duplicates"]
    assert not group["dated"], "the lab's time is no time of day"


def test_a_trace_has_rebalances_and_a_row_for_each_partition_without_overlaps(
    tmp_path: Path,
) -> None:
    history, made = tmp_path / "lab.jsonl", tmp_path / "trace.json"
    options = ["restart", "--members", "3", "--partitions", "4", "--restore-s", "0", "--no-check"]
    CliRunner().invoke(lab_run, [*options, "--history", str(history)])
    assert CliRunner().invoke(explain, [str(history), "--trace", str(made)]).exit_code == 0
    events = json.loads(made.read_text("utf-8"))["traceEvents"]
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert rows[1] == "rebalances"
    assert sorted(rows.values())[:4] == sorted(f"{rows[2][:-2]}-{n}" for n in range(4))
    slices = [event for event in events if event["ph"] == "X"]
    assert any("a member left" in event["name"] for event in slices if event["tid"] == 1)
    for row in rows:
        mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in slices if e["tid"] == row)
        assert mine, "each row has slices"
        if row > 1:
            assert all(first[1] <= second[0] for first, second in pairwise(mine))


def test_histories_of_a_broker_and_its_consumers_are_one_story(tmp_path: Path) -> None:
    broker_file = tmp_path / "broker.jsonl"
    with (
        EmbeddedBroker(group_initial_rebalance_delay_ms=0, history=broker_file) as broker,
        topic(broker.bootstrap_servers, 2) as name,
    ):
        settings = {**QUICK, "bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
        files = [tmp_path / f"{client}.jsonl" for client in ("stays", "goes")]
        stays, goes = (
            {**settings, "client.id": file.stem, "kohort.history.file": str(file)} for file in files
        )
        with Consumer(stays) as first:
            first.subscribe([name])
            while not first.assignment():
                first.poll(0.05)
            with Consumer(goes) as second:
                second.subscribe([name])
                while not (len(first.assignment()) == len(second.assignment()) == 1):
                    first.poll(0.05)
                    second.poll(0.05)
            while len(first.assignment()) < 2:
                first.poll(0.05)
    (whole,) = explained(broker_file, *files)
    rows = [row for row in whole["rebalances"] if row["assigned"] is not None]
    numbers = [row["generation"] for row in rows]
    assert numbers == sorted(set(numbers)), "each generation is one row"
    assert [row["cause"] for row in rows[:2]] == ["a new member joined"] * 2
    assert [row["moved"] for row in rows[1:]] == [0, 1, 1]
    stops = [len(row["stops"]) for row in rows]
    # The second member leaves at once: its stop may end as close to its leave as to its share.
    assert (stops[:2], sum(stops)) == ([0, 0], 2)
    assert {row["dead"]["known"] for row in rows} == {"measured"}
    assert whole["dated"]
    assert "kohort" in whole["written_by"]
    page = tmp_path / "page.html"
    CliRunner().invoke(explain, [str(broker_file), *map(str, files), "--html", str(page)])
    html = page.read_text("utf-8")
    assert "<th>Stopped</th><th>Cost</th><th>Again</th>" in html
    assert re.search(r">0\.\d ps<", html), "the cost of a row"
    (alone,) = explained(*files)
    assert [row["generation"] for row in alone["rebalances"]] == numbers, "consumers tell the same"


def let_the_log_cut_a_millisecond(history: Path, log: Path) -> None:
    """Move a history, so that its first fact lies within the millisecond of the first line."""
    with ExitStack() as stack:
        first = [
            next(each.at or 0.0 for each in told if isinstance(each, Event))
            for path in (history, log)
            for told in [merged([open_file(path, stack)], lambda: None)]
        ]
    header, facts = history.read_text().split("\n", 1)
    moved = json.loads(header)
    moved["wall_micros"] += round((first[1] + 0.000_5 - first[0]) * 1e6)
    history.write_text(f"{json.dumps(moved)}\n{facts}")


def test_the_log_beside_a_history_of_its_broker_tells_nothing_twice(kohorts_log: Path) -> None:
    history = kohorts_log.with_suffix(".jsonl")
    with EmbeddedBroker(history=str(history), group_initial_rebalance_delay_ms=0) as broker:
        two_members_come_and_one_goes(broker.bootstrap_servers)
    let_the_log_cut_a_millisecond(history, kohorts_log)
    alone, both = plain(history), plain(history, kohorts_log)
    assert both.stdout == alone.stdout
    assert re.search(r"[1-9]\d* lines of brokers' logs are not used", both.stderr)
