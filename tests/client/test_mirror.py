"""Mirrors between two embedded brokers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.client.mirroring import PARTITIONS, Mirrored
from tests.client.stage import expel
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.errors import WrongUse
from kohort.client.mirror import Mirror
from kohort.client.producing import DeliveryFailed
from kohort.model.errors import ConfigError

SOURCE = {"bootstrap.servers": "h:1", "group.id": "g"}
TARGET = {"bootstrap.servers": "h:2"}


@pytest.fixture
def mirrored(kohort_broker: EmbeddedBroker) -> Iterator[Mirrored]:
    with EmbeddedBroker() as target, ExitStack() as stack:
        yield Mirrored(kohort_broker.bootstrap_servers, target.bootstrap_servers, stack)


def test_records_arrive_as_they_are_in_the_same_partitions_and_order(mirrored: Mirrored) -> None:
    mirrored.write(50)
    worker = mirrored.start()
    mirrored.settled()
    assert worker.metrics()["records-consumed-total"] == 50 * PARTITIONS
    mirrored.stop(worker)
    source, target = mirrored.addresses
    assert mirrored.rows(target, mirrored.topic) == mirrored.rows(source, mirrored.topic)
    assert worker.copied == 50 * PARTITIONS


def test_workers_share_the_partitions_and_lose_and_repeat_nothing(mirrored: Mirrored) -> None:
    mirrored.write(50)
    first = mirrored.start()
    mirrored.settled()
    second = mirrored.start()
    until(lambda: mirrored.shares() == [2, 2], "both have partitions")
    mirrored.write(50)
    mirrored.settled()
    mirrored.stop(first)
    mirrored.write(50)
    mirrored.settled()
    mirrored.stop(second)
    source, target = mirrored.addresses
    assert mirrored.rows(target, mirrored.topic) == mirrored.rows(source, mirrored.topic)
    assert first.copied + second.copied == 150 * PARTITIONS


def test_the_target_has_another_name_and_the_settings_of_the_source(mirrored: Mirrored) -> None:
    mirrored.source.alter_topic(mirrored.topic, {"retention.ms": "86400000"})
    mirrored.write(1)
    mirrored.start(rename="backup.{topic}")
    mirrored.settled()
    name = f"backup.{mirrored.topic}"
    assert len(mirrored.target.topics([name])[name].topic_partitions) == PARTITIONS
    assert mirrored.target.topic_settings(name)["retention.ms"].value == "86400000"
    assert mirrored.rows(mirrored.addresses[1], name)[0]


def test_a_target_with_fewer_partitions_grows(mirrored: Mirrored) -> None:
    mirrored.target.create_topic(mirrored.topic, 1, 1)
    mirrored.write(5)
    mirrored.start()
    mirrored.settled()
    found = mirrored.target.topics([mirrored.topic])[mirrored.topic]
    assert len(found.topic_partitions) == PARTITIONS


def test_a_refused_record_ends_the_worker_and_stays_uncommitted(mirrored: Mirrored) -> None:
    mirrored.source.alter_topic(mirrored.topic, {"max.message.bytes": "5000000"})
    mirrored.target.create_topic(mirrored.topic, PARTITIONS, 1, {"max.message.bytes": "1000"})
    mirrored.write(3)
    mirrored.producer.produce(
        mirrored.topic, random.Random(1).randbytes(2_000), partition=2, headers=[]
    )
    for number in range(2_000):
        mirrored.producer.produce(mirrored.topic, b"behind-%d" % number, partition=2, headers=[])
    assert mirrored.producer.flush(20) == 0
    mirrored.ended(mirrored.start())
    (error,) = mirrored.failures
    assert isinstance(error, DeliveryFailed)
    assert f"{mirrored.topic}-2 at offset 3, 2000 bytes: the target" in str(error)
    assert mirrored.committed() <= 3 * PARTITIONS, "the refused record is not committed"
    mirrored.failures.clear()
    mirrored.target.alter_topic(mirrored.topic, {"max.message.bytes": "1000000"})
    mirrored.start()
    everything = 3 * PARTITIONS + 2_001
    until(lambda: mirrored.committed() == everything, "the record is copied now")
    source, target = mirrored.addresses
    found = [row[1] for row in mirrored.rows(target, mirrored.topic)[2]]
    wanted = [row[1] for row in mirrored.rows(source, mirrored.topic)[2]]
    assert list(dict.fromkeys(found)) == wanted, "in order, apart from repeats"
    at = found.index(wanted[3])
    assert set(found[:at]) <= set(wanted[:3]), "no later record was written before"


def test_a_topic_is_never_copied_into_itself(kohort_broker: EmbeddedBroker) -> None:
    address = kohort_broker.bootstrap_servers
    with ExitStack() as stack:
        mirrored = Mirrored(address, address, stack)
        mirrored.ended(mirrored.start())
        (error,) = mirrored.failures
        assert isinstance(error, ConfigError)
        assert "would be copied into itself" in str(error)
        mirrored.failures.clear()
        mirrored.write(2)
        mirrored.start(rename="{topic}-copy")
        mirrored.settled()


def test_a_missing_topic_is_named(mirrored: Mirrored) -> None:
    mirrored.source.delete_topics([mirrored.topic])
    mirrored.ended(mirrored.start())
    assert str(mirrored.failures[0]) == f"the topic {mirrored.topic} does not exist in the source"


def test_a_static_worker_returns_without_a_rebalance(mirrored: Mirrored) -> None:
    mirrored.write(5)
    names = [{"settings": {"group.instance.id": name}} for name in "ab"]
    second = [mirrored.start(**each) for each in names][1]
    mirrored.settled()
    until(lambda: mirrored.shares() == [2, 2], "both have partitions")
    described = mirrored.source.describe_group(mirrored.group)
    mirrored.stop(second)
    mirrored.start(**names[1])
    mirrored.write(5)
    mirrored.settled()
    again = mirrored.source.describe_group(mirrored.group)
    assert {m.group_instance_id: m.partitions for m in again.members} == {
        m.group_instance_id: m.partitions for m in described.members
    }


@pytest.mark.parametrize(
    ("source", "topics", "more", "expected"),
    [
        (SOURCE, ["t"], {"rename": "copy"}, "expected a text with {topic} in it"),
        ({"bootstrap.servers": "h:1"}, ["t"], {}, "group.id is missing"),
        (SOURCE, ["t"], {"commit_interval_s": 0}, "commit interval above 0 s"),
    ],
)
def test_wrong_arguments_are_refused(
    source: dict[str, str], topics: list[str], more: dict[str, object], expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Mirror(source, TARGET, topics, **more)  # type: ignore[arg-type]
    assert expected in str(caught.value)


@pytest.mark.parametrize("topics", [[], "t"])
def test_topics_are_a_list_of_names(topics: object) -> None:
    with pytest.raises(WrongUse):
        Mirror(SOURCE, TARGET, topics)  # type: ignore[arg-type]


def test_records_without_key_value_or_headers_stay_so(mirrored: Mirrored) -> None:
    mirrored.producer.produce(mirrored.topic, None, b"deleted", partition=0)
    mirrored.producer.produce(mirrored.topic, b"no key", partition=0)
    assert mirrored.producer.flush(20) == 0
    mirrored.start()
    until(lambda: mirrored.committed() == 2, "both are copied")
    source, target = mirrored.addresses
    rows = mirrored.rows(target, mirrored.topic)[0]
    assert [row[:3] for row in rows] == [(b"deleted", None, None), (None, b"no key", None)]
    assert rows == mirrored.rows(source, mirrored.topic)[0]


def test_lost_partitions_are_copied_again_and_nothing_is_committed(mirrored: Mirrored) -> None:
    mirrored.write(5)
    worker = mirrored.start(commit_interval_s=3_600)
    until(lambda: worker.copied == 5 * PARTITIONS, "everything is copied")
    (member,) = mirrored.source.describe_group(mirrored.group).members
    expel(mirrored.addresses[0], mirrored.group, member.member_id)
    until(lambda: worker.copied == 10 * PARTITIONS, "everything is copied again")
    assert mirrored.committed() == 0
    mirrored.stop(worker)
    assert mirrored.committed() == 5 * PARTITIONS


def test_run_can_be_called_once(mirrored: Mirrored) -> None:
    worker = mirrored.start()
    until(lambda: mirrored.source.committed(mirrored.group) is not None, "begun")
    mirrored.stop(worker)
    with pytest.raises(WrongUse, match="make a new Mirror"):
        worker.run()
