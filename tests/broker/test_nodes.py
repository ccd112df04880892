"""One broker as several nodes: their answers, their leaders, and the changes of a restart."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.broker.conftest import Connect, fetch_request, values_of

from kohort.broker.embedded import EmbeddedBroker
from kohort.broker.nodes import Address, Node, Nodes, addresses_from, advertised_addresses
from kohort.broker.serve import BrokerServer
from kohort.coordinator.partitions import partition_for
from kohort.host.settings import INT_MAX, BrokerSettings
from kohort.model.errors import ConfigError, ErrorCode
from kohort.storage.topic_table import Topic
from kohort.testing.plugin import FIXTURE_SETTINGS
from kohort.testing.ports import free_ports
from kohort.wire.messages import k02_list_offsets as k02
from kohort.wire.messages import k03_metadata as k03
from kohort.wire.messages import k10_find_coordinator as k10
from kohort.wire.messages import k16_list_groups as k16
from kohort.wire.messages import k19_create_topics as k19
from kohort.wire.messages import k21_delete_records as k21
from kohort.wire.messages import k23_offset_for_leader_epoch as k23
from kohort.wire.messages import k32_describe_configs as k32
from kohort.wire.messages import k37_create_partitions as k37
from kohort.wire.messages import k60_describe_cluster as k60

OFFSETS = 50
BROKER = 4


def nodes_of(count: int, first: int = 1) -> Nodes:
    ids = range(first, first + count)
    return Nodes([Node(node_id, Address("h", 9_000 + node_id)) for node_id in ids], OFFSETS)


def topic_of(name: str, partitions: int, factor: int = 1, replicas: Any = ()) -> Topic:
    return Topic(
        name=name,
        topic_id=bytes(16),
        partitions=partitions,
        configs={},
        replication_factor=factor,
        replicas=replicas,
    )


# -- the pure piece ------------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(1, 6))
def test_partitions_are_spread_evenly_and_replicas_differ(count: int) -> None:
    nodes = nodes_of(count)
    for name in ("t", "orders", "__consumer_offsets"):
        topic = topic_of(name, 60, 3)
        replicas = [nodes.replicas_of(topic, n) for n in range(60)]
        assert set(Counter(row[0] for row in replicas).values()) == {60 // count}
        for row in replicas:
            assert len(row) == len(set(row)) == min(3, count)
            assert all(node_id in nodes for node_id in row)


def test_topics_of_one_partition_are_spread_too() -> None:
    nodes = nodes_of(3)
    led = Counter(nodes.replicas_of(topic_of(f"t{n}", 1), 0)[0] for n in range(300))
    assert set(led) == {1, 2, 3}
    assert min(led.values()) > 60


@pytest.mark.parametrize("count", range(1, 6))
def test_the_leader_of_its_partition_coordinates_a_group(count: int) -> None:
    nodes = nodes_of(count, first=7)
    internal = topic_of("__consumer_offsets", OFFSETS, 3)
    for group in ("", "g", *(f"group-{n}" for n in range(100))):
        leader = nodes.replicas_of(internal, partition_for(group, OFFSETS))[0]
        assert nodes.coordinator_of(group).node_id == leader


def test_replicas_chosen_by_hand_are_kept_as_far_as_their_nodes_are_there() -> None:
    topic = topic_of("t", 3, 2, ((3, 1), (2, 3), (4, 3)))
    assert [nodes_of(4).replicas_of(topic, n) for n in range(3)] == [[3, 1], [2, 3], [4, 3]]
    assert [nodes_of(3).replicas_of(topic, n) for n in range(3)] == [[3, 1], [2, 3], [3]]
    fewer = [nodes_of(2).replicas_of(topic, n) for n in range(3)]
    assert fewer[:2] == [[1], [2]]
    assert sorted(fewer[2]) == [1, 2], "nobody of those chosen is left"


def test_topics_made_for_more_nodes_are_named() -> None:
    topics = [
        topic_of("fits", 1, 2),
        topic_of("wide", 1, 3),
        topic_of("chosen", 1, 1, ((3,),)),
        topic_of("__consumer_offsets", 50, 3),
    ]
    assert nodes_of(2).missing_for(topics) == ["wide", "chosen"]
    assert nodes_of(3).missing_for(topics) == []


def test_addresses_follow_each_other() -> None:
    at = Address.parse
    assert addresses_from(at("h:9092"), 3) == [at("h:9092"), at("h:9093"), at("h:9094")]
    assert addresses_from(Address("h", 0), 2) == [Address("h", 0)] * 2
    assert addresses_from(at("h:65534"), 2)[1].port == 65_535
    assert advertised_addresses([at("h:1")], 2) == [at("h:1"), at("h:2")]
    assert advertised_addresses([at("a:1"), at("b:1")], 2) == [at("a:1"), at("b:1")]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"nodes": 0}, "0 nodes were asked for, expected at least 1"),
        ({"nodes": 3, "listen": Address("h", 65_534)}, "need ports up to 65536"),
        ({"nodes": 2, "settings": BrokerSettings(node_id=INT_MAX)}, "choose a lower node.id"),
        ({"nodes": 3, "advertised": [Address("a", 1), Address("b", 1)]}, "2 advertised addresses"),
        ({"nodes": 2, "advertised": [Address("a", 1)] * 2}, "a:1 is advertised for two nodes"),
        ({"nodes": 2, "advertised": [Address("a", 65_535)]}, "need ports up to 65536"),
    ],
)
def test_an_impossible_number_of_nodes_is_refused_before_the_start(
    arguments: dict[str, Any], part: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=part):
        BrokerServer(data_dir=tmp_path / "data", **arguments)
    assert not (tmp_path / "data").exists()


# -- three nodes ---------------------------------------------------------------------------------


Factory = Callable[..., EmbeddedBroker]


class At(NamedTuple):
    """One of a broker's nodes."""

    bootstrap_servers: str


class Cluster:
    """Raw clients of every node of a broker."""

    def __init__(self, broker: EmbeddedBroker, connect: Connect) -> None:
        self.addresses = broker.bootstrap_servers.split(",")
        self.at = {n: connect(At(address)) for n, address in enumerate(self.addresses, 1)}
        self.any = self.at[2]

    def create(self, name: str, partitions: int = -1, factor: int = -1, **more: Any) -> Any:
        topic = k19.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=factor, **more
        )
        return self.any.ask(k19.CreateTopicsRequest(topics=[topic])).topics[0]

    def placed(self, name: str) -> list[list[int]]:
        """The replicas of each partition, the leader first."""
        asked = [k03.MetadataRequestTopic(name=name)]
        (topic,) = self.any.ask(k03.MetadataRequest(topics=asked)).topics
        assert all(row.leader_id == row.replica_nodes[0] for row in topic.partitions)
        assert all(row.isr_nodes == row.replica_nodes for row in topic.partitions)
        return [row.replica_nodes for row in topic.partitions]

    def coordinator(self, group: str, at: int = 1) -> tuple[int, str]:
        request = k10.FindCoordinatorRequest(coordinator_keys=[group])
        (found,) = self.at[at].ask(request, 4).coordinators
        return found.node_id, f"{found.host}:{found.port}"


@pytest.fixture
def cluster(kohort_broker_factory: Factory, connect: Connect) -> Cluster:
    return Cluster(kohort_broker_factory(nodes=3), connect)


def by_hand(*nodes: list[int]) -> list[k19.CreatableReplicaAssignment]:
    return [
        k19.CreatableReplicaAssignment(partition_index=n, broker_ids=ids)
        for n, ids in enumerate(nodes)
    ]


def test_every_node_lists_all_nodes(cluster: Cluster) -> None:
    for raw in cluster.at.values():
        metadata = raw.ask(k03.MetadataRequest(topics=[]))
        told = {row.node_id: f"{row.host}:{row.port}" for row in metadata.brokers}
        assert told == dict(enumerate(cluster.addresses, 1))
        described = raw.ask(k60.DescribeClusterRequest())
        assert {row.broker_id: f"{row.host}:{row.port}" for row in described.brokers} == told
        assert metadata.controller_id == described.controller_id == 1


def test_replicas_are_as_many_as_asked_for(cluster: Cluster) -> None:
    for factor in (1, 2, 3):
        made = cluster.create(f"t{factor}", 6, factor)
        assert (made.error_code, made.replication_factor) == (0, factor)
        placed = cluster.placed(f"t{factor}")
        assert {len(row) for row in placed} == {factor}
        assert Counter(row[0] for row in placed) == {1: 2, 2: 2, 3: 2}
    for factor in (4, 0, -2):
        assert cluster.create("no", 1, factor).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    chosen = cluster.create("chosen", assignments=by_hand([3, 1], [2, 3]))
    assert (chosen.num_partitions, chosen.replication_factor) == (2, 2)
    assert cluster.placed("chosen") == [[3, 1], [2, 3]]
    odd: list[list[list[int]]] = [[[1, 4]], [[2, 2]], [[1, 2], [3]], [[]]]
    for rows in odd:
        refused = cluster.create("no", assignments=by_hand(*rows))
        assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_the_offsets_topic_is_made_by_the_broker_alone(cluster: Cluster) -> None:
    internal = "__consumer_offsets"
    refused = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert cluster.create(internal, assignments=by_hand([1])).error_code == refused
    assert cluster.create(internal, 3, 1).error_code == refused
    cluster.coordinator("g")
    assert len(cluster.placed(internal)) == FIXTURE_SETTINGS["offsets.topic.num.partitions"]
    assert cluster.create(internal, 3, 1).error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_new_partitions_are_placed_as_the_topic_is(cluster: Cluster) -> None:
    cluster.create("t", 1, 2)
    first = cluster.placed("t")
    cluster.create("chosen", assignments=by_hand([3, 1]))

    def grow(name: str, count: int, *assigned: list[int]) -> int:
        rows = [k37.CreatePartitionsAssignment(broker_ids=ids) for ids in assigned] or None
        wish = k37.CreatePartitionsTopic(name=name, count=count, assignments=rows)
        answer = cluster.any.ask(k37.CreatePartitionsRequest(topics=[wish]))
        code: int = answer.results[0].error_code
        return code

    assert grow("t", 2, [2]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT, "two replicas each"
    assert grow("t", 2, [2, 9]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow("t", 2, [2, 1]) == ErrorCode.NONE
    assert cluster.placed("t") == [*first, [2, 1]]
    assert grow("chosen", 3) == ErrorCode.NONE
    placed = cluster.placed("chosen")
    assert placed[0] == [3, 1]
    assert {len(row) for row in placed} == {2}


def test_defaults_say_how_many_replicas(kohort_broker_factory: Factory, connect: Connect) -> None:
    settings = {"default.replication.factor": 2, "offsets.topic.replication.factor": 2}
    cluster = Cluster(kohort_broker_factory(nodes=3, **settings), connect)
    assert cluster.create("t", 1).replication_factor == 2
    assert [len(row) for row in cluster.placed("unasked")] == [2]
    cluster.coordinator("g")
    assert {len(row) for row in cluster.placed("__consumer_offsets")} == {2}


def test_a_default_beyond_the_nodes_is_refused_as_kafka_does(
    kohort_broker_factory: Factory, connect: Connect
) -> None:
    cluster = Cluster(kohort_broker_factory(nodes=2, **{"default.replication.factor": 3}), connect)
    refused = cluster.create("t", 1)
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "default.replication.factor" in refused.error_message
    asked = [k03.MetadataRequestTopic(name="unasked")]
    (unasked,) = cluster.any.ask(k03.MetadataRequest(topics=asked)).topics
    assert unasked.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    cluster.coordinator("g")
    assert {len(row) for row in cluster.placed("__consumer_offsets")} == {2}, "a wish of 3"


def test_records_are_served_by_the_leader(cluster: Cluster) -> None:
    made = cluster.create("t", 1, 2)
    leader, follower = cluster.placed("t")[0]
    stranger = ({1, 2, 3} - {leader, follower}).pop()
    elsewhere = ErrorCode.NOT_LEADER_OR_FOLLOWER
    wanted = {leader: ErrorCode.NONE, follower: elsewhere, stranger: elsewhere}
    offset = k02.ListOffsetsPartition(partition_index=0, timestamp=-1)
    epoch = k23.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    deleted = k21.DeleteRecordsPartition(partition_index=0, offset=0)
    for node_id, error in wanted.items():
        raw = cluster.at[node_id]
        assert raw.produce("t", [b"v"]).error_code == error
        topics = [k02.ListOffsetsTopic(name="t", partitions=[offset])]
        listed = raw.ask(k02.ListOffsetsRequest(replica_id=-1, topics=topics))
        assert listed.topics[0].partitions[0].error_code == error
        ends = [k23.OffsetForLeaderTopic(topic="t", partitions=[epoch])]
        ended = raw.ask(k23.OffsetForLeaderEpochRequest(topics=ends))
        assert ended.topics[0].partitions[0].error_code == error
        gone = [k21.DeleteRecordsTopic(name="t", partitions=[deleted])]
        answer = raw.ask(k21.DeleteRecordsRequest(topics=gone))
        assert answer.topics[0].partitions[0].error_code == error
        assert raw.fetch("t", version=10).error_code == error
    # A client that may read followers (KIP-392) can read there, too.
    for node_id, error in {**wanted, follower: ErrorCode.NONE}.items():
        row = cluster.at[node_id].fetch("t", version=11)
        assert row.error_code == error
        assert values_of(row.records) == ([] if error else [b"v"])
    request = fetch_request({("t", 0): 0})
    request.topics[0].topic_id = made.topic_id
    told = cluster.at[stranger].ask(request, 16)
    row = told.responses[0].partitions[0]
    assert (row.error_code, row.current_leader.leader_id) == (elsewhere, leader)
    assert [(n.node_id, f"{n.host}:{n.port}") for n in told.node_endpoints] == [
        (leader, cluster.addresses[leader - 1])
    ]


def test_nodes_with_a_replica_refuse_a_wrong_epoch(cluster: Cluster) -> None:
    cluster.create("t", 1, 2)
    leader, follower = cluster.placed("t")[0]
    stranger = ({1, 2, 3} - {leader, follower}).pop()
    for node_id, error in (
        (leader, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (follower, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (stranger, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        asked = k02.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=99)
        topics = [k02.ListOffsetsTopic(name="t", partitions=[asked])]
        answer = cluster.at[node_id].ask(k02.ListOffsetsRequest(replica_id=-1, topics=topics))
        assert answer.topics[0].partitions[0].error_code == error
        row = cluster.at[node_id].fetch("t", version=12, current_leader_epoch=99)
        assert row.error_code == error


def test_a_fetch_that_waits_at_one_node_gets_records_from_another(cluster: Cluster) -> None:
    cluster.create("t", 1, 3)
    leader, follower, _ = cluster.placed("t")[0]
    request = fetch_request({("t", 0): 0}, max_wait_ms=20_000)
    cluster.at[follower].send(request)
    assert cluster.at[follower].silent(0.2)
    cluster.at[leader].produce("t", [b"v"])
    row = cluster.at[follower].receive().responses[0].partitions[0]
    assert values_of(row.records) == [b"v"]


def test_groups_are_spread_and_each_is_listed_by_its_coordinator(cluster: Cluster) -> None:
    groups = [f"g{n}" for n in range(12)]
    found = {group: cluster.coordinator(group) for group in groups}
    assert found == {group: cluster.coordinator(group, at=3) for group in groups}
    assert {node_id for node_id, _ in found.values()} == {1, 2, 3}
    led = cluster.placed("__consumer_offsets")
    for group, (node_id, address) in found.items():
        assert node_id == led[partition_for(group, len(led))][0]
        assert address == cluster.addresses[node_id - 1]
        cluster.at[node_id].join(group)
    for node_id, raw in cluster.at.items():
        listed = {group.group_id for group in raw.ask(k16.ListGroupsRequest()).groups}
        assert listed == {group for group in groups if found[group][0] == node_id}


def test_a_node_tells_its_own_settings(cluster: Cluster) -> None:
    for asked in ("1", "2", "3", ""):
        resource = k32.DescribeConfigsResource(
            resource_type=BROKER, resource_name=asked, configuration_keys=["node.id"]
        )
        for node_id, raw in cluster.at.items():
            (result,) = raw.ask(k32.DescribeConfigsRequest(resources=[resource])).results
            if asked in ("", str(node_id)):
                assert [row.value for row in result.configs] == [str(node_id)]
            else:
                assert result.error_code == ErrorCode.INVALID_REQUEST


def test_the_log_names_the_node_that_coordinates(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "org.apache.kafka")
    for group in ("g0", "g1", "g2", "g3"):
        node_id, _ = cluster.coordinator(group)
        cluster.at[node_id].join(group)
        (line,) = [text for text in caplog.messages if f" {group} " in text]
        assert line.startswith(f"[GroupCoordinator id={node_id} topic=__consumer_offsets ")


# -- other numbers of nodes on the same data -----------------------------------------------------


def test_a_directory_may_have_more_or_fewer_nodes_at_each_start(
    kohort_broker_factory: Factory,
    connect: Connect,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = str(tmp_path / "data")

    broker = kohort_broker_factory(data, nodes=3)
    cluster = Cluster(broker, connect)
    cluster.create("t", 2, 3)
    cluster.create("chosen", assignments=by_hand([3, 2]))
    for number, row in enumerate(cluster.placed("t")):
        cluster.at[row[0]].produce("t", [b"%d" % number], partition=number)
    node_id, _ = cluster.coordinator("g")
    cluster.at[node_id].become_member("g")
    broker.close()

    caplog.clear()
    broker = kohort_broker_factory(data, nodes=1)
    assert "made for more nodes than the 1 there are" in caplog.text
    assert "chosen, t" in caplog.text
    alone = connect(broker)
    asked = [k03.MetadataRequestTopic(name=name) for name in ("t", "chosen")]
    metadata = alone.ask(k03.MetadataRequest(topics=asked))
    assert [row.node_id for row in metadata.brokers] == [1]
    assert all(row.replica_nodes == [1] for t in metadata.topics for row in t.partitions)
    assert [values_of(alone.fetch("t", partition=n).records) for n in range(2)] == [[b"0"], [b"1"]]
    assert [g.group_id for g in alone.ask(k16.ListGroupsRequest()).groups] == ["g"]
    broker.close()

    caplog.clear()
    cluster = Cluster(kohort_broker_factory(data, nodes=3), connect)
    assert "made for more nodes" not in caplog.text
    assert {len(row) for row in cluster.placed("t")} == {3}
    assert cluster.placed("chosen") == [[3, 2]]
    again, _ = cluster.coordinator("g")
    assert again == node_id
    listed = cluster.at[again].ask(k16.ListGroupsRequest()).groups
    assert [(g.group_id, g.group_state) for g in listed] == [("g", "Stable")]


def test_a_port_among_those_that_follow_is_in_use(tmp_path: Path) -> None:
    port, following = free_ports(2)

    async def start() -> None:
        server = BrokerServer(
            data_dir=tmp_path / "data", listen=Address("127.0.0.1", port), nodes=2
        )
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{following}"):
            await server.start()

    with socket.create_server(("127.0.0.1", following)):
        asyncio.run(start())
    assert not (tmp_path / "data").exists()
