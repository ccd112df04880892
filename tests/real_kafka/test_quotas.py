"""Quotas of a real Apache Kafka: a client over its quota waits as long as the broker says."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import confluent_kafka
import pytest
from tests.client.columns import Row, consumer, rows_by_arrow, rows_by_poll
from tests.client.stage import topic

from kohort import Consumer
from kohort.testing.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]

CONFIGS = "kafka.admin.ConfigCommand"
BYTES_A_SECOND = 50_000
RECORDS = 250


@pytest.mark.parametrize("read", [rows_by_arrow, rows_by_poll])
def test_a_consumer_over_its_quota_is_slow_and_keeps_its_membership(
    narrow_kafka: RealKafka, read: Callable[[Consumer, int], list[Row]]
) -> None:
    address, client = narrow_kafka.bootstrap_servers, f"over-{uuid.uuid4().hex}"
    narrow_kafka.tool(
        CONFIGS,
        *("--bootstrap-server", address, "--alter", "--entity-type", "clients"),
        *("--entity-name", client, "--add-config"),
        f"consumer_byte_rate={BYTES_A_SECOND}",
    )
    with topic(address, 1) as name:
        # Kafka never sends a batch that is larger than the quota of its whole window.
        producer = confluent_kafka.Producer({"bootstrap.servers": address, "batch.size": 10_000})
        for number in range(RECORDS):
            producer.produce(name, b"v" * 1_000, b"%d" % number)
        assert producer.flush(30) == 0
        lost: list[object] = []
        with consumer(address, client_id=client, fetch_max_bytes=30_000) as reader:
            reader.subscribe([name], on_lost=lambda _, partitions: lost.extend(partitions))
            began = time.monotonic()
            rows = read(reader, RECORDS)
            took = time.monotonic() - began
            reader.commit()
            offsets = reader.committed(reader.assignment())
    assert [row[3] for row in rows] == [b"%d" % number for number in range(RECORDS)]
    assert [at.offset for at in offsets.values()] == [RECORDS]
    assert not lost
    assert took > 3, (
        "1.5 s are the initial delay; 250 kB are 5 s of the quota, less its window of 2 s"
    )
