"""Deferred and paced rebalances of live members on a broker (Designs II and III)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.client.stage import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.membership import GroupMembership
from kohort.embedded.consumer import decode_assignment
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition

Start = Callable[..., GroupMembership]
PARTITIONS = 12
WAIT = {"scheduled.rebalance.max.delay.ms": 60_000}


@pytest.fixture
def start(kohort_broker: EmbeddedBroker) -> Iterator[Start]:
    with Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as admin:
        admin.create_topic("t", PARTITIONS, 1)
    with ExitStack() as stack:

        def start(**more: object) -> GroupMembership:
            given: dict[str, object] = {
                "bootstrap.servers": kohort_broker.bootstrap_servers,
                "group.id": "g",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 50,
            }
            member = GroupMembership(["t"], {**given, **more})
            stack.callback(member.leave)
            member.join()
            return member

        yield start


def settled(*members: GroupMembership, idle: int = 0) -> None:
    """Wait until all partitions but ``idle`` have an owner and the shares are equal."""
    shares = (PARTITIONS - idle) // len(members)

    def there() -> bool:
        for member in members:
            member.release(member.snapshot().revoking)
        seen = [member.snapshot() for member in members]
        one_generation = len({each.generation for each in seen}) == 1
        return one_generation and all(len(each.owned) == shares for each in seen)

    until(there, f"{len(members)} members have {shares} partitions each")


def owned(*members: GroupMembership) -> list[frozenset[TopicPartition]]:
    return [member.snapshot().owned for member in members]


def assignments(broker: EmbeddedBroker) -> list[bytes | None]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        group = admin.describe_group("g")
        return [decode_assignment(member.assignment).user_data for member in group.members]


@pytest.mark.parametrize("leaver", [0, 2], ids=["the leader", "a follower"])
def test_a_member_that_returns_gets_its_partitions_and_no_other_partition_moves(
    start: Start, kohort_broker: EmbeddedBroker, leaver: int
) -> None:
    members = []
    for _ in range(3):
        members.append(start(**WAIT))
        settled(*members)
    gone = members.pop(leaver)
    (lost,), before = owned(gone), owned(*members)
    generation = gone.snapshot().generation
    gone.leave()
    until(lambda: all(m.waits() for m in members), "the others know that the group waits")
    settled(*members, idle=4)
    (wait,) = members[0].waits()
    assert wait.partitions == lost
    assert 0 < wait.remaining_ms <= 60_000
    assert owned(*members) == before
    returned = start(**WAIT)
    settled(*members, returned)
    assert owned(*members, returned) == [*before, lost]
    assert returned.snapshot().generation == generation + 2
    assert [m.waits() for m in members] == [(), ()]
    assert assignments(kohort_broker) == [None] * 3, "the group can be converted (KAFKA-18134)"


def test_the_wait_ends_by_the_leaders_timer(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kohort.client")
    soon = {"scheduled.rebalance.max.delay.ms": 400}
    members = [start(**soon)]
    settled(*members)
    members.append(start(**soon))
    settled(*members)
    members.pop().leave()
    settled(*members)
    assert "6 partitions wait up to 0.4 s for the member that had them: t-" in caplog.text
    assert members[0].waits() == ()


def test_two_moves_a_round_reach_the_balance(start: Start) -> None:
    pace = {"kohort.max.moves.per.round": 2, "kohort.moves.interval.ms": 100}
    members = [start(**pace)]
    settled(*members)
    members.append(start(**pace))
    first = members[0].snapshot().generation
    settled(*members)
    rounds = members[0].snapshot().generation - first
    assert rounds >= 6, "three times: a round that takes two partitions away, and one that gives"


@pytest.mark.parametrize("text", ["0", "-1", "some", "0%", "101%", "1.5"])
def test_a_limit_of_moves_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"kohort\.max\.moves\.per\.round is .*, expected"):
        GroupMembership(
            ["t"], bootstrap_servers="h:1", group_id="g", kohort_max_moves_per_round=text
        )


def test_waits_need_the_cooperative_assignor() -> None:
    with pytest.raises(ConfigError, match="need cooperative-sticky"):
        GroupMembership(
            ["t"],
            {"scheduled.rebalance.max.delay.ms": 1, "partition.assignment.strategy": "range"},
            bootstrap_servers="h:1",
            group_id="g",
        )
