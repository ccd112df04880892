"""Warm handover between live members on a broker (section 1.7 of the reference)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.client.waiting import (
    MINUTE,
    WaitingGroup,
    a_member_is_drained_warmly,
    a_newcomer_prepares,
    a_standby_takes_over,
    standbys_of_the_leader_take_over,
)
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.consumer import Consumer
from kohort.client.listeners import PartitionsCallback
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition


@pytest.fixture
def group(kohort_broker: EmbeddedBroker) -> Iterator[WaitingGroup]:
    with ExitStack() as stack:
        yield WaitingGroup(kohort_broker.bootstrap_servers, stack, {})


def test_partitions_move_when_the_newcomer_has_warm_copies(group: WaitingGroup) -> None:
    a_newcomer_prepares(group)


def test_a_member_that_drains_works_until_the_others_are_ready(group: WaitingGroup) -> None:
    a_member_is_drained_warmly(group)


def test_lost_partitions_go_to_the_member_with_warm_copies(group: WaitingGroup) -> None:
    a_standby_takes_over(group)


def test_standbys_that_the_leader_chose_take_over(group: WaitingGroup) -> None:
    standbys_of_the_leader_take_over(group)


def test_standbys_need_a_stateful_topic() -> None:
    with pytest.raises(ConfigError, match=r"kohort\.stateful\.topics names no topic"):
        Consumer({"bootstrap.servers": "h:1", "group.id": "g", "kohort.standby.replicas": 1})


def test_a_deadline_ends_the_preparation(group: WaitingGroup) -> None:
    group.stateful()
    group.join(kohort_handover_timeout_ms=400)
    group.settled(12)
    group.join()
    group.settled(6, 6)


def test_a_member_of_librdkafka_does_not_prepare_and_waits_for_nothing(
    group: WaitingGroup,
) -> None:
    group.stateful()
    group.join()
    group.settled(12)
    group.join_librdkafka()
    group.settled(6, 6)


def test_a_leader_of_librdkafka_moves_partitions_at_once(group: WaitingGroup) -> None:
    group.join_librdkafka()
    group.settled(12)
    group.stateful()
    group.join()
    group.settled(6, 6)


MakeConsumer = Callable[..., Consumer]
MINE = "kohort.stateful.topics"


@pytest.fixture
def make_consumer(kohort_broker: EmbeddedBroker) -> Iterator[MakeConsumer]:
    address = kohort_broker.bootstrap_servers
    with ExitStack() as stack:
        admin = stack.enter_context(Admin(bootstrap_servers=address))
        topic = f"handed-over-{id(stack)}"
        admin.create_topic(topic, 4, 1)

        def make(
            on_prepare: PartitionsCallback | None = None,
            on_discard: PartitionsCallback | None = None,
        ) -> Consumer:
            consumer = Consumer(
                {MINE: topic},
                bootstrap_servers=address,
                group_id=topic,
                heartbeat_interval_ms=50,
            )
            stack.callback(consumer.close)
            consumer.subscribe([topic], on_prepare=on_prepare, on_discard=on_discard)
            return consumer

        yield make


def shares(*consumers: Consumer) -> list[int]:
    for consumer in consumers:
        consumer.poll(0)
    return [len(consumer.assignment()) for consumer in consumers]


def test_a_consumer_prepares_beside_its_polls(make_consumer: MakeConsumer) -> None:
    """The callback returns at once; another thread reports the warm copies."""
    asked: list[list[TopicPartition]] = []
    first = make_consumer()
    until(lambda: shares(first) == [4], "one consumer has all partitions")
    second = make_consumer(on_prepare=lambda _consumer, mine: asked.append(mine))
    until(lambda: shares(first, second) == [4, 0] and bool(asked), "it is asked to prepare")
    (mine,) = asked
    assert len(mine) == 2
    told = " ".join(second.status().waiting_for)
    assert "2 partitions move to this member when it has warm copies, or in " in told
    thread = threading.Thread(target=second.report_warm, args=(mine,))
    thread.start()
    thread.join()
    until(lambda: shares(first, second) == [2, 2], "the partitions moved")
    assert second.assignment() == set(mine)


def test_a_consumer_without_a_callback_is_ready_at_once(make_consumer: MakeConsumer) -> None:
    first = make_consumer()
    until(lambda: shares(first) == [4], "one consumer has all partitions")
    second = make_consumer()
    until(lambda: shares(first, second) == [2, 2], "the partitions moved")


def test_an_announcement_that_ends_is_told(make_consumer: MakeConsumer) -> None:
    """The third consumer takes a part of the announced partitions, so the second is told."""
    asked: list[list[TopicPartition]] = []
    dropped: list[list[TopicPartition]] = []
    first = make_consumer()
    until(lambda: shares(first) == [4], "one consumer has all partitions")
    second = make_consumer(
        on_prepare=lambda _consumer, mine: asked.append(mine),
        on_discard=lambda _consumer, mine: dropped.append(mine),
    )
    until(lambda: shares(first, second) == [4, 0] and bool(asked), "it is asked to prepare")
    third = make_consumer()
    until(lambda: shares(first, second, third) == [3, 0, 1] and bool(dropped), "the news")
    assert set(dropped[0]) < set(asked[0])


def test_stateful_topics_need_the_cooperative_assignor() -> None:
    with pytest.raises(ConfigError, match="need cooperative-sticky"):
        Consumer({MINE: "t", "partition.assignment.strategy": "range"}, group_id="g")


def test_waits_and_handover_work_together(kohort_broker: EmbeddedBroker) -> None:
    with ExitStack() as stack:
        a_newcomer_prepares(WaitingGroup(kohort_broker.bootstrap_servers, stack, MINUTE))
