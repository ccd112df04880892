"""Topics made, grown, deleted and looked into, by raw frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.conftest import Connect, RawClient, ValuesOf
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.model.errors import ErrorCode
from kohort.testing.plugin import FIXTURE_SETTINGS
from kohort.wire.messages import (
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k19_create_topics,
    k20_delete_topics,
    k32_describe_configs,
    k37_create_partitions,
    k60_describe_cluster,
)


def creatable(
    name: str,
    partitions: int = -1,
    replicas: int = -1,
    assignments: Iterable[tuple[int, int]] = (),
    **configs: str | None,
) -> k19_create_topics.CreatableTopic:
    return k19_create_topics.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            k19_create_topics.CreatableReplicaAssignment(partition_index=index, broker_ids=[node])
            for index, node in assignments
        ],
        configs=[
            k19_create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def create(
    raw: RawClient,
    *topics: k19_create_topics.CreatableTopic,
    version: int | None = None,
    **fields: Any,
) -> list[k19_create_topics.CreatableTopicResult]:
    request = k19_create_topics.CreateTopicsRequest(topics=list(topics), **fields)
    answer: k19_create_topics.CreateTopicsResponse = raw.ask(request, version)
    return answer.topics


def metadata(
    raw: RawClient, names: Iterable[str] | None, version: int | None = None, **fields: Any
) -> k03_metadata.MetadataResponse:
    asked = None if names is None else [k03_metadata.MetadataRequestTopic(name=n) for n in names]
    request = k03_metadata.MetadataRequest(topics=asked, **fields)
    answer: k03_metadata.MetadataResponse = raw.ask(request, version)
    return answer


def delete(raw: RawClient, *names: str) -> list[k20_delete_topics.DeletableTopicResult]:
    states = [k20_delete_topics.DeleteTopicState(name=name) for name in names]
    answer: k20_delete_topics.DeleteTopicsResponse
    answer = raw.ask(k20_delete_topics.DeleteTopicsRequest(topics=states))
    return answer.responses


@pytest.mark.parametrize("version", range(2, 8))
def test_create(raw: RawClient, version: int) -> None:
    (result,) = create(raw, creatable("t", 3, 1, retention_ms="5000"), version=version)
    assert result.error_code == 0
    if version >= 5:
        settings = {row.name: (row.value, row.config_source) for row in result.configs or ()}
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert settings["retention.ms"] == ("5000", 1)
        assert settings["max.message.bytes"] == ("1048588", 5)
    topic = metadata(raw, ["t"]).topics[0]
    assert [row.partition_index for row in topic.partitions] == [0, 1, 2]
    assert {row.leader_id for row in topic.partitions} == {1}


def test_each_refused_topic_has_its_own_error(raw: RawClient) -> None:
    create(raw, creatable("there", 1))
    create(raw, creatable("a.b", 1))
    results = create(
        raw,
        creatable("there", 1),
        creatable("a_b", 1),
        creatable("no/slash", 1),
        creatable("", 1),
        creatable("none", 0),
        creatable("many", 10_001),
        creatable("copies", 1, 3),
        creatable("odd", 1, colour="red"),
        creatable("odder", 1, retention_ms="soon"),
        creatable("both", 1, 1, [(0, 1)]),
        creatable("elsewhere", assignments=[(0, 9)]),
        creatable("twice", 1),
        creatable("twice", 1),
        creatable("by-hand", assignments=[(0, 1), (1, 1)]),
        creatable("fine"),
    )
    assert {row.name: ErrorCode(row.error_code) for row in results} == {
        "there": ErrorCode.TOPIC_ALREADY_EXISTS,
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "no/slash": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "none": ErrorCode.INVALID_PARTITIONS,
        "many": ErrorCode.INVALID_PARTITIONS,
        "copies": ErrorCode.INVALID_REPLICATION_FACTOR,
        "odd": ErrorCode.INVALID_CONFIG,
        "odder": ErrorCode.INVALID_CONFIG,
        "both": ErrorCode.INVALID_REQUEST,
        "elsewhere": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "twice": ErrorCode.INVALID_REQUEST,
        "by-hand": ErrorCode.NONE,
        "fine": ErrorCode.NONE,
    }
    assert all(row.error_message for row in results if row.error_code)
    names = [topic.name for topic in metadata(raw, None).topics]
    assert names == ["a.b", "by-hand", "fine", "there"]


def test_validate_only_creates_nothing(raw: RawClient) -> None:
    assert create(raw, creatable("t", 2), validate_only=True)[0].error_code == 0
    assert create(raw, creatable("t", 0), validate_only=True)[0].error_code != 0
    assert metadata(raw, None).topics == []


@pytest.mark.parametrize("version", range(13))
def test_metadata_in_every_version(raw: RawClient, version: int) -> None:
    create(raw, creatable("t", 2))
    answer = metadata(raw, ["t"], version)
    (broker,) = answer.brokers
    assert (broker.node_id, broker.host) == (1, "127.0.0.1")
    assert raw.sock.getpeername() == (broker.host, broker.port)
    assert len(answer.topics[0].partitions) == 2
    everything = metadata(raw, [] if version == 0 else None, version)
    assert [topic.name for topic in everything.topics] == ["t"]
    if version:
        assert metadata(raw, [], version).topics == []


def test_metadata_creates_topics_when_it_may(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect
) -> None:
    raw = connect(kohort_broker_factory(num_partitions=3))
    refused = metadata(raw, ["t"], allow_auto_topic_creation=False).topics[0]
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    made = metadata(raw, ["t"]).topics[0]
    assert (made.error_code, len(made.partitions)) == (0, 3)
    illegal = metadata(raw, ["no/slash"]).topics[0]
    assert illegal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    strict = connect(kohort_broker_factory(auto_create_topics_enable=False))
    refused = metadata(strict, ["t"]).topics[0]
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    by_id = k03_metadata.MetadataRequestTopic(name=None, topic_id=b"x" * 16)
    answer = strict.ask(k03_metadata.MetadataRequest(topics=[by_id]), 12).topics[0]
    assert (answer.error_code, answer.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


def test_authorized_operations_only_when_asked_for(raw: RawClient) -> None:
    create(raw, creatable("t", 1))
    plain = metadata(raw, ["t"], 9)
    assert plain.topics[0].topic_authorized_operations == -(2**31)
    assert plain.cluster_authorized_operations == -(2**31)
    asked = metadata(
        raw,
        ["t"],
        9,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert asked.topics[0].topic_authorized_operations == 0b1101_1111_1000
    assert asked.cluster_authorized_operations > 0


def test_delete(raw: RawClient) -> None:
    create(raw, creatable("t", 2), creatable("u", 1))
    raw.produce("t", [b"a"])
    raw.become_member("g")
    results = delete(raw, "t", "nope", "__consumer_offsets", "u", "u")
    assert [ErrorCode(row.error_code) for row in results] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [row.name for row in results] == ["t", "nope", "__consumer_offsets", "u"]
    assert raw.fetch("t").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create(raw, creatable("t", 1))
    assert raw.fetch("t").high_watermark == 0


def test_deletion_can_be_switched_off(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect
) -> None:
    raw = connect(kohort_broker_factory(delete_topic_enable=False))
    create(raw, creatable("t", 1))
    assert delete(raw, "t")[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED


def test_a_deleted_topics_offsets_are_forgotten(raw: RawClient) -> None:
    create(raw, creatable("t", 1))
    m = k08_offset_commit
    commit = m.OffsetCommitRequest(
        group_id="simple",
        topics=[
            m.OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    m.OffsetCommitRequestPartition(partition_index=0, committed_offset=7),
                    m.OffsetCommitRequestPartition(partition_index=5, committed_offset=7),
                ],
            )
        ],
    )
    rows = raw.ask(commit).topics[0].partitions
    assert [row.error_code for row in rows] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    f = k09_offset_fetch
    ask = f.OffsetFetchRequest(groups=[f.OffsetFetchRequestGroup(group_id="simple", topics=None)])
    assert raw.ask(ask).groups[0].topics[0].partitions[0].committed_offset == 7
    delete(raw, "t")
    # Their tombstones are written after the answer, as in Kafka.
    until(lambda: not raw.ask(ask).groups[0].topics, "the tombstones of the offsets")


def test_create_partitions(raw: RawClient) -> None:
    create(raw, creatable("t", 1))
    m = k37_create_partitions
    for name, count, assigned, code in (
        ("t", 3, None, ErrorCode.NONE),
        ("t", 3, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("nope", 2, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 5, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 4, [[2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 4, [[1]], ErrorCode.NONE),
    ):
        rows = None
        if assigned is not None:
            rows = [m.CreatePartitionsAssignment(broker_ids=nodes) for nodes in assigned]
        topic = m.CreatePartitionsTopic(name=name, count=count, assignments=rows)
        answer = raw.ask(m.CreatePartitionsRequest(topics=[topic]))
        assert answer.results[0].error_code == code, (name, count)
    assert raw.produce("t", [b"a"], partition=3).error_code == 0
    assert len(metadata(raw, ["t"]).topics[0].partitions) == 4


def test_topics_survive_a_restart(
    kohort_broker_factory: Callable[..., EmbeddedBroker],
    connect: Connect,
    tmp_path: Path,
    values_of: ValuesOf,
) -> None:
    first = kohort_broker_factory(str(tmp_path / "data"))
    raw = connect(first)
    create(raw, creatable("t", 2, retention_ms="-1"))
    raw.produce("t", [b"a", b"b"], partition=1)
    cluster_id = metadata(raw, []).cluster_id
    first.close()
    raw = connect(kohort_broker_factory(str(tmp_path / "data")))
    assert metadata(raw, []).cluster_id == cluster_id
    assert values_of(raw.fetch("t", partition=1).records) == [b"a", b"b"]
    assert described(raw, 2, "t")["retention.ms"].value == "-1"


def described(
    raw: RawClient, kind: int, name: str, keys: list[str] | None = None, **fields: Any
) -> dict[str, k32_describe_configs.DescribeConfigsResourceResult]:
    m = k32_describe_configs
    resource = m.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    result = raw.ask(m.DescribeConfigsRequest(resources=[resource], **fields)).results[0]
    assert result.error_code == 0, result
    return {row.name: row for row in result.configs}


def test_describe_configs(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect
) -> None:
    raw = connect(kohort_broker_factory(log_retention_hours=1))
    create(raw, creatable("t", 1, max_message_bytes="999"))
    rows = described(raw, 2, "t", include_synonyms=True, include_documentation=True)
    assert (rows["max.message.bytes"].value, rows["max.message.bytes"].config_source) == ("999", 1)
    assert (rows["retention.ms"].value, rows["retention.ms"].config_source) == ("3600000", 4)
    assert (rows["cleanup.policy"].value, rows["cleanup.policy"].config_source) == ("delete", 5)
    assert rows["max.message.bytes"].documentation
    assert rows["retention.ms"].synonyms[0].name == "log.retention.ms"
    synonyms = [(s.name, s.value, s.source) for s in rows["max.message.bytes"].synonyms]
    assert synonyms == [("max.message.bytes", "999", 1), ("message.max.bytes", "1048588", 5)]
    assert not any(row.read_only for row in rows.values())
    assert [rows[n].config_type for n in ("retention.ms", "segment.bytes", "cleanup.policy")] == [
        *(5, 3, 7)
    ]
    assert len(described(raw, 2, "t", [])) == len(rows) == 33, "an empty list asks for all"
    assert list(described(raw, 2, "t", ["retention.ms"])) == ["retention.ms"]
    broker = described(raw, 4, "1")
    assert broker["group.initial.rebalance.delay.ms"].value == "0"
    assert broker["auto.create.topics.enable"].value == "true"
    assert all(row.read_only for row in broker.values())
    m = k32_describe_configs
    for kind, name, code in (
        (2, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (4, "2", ErrorCode.INVALID_REQUEST),
        (8, "x", ErrorCode.INVALID_REQUEST),
    ):
        resource = m.DescribeConfigsResource(resource_type=kind, resource_name=name)
        result = raw.ask(m.DescribeConfigsRequest(resources=[resource])).results[0]
        assert result.error_code == code


def test_describe_cluster(raw: RawClient) -> None:
    answer = raw.ask(k60_describe_cluster.DescribeClusterRequest())
    assert (answer.error_code, answer.controller_id) == (0, 1)
    assert [row.broker_id for row in answer.brokers] == [1]
    refused = raw.ask(k60_describe_cluster.DescribeClusterRequest(endpoint_type=2))
    assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    refused = raw.ask(k60_describe_cluster.DescribeClusterRequest(endpoint_type=7))
    assert refused.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


def test_find_coordinator(raw: RawClient) -> None:
    m = k10_find_coordinator
    port = raw.sock.getpeername()[1]
    for version in range(4):
        answer = raw.ask(m.FindCoordinatorRequest(key="g"), version)
        assert (answer.error_code, answer.node_id, answer.port) == (0, 1, port)
    answer = raw.ask(m.FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4)
    assert [(row.key, row.node_id, row.port) for row in answer.coordinators] == [
        ("g", 1, port),
        ("h", 1, port),
    ]
    internal = metadata(raw, ["__consumer_offsets"]).topics[0]
    partitions = FIXTURE_SETTINGS["offsets.topic.num.partitions"]
    assert (len(internal.partitions), internal.is_internal) == (partitions, True)
    transaction = raw.ask(m.FindCoordinatorRequest(key="x", key_type=1), 3)
    assert transaction.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    odd = raw.ask(m.FindCoordinatorRequest(key="x", key_type=9), 3)
    assert (odd.error_code, odd.node_id, odd.port) == (ErrorCode.INVALID_REQUEST, -1, -1)
