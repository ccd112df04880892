"""Real clusters: one node, three nodes, one that dies and returns, the command."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.conformance.judging import judge
from tests.conformance.registry import play_all
from tests.conformance.wire import ALL
from tests.real_kafka.at_nodes import told_by_nodes
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.cli.explain.command import explain
from kohort.client.admin import Admin
from kohort.coordinator.partitions import partition_for
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position
from kohort.testing.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]


def test_a_node_stores_what_it_is_sent(real_kafka: RealKafka) -> None:
    delivered: list[tuple[int | None, int | None]] = []

    def on_delivery(_: KafkaError | None, message: Message) -> None:
        delivered.append((message.partition(), message.offset()))

    producer = Producer({"bootstrap.servers": real_kafka.bootstrap_servers})
    for number in range(10):
        producer.produce("stored", value=b"%d" % number, partition=0, on_delivery=on_delivery)
    assert producer.flush(30) == 0
    assert delivered == [(0, offset) for offset in range(10)]


def test_kafkas_own_tools_run(real_kafka: RealKafka) -> None:
    told = real_kafka.tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", real_kafka.bootstrap_servers),
        *("--create", "--topic", "by-tool", "--partitions", "3"),
    )
    assert "Created topic by-tool" in told
    topics = AdminClient({"bootstrap.servers": real_kafka.bootstrap_servers}).list_topics(
        timeout=10
    )
    assert len(topics.topics["by-tool"].partitions) == 3


@pytest.mark.usefixtures("real_kafka")
def test_three_nodes_outlive_one_and_answer_as_kohorts_three_do(
    tmp_path: Path, kohort_broker_factory: Callable[..., EmbeddedBroker]
) -> None:
    with RealKafka(tmp_path, nodes=3, heap="256m", quick=True) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("t", num_partitions=3, replication_factor=3)])["t"].result(30)
        assert set(admin.list_topics(timeout=10).brokers) == {1, 2, 3}

        _play_scenarios_of_nodes(cluster.bootstrap_servers.partition(",")[0])
        _compare_nodes(cluster.bootstrap_servers, kohort_broker_factory(nodes=3).bootstrap_servers)
        _produce(cluster.bootstrap_servers, "lz4")
        group = _group_at(admin, 2)
        _commit(cluster.bootstrap_servers, group, 1)
        assert list(tmp_path.glob("liblz4-java-*")), "a killed node leaves files only here"
        cluster.kill(2)
        _wait_until(lambda: _leaders(admin) <= {1, 3}, "a new leader for every partition")
        _produce(cluster.bootstrap_servers)
        _commit(cluster.bootstrap_servers, group, 2)
        found = _explained(cluster.bootstrap_servers, group)
        assert [(each["name"], each["known"]) for each in found] == [
            ("coordinator moved", "bounded")
        ]
        assert "the coordinator moved or was restarted" in found[0]["says"]

        cluster.restart(2)
        _wait_until(lambda: set(admin.list_topics(timeout=10).brokers) == {1, 2, 3}, "node 2")


@pytest.mark.usefixtures("real_kafka")
def test_the_command_starts_a_node_and_stops_it(tmp_path: Path) -> None:
    place = tmp_path / "cluster"
    started = _kohort("kafka", "start", "--dir", str(place), "--set", "num.partitions=7")
    try:
        assert started.returncode == 0, started.stderr
        bootstrap = started.stdout.strip()
        _produce(bootstrap)
        topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics
        assert len(topics["t"].partitions) == 7

        again = _kohort("kafka", "start", "--dir", str(place))
        assert again.returncode == 2
        assert "already running" in again.stderr
    finally:
        stopped = _kohort("kafka", "stop", "--dir", str(place), "--wipe")
    assert stopped.returncode == 0, stopped.stderr
    assert not place.exists()
    with pytest.raises(ConnectionRefusedError), socket.socket() as probe:
        probe.connect(("127.0.0.1", int(bootstrap.rpartition(":")[2])))


def _play_scenarios_of_nodes(bootstrap: str) -> None:
    """The scenarios of tests/conformance that take more than one node."""
    chosen = [scenario for scenario in ALL if "nodes" in scenario.needs]
    verdicts = asyncio.run(play_all(bootstrap, chosen))
    for scenario in chosen:
        judge(scenario, verdicts[scenario.number], "kafka")


def _compare_nodes(kafka: str, kohort: str) -> None:
    """Ask leaders, followers, coordinators and others the same on both clusters."""
    theirs, ours = asyncio.run(told_by_nodes(kafka)), asyncio.run(told_by_nodes(kohort))
    differing = {what: (theirs.get(what), ours.get(what)) for what in theirs.keys() | ours.keys()}
    assert {what: both for what, both in differing.items() if both[0] != both[1]} == {}
    assert len(theirs) > 80


def _group_at(admin: AdminClient, node: int) -> str:
    """The name of a group with its coordinator at a node."""
    topic = "__consumer_offsets"

    def led() -> list[int]:
        partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
        return [number for number, told in partitions.items() if told.leader == node]

    _wait_until(lambda: bool(led()), f"a partition of {topic} at node {node}")
    count = len(admin.list_topics(topic, timeout=10).topics[topic].partitions)
    names = (f"moved-{number}" for number in range(1_000))
    return next(name for name in names if partition_for(name, count) in led())


def _commit(bootstrap: str, group: str, offset: int) -> None:
    """Write an offset of a group without members, at its coordinator of that moment."""
    with Admin({"bootstrap.servers": bootstrap, "default.api.timeout.ms": 60_000}) as admin:
        answer = admin.alter_offsets(group, {TopicPartition("t", 0): Position(offset=offset)})
    assert set(answer.values()) == {ErrorCode.NONE}


def _explained(bootstrap: str, group: str) -> list[dict[str, Any]]:
    """The patterns of a group, from the offsets topic alone."""
    arguments = ["--bootstrap", bootstrap, "--group", group, "--json"]
    done = CliRunner().invoke(explain, arguments)
    (found,) = json.loads(done.stdout)["groups"]
    return list(found["findings"])


def _kohort(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("kohort")
    return subprocess.run(
        [str(program), *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def _produce(bootstrap: str, compression: str = "none") -> None:
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "compression.type": compression}
    producer = Producer(settings)
    producer.produce("t", b"value" * 100)
    assert producer.flush(30) == 0


def _leaders(admin: AdminClient) -> set[int]:
    partitions = admin.list_topics("t", timeout=10).topics["t"].partitions
    return {partition.leader for partition in partitions.values()}


def _wait_until(holds: Callable[[], bool], what: str, timeout_s: float = 40) -> None:
    """Wait for a condition; a request that a busy node does not answer in time is made again."""

    def answered() -> bool:
        try:
            return holds()
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TIMED_OUT:
                raise
            return False

    until(answered, what, timeout_s)
