"""Rules of Kafka's coordinator on which the policies depend, tried on a real Kafka.

docs/reference/broker-rules.md lists them. Rules with a number in tests/conformance are tried there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import confluent_kafka
import pytest
from tests.client.waiting import WaitingGroup
from tests.real_kafka.script import Script, port_of, settle
from tests.waiting import until

from kohort.client.admin import Admin
from kohort.model.errors import ErrorCode
from kohort.testing.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]


@pytest.fixture
def group(real_kafka: RealKafka) -> Iterator[WaitingGroup]:
    wait = {"scheduled.rebalance.max.delay.ms": 600_000}
    with ExitStack() as stack:
        yield WaitingGroup(real_kafka.bootstrap_servers, stack, wait)


def test_b14_a_plan_that_makes_the_record_too_large_ends_the_generation(
    real_kafka: RealKafka,
) -> None:
    script = Script(port_of(real_kafka.bootstrap_servers), f"large-{uuid.uuid4().hex[:8]}")
    settle(script)
    script.ids["a"] = ""
    script.joins("a")
    script.joins("a")
    leader = script.ids["a"]

    def sync(generation: int, size: int) -> str:
        request = script.sync_request("a", generation, {"a": b"x" * size}, "range")
        return ErrorCode.of(script.ask("a", "SyncGroup", request).error_code).name

    try:
        assert sync(1, 600_000) == "NONE"
        script.joins("a")
        assert sync(2, 1_100_000) == "UNKNOWN_SERVER_ERROR"
        beat = script.ask("a", "Heartbeat", script.beat_request("a", 2))
        assert ErrorCode.of(beat.error_code) is ErrorCode.REBALANCE_IN_PROGRESS
        assert leader == script.ids["a"], "the member stays, and joins again"
    finally:
        script.close()


def test_b15_b16_a_group_is_converted_if_nothing_is_pending(
    real_kafka: RealKafka, group: WaitingGroup
) -> None:
    for shares in ([12], [6, 6]):
        group.join()
        group.settled(*shares)
    group.lose(group.kohort[1])
    assert None not in group.user_data(), "the wait is in every assignment"
    with ExitStack() as stack:
        newer = _newer(real_kafka, group.name, stack)
        with pytest.raises(confluent_kafka.KafkaException, match="group id does not exist"):
            _polled(newer, group, lambda: bool(newer.assignment()))
    group.join()
    group.settled(6, 6)
    assert group.user_data() == [None, None]
    with ExitStack() as stack:
        newer = _newer(real_kafka, group.name, stack)
        _polled(newer, group, lambda: len(newer.assignment()) == 4 and _shares(group) == [4, 4])
        assert _type(real_kafka, group.name) == "consumer"
    until(lambda: _type(real_kafka, group.name) == "classic", "the group is converted back")
    until(lambda: len(group.kohort[0].waits()) == 1, "the partitions wait for the newer member")


def _newer(kafka: RealKafka, group_id: str, stack: ExitStack) -> confluent_kafka.Consumer:
    """A member of the protocol of KIP-848."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group_id,
            "group.protocol": "consumer",
            "log_level": 0,
        }
    )
    stack.callback(consumer.close)
    consumer.subscribe([group_id])
    return consumer


def _polled(newer: confluent_kafka.Consumer, group: WaitingGroup, over: Callable[[], bool]) -> None:
    """Poll the newer member, and give up what the others must, until ``over``."""

    def poll() -> None:
        message = newer.poll(0.05)
        if message is not None and message.error() is not None:
            raise confluent_kafka.KafkaException(message.error())
        group.owned()

    until(over, lambda: f"{newer.assignment()}, {_shares(group)}", between=poll)


def _shares(group: WaitingGroup) -> list[int]:
    return [len(mine) for mine in group.owned()]


def _type(kafka: RealKafka, group_id: str) -> str | None:
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        (found,) = [each.type for each in admin.list_groups() if each.group_id == group_id]
        return found
