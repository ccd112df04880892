"""Groups of consumer processes for tests: their owners, and members that are disturbed."""

from __future__ import annotations

import pytest

from kohort.model.errors import ConfigError
from kohort.testing.holders import Holders
from kohort.testing.kafka_group import KafkaGroup


def test_the_longest_time_without_an_owner_counts_from_the_first_owner() -> None:
    holders = Holders(2)
    assert (holders.complete, holders.longest_idle(100.0)) == (False, 0.0)
    holders.got("a", [0, 1], 100.0)
    assert (holders.complete, holders.longest_idle(200.0)) == (True, 0.0)
    holders.gave("a", [1], 200.0)
    assert (holders.owners, holders.longest_idle(203.0)) == ({0: "a"}, 3.0)
    holders.got("b", [1], 204.0)
    holders.ended("a", 210.0)
    assert (holders.complete, holders.longest_idle(211.0)) == (False, 4.0)


def test_a_revocation_after_the_next_owner_takes_nothing() -> None:
    holders = Holders(1)
    holders.got("a", [0], 1.0)
    holders.got("b", [0], 2.0)
    holders.gave("a", [0], 3.0)
    assert (holders.owners, holders.longest_idle(9.0)) == ({0: "b"}, 0.0)


@pytest.mark.slow
@pytest.mark.kafka_group(members=2, partitions=4)
def test_a_group_of_processes_is_disturbed_and_settles_again(kafka_group: KafkaGroup) -> None:
    assert sorted(kafka_group.owners) == [0, 1, 2, 3]
    kafka_group.wait_for(lambda: set(kafka_group.owners.values()) == {"c1", "c2"})
    kafka_group.stall("c1", 0.5)
    kafka_group.pause("c1", 0.5)
    before = kafka_group.max_idle_partition_s
    kafka_group.kill("c2")
    assert set(kafka_group.owners.values()) == {"c1"}
    assert kafka_group.states == {"c1": "runs", "c2": "killed"}
    idle = kafka_group.max_idle_partition_s
    assert idle > max(1.0, before), "the session of the dead member had to expire"
    with pytest.raises(ConfigError, match="member c2 does not run"):
        kafka_group.kill("c2")
    with pytest.raises(ConfigError, match="no member 'c9'; choose among c1, c2"):
        kafka_group.stall("c9", 1)
    kafka_group.restart("c2")
    kafka_group.stop("c1")
    assert set(kafka_group.owners.values()) == {"c2"}
