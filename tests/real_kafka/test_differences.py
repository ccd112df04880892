"""What kohort does otherwise than Kafka on purpose: Kafka's way, seen on a real one, and ours.

Each of these has its line in docs/reference/differences.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.real_kafka.script import Peer, Script, port_of, settle

from kohort.broker.embedded import EmbeddedBroker
from kohort.coordinator.partitions import partition_for
from kohort.coordinator.records import GenerationRecord, ReservedGeneration
from kohort.model.ids import GenerationId, GroupId
from kohort.storage.group_records import write_record
from kohort.storage.records import Record, build_batch
from kohort.testing.kafka_jars import installed
from kohort.testing.real_kafka import RealKafka, absence
from kohort.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]

OFFSETS_PARTITIONS = 8
SETTINGS: dict[str, str | int] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """A node that these tests may kill."""
    if installed() is None:
        pytest.skip(absence())
    with RealKafka(tmp_path_factory.mktemp("kafka"), settings=SETTINGS) as node:
        yield node


@pytest.fixture
def kohort() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(**SETTINGS) as broker:  # type: ignore[arg-type]
        yield broker


def generation(line: str) -> int:
    return int(line.partition("'NONE', ")[2].partition(",")[0])


def tells_a_generation_that_is_never_synced(script: Script) -> int:
    settle(script)
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
    kafka: RealKafka, tmp_path: Path
) -> None:
    """Kafka goes on with a log in which kohort's records are: it passes over them."""
    script = Script(port_of(kafka.bootstrap_servers), "told")
    assert tells_a_generation_that_is_never_synced(script) == 2
    plant(port_of(kafka.bootstrap_servers), "told")
    kafka.kill()
    kafka.restart()
    again = Script(port_of(kafka.bootstrap_servers), "told")
    assert tells_the_next(again, script.ids["a"]) == 2
    log = kafka.log().read_text()
    assert "Unknown record type 27495 while loading offsets and group metadata" in log

    with EmbeddedBroker(tmp_path / "data", **SETTINGS) as broker:  # type: ignore[arg-type]
        script = Script(port_of(broker.bootstrap_servers), "told")
        assert tells_a_generation_that_is_never_synced(script) == 2
    with EmbeddedBroker(tmp_path / "data", **SETTINGS) as broker:  # type: ignore[arg-type]
        again = Script(port_of(broker.bootstrap_servers), "told")
        assert tells_the_next(again, script.ids["a"]) == 3


def rejoins_beside_a_dead_one(script: Script) -> str:
    """b's connection dies while its JoinGroup is parked; then a, the leader, rejoins."""
    settle(script)
    script.ids = dict.fromkeys("abz", "")
    brief = {"session": 3_000, "rebalance": 20_000}
    script.joins("a", **brief)
    script.joins("a", **brief)
    script.joins("b", **brief)
    script.starts_join("b", **brief)
    script.peers["b"].close()
    time.sleep(0.5)
    script.joins("a", **brief)
    script.close()
    return script.lines[-1]


def test_a_member_whose_connection_died_while_parked_counts_as_joined_in_kafka_not_here(
    kafka: RealKafka, kohort: EmbeddedBroker
) -> None:
    there = rejoins_beside_a_dead_one(Script(port_of(kafka.bootstrap_servers), "dead"))
    here = rejoins_beside_a_dead_one(Script(port_of(kohort.bootstrap_servers), "dead"))
    assert there.startswith("a join: ('NONE', 2")
    assert here.startswith("a join: ('NONE', 2")
    assert there.count("b'") == 2, "the dead one is in the leader's list"
    assert here.count("b'") == 1


DAMAGED = bytes.fromhex("00000000000100ff74")
"""A subscription whose one topic claims 255 bytes and has one."""


def meets_damaged_metadata(script: Script) -> list[str]:
    settle(script)
    script.ids = dict.fromkeys("abz", "")
    script.joins("a")
    script.joins("a")
    script.syncs("a", 1, {"a": b"1"})
    script.starts_join("b", version=3, metadata=DAMAGED, session=2_500)
    script.beats("a", 1)
    script.joins("a")
    script.close()
    return script.lines[-2:]


def test_metadata_that_does_not_parse_breaks_a_round_in_kafka_and_is_refused_here(
    kafka: RealKafka, kohort: EmbeddedBroker
) -> None:
    there = meets_damaged_metadata(Script(port_of(kafka.bootstrap_servers), "damaged"))
    assert there[0] == "a beat 1: REBALANCE_IN_PROGRESS"
    assert "UNKNOWN_SERVER_ERROR" in there[1]
    here = meets_damaged_metadata(Script(port_of(kohort.bootstrap_servers), "damaged"))
    assert here[0] == "a beat 1: NONE"
    assert "('NONE', 2" in here[1]


def meets_an_id_that_never_joins(script: Script) -> tuple[float, str]:
    """How long the leader's round takes while an id is outstanding; what comes of its leaving."""
    settle(script)
    script.ids = dict.fromkeys("abz", "")
    script.joins("a", rebalance=20_000)
    script.joins("a", rebalance=20_000)
    script.syncs("a", 1, {"a": b"1"})
    script.joins("b", session=4_000)
    start = time.monotonic()
    script.joins("a", rebalance=20_000)
    took = time.monotonic() - start
    script.syncs("a", 2, {"a": b"1"})
    script.ids["b"] = ""
    script.joins("b")
    script.leaves("b")
    script.beats("a", 2)
    script.close()
    return took, script.lines[-1]


def test_an_id_that_never_joins_holds_and_starts_rounds_in_kafka_not_here(
    kafka: RealKafka, kohort: EmbeddedBroker
) -> None:
    took, beat = meets_an_id_that_never_joins(Script(port_of(kafka.bootstrap_servers), "pending"))
    assert took > 3
    assert beat == "a beat 2: REBALANCE_IN_PROGRESS"
    took, beat = meets_an_id_that_never_joins(Script(port_of(kohort.bootstrap_servers), "pending"))
    assert took < 2
    assert beat == "a beat 2: NONE"


def misses_a_round_and_returns(script: Script) -> str:
    """Static b is away while a round closes, and is back before its sync is overdue."""
    settle(script)
    script.ids = dict.fromkeys("abz", "")
    script.instances = {"a": "i-a", "b": "i-b"}
    lasting = {"session": 20_000, "rebalance": 1_500}
    script.joins("a", **lasting)
    script.starts_join("b", **lasting)
    script.starts_join("a", **lasting)
    script.ends_join("a")
    script.ends_join("b")
    script.starts_sync("b", 2)
    script.syncs("a", 2, {"a": b"1", "b": b"2"})
    script.ends_sync("b")
    script.joins("a", **lasting)
    script.syncs("a", 3, {"a": b"1", "b": b"2"})
    script.joins("b", "", **lasting)
    script.syncs("b", 3)
    assert "NONE" in script.lines[-1]
    time.sleep(2)
    script.beats("a", 3)
    script.close()
    return script.lines[-1]


def test_a_static_member_that_missed_a_round_and_returns_costs_another_in_kafka_not_here(
    kafka: RealKafka, kohort: EmbeddedBroker
) -> None:
    there = misses_a_round_and_returns(Script(port_of(kafka.bootstrap_servers), "missed"))
    assert there == "a beat 3: REBALANCE_IN_PROGRESS"
    here = misses_a_round_and_returns(Script(port_of(kohort.bootstrap_servers), "missed"))
    assert here == "a beat 3: NONE"


def is_assigned_much(script: Script) -> str:
    settle(script)
    script.ids = dict.fromkeys("abz", "")
    script.joins("a")
    script.joins("a")
    script.syncs("a", 1, {"a": bytes(1_200_000)})
    script.close()
    return script.lines[-1][:40]


def test_an_assignment_larger_than_a_message_fails_in_kafka_and_fits_here(
    kafka: RealKafka, kohort: EmbeddedBroker
) -> None:
    there = is_assigned_much(Script(port_of(kafka.bootstrap_servers), "large"))
    assert there.startswith("a sync: ('UNKNOWN_SERVER_ERROR'")
    here = is_assigned_much(Script(port_of(kohort.bootstrap_servers), "large"))
    assert here.startswith("a sync: ('NONE'")
