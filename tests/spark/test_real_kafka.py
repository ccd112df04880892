"""Pipelines on a real Apache Kafka, also with offsets without records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.spark.conftest import PATIENCE_S, Feed, run_two

from kohort.client.admin import Admin
from kohort.client.config import parse_client_settings
from kohort.spark.verify import verify
from kohort.testing.real_kafka import RealKafka

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.real_kafka,
    pytest.mark.timeout(900),
]

Run = Callable[..., list[Any]]


def make(kafka: RealKafka, topic: str, partitions: int) -> Feed:
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topic(topic, partitions)
    return Feed(kafka.bootstrap_servers, topic, partitions)


def test_two_queries_share_a_group_of_a_real_kafka(
    real_kafka: RealKafka, run: Run, tmp_path: Path
) -> None:
    source = make(real_kafka, "spark-shared", 4)
    source.put([(b"k", b"%d" % n) for n in range(4_000)])
    progress = run_two(run, source, tmp_path / "table", limit=400)
    assert [any(p.rows for p in batches) for batches in progress] == [True, True]
    verdict = verify(tmp_path / "table", source.settings)
    assert verdict.ok, [p.troubles for p in verdict.partitions]
    assert (verdict.total("rows"), verdict.total("unread")) == (4_000, 0)


def test_ranges_that_end_with_transaction_markers_are_read_to_their_end(
    real_kafka: RealKafka, run: Run, tmp_path: Path
) -> None:
    """Transaction markers take offsets; a marker is at the last offset of the log."""
    source = make(real_kafka, "spark-transactions", 1)
    producer = Producer(
        {"bootstrap.servers": real_kafka.bootstrap_servers, "transactional.id": "marks"}
    )
    producer.init_transactions(PATIENCE_S)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(source.topic, b"%d" % number, partition=0)
        producer.flush(PATIENCE_S)
        if number % 3 == 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    run(
        source,
        "SELECT value FROM records",
        limit=5,
        kafka={"isolation.level": "read_committed"},
    )
    settings = parse_client_settings(
        {"bootstrap.servers": source.bootstrap, "isolation.level": "read_committed"}
    )
    verdict = verify(tmp_path / "table", settings)
    assert verdict.ok, [p.troubles for p in verdict.partitions]
    assert [(p.end, p.rows) for p in verdict.partitions] == [(12, 4)]
