"""Requests with a few bytes changed: every one is answered or costs its connection, none a handler.

A changed byte makes negative counts, huge sizes, odd partitions and names that no test thinks of.
"""

from __future__ import annotations

import logging
import random
import socket
from collections.abc import Iterator

import pytest
from tests.broker.conftest import Connect
from tests.examples import seeds

from kohort.broker.embedded import EmbeddedBroker
from kohort.storage.records import Record, build_batch
from kohort.wire.apis import APIS, Api
from kohort.wire.codec import encode_request
from kohort.wire.messages import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k11_join_group,
    k14_sync_group,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k23_offset_for_leader_epoch,
    k32_describe_configs,
    k33_alter_configs,
    k37_create_partitions,
    k44_incremental_alter_configs,
)

MUTANTS = max(7, len(seeds(25)))
"""Of each API in each version."""


def plausible(key: int, version: int) -> object:
    """A request that makes sense, so that most mutants get past the codec."""
    batch = build_batch([Record(b"k", b"v", 1_700_000_000_000)])
    produced = k00_produce.PartitionProduceData(index=0, records=batch)
    fetched = k01_fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    listed = k02_list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    committed = k08_offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=3
    )
    epoch = k23_offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    offsets = k09_offset_fetch.OffsetFetchRequest(group_id="g")
    if version >= 8:
        group = k09_offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None)
        offsets = k09_offset_fetch.OffsetFetchRequest(groups=[group])
    cut = k21_delete_records.DeleteRecordsPartition(partition_index=0, offset=-1)
    deleted = k20_delete_topics.DeleteTopicsRequest(topic_names=["u"])
    if version >= 6:
        state = k20_delete_topics.DeleteTopicState(name="u")
        deleted = k20_delete_topics.DeleteTopicsRequest(topics=[state])
    requests: dict[int, object] = {
        0: k00_produce.ProduceRequest(
            acks=1, topic_data=[k00_produce.TopicProduceData(name="t", partition_data=[produced])]
        ),
        1: k01_fetch.FetchRequest(
            max_bytes=1000, topics=[k01_fetch.FetchTopic(topic="t", partitions=[fetched])]
        ),
        2: k02_list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[k02_list_offsets.ListOffsetsTopic(name="t", partitions=[listed])],
        ),
        3: k03_metadata.MetadataRequest(topics=[k03_metadata.MetadataRequestTopic(name="t")]),
        8: k08_offset_commit.OffsetCommitRequest(
            group_id="g",
            topics=[k08_offset_commit.OffsetCommitRequestTopic(name="t", partitions=[committed])],
        ),
        9: offsets,
        11: k11_join_group.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=6000,
            protocol_type="consumer",
            protocols=[k11_join_group.JoinGroupRequestProtocol(name="range", metadata=b"m")],
        ),
        14: k14_sync_group.SyncGroupRequest(group_id="g", member_id="m"),
        19: k19_create_topics.CreateTopicsRequest(
            topics=[
                k19_create_topics.CreatableTopic(name="new", num_partitions=1, replication_factor=1)
            ],
            validate_only=True,
        ),
        20: deleted,
        21: k21_delete_records.DeleteRecordsRequest(
            topics=[k21_delete_records.DeleteRecordsTopic(name="u", partitions=[cut])]
        ),
        23: k23_offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[k23_offset_for_leader_epoch.OffsetForLeaderTopic(topic="t", partitions=[epoch])]
        ),
        32: k32_describe_configs.DescribeConfigsRequest(
            resources=[
                k32_describe_configs.DescribeConfigsResource(resource_type=2, resource_name="t")
            ]
        ),
        33: k33_alter_configs.AlterConfigsRequest(
            resources=[k33_alter_configs.AlterConfigsResource(resource_type=2, resource_name="u")]
        ),
        37: k37_create_partitions.CreatePartitionsRequest(
            topics=[k37_create_partitions.CreatePartitionsTopic(name="t", count=2)],
            validate_only=True,
        ),
        44: k44_incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                k44_incremental_alter_configs.AlterConfigsResource(
                    resource_type=2,
                    resource_name="u",
                    configs=[
                        k44_incremental_alter_configs.AlterableConfig(
                            name="retention.ms", config_operation=0, value="1000"
                        )
                    ],
                )
            ]
        ),
    }
    return requests.get(key)


def mutants(api: Api, version: int) -> Iterator[bytes]:
    """Frames of one API and version with one to three bytes changed after the header."""
    dice = random.Random(api.key * 100 + version)
    request = plausible(api.key, version) or api.request()
    frame = bytearray(encode_request(request, version, 1, "m"))
    body = min(4 + 8 + 2 + 1, len(frame) - 1)
    for _ in range(MUTANTS):
        mutant = bytearray(frame)
        for _ in range(dice.randint(1, 3)):
            mutant[dice.randrange(body, len(mutant))] = dice.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
        yield bytes(mutant)


@pytest.mark.parametrize("api", [a for a in APIS if a.broker.high >= 0], ids=lambda api: api.name)
def test_mutants_harm_nobody(
    kohort_broker: EmbeddedBroker, connect: Connect, caplog: pytest.LogCaptureFixture, api: Api
) -> None:
    witness = connect(kohort_broker)
    witness.create("t")
    answered = 0
    for version in range(api.handled.low, api.handled.high + 1):
        for mutant in mutants(api, version):
            client = connect(kohort_broker)
            client.sock.sendall(mutant)
            client.sock.shutdown(socket.SHUT_WR)
            answered += got_an_answer(client.sock)
            client.close()
    assert answered > 0, "all were refused by the codec: nothing but that was tried"
    assert witness.offset_at("t", -2).error_code == 0
    bugs = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert not bugs, bugs[0].getMessage()


def got_an_answer(sock: socket.socket) -> bool:
    """Read until the broker hangs up; whether it said anything."""
    said = False
    try:
        while sock.recv(1 << 16):
            said = True
    except ConnectionError:
        pass
    return said
