"""An unclean election on a real Kafka, and a log that has grown beyond the position since: S2."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.waiting import until

from kohort.client.admin import Admin
from kohort.client.descriptions import PartitionDescription
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.sqlite_ledger import SqliteLedger
from kohort.spark.source.kafka_topics import KafkaTopics
from kohort.spark.source.options import parse_options
from kohort.spark.source.topic_checks import TopicChecks
from kohort.testing.real_kafka import RealKafka

T0 = TopicPartition("t", 0)


def put(cluster: RealKafka, count: int, acks: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": acks})
    for number in range(count):
        producer.produce("t", b"%d" % number, partition=0)
    assert producer.flush(60) == 0


def wait_for_partition(
    cluster: RealKafka, condition: Callable[[PartitionDescription], bool], what: str
) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        until(lambda: condition(admin.topics(["t"])["t"].partitions[0]), what, 120)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.real_kafka
@pytest.mark.usefixtures("real_kafka")
@pytest.mark.timeout(600)
def test_records_that_an_unclean_election_lost_are_told_although_the_log_is_longer_now(
    tmp_path: Path,
) -> None:
    with (
        RealKafka(tmp_path / "kafka", nodes=3, heap="256m", quick=True) as cluster,
        closing(SqliteLedger(tmp_path / "table", "g")) as ledger,
    ):
        options = parse_options(
            {"bootstrap": cluster.bootstrap_servers, "group.id": "g", "subscribe": "t"}
        )

        def checks(topics: KafkaTopics) -> TopicChecks:
            made = TopicChecks(topics, ledger, fail_on_data_loss=True)
            made.look()
            made.acquired([T0])
            return made

        orders = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        topic = NewTopic(
            "t",
            num_partitions=1,
            replica_assignment=[[1, 2]],
            config={"unclean.leader.election.enable": "true"},
        )
        orders.create_topics([topic])["t"].result(60)
        put(cluster, 10, acks="all")
        cluster.kill(2)
        wait_for_partition(cluster, lambda p: p.in_sync == (1,), "a leader without followers")
        put(cluster, 10, acks="1")
        with closing(KafkaTopics(options.topics, options.client)) as topics:
            checks(topics).check_range({T0: 20})
            assert ledger.noted_leaders([T0]) == {T0: 0}
            assert topics.epoch_ends({T0: 0}) == {T0: 20}
            assert topics.epoch_ends({T0: 9}) == {}
        cluster.kill(1)
        cluster.restart(2)
        wait_for_partition(cluster, lambda p: p.leader_id == 2, "the unclean election")
        put(cluster, 30, acks="1")
        with closing(KafkaTopics(options.topics, options.client)) as topics:
            assert topics.ends([T0])[T0].offset == 40
            with pytest.raises(ConfigError, match=r"from offset 20, but leader epoch 0 ends at 10"):
                checks(topics).check_range({T0: 20})
