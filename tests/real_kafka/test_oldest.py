"""kohort's clients on the oldest Apache Kafka with KRaft for production, 3.3."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from tests.client import columns, pieces
from tests.client.stage import AsyncPlayer, Player

from kohort.client.admin import Admin
from kohort.testing.kafka_jars import OLDEST_KAFKA, installed
from kohort.testing.real_kafka import RealKafka, absence

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]


@pytest.fixture(scope="module")
def oldest_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    if installed(OLDEST_KAFKA) is None:
        pytest.skip(absence(OLDEST_KAFKA))
    directory = tmp_path_factory.mktemp("oldest-kafka")
    settings = {"group.initial.rebalance.delay.ms": 0}
    with RealKafka(directory, settings=settings, quick=True, jars=OLDEST_KAFKA) as node:
        yield node
    shutil.rmtree(directory, ignore_errors=True)


def test_blocking_and_asyncio_members_come_and_go_and_no_record_is_lost_or_repeated(
    oldest_kafka: RealKafka,
) -> None:
    kinds = (AsyncPlayer, Player, AsyncPlayer)
    pieces.members_come_and_go(oldest_kafka.bootstrap_servers, kinds)


def test_restarts_of_static_members_do_not_affect_other_members(oldest_kafka: RealKafka) -> None:
    pieces.static_members_bounce(oldest_kafka.bootstrap_servers)


def test_columns_equal_the_records_of_poll_for_each_codec(oldest_kafka: RealKafka) -> None:
    columns.columns_equal_records(oldest_kafka.bootstrap_servers)


def test_administrators_see_topics_groups_and_offsets(oldest_kafka: RealKafka) -> None:
    with Admin(bootstrap_servers=oldest_kafka.bootstrap_servers) as admin:
        admin.create_topic("seen", 3, 1)
        assert len(admin.topics(["seen"])["seen"].partitions) == 3
        assert admin.describe_cluster().controller_id == 1
        assert "cleanup.policy" in admin.topic_settings("seen")
        admin.create_partitions("seen", 4)
        admin.delete_topics(["seen"])
