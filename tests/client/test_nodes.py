"""kohort's own clients with the address of one node of several."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from tests.client.stage import (
    QUICK,
    Feeder,
    Player,
    coverage,
    shared_out,
)
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.broker.nodes import Address, Node, Nodes
from kohort.client.admin import Admin
from kohort.client.membership import GroupMembership
from kohort.model.ids import TopicPartition
from kohort.model.positions import EARLIEST
from kohort.testing.ports import free_ports

NODES = 3
PARTITIONS = 6
OFFSETS_PARTITIONS = 50


@pytest.fixture
def first(kohort_broker_factory: Callable[..., EmbeddedBroker]) -> str:
    """The first of three nodes."""
    return str(kohort_broker_factory(nodes=NODES).bootstrap_servers.partition(",")[0])


def group_elsewhere(admin: Admin) -> str:
    """A group that the first node does not coordinate."""
    names = (f"g{n}" for n in range(100))
    return next(name for name in names if admin.describe_group(name).coordinator_id != 1)


def owned_by(member: GroupMembership) -> frozenset[TopicPartition]:
    return member.snapshot().owned


def test_requests_go_to_the_nodes_that_answer_them(first: str) -> None:
    with Admin(bootstrap_servers=first) as admin:
        admin.create_topic("t", PARTITIONS, 2)
        topic = admin.topics(["t"])["t"]
        assert {p.leader_id for p in topic.partitions} == {1, 2, 3}
        Feeder(first, "t", PARTITIONS).once(5)
        assert {at.offset for at in admin.list_offsets(topic.topic_partitions).values()} == {5}
        admin.delete_records(dict.fromkeys(topic.topic_partitions, 2))
        begins = admin.list_offsets(topic.topic_partitions, EARLIEST)
        assert {at.offset for at in begins.values()} == {2}

        groups = [f"g{n}" for n in range(9)]
        with ExitStack() as members:
            for group in groups:
                given = {**QUICK, "bootstrap.servers": first, "group.id": group}
                member = members.enter_context(GroupMembership(["t"], given))
                until(partial(owned_by, member), f"the member of {group} owns something")
            described = {group: admin.describe_group(group) for group in groups}
            assert {one.coordinator_id for one in described.values()} == {1, 2, 3}
            assert {len(one.members) for one in described.values()} == {1}
            listed = [group.group_id for group in admin.list_groups()]
            assert listed == groups, "each group once, on any coordinator"
        for group in groups:
            admin.delete_group(group)
        assert admin.list_groups() == []


@pytest.mark.slow
def test_consumers_come_and_go_where_another_node_coordinates(first: str) -> None:
    with Admin(bootstrap_servers=first) as admin:
        admin.create_topic("t", PARTITIONS, 1)
        group = group_elsewhere(admin)
        given = {**QUICK, "bootstrap.servers": first, "group.id": group}
        with Feeder(first, "t", PARTITIONS) as feeder:
            players = [Player("a", given, ["t"]), Player("b", given, ["t"])]
            until(lambda: shared_out(players, PARTITIONS), "two share the topic")
            players.append(Player("c", given, ["t"]))
            until(lambda: shared_out(players, PARTITIONS), "three share the topic")
            players[0].stop()
            until(lambda: shared_out(players[1:], PARTITIONS), "two share it again")
            feeder.stop()
            wanted = sum(feeder.acknowledged.values())
            until(lambda: len(coverage(players)) >= wanted, "everything was read")
            for player in players[1:]:
                player.stop()
        counts = coverage(players)
        assert sorted(counts.values()) == [1] * wanted
        committed = admin.committed(group)
        assert sum(at.offset for at in committed.values()) == wanted
        assert set(committed) == {TopicPartition("t", n) for n in range(PARTITIONS)}


class Process:
    """``kohort broker`` on adjacent ports, with a number of nodes for each start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_ports(NODES)[0]
        self._process: subprocess.Popen[str] | None = None

    def start(self, nodes: int) -> str:
        command = [sys.executable, "-m", "kohort", "broker", "--port", str(self.port)]
        command += ["--nodes", str(nodes), "--data-dir", str(self._folder / "data")]
        command += ["--log-file", str(self._folder / "broker.log")]
        command += ["--set", "group.initial.rebalance.delay.ms=0"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        addresses = [f"127.0.0.1:{self.port + n}" for n in range(nodes)]
        assert line.startswith(f"kohort broker ready on {','.join(addresses)} (data in "), line
        return addresses[0]

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            assert self._process.wait(30) == 0
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = Process(tmp_path)
    yield made
    made.stop()


def _coordinator_of(group: str, nodes: int) -> int:
    all_nodes = [Node(n, Address("h", n)) for n in range(1, nodes + 1)]
    return Nodes(all_nodes, OFFSETS_PARTITIONS).coordinator_of(group).node_id


@pytest.mark.slow
def test_members_follow_their_coordinator_to_another_node(process: Process) -> None:
    """The old coordinator still answers but does not coordinate the group any more."""
    names = (f"g{n}" for n in range(100))
    group = next(g for g in names if (_coordinator_of(g, 3), _coordinator_of(g, 2)) == (2, 1))
    first = process.start(3)
    with Admin(bootstrap_servers=first) as admin:
        admin.create_topic("t", PARTITIONS, 2)
        assert admin.describe_group(group).coordinator_id == 2
        given = {**QUICK, "bootstrap.servers": first, "group.id": group}
        players = [Player("a", given, ["t"]), Player("b", given, ["t"])]
        feeder = Feeder(first, "t", PARTITIONS)
        until(lambda: shared_out(players, PARTITIONS), "two share the topic")
        feeder.once(20)
        until(lambda: len(coverage(players)) >= 20 * PARTITIONS, "records flow")
        process.stop()
        process.start(2)
        feeder.once(20)
        assert admin.describe_group(group).coordinator_id == 1
        wanted = 40 * PARTITIONS
        until(lambda: len(coverage(players)) == wanted, "all of it was read", 60)
        for player in players:
            player.stop()
        committed = admin.committed(group)
        assert sum(at.offset for at in committed.values()) == wanted
