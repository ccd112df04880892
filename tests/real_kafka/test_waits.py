"""Deferred rebalances (Design II) on a real Apache Kafka, beside another Kafka client."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import confluent_kafka
import pytest
from tests.client.stage import until

from kohort.client.admin import Admin
from kohort.client.membership import GroupMembership
from kohort.embedded.consumer import decode_assignment
from kohort.model.ids import TopicPartition
from kohort.testing.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]

PARTITIONS = 12
Partitions = frozenset[TopicPartition]


class Group:
    """Members of kohort and of librdkafka in one group of a Kafka, with a wait of a minute."""

    def __init__(self, kafka: RealKafka, stack: ExitStack) -> None:
        self.name = f"waits-{uuid.uuid4()}"
        self._address = kafka.bootstrap_servers
        self._stack = stack
        self.kohort: list[GroupMembership] = []
        self.librdkafka: list[confluent_kafka.Consumer] = []
        with Admin(bootstrap_servers=self._address) as admin:
            admin.create_topic(self.name, PARTITIONS, 1)

    def join(self) -> GroupMembership:
        member = GroupMembership(
            [self.name],
            {
                "bootstrap.servers": self._address,
                "group.id": self.name,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 100,
                "scheduled.rebalance.max.delay.ms": 60_000,
            },
        )
        self._stack.callback(member.leave)
        member.join()
        self.kohort.append(member)
        return member

    def join_librdkafka(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": self.name,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 100,
            }
        )
        self._stack.callback(consumer.close)
        consumer.subscribe([self.name])
        self.librdkafka.append(consumer)

    def owned(self) -> list[Partitions]:
        """The partitions of each member; members of kohort give up revoked ones."""
        for member in self.kohort:
            member.release(member.snapshot().revoking)
        for consumer in self.librdkafka:
            consumer.poll(0)
        return [m.snapshot().owned for m in self.kohort] + [
            frozenset(TopicPartition(p.topic, p.partition) for p in c.assignment())
            for c in self.librdkafka
        ]

    def settled(self, shares: list[int]) -> list[Partitions]:
        """Wait until the members have so many partitions, and no partition has two owners."""
        until(lambda: sorted(map(len, self.owned())) == sorted(shares), f"shares of {shares}")
        owned = self.owned()
        assert len(frozenset().union(*owned)) == sum(shares)
        return owned

    def user_data(self) -> list[bytes | None]:
        """The userdata of each stored assignment."""
        with Admin(bootstrap_servers=self._address) as admin:
            members = admin.describe_group(self.name).members
        return [decode_assignment(member.assignment).user_data for member in members]


@pytest.fixture
def group(real_kafka: RealKafka) -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(real_kafka, stack)


@pytest.mark.parametrize("leaver", [0, 2], ids=["the leader", "a follower"])
def test_a_member_that_returns_gets_its_partitions_and_no_other_partition_moves(
    group: Group, leaver: int
) -> None:
    for shares in ([12], [6, 6], [4, 4, 4]):
        group.join()
        group.settled(shares)
    gone = group.kohort.pop(leaver)
    lost, before = gone.snapshot().owned, group.owned()
    gone.leave()
    until(lambda: all(m.waits() for m in group.kohort), "the others know of the wait")
    assert group.settled([4, 4]) == before
    group.join()
    assert group.settled([4, 4, 4]) == [*before, lost]
    until(lambda: group.user_data() == [None] * 3, "the group can be converted (KAFKA-18134)")


def test_a_member_of_librdkafka_keeps_its_partitions_during_a_wait(group: Group) -> None:
    group.join()
    group.settled([12])
    group.join_librdkafka()
    group.settled([6, 6])
    gone = group.join()
    group.settled([4, 4, 4])
    group.kohort.remove(gone)
    lost, before = gone.snapshot().owned, group.owned()
    gone.leave()
    until(lambda: bool(group.kohort[0].waits()), "the leader waits")
    assert group.settled([4, 4]) == before
    group.join()
    first, returned, other = group.settled([4, 4, 4])
    assert [first, other] == before
    assert returned == lost
