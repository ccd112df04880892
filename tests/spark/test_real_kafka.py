"""Pipelines on a real Apache Kafka: over TLS with a login, and with offsets without records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from tests.real_kafka.secured import Secured, login, secured_kafka
from tests.spark.conftest import PATIENCE_S, Feed, run_two

from kohort.client.admin import Admin
from kohort.client.config import parse_client_settings
from kohort.spark.tables.verify import verify
from kohort.testing.kafka_jars import installed
from kohort.testing.real_kafka import RealKafka, absence

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.real_kafka,
    pytest.mark.timeout(900),
]

Run = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if installed() is None:
        pytest.skip(absence())
    with secured_kafka(tmp_path_factory.mktemp("secured")) as cluster:
        yield cluster


def make(kafka: RealKafka, topic: str, partitions: int) -> Feed:
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topic(topic, partitions)
    return Feed(kafka.bootstrap_servers, topic, partitions)


def test_two_queries_share_a_group_of_a_real_kafka_over_tls_with_a_login(
    secured: Secured, run: Run, tmp_path: Path
) -> None:
    """The members, the tasks and the judge log in at the same listener."""
    source = make(secured.kafka, "spark-shared", 4)
    source.put([(b"k", b"%d" % n) for n in range(4_000)])
    settings = secured.at("LOGIN", secured.trusted, login("SCRAM-SHA-512"))
    assert settings["security.protocol"] == "SASL_SSL"
    secure = dataclasses.replace(source, bootstrap=settings.pop("bootstrap.servers"), more=settings)
    progress = run_two(run, secure, tmp_path / "table", limit=400)
    assert [any(p.rows for p in batches) for batches in progress] == [True, True]
    written = DeltaTable(tmp_path / "table").to_pyarrow_table().column("value").to_pylist()
    assert sorted(map(int, written)) == list(range(4_000))
    verdict = verify(tmp_path / "table", secure.settings)
    assert verdict.ok, [p.troubles for p in verdict.partitions]
    assert (verdict.total("rows"), verdict.total("unread")) == (4_000, 0)


def test_ranges_that_end_with_transaction_markers_are_read_to_their_end(
    secured: Secured, run: Run, tmp_path: Path
) -> None:
    """Transaction markers take offsets; a marker is at the last offset of the log."""
    source = make(secured.kafka, "spark-transactions", 1)
    producer = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "marks"})
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
