"""Consumers, administrators and the range reader at brokers that announce old versions only."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pytest
from tests.client.columns import consumer, rows_by_arrow
from tests.client.stage import QUICK, Feeder, topic
from tests.engine.scripted import limited

import kohort.broker.serve as serving
from kohort import AsyncConsumer, Consumer
from kohort.broker import service
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.errors import RequestFailed
from kohort.engine.coordinator_engine import CoordinatorEngine
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.wire.apis import announced


def versions(text: str) -> dict[str, int]:
    """The highest version of each API; -1 where the release has no such API."""
    words = text.split()
    return {name: int(high) for name, high in zip(words[::2], words[1::2], strict=True)}


KAFKA_2_1 = versions(
    "Produce 7 Fetch 10 ListOffsets 4 Metadata 7 OffsetCommit 6 OffsetFetch 5 FindCoordinator 2 "
    "JoinGroup 3 Heartbeat 2 LeaveGroup 2 SyncGroup 2 DescribeGroups 2 ListGroups 2 "
    "CreateTopics 3 DeleteTopics 3 DeleteRecords 1 InitProducerId 1 OffsetForLeaderEpoch 2 "
    "DescribeConfigs 2 AlterConfigs 1 CreatePartitions 1 DeleteGroups 1 "
    "IncrementalAlterConfigs -1 OffsetDelete -1 DescribeCluster -1"
)
KAFKA_2_4 = versions(
    "Produce 8 Fetch 11 ListOffsets 5 Metadata 9 OffsetCommit 8 OffsetFetch 6 FindCoordinator 3 "
    "JoinGroup 6 Heartbeat 4 LeaveGroup 4 SyncGroup 4 DescribeGroups 5 ListGroups 3 "
    "CreateTopics 5 DeleteTopics 4 DeleteRecords 1 InitProducerId 2 OffsetForLeaderEpoch 3 "
    "DescribeConfigs 2 AlterConfigs 1 CreatePartitions 1 DeleteGroups 2 "
    "IncrementalAlterConfigs 1 OffsetDelete 0 DescribeCluster -1"
)
KAFKA_3_0 = versions(
    "Produce 9 Fetch 12 ListOffsets 7 Metadata 11 OffsetCommit 8 OffsetFetch 8 FindCoordinator 4 "
    "JoinGroup 7 Heartbeat 4 LeaveGroup 4 SyncGroup 5 DescribeGroups 5 ListGroups 4 "
    "CreateTopics 7 DeleteTopics 6 InitProducerId 4 OffsetForLeaderEpoch 4 DescribeConfigs 4"
)
RELEASES = {"2.1": KAFKA_2_1, "2.4": KAFKA_2_4, "3.0": KAFKA_3_0}
PARTITIONS, ROUNDS = 2, 5

StartBroker = Callable[[Mapping[str, int]], str]


@pytest.fixture
def start_broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[StartBroker]:
    brokers: list[EmbeddedBroker] = []

    def start(highest: Mapping[str, int]) -> str:
        apis = limited(**highest)
        monkeypatch.setattr(serving, "CoordinatorEngine", partial(CoordinatorEngine, apis=apis))
        monkeypatch.setattr(service, "announced", partial(announced, apis))
        broker = EmbeddedBroker(group_initial_rebalance_delay_ms=0)
        brokers.append(broker)
        return broker.start().bootstrap_servers

    yield start
    for broker in brokers:
        broker.close()


@pytest.fixture(params=RELEASES)
def old(request: pytest.FixtureRequest, start_broker: StartBroker) -> str:
    """The address of a broker with the versions of an old release."""
    return start_broker(RELEASES[request.param])


def test_two_consumers_share_commit_and_resume(old: str) -> None:
    with topic(old, PARTITIONS) as name:
        Feeder(old, name, PARTITIONS).once(ROUNDS)
        group = uuid.uuid4().hex
        settings = {**QUICK, "bootstrap.servers": old, "group.id": group}
        with Consumer(settings) as one, Consumer(settings) as two:
            for each in (one, two):
                each.subscribe([name])
            seen: list[tuple[int | None, int | None]] = []
            while not (len(one.assignment()) == len(two.assignment()) == 1):
                for each in (one, two):
                    seen += [(r.partition(), r.offset()) for r in each.consume(100, 0.05)]
            while len(seen) < PARTITIONS * ROUNDS:
                for each in (one, two):
                    seen += [(r.partition(), r.offset()) for r in each.consume(100, 0.05)]
            assert sorted(seen) == [(p, n) for p in range(PARTITIONS) for n in range(ROUNDS)]
            one.commit()
            two.commit()
            everything = [TopicPartition(name, p) for p in range(PARTITIONS)]
            assert {at.offset for at in one.committed(everything).values()} == {ROUNDS}
            assert set(one.end_offsets(everything).values()) == {ROUNDS}
            found = one.offsets_for_times(dict.fromkeys(everything, 1))
            assert [at.offset for at in found.values() if at is not None] == [0] * PARTITIONS


def test_asyncio_consumers_and_columns_read_all_records(old: str) -> None:
    with topic(old, PARTITIONS) as name:
        Feeder(old, name, PARTITIONS).once(ROUNDS)

        async def read() -> int:
            settings = {**QUICK, "bootstrap.servers": old, "group.id": uuid.uuid4().hex}
            async with AsyncConsumer(settings) as reader:
                reader.subscribe([name])
                count = 0
                async for _ in reader:
                    count += 1
                    if count == PARTITIONS * ROUNDS:
                        break
                await reader.commit()
                return count

        assert asyncio.run(asyncio.wait_for(read(), 30)) == PARTITIONS * ROUNDS
        with consumer(old) as reader:
            reader.subscribe([name])
            assert len(rows_by_arrow(reader, PARTITIONS * ROUNDS)) == PARTITIONS * ROUNDS


def test_administrators_describe_groups(old: str) -> None:
    with topic(old, PARTITIONS) as name, consumer(old, group_id="g") as reader:
        reader.subscribe([name])
        while not reader.assignment():
            reader.poll(0.05)
        with Admin(bootstrap_servers=old) as admin:
            described = admin.describe_group("g")
            everything = frozenset(TopicPartition(name, p) for p in range(PARTITIONS))
            assert [member.partitions for member in described.members] == [everything]
            assert "g" in {group.group_id for group in admin.list_groups()}


def test_a_static_member_is_told_which_version_its_broker_lacks(start_broker: StartBroker) -> None:
    old = start_broker(KAFKA_2_1)
    with topic(old, 1) as name, consumer(old, group_instance_id="i") as reader:
        reader.subscribe([name])
        with pytest.raises(RequestFailed, match=r"does not support group\.instance\.id") as refused:
            reader.poll(10)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_request_that_the_broker_does_not_know_is_named(start_broker: StartBroker) -> None:
    old = start_broker(KAFKA_2_1 | {"DeleteGroups": -1})
    with Admin(bootstrap_servers=old) as admin, pytest.raises(RequestFailed) as refused:
        admin.delete_group("g")
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert "the broker does not announce DeleteGroups" in str(refused.value)
