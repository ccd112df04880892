"""Incidents that are provoked on a real Apache Kafka: its log is explained, with the culprit."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner
from tests.client.stage import QUICK, topic
from tests.waiting import until

from kohort import Consumer
from kohort.cli.explain.command import explain
from kohort.client.admin import Admin
from kohort.client.errors import Fenced
from kohort.explain.events import Place
from kohort.explain.reading import LogReader
from kohort.testing.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]

VICTIM = """
import sys
from kohort import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2],
                     "client.id": "victim", "session.timeout.ms": 6000,
                     "heartbeat.interval.ms": 200, "kohort.history.file": sys.argv[4]})
consumer.subscribe([sys.argv[3]])
while True:
    consumer.poll(0.1)
    if consumer.assignment():
        print(consumer.status().member, flush=True)
"""


RESTART_S = 1.0


def told(found: dict[str, Any], finding: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The explanation of a group, and one finding."""
    (one,) = [each for each in found["findings"] if each["name"] == finding]
    return found, one


def owns(consumer: Consumer, count: int) -> bool:
    """Whether the consumer has this many partitions."""
    return len(consumer.assignment()) == count


def is_past(moment: float) -> bool:
    """Whether the monotonic clock is behind a moment."""
    return time.monotonic() > moment


def explained(kafka: RealKafka, group: str, *sources: str) -> dict[str, Any]:
    """The explanation of the group from the node's log and other sources."""
    arguments = [str(kafka.log()), *sources, "--group", group, "--json"]
    done = CliRunner().invoke(explain, arguments)
    (found,) = json.loads(done.stdout)["groups"]
    assert unknown(kafka, group) == [], "a message of Kafka about the group is not known"
    return dict(found)


def alone(group: str, *sources: str) -> dict[int, dict[str, Any]]:
    """The rebalances of the group from these sources only, by generation."""
    done = CliRunner().invoke(explain, [*sources, "--group", group, "--json"])
    (found,) = json.loads(done.stdout)["groups"]
    return {row["generation"]: row for row in found["rebalances"]}


def unknown(kafka: RealKafka, group: str) -> list[tuple[Place, str]]:
    """The first lines of the node about this group in unknown words; other tests share the node."""
    reader = LogReader("log")
    lines = kafka.log().read_text("utf-8").splitlines()
    for number, line in enumerate((line for line in lines if group in line), 1):
        reader.read(number, line)
    reader.rest()
    assert reader.counts.understood > 0
    return reader.counts.examples


def poll_until(done: Callable[[], bool], *consumers: Consumer | confluent_kafka.Consumer) -> None:
    def poll() -> None:
        for consumer in consumers:
            consumer.poll(0.05)

    until(done, lambda: [consumer.assignment() for consumer in consumers], 40, between=poll)


class OwnClock:
    """The stops of partitions by the clocks of the consumers here: between their callbacks."""

    def __init__(self) -> None:
        self.stops: list[float] = []
        """Seconds, in the order of their ends."""
        self._free: dict[str, float] = {}

    def subscribe(self, consumer: Consumer, name: str) -> None:
        """Let a consumer read a topic, and watch its callbacks."""
        consumer.subscribe([name], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, _: object, partitions: Iterable[object]) -> None:
        for partition in map(str, partitions):
            if (since := self._free.pop(partition, None)) is not None:
                self.stops.append(time.time() - since)

    def _revoked(self, _: object, partitions: Iterable[object]) -> None:
        self._free |= dict.fromkeys(map(str, partitions), time.time())

    def is_that_of(self, stops: list[dict[str, Any]]) -> bool:
        """Whether an explanation has the same longest stop, within a tenth of it and 0.2 s."""
        longest = max((stop["end"] - stop["begin"] for stop in stops), default=0.0)
        return longest == pytest.approx(max(self.stops, default=0.0), rel=0.1, abs=0.2)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_member_that_falls_silent_is_named_with_its_session_and_its_dead_time(
    real_kafka: RealKafka, tmp_path: Path, number: signal.Signals
) -> None:
    """From the log with the offsets topic, and with the histories of the two consumers."""
    address, group = real_kafka.bootstrap_servers, f"silent-{uuid.uuid4().hex}"
    histories = [str(tmp_path / "victim.jsonl"), str(tmp_path / "other.jsonl")]
    with topic(address, 2) as name:
        settings = {**QUICK, "bootstrap.servers": address, "group.id": group, "client.id": "other"}
        settings["kohort.history.file"] = histories[1]
        command = [sys.executable, "-c", VICTIM, address, group, name, histories[0]]
        with (
            Consumer(settings) as other,
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim,
        ):
            other.subscribe([name])
            poll_until(lambda: len(other.assignment()) == 1, other)
            assert victim.stdout is not None
            member = victim.stdout.readline().strip()
            silent_at = time.time()
            victim.send_signal(number)
            poll_until(lambda: len(other.assignment()) == 2, other)
            back_at = time.time()
            victim.kill()
        with_topic = explained(real_kafka, group, "--bootstrap", address)
        by_topic = alone(group, "--bootstrap", address)
    by_log, by_clients = alone(group, str(real_kafka.log())), alone(group, *histories)
    found, finding = told(explained(real_kafka, group, *histories), "session expired")
    expired = [r for r in found["rebalances"] if r["cause"] == "a member's session expired"]
    assert [(r["member"], r["client"]) for r in expired] == [(member, "victim")]
    assert silent_at + 5 < expired[0]["began"] < back_at, "the session lasts 6 s"
    _same_story([s[expired[0]["generation"]] for s in (by_log, by_topic, by_clients)], member)
    assert by_clients[expired[0]["generation"]]["dead"]["value"] == pytest.approx(
        back_at - silent_at, rel=0.1, abs=1.0
    )
    # Such a wait since the join may be that of a default session: then nothing was heard at all.
    assert (finding["known"] == "assumed") is ("no heartbeat at all" in finding["says"])
    lines = real_kafka.log().read_text("utf-8").splitlines()
    assert member in lines[finding["evidence"][0]["line"] - 1]
    for source, known in ((with_topic, "bounded"), (found, "measured")):
        rows = [row for row in source["rebalances"] if row["dead"] and row["dead"]["value"] > 1]
        assert [row["dead"]["known"] for row in rows] == [known]
        # Only clients see a session that expires late: up to a second on a busy machine.
        late_s = 1.0 if known == "bounded" else 0.2
        own_s = back_at - silent_at
        assert rows[0]["dead"]["value"] == pytest.approx(own_s, rel=0.1, abs=late_s)


def _same_story(rows: list[dict[str, Any]], member: str) -> None:
    """One rebalance from the log, the topic and the clients alone: each tells what it can know."""
    log, of_topic, clients = rows
    assert log["member"] == of_topic["member"] == member
    assert log["cause"] == "a member's session expired"
    assert of_topic["cause"] == "a member left or expired"
    assert log["members"] == of_topic["members"] == 1
    assert of_topic["moved"] == len(clients["stops"]) == 1


def test_two_processes_with_one_instance_id_are_named_and_no_partition_stood_still(
    real_kafka: RealKafka, tmp_path: Path
) -> None:
    """The second process has the partition before the first one learns that it is fenced."""
    address, group = real_kafka.bootstrap_servers, f"double-{uuid.uuid4().hex}"
    histories, clock = [str(tmp_path / f"{n}.jsonl") for n in range(2)], OwnClock()
    with topic(address, 1) as name:
        settings = {**QUICK, "bootstrap.servers": address, "group.id": group}
        settings |= {"group.instance.id": "pod-7"}
        with (
            Consumer({**settings, "kohort.history.file": histories[0], "client.id": "1"}) as first,
            Consumer({**settings, "kohort.history.file": histories[1], "client.id": "2"}) as second,
        ):
            clock.subscribe(first, name)
            poll_until(lambda: bool(first.assignment()), first)
            clock.subscribe(second, name)
            with pytest.raises(Fenced):
                poll_until(lambda: False, second, first)
            poll_until(lambda: bool(second.assignment()), second)
    found, finding = told(explained(real_kafka, group, *histories), "duplicate instance id")
    assert "'pod-7'" in finding["says"]
    stops = [stop for row in found["rebalances"] for stop in row["stops"]]
    assert clock.is_that_of([*stops, *found["stops_without_rebalance"]])


def test_a_consumer_that_does_not_poll_is_named_with_its_reason_and_its_dead_time(
    real_kafka: RealKafka, tmp_path: Path
) -> None:
    address, group = real_kafka.bootstrap_servers, f"slow-{uuid.uuid4().hex}"
    histories = [str(tmp_path / "slow.jsonl"), str(tmp_path / "other.jsonl")]
    with topic(address, 2) as name:
        settings = {**QUICK, "bootstrap.servers": address, "group.id": group}
        settings["heartbeat.interval.ms"] = 1_500
        limited = {**settings, "max.poll.interval.ms": 1_000, "client.id": "slow"}
        with (
            Consumer({**limited, "kohort.history.file": histories[0]}) as slow,
            Consumer({**settings, "kohort.history.file": histories[1]}) as other,
        ):
            slow.subscribe([name])
            poll_until(lambda: bool(slow.assignment()), slow)
            other.subscribe([name])
            poll_until(lambda: len(slow.assignment()) == len(other.assignment()) == 1, slow, other)
            member = slow.status().member
            poll_until(lambda: slow.status().state.name == "UNJOINED", other)
            left_at = time.time()
            poll_until(partial(owns, other, 2), other)
            own_s = time.time() - left_at
    found, finding = told(explained(real_kafka, group, *histories), "poll interval")
    left = [r for r in found["rebalances"] if r["cause"] == "a member left"]
    assert left[0]["member"] == member
    assert finding["advice"].startswith("Processing between two polls takes too long")
    assert left[0]["dead"]["known"] == "measured"
    assert left[0]["dead"]["value"] == pytest.approx(own_s, rel=0.1, abs=0.2)


def test_a_topic_that_grows_is_told_with_the_member_that_saw_it_and_its_dead_time(
    real_kafka: RealKafka, tmp_path: Path
) -> None:
    """Eager, so that partitions stop; the other member learns it with its next heartbeat."""
    address, group = real_kafka.bootstrap_servers, f"grown-{uuid.uuid4().hex}"
    histories, clock = [str(tmp_path / f"{n}.jsonl") for n in range(2)], OwnClock()
    with topic(address, 2) as name:
        settings = {**QUICK, "bootstrap.servers": address, "group.id": group}
        settings |= {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 1_500}
        leading = {**settings, "metadata.max.age.ms": 500, "client.id": "leads"}
        with (
            Consumer({**leading, "kohort.history.file": histories[0]}) as leads,
            Consumer({**settings, "kohort.history.file": histories[1]}) as other,
        ):
            clock.subscribe(leads, name)
            poll_until(lambda: len(leads.assignment()) == 2, leads)
            clock.subscribe(other, name)
            poll_until(
                lambda: len(leads.assignment()) == len(other.assignment()) == 1, leads, other
            )
            member, grown_at = leads.status().member, time.time()
            clock.stops.clear()
            with Admin({"bootstrap.servers": address}) as admin:
                admin.create_partitions(name, 4)
            poll_until(
                lambda: len(leads.assignment()) == len(other.assignment()) == 2, leads, other
            )
            seen_at = time.time()
    found = explained(real_kafka, group, *histories)
    rows = [r for r in found["rebalances"] if grown_at <= (r["began"] or 0) <= seen_at]
    assert [(r["cause"], r["member"]) for r in rows] == [
        ("the partitions of a topic changed", member)
    ]
    assert rows[0]["client_reason"] == f"partition counts changed: {name} 2 to 4"
    assert rows[0]["dead"]["known"] == "measured"
    assert len(rows[0]["stops"]) == len(clock.stops) == 2
    assert clock.is_that_of(rows[0]["stops"])


@pytest.mark.parametrize("static", [False, True], ids=["without static ids", "with static ids"])
def test_a_deployment_is_told_with_its_members_and_its_pauses(
    real_kafka: RealKafka, tmp_path: Path, *, static: bool
) -> None:
    """Each of two processes ends in order and comes back; each is named, and its pause is known."""
    address, group = real_kafka.bootstrap_servers, f"deploy-{uuid.uuid4().hex}"
    histories, clock = [str(tmp_path / f"{number}.jsonl") for number in range(4)], OwnClock()

    def process(pod: int, history: str) -> Consumer:
        settings = {**QUICK, "bootstrap.servers": address, "group.id": group}
        settings |= {"heartbeat.interval.ms": 1_500, "client.id": f"pod-{pod}"}
        settings |= {"group.instance.id": f"pod-{pod}"} if static else {}
        settings["kohort.history.file"] = history
        made = Consumer(settings)
        clock.subscribe(made, name)
        return made

    stopped_s, members = [], []
    with topic(address, 2) as name:
        pods = [process(0, histories[0]), process(1, histories[1])]
        poll_until(lambda: all(len(pod.assignment()) == 1 for pod in pods), *pods)
        clock.stops.clear()
        for number in (0, 1):
            poll_until(partial(is_past, time.monotonic() + RESTART_S), *pods)
            members.append(pods[number].status().member)
            pods[number].close()
            other, back_at = pods[1 - number], time.monotonic() + RESTART_S
            if static:
                poll_until(partial(is_past, back_at), other)
            else:
                poll_until(partial(owns, other, 2), other)
                stopped_s.append(clock.stops[-1])
            pods[number] = process(number, histories[2 + number])
            poll_until(lambda: all(len(pod.assignment()) == 1 for pod in pods), *pods)
        for pod in pods:
            pod.close()
    found = explained(real_kafka, group, *histories)
    names = {each["name"] for each in found["findings"]}
    assert "storm" not in names, found["rebalances"]
    assert ("deploy without static ids" in names) is not static
    left = [r for r in found["rebalances"] if r["cause"] == "a member left"][: len(stopped_s)]
    if static:
        assert "static member returned" in names
        assert left == [], "a static member that comes back within its session costs no rebalance"
        stops = found["stops_without_rebalance"]
        assert [stop["known"] for stop in stops] == ["measured"] * 2
        assert clock.is_that_of(stops)
        assert min(clock.stops) > RESTART_S
        return
    assert [r["member"] for r in left] == members
    assert [r["client"] for r in left] == ["pod-0", "pod-1"]
    for row, own_s in zip(left, stopped_s, strict=True):
        assert row["dead"]["known"] == "measured"
        assert row["dead"]["value"] == pytest.approx(own_s, rel=0.1, abs=0.2)


def test_a_coordinator_that_is_killed_is_named_and_no_member_is_blamed(
    narrow_kafka: RealKafka, tmp_path: Path
) -> None:
    """The member keeps its partition, by its own clock and in the explanation."""
    address, group = narrow_kafka.bootstrap_servers, f"moved-{uuid.uuid4().hex}"
    history, clock = str(tmp_path / "bystander.jsonl"), OwnClock()
    with topic(address, 1) as name:
        settings = {**QUICK, "bootstrap.servers": address, "group.id": group}
        settings |= {"session.timeout.ms": 10_000, "client.id": "bystander"}
        with Consumer({**settings, "kohort.history.file": history}) as bystander:
            clock.subscribe(bystander, name)
            poll_until(lambda: len(bystander.assignment()) == 1, bystander)
            generation, killed_at = bystander.status().generation, time.time()
            narrow_kafka.kill()
            narrow_kafka.restart()
            poll_until(lambda: f" {group} " in narrow_kafka.log().read_text("utf-8"), bystander)
            poll_until(lambda: len(bystander.assignment()) == 1, bystander)
            assert bystander.status().generation >= generation
            before = _loads(narrow_kafka, group)
            found = explained(narrow_kafka, group, history)
            after = _loads(narrow_kafka, group)
    # After a kill Kafka loads the group once or twice, the second time with a new leader epoch.
    loaded = found["events"].get("group loaded by a coordinator", 0)
    assert 1 <= before <= loaded <= after, "each load of the log is counted once"
    blamed = [r for r in found["rebalances"] if (r["began"] or 0) > killed_at and r["member"]]
    assert [r["cause"] for r in blamed if r["cause"] == "a member's session expired"] == []
    assert "coordinator moved" in {each["name"] for each in found["findings"]}
    stops = [stop for row in found["rebalances"] for stop in row["stops"]]
    assert clock.is_that_of([*stops, *found["stops_without_rebalance"]])


def _loads(node: RealKafka, group: str) -> int:
    return node.log().read_text("utf-8").count(f"Loaded classic group {group} ")


def test_a_group_of_the_new_protocol_is_explained_from_the_offsets_topic_and_from_the_log(
    real_kafka: RealKafka,
) -> None:
    address, group = real_kafka.bootstrap_servers, f"new-{uuid.uuid4().hex}"
    settings = {"bootstrap.servers": address, "group.id": group, "group.protocol": "consumer"}
    with topic(address, 4) as name:
        first = confluent_kafka.Consumer({**settings, "client.id": "one"})
        second = confluent_kafka.Consumer({**settings, "client.id": "two"})
        first.subscribe([name])
        poll_until(lambda: len(first.assignment()) == 4, first)
        second.subscribe([name])
        poll_until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
        done = CliRunner().invoke(explain, ["--bootstrap", address, "--group", group, "--json"])
        second.close()
        first.close()
    (found,) = json.loads(done.stdout)["groups"]
    (joined,) = [row for row in found["rebalances"] if row["moved"]]
    assert (joined["cause"], joined["client"]) == ("a new member joined", "two")
    assert (joined["moved"], joined["needless"], len(joined["stops"])) == (2, 0, 2)
    assert all(stop["partition"].startswith(name) for stop in joined["stops"])
    by_log = explained(real_kafka, group)
    assert by_log["offsets_partition"] == found["offsets_partition"]
    epochs = {row["generation"]: row for row in by_log["rebalances"]}
    assert epochs.keys() >= {row["generation"] for row in found["rebalances"]}
    same = epochs[joined["generation"]]
    assert (same["cause"], same["member"]) == (joined["cause"], joined["member"])
    assert same["began"] == pytest.approx(joined["began"], abs=5)
    assert by_log["events"]["new member joins"] == by_log["events"]["member left"] == 2
