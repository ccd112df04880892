"""``kohort explain`` on files: damaged, compressed, hostile, several, and logs of live brokers."""

from __future__ import annotations

import gc
import gzip
import io
import json
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterable
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from tests.client.stage import QUICK, topic
from tests.explain.test_stories import done, joins, leaves, member, preparing

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.cli.explain import evidence
from kohort.cli.explain import process as explain_process
from kohort.cli.explain.command import explain
from kohort.cli.explain.files import LONGEST_LINE
from kohort.client.admin import Admin
from kohort.explain import explaining
from kohort.explain.explaining import Explainer
from kohort.explain.told import Told
from kohort.model.errors import KohortError
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position
from kohort.testing.real_kafka import RealKafka

STORY = [joins(0, 4, member("svc", 1)), *done(300.2, 5)]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(explain, [str(each) for each in arguments])


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def story(tmp_path: Path) -> Path:
    return write(tmp_path / "broker.log", *STORY)


def test_a_note_tells_how_much_is_no_longer_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explaining, "MOST_ROWS", 30)
    monkeypatch.setattr(explaining, "MOST_CLIENTS", 5)
    monkeypatch.setattr(explaining, "MOST_STEPS", 2)
    lines = [
        text
        for n in range(40)
        for text in [joins(n, n, member(f"pod{n}", 1)), *done(n + 0.1, n + 1)]
    ]
    client = "[2026-03-01 09:00:0{},000] INFO [Consumer clientId=c, groupId=g] (Re-)joining group"
    told = run(write(tmp_path / "broker.log", *map(client.format, range(5)), *lines))
    assert told.stderr.splitlines() == [
        "note: 16 older rebalances are counted and no longer kept: tables and patterns use the "
        "last 25 of each group",
        "note: 36 events of further clients after the first 5 are counted, but not by client",
        "note: 3 reports of clients after the first 2 are not used for the owners of partitions "
        "and the times without an owner",
    ]
    assert told.stdout.startswith("Group g: 41 rebalances")


def test_one_sentence_then_the_table_then_the_evidence(story: Path) -> None:
    told = run(story)
    assert told.exit_code == 0
    first, head, row, finding, advice, tried, proof = told.stdout.splitlines()
    assert first == (
        "Group g: 1 rebalance in the 300.2 s from 2026-03-01 10:00:00.000 on, because a new member "
        "joined. Look first at: slow joiner. Written by Kafka 3.7 or newer."
    )
    known = ["WHEN", "GENERATION", "BECAUSE", "MEMBER", "JOIN", "LEADER", "MEMBERS", "STOPPED"]
    assert head.split() == known
    assert row.split()[:3] == ["2026-03-01", "10:00:00.000", "5"]
    assert "300.2 s (max.poll.interval.ms)" in row
    assert finding.startswith("* slow joiner: The coordinator waited 300.2 s")
    assert finding.endswith("[measured]")
    assert advice.startswith("    do: ")
    assert tried.startswith(
        "    tried: in the lab (3 members, 12 partitions, eager; one restart while"
    )
    assert proof == f"    proof: {story}:1"


def test_json_has_rebalances_findings_and_counts(story: Path) -> None:
    found = json.loads(run(story, "--json").stdout)
    (group,), (log,) = found["groups"], found["logs"]
    assert (group["group"], group["offsets_partition"]) == ("g", 7)
    assert group["rebalances"][0]["join_s"] == pytest.approx(300.2)
    assert group["findings"][0]["evidence"] == [{"file": str(story), "line": 1}]
    assert (log["lines"], log["understood"], log["unknown"]) == (3, 3, 0)


def test_compressed_logs_and_standard_input(tmp_path: Path) -> None:
    text = "\n".join(STORY).encode()
    packed = tmp_path / "broker.log.1.gz"
    packed.write_bytes(gzip.compress(text))
    assert "slow joiner" in run(packed).stdout
    command = [sys.executable, "-m", "kohort", "explain", "-"]
    piped = subprocess.run(command, input=text, stdout=subprocess.PIPE, check=True)
    assert b"slow joiner" in piped.stdout


def test_a_log_with_its_newest_line_first_is_read_from_its_end(tmp_path: Path) -> None:
    (tmp_path / "up.log").write_text("\n".join(STORY))
    (tmp_path / "down.log").write_text("\n".join(reversed(STORY)))
    up, down = run(tmp_path / "up.log"), run(tmp_path / "down.log")
    assert "down.log has its newest line first: it was read from its end" in down.stderr
    assert up.stdout.split("proof:")[0] == down.stdout.split("proof:")[0]


def test_a_damaged_archive_is_told_and_its_beginning_is_explained(tmp_path: Path) -> None:
    noise = [f"[2026-03-01 10:00:00,000] INFO line {n * n} of something else" for n in range(5_000)]
    whole = gzip.compress("\n".join([*STORY, *noise]).encode())
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    told = run(tmp_path / "cut.gz")
    assert told.exit_code == 0
    assert re.search(r"note: .*cut\.gz is damaged after line \d+", told.stderr)
    assert "slow joiner" in told.stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\x7fELF\0\0\x01" * 99, "is binary, no log: it was not read"),
        (b"\n \n\t\n", "has only 3 lines, which are blank: look whether"),
    ],
    ids=["empty", "binary", "blank"],
)
def test_a_file_that_is_no_log_is_told_and_the_others_are_explained(
    tmp_path: Path, story: Path, content: bytes, said: str
) -> None:
    (tmp_path / "bad").write_bytes(content)
    told = run(tmp_path / "bad", story)
    assert f"note: {tmp_path / 'bad'} {said}" in told.stderr
    assert "slow joiner" in told.stdout
    alone = run(tmp_path / "bad")
    assert alone.exit_code == 0
    assert "No line tells anything about a group." in alone.stdout


def test_many_empty_files_share_a_sentence(tmp_path: Path, story: Path) -> None:
    paths = [tmp_path / f"segment-{number}.log" for number in range(5)]
    for path in paths:
        path.touch()
    told = run(*paths, story)
    assert told.stderr == f"note: 5 files are empty, the first one is {paths[0]}\n"


def test_lines_of_two_writers_in_one_another_and_a_cut_line_are_told(tmp_path: Path) -> None:
    """A line that a second writer tore, one that ends within a character, one without an end."""
    torn = STORY[0][:120] + STORY[1] + STORY[0][120:]
    fused = STORY[0][:90] + STORY[1]
    whole = "\n".join([STORY[0], torn, fused, *STORY[1:], STORY[0][:95] + "é"]).encode()
    path = tmp_path / "torn.log"
    path.write_bytes(whole[:-1])
    told = run(path, "--json")
    (found,) = json.loads(told.stdout)["groups"]
    assert [row["generation"] for row in found["rebalances"]][-1] == 5
    counts = json.loads(told.stdout)["logs"][0]
    assert (counts["lines"], counts["unknown"], counts["mixed"]) == (6, 2, 1)
    assert "1 line has the beginnings of several lines" in told.stderr
    assert "2 of 6 lines are about groups in words that are not known" in told.stderr


def record(generation: int, *members: str) -> str:
    """A generation as the formatter of ``kafka-console-consumer`` prints it."""
    value = {
        "protocolType": "consumer",
        "generation": generation,
        "protocol": "range",
        "currentStateTimestamp": 1_795_645_896_000 + generation,
        "members": [
            {
                "memberId": name,
                "clientId": "c" * 30_000,
                "clientHost": "/127.0.0.1",
                "sessionTimeout": 6_000,
                "subscription": "",
                "assignment": "",
            }
            for name in members
        ],
    }
    key = {"type": 2, "data": {"group": "g"}}
    whole = {"key": key, "value": {"version": 3, "data": value}}
    return json.dumps(whole, separators=(",", ":"))


@pytest.mark.slow
def test_a_process_of_its_own_reads_large_logs_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        text
        for n in range(400)
        for text in [joins(n, n, member(f"pod{n}", 1)), *done(n + 0.1, n + 1)]
    ]
    client = "[2026-03-01 09:00:0{},000] INFO [Consumer clientId=c, groupId=g] (Re-)joining group"
    broker = write(tmp_path / "broker.log", *lines, record(400, "a"), record(401, "a", "b"))
    packed = tmp_path / "client.log.gz"
    packed.write_bytes(gzip.compress("\n".join(map(client.format, range(5))).encode())[:-9])
    here = run(broker, packed, "--json")
    monkeypatch.setattr(explain_process, "_LEAST_BYTES", 1)
    elsewhere = run(broker, packed, "--json")
    assert "client.log.gz is damaged after line" in here.stderr
    assert (elsewhere.stdout, elsewhere.stderr) == (here.stdout, here.stderr)


def test_the_command_alone_runs_without_the_garbage_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[bool]()

    def feed_all(explainer: Explainer, items: Iterable[Told]) -> Explainer:
        seen.append(gc.isenabled())
        return explainer

    monkeypatch.setattr(Explainer, "feed_all", feed_all)
    run(write(tmp_path / "broker.log", *STORY))
    Explainer().feed_all([])
    assert seen == [False, True]


@pytest.mark.parametrize(
    ("total", "terminal", "told"),
    [(40_000_000, True, True), (40_000_000, False, False), (9_000_000, True, False)],
)
def test_a_bar_on_a_terminal_tells_how_much_of_a_large_log_was_read(
    monkeypatch: pytest.MonkeyPatch, *, total: int, terminal: bool, told: bool
) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=terminal, width=100)
    monkeypatch.setattr(evidence, "Console", lambda *, stderr: console)
    monkeypatch.setattr(evidence, "_STEP_S", -1.0)
    with ExitStack() as stack:
        advance = evidence._progress(total, lambda: 30_000_000, stack)
        advance()
    assert ("reading" in shown.getvalue()) is told
    assert ("30.0/40.0 MB" in shown.getvalue()) is told


def test_a_process_that_ends_before_it_has_read_all_is_told(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        process = explain_process.ReadingProcess([tmp_path / "absent.log"], stack)
        with pytest.raises(KohortError, match="the process that reads the files has ended early"):
            list(process.told(lambda: None))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    told = run(tmp_path / "absent")
    assert "absent: No such file or directory; name a log file" in str(told.exception)


def test_a_line_of_ten_megabytes_is_cut_and_told(tmp_path: Path) -> None:
    path = write(tmp_path / "long.log", STORY[0], "Heartbeat " + "x" * 10_000_000, *STORY[1:])
    told = run(path)
    assert f"1 line is longer than {LONGEST_LINE:,} bytes" in told.stderr
    assert "slow joiner" in told.stdout
    assert json.loads(run(path, "--json").stdout)["logs"][0]["lines"] == 4


def test_hostile_names_are_text_on_a_terminal(tmp_path: Path) -> None:
    who = member("<script>alert(1)</script>\x1b[2J\x07", 1)
    told = run(write(tmp_path / "hostile.log", joins(0, 4, who), *done(1, 5)))
    assert "\x1b" not in told.stdout
    assert "\x07" not in told.stdout
    assert "<script>alert(1)</script>?[2J?" in told.stdout


def test_the_page_has_pictures_and_executes_nothing(tmp_path: Path) -> None:
    who = member("<script>alert(1)</script>", 1)
    log = write(tmp_path / "hostile.log", joins(0, 4, who), *done(1, 5), *leaves(60, 5, who))
    made = tmp_path / "page.html"
    assert run(log, "--html", made).exit_code == 0
    page = made.read_text("utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    values, script = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    assert page.count("<script") == 2
    assert "<" not in values
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    hashes = [b64encode(sha256(text.encode()).digest()).decode() for text in (style, script)]
    policy = f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'"
    assert f'content="{policy}"' in page
    assert re.findall(r'<tr id="(g0r\d)">', page) == ["g0r0", "g0r1"]
    told = [each["told"] for each in json.loads(values)["rebalances"]]
    assert told[0].startswith(f"generation 5: a new member joined: {who}; «x»; waited 1.0 s for")
    assert told[1].startswith("a rebalance: a member left")
    nowhere = run(log, "--html", tmp_path / "absent" / "page.html")
    assert "absent" in str(nowhere.exception)


def test_times_that_run_backwards_give_no_negative_spans(tmp_path: Path) -> None:
    told = run(write(tmp_path / "back.log", joins(90, 4, member("svc", 1)), *done(10, 5)), "--json")
    found = json.loads(told.stdout)
    assert found["logs"][0]["backwards"] == 1
    assert found["groups"][0]["rebalances"][0]["join_s"] is None


def test_lines_about_groups_in_unknown_words_are_counted_and_shown(tmp_path: Path) -> None:
    strange = "[2026-03-01 10:00:00,000] INFO [GroupCoordinator 1]: The moon rises over group g"
    told = run(write(tmp_path / "new.log", strange, *STORY))
    assert "1 of 4 lines is about groups in words that are not known, first line 1" in told.stderr
    assert "The moon rises" in told.stderr
    assert "slow joiner" in told.stdout


def test_two_clusters_in_one_log_are_two_groups(tmp_path: Path) -> None:
    other = preparing(5, 9, f"Adding new member {member('svc', 2)}").replace("=7]", "=8]")
    told = run(write(tmp_path / "two.log", *STORY, other))
    assert "group g has two offsets partitions: these logs come from two clusters" in told.stderr
    assert told.stdout.count("Group g:") == 2


def test_logs_are_merged_by_time_and_rotated_ones_are_one_story(tmp_path: Path) -> None:
    later = write(tmp_path / "server.log", *done(300.2, 5), *leaves(400, 5, member("svc", 1)))
    first = write(tmp_path / "server.log.1", STORY[0])
    found = json.loads(run(later, first, "--json").stdout)["groups"][0]
    assert [each["cause"] for each in found["rebalances"]] == [
        "a new member joined",
        "a member left",
    ]
    assert found["rebalances"][0]["join_s"] == pytest.approx(300.2)


def test_only_one_group(tmp_path: Path) -> None:
    path = write(tmp_path / "b.log", *STORY, preparing(1, 2, "x", group="elsewhere"))
    assert "elsewhere" not in run(path, "--group", "g").stdout
    assert run(path, "--group", "none").stdout == "No source tells anything about the group none.\n"


# --- logs of live brokers


def two_members_come_and_one_goes(bootstrap: str) -> tuple[str, list[str]]:
    """Returns the group and the ids of its members, in the order of their joins."""
    with topic(bootstrap, 2) as name:
        settings = {**QUICK, "bootstrap.servers": bootstrap, "group.id": f"group-of-{name}"}
        with Consumer(settings | {"client.id": "stays"}) as stays:
            stays.subscribe([name])
            while not stays.assignment():
                stays.poll(0.05)
            with Consumer(settings | {"client.id": "goes"}) as goes:
                goes.subscribe([name])
                while not (len(stays.assignment()) == len(goes.assignment()) == 1):
                    stays.poll(0.05)
                    goes.poll(0.05)
                ids = [stays.status().member, goes.status().member]
            while len(stays.assignment()) < 2:
                stays.poll(0.05)
        return f"group-of-{name}", ids


def judge(log: Path, group: str, ids: list[str]) -> None:
    found = json.loads(run(log, "--group", group, "--json").stdout)
    (told,) = found["groups"]
    begun: list[dict[str, Any]] = told["rebalances"]
    causes = [(each["cause"], each["member"]) for each in begun]
    assert causes[0] == ("a new member joined", ids[0])
    assert ("a new member joined", ids[1]) in causes[1:]
    assert ("a member left", ids[1]) in causes
    complete = [each for each in begun if each["assigned"] is not None]
    assert [each["generation"] for each in complete] == list(range(1, len(complete) + 1))
    assert all(each["join_s"] is not None for each in complete)
    assert told["written_by"].startswith("Kafka 3.7 or newer")


def judge_moves(bootstrap: str, log: Path, group: str, ids: list[str]) -> None:
    """Log and offsets topic together tell one story, with causes of one and moves of the other."""
    found = run(log, "--bootstrap", bootstrap, "--group", group, "--json").stdout
    (told,) = json.loads(found)["groups"]
    complete = [each for each in told["rebalances"] if each["assigned"] is not None]
    numbers = [each["generation"] for each in complete]
    assert numbers == sorted(set(numbers)), "each generation is one row"
    assert all(each["certain"] for each in complete), "the log tells the causes"
    assert complete[1]["member"] == ids[1]
    assert [each["moved"] for each in complete[1:]] == [0, 1, 1]
    assert {each["needless"] for each in complete[1:]} == {0}
    stops = [each["dead"] for each in complete if each["stops"]]
    assert all(0 <= stop["value"] < 60 and stop["known"] == "bounded" for stop in stops)


def test_the_log_of_kohorts_broker_is_explained(kohorts_log: Path) -> None:
    with EmbeddedBroker(group_initial_rebalance_delay_ms=0) as broker:
        group, ids = two_members_come_and_one_goes(broker.bootstrap_servers)
        judge(kohorts_log, group, ids)
        (log,) = json.loads(run(kohorts_log, "--json").stdout)["logs"]
        assert log["unknown"] == 0, log["examples"]
        judge_moves(broker.bootstrap_servers, kohorts_log, group, ids)


def test_the_offsets_topic_alone_and_a_cluster_without_groups(tmp_path: Path) -> None:
    with EmbeddedBroker(group_initial_rebalance_delay_ms=0) as broker:
        address = broker.bootstrap_servers
        missing = run("--bootstrap", address)
        assert "the cluster has no topic __consumer_offsets" in str(missing.exception)
        group, _ = two_members_come_and_one_goes(address)
        page = tmp_path / "page.html"
        with topic(address, 1) as name, Admin({"bootstrap.servers": address}) as admin:
            producer = confluent_kafka.Producer({"bootstrap.servers": address})
            for _ in range(5):
                producer.produce(name, b"a record")
            assert producer.flush(30) == 0
            for offset in (1, 3):
                admin.alter_offsets(group, {TopicPartition(name, 0): Position(offset)})
            told = run("--bootstrap", address, "--html", page).stdout
    (values,) = re.findall(r'application/json">(.*?)</script>', page.read_text("utf-8"))
    picture = json.loads(values)
    assert sorted(name[-2:] for name in picture["partitions"]) == ["-0", "-1"]
    assert {owner for _, owner, _, _ in picture["owned"]} == {0, 1}
    assert picture["lag"][-1][1] == 2, "five records, and a commit of three"
    assert told.startswith(f"Group {group}: ")
    assert "Read from the offsets topic." in told
    assert "a cooperative rebalance needs a second round (likely)" in told
    nothing = run()
    assert "name log files, or --bootstrap-server of a cluster" in str(nothing.exception)


@pytest.mark.slow
@pytest.mark.real_kafka
def test_the_log_of_a_real_kafka_is_explained(real_kafka: RealKafka) -> None:
    group, ids = two_members_come_and_one_goes(real_kafka.bootstrap_servers)
    judge(real_kafka.log(), group, ids)
    judge_moves(real_kafka.bootstrap_servers, real_kafka.log(), group, ids)


def test_records_that_a_formatter_prints_without_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "records.json"
    path.write_text(record(1, "a") + record(2, "a", "b", "d") + record(3, "a"), encoding="utf-8")
    (told,) = json.loads(run(path, "--json").stdout)["groups"]
    rows = [(row["generation"], row["cause"], row["member"]) for row in told["rebalances"]]
    assert rows == [(2, "a new member joined", "b"), (3, "a member left or expired", "b")]


def test_logs_that_begin_with_zero_bytes_or_are_in_utf_16_are_read(tmp_path: Path) -> None:
    text = "\n".join(STORY) + "\n"
    (tmp_path / "cut.log").write_bytes(b"\0" * 200_000 + text.encode())
    (tmp_path / "powershell.log").write_bytes(text.encode("utf-16"))
    for name in ("cut.log", "powershell.log"):
        told = run(tmp_path / name)
        assert "slow joiner" in told.stdout, name
        assert told.stderr == ""


def test_a_log_without_dates_goes_on_behind_midnight(tmp_path: Path) -> None:
    lines = [text.replace("[2026-03-01 10:0", "[23:5") for text in STORY[:1]]
    lines += [text.replace("[2026-03-01 10:05", "[00:05") for text in STORY[1:]]
    told = run(write(tmp_path / "night.log", *lines), "--json")
    found = json.loads(told.stdout)
    assert found["logs"][0]["backwards"] == 0
    assert found["groups"][0]["rebalances"][0]["join_s"] == pytest.approx(900.2)
