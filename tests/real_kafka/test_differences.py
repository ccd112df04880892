"""Differences between kohort and Kafka after a crash, both shown on real processes.

What needs no crash is a scenario of tests/conformance, with its line in differences.toml there.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.real_kafka.script import Peer, Script, port_of, settle

from kohort.broker.embedded import EmbeddedBroker
from kohort.coordinator.partitions import partition_for
from kohort.coordinator.records import GenerationRecord, ReservedGeneration
from kohort.model.ids import GenerationId, GroupId
from kohort.storage.group_records import write_record
from kohort.storage.records import Record, build_batch
from kohort.testing.real_kafka import RealKafka
from kohort.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]

OFFSETS_PARTITIONS = 8
SETTINGS: dict[str, Any] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
}


def generation(line: str) -> int:
    return int(line.partition("'NONE', ")[2].partition(",")[0])


def tells_a_generation_that_is_never_synced(script: Script) -> int:
    settle(script)
    # With an offset the group is not swept away between the two steps of its first join.
    script.ids["z"] = ""
    script.commits("z", -1, "")
    script.ids["a"] = ""
    script.joins("a")
    script.joins("a")
    script.syncs("a", 1, {"a": b"1"})
    script.joins("a")
    script.close()
    return generation(script.lines[-1])


def tells_the_next(script: Script, member_id: str) -> int:
    settle(script)
    script.ids["a"] = member_id
    script.joins("a")
    script.close()
    return generation(script.lines[-1])


def plant(port: int, group: str) -> None:
    """Put a reservation, as kohort writes it, into Kafka's own ``__consumer_offsets``."""
    record = GenerationRecord(
        group_id=GroupId(group), value=ReservedGeneration(generation_id=GenerationId(9))
    )
    key, value = write_record(record)
    batch = build_batch([Record(key, value, int(time.time() * 1_000))])
    partition = PartitionProduceData(
        index=partition_for(group, OFFSETS_PARTITIONS), records=bytes(batch)
    )
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name="__consumer_offsets", partition_data=[partition])],
    )
    # The one client id that Kafka lets write to its own topics.
    peer = Peer(port, "__admin_client")
    peer.send("Produce", request, 9)
    (response,) = peer.receive().responses
    peer.close()
    assert response.partition_responses[0].error_code == 0


def test_a_generation_that_was_told_is_told_again_by_kafka_after_a_crash_and_never_here(
    narrow_kafka: RealKafka, tmp_path: Path
) -> None:
    """Kafka goes on with a log in which kohort's records are: it passes over them."""
    script = Script(port_of(narrow_kafka.bootstrap_servers), "told")
    assert tells_a_generation_that_is_never_synced(script) == 2
    plant(port_of(narrow_kafka.bootstrap_servers), "told")
    narrow_kafka.kill()
    narrow_kafka.restart()
    again = Script(port_of(narrow_kafka.bootstrap_servers), "told")
    assert tells_the_next(again, script.ids["a"]) == 2
    log = narrow_kafka.log().read_text()
    assert "Unknown record type 27495 while loading offsets and group metadata" in log

    with EmbeddedBroker(tmp_path / "data", **SETTINGS) as broker:
        script = Script(port_of(broker.bootstrap_servers), "told")
        assert tells_a_generation_that_is_never_synced(script) == 2
    with EmbeddedBroker(tmp_path / "data", **SETTINGS) as broker:
        again = Script(port_of(broker.bootstrap_servers), "told")
        assert tells_the_next(again, script.ids["a"]) == 3


def returns_while_a_round_is_unfinished(script: Script) -> str:
    """A static member restarts before anybody has synced; returns its answer's generation line."""
    settle(script)
    script.instances["a"] = "one"
    script.ids["a"] = ""
    script.joins("a")
    script.syncs("a", 1, {"a": b"1"})
    script.joins("a")
    script.joins("a", "")
    script.close()
    assert generation(script.lines[-1]) == 3
    return script.ids["a"]


def beats_as(script: Script, member_id: str) -> str:
    script.instances["a"] = "one"
    script.ids["a"] = member_id
    settle(script)
    script.beats("a", 3)
    script.close()
    return script.lines[-1]


def test_a_static_id_told_in_an_unfinished_round_is_fenced_by_kafka_after_a_crash_and_known_here(
    narrow_kafka: RealKafka, tmp_path: Path
) -> None:
    told = returns_while_a_round_is_unfinished(
        Script(port_of(narrow_kafka.bootstrap_servers), "unfinished")
    )
    narrow_kafka.kill()
    narrow_kafka.restart()
    again = Script(port_of(narrow_kafka.bootstrap_servers), "unfinished")
    assert "FENCED_INSTANCE_ID" in beats_as(again, told)

    with EmbeddedBroker(tmp_path / "data", **SETTINGS) as broker:
        told = returns_while_a_round_is_unfinished(
            Script(port_of(broker.bootstrap_servers), "unfinished")
        )
    with EmbeddedBroker(tmp_path / "data", **SETTINGS) as broker:
        again = Script(port_of(broker.bootstrap_servers), "unfinished")
        assert "ILLEGAL_GENERATION" in beats_as(again, told)
