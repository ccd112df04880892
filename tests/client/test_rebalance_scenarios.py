"""Scenarios of rounds, listeners and ends of a membership, with consumers and the embedded broker.

The numbers are those of the list of member scenarios.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.client.one_consumer import TP0, TP1, committed, make, read, write
from tests.client.stage import expel
from tests.client.test_async_consumer import make_async, play
from tests.client.test_member_scenarios import poll_until
from tests.waiting import until

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.errors import Fenced
from kohort.client.listeners import RebalanceListener
from kohort.model.ids import TopicPartition

pytestmark = pytest.mark.slow

U0 = TopicPartition("u", 0)
Heard = list[tuple[str, list[TopicPartition]]]


@pytest.fixture
def broker(kohort_broker: EmbeddedBroker) -> EmbeddedBroker:
    """A broker with the topics t (two partitions) and u."""
    create(kohort_broker, t=2, u=1)
    return kohort_broker


def create(broker: EmbeddedBroker, **topics: int) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for name, partitions in topics.items():
            admin.create_topic(name, partitions, 1)


def listening(consumer: Consumer, topics: list[str] | re.Pattern[str], heard: Heard) -> None:
    """Subscribe, and note what the listener hears."""

    def note(kind: str) -> Callable[[Consumer, list[TopicPartition]], None]:
        return lambda _, partitions: heard.append((kind, sorted(partitions)))

    consumer.subscribe(
        topics, on_assign=note("assigned"), on_revoke=note("revoked"), on_lost=note("lost")
    )


class HeldOpen:
    """Holds a rebalance open: a consumer that owns everything is slow to revoke."""

    def __init__(self, consumer: Consumer, topics: list[str] | re.Pattern[str]) -> None:
        self.begun, self._end = threading.Event(), threading.Event()
        self._consumer = consumer
        consumer.subscribe(topics, on_revoke=self._hold)
        poll_until([consumer], consumer.assignment, "the consumer owns everything")
        self._thread = threading.Thread(
            target=poll_until, args=([consumer], self._end.is_set, "the end")
        )

    def _hold(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.begun.set()
        assert self._end.wait(20)

    def __enter__(self) -> HeldOpen:
        self._thread.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._end.set()
        self._thread.join()


def test_139_a_poll_that_is_cancelled_at_any_time_of_a_join_prepares_and_completes_it_once(
    broker: EmbeddedBroker,
) -> None:
    heard: Heard = []

    class Notes(RebalanceListener):
        def on_partitions_assigned(self, consumer: Any, partitions: Any) -> None:
            heard.append(("assigned", sorted(partitions)))

        def on_partitions_revoked(self, consumer: Any, partitions: Any) -> None:
            heard.append(("revoked", sorted(partitions)))

    async def piece() -> None:
        async with make_async(broker) as consumer:
            consumer.subscribe(["t"], Notes())
            cancelled = 0
            while not consumer.assignment():
                poll = asyncio.create_task(consumer.poll(1))
                for _ in range(1 + cancelled % 7):
                    await asyncio.sleep(0)
                poll.cancel()
                await asyncio.wait([poll])
                cancelled += poll.cancelled()
            assert cancelled > 10
            assert consumer.status().generation == 1
            assert heard == [("assigned", [TP0, TP1])]

    play(piece)


def test_140_an_interrupt_inside_the_assigned_callback_loses_no_plan(
    broker: EmbeddedBroker,
) -> None:
    """Kafka's Java consumer calls the listener again; kohort's raises once and keeps the plan."""
    calls: list[list[TopicPartition]] = []

    def interrupted(_: Consumer, partitions: list[TopicPartition]) -> None:
        calls.append(sorted(partitions))
        raise KeyboardInterrupt

    write(broker, (0, b"zero"), (1, b"one"))
    with make(broker) as consumer:
        consumer.subscribe(["t"], on_assign=interrupted)
        with pytest.raises(KeyboardInterrupt):
            poll_until([consumer], lambda: False, "the interrupt")
        assert consumer.assignment() == {TP0, TP1}
        assert {record.value() for record in read(consumer, 2)} == {b"zero", b"one"}
    assert calls == [[TP0, TP1]]


def test_142_topics_that_left_the_subscription_while_the_group_assigned_are_not_read(
    broker: EmbeddedBroker,
) -> None:
    """The subscription changes while another member holds the rebalance open."""
    heard: Heard = []
    create(broker, w=4)
    with make(broker) as other, make(broker) as consumer:
        with HeldOpen(other, ["w"]) as held:
            listening(consumer, ["w", "u"], heard)
            poll_until([consumer], held.begun.is_set, "the other member holds the rebalance open")
            listening(consumer, ["u"], heard)
        poll_until(
            [other, consumer],
            lambda: len(other.assignment()) == 4 and consumer.assignment() == {U0},
            "the last subscriptions rule",
        )
        assert {tp for kind, partitions in heard if kind == "assigned" for tp in partitions} == {U0}


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_159_a_changed_subscription_revokes_all_if_eager_and_nothing_that_stays_if_cooperative(
    broker: EmbeddedBroker, strategy: str
) -> None:
    heard: Heard = []
    with make(broker, partition_assignment_strategy=strategy) as consumer:
        listening(consumer, ["t"], heard)
        poll_until([consumer], consumer.assignment, "the first assignment")
        listening(consumer, ["t", "u"], heard)
        poll_until([consumer], lambda: U0 in consumer.assignment(), "the new topic")
        told = list(heard)
    first = ("assigned", [TP0, TP1])
    if strategy == "range":
        assert told == [first, ("revoked", [TP0, TP1]), ("assigned", [TP0, TP1, U0])]
    else:
        assert told == [first, ("assigned", [U0])]


def test_161_a_cooperative_round_without_news_calls_assigned_once_with_nothing(
    broker: EmbeddedBroker,
) -> None:
    heard: Heard = []
    with make(broker) as consumer:
        listening(consumer, ["t"], heard)
        poll_until([consumer], consumer.assignment, "the first assignment")
        consumer.enforce_rebalance("a test")
        poll_until([consumer], lambda: consumer.status().generation == 2, "the second generation")
        poll_until([consumer], lambda: len(heard) > 1, "the second call")
        assert heard == [("assigned", [TP0, TP1]), ("assigned", [])]


def test_162_an_expelled_member_hears_lost_before_it_joins_again(broker: EmbeddedBroker) -> None:
    heard: Heard = []
    with make(broker) as consumer:
        listening(consumer, ["t"], heard)
        poll_until([consumer], consumer.assignment, "the first assignment")
        expel(broker.bootstrap_servers, "g", consumer.status().member)
        poll_until([consumer], lambda: len(heard) == 3, "lost and assigned again")
        assert heard == [(kind, [TP0, TP1]) for kind in ("assigned", "lost", "assigned")]


def test_164_a_topic_that_appears_during_a_rebalance_costs_one_more_at_most(
    broker: EmbeddedBroker,
) -> None:
    pattern, quick = re.compile("[tv]"), {"metadata_max_age_ms": 200}
    with make(broker, **quick) as first, make(broker, **quick) as second:
        with HeldOpen(first, pattern) as held:
            second.subscribe(pattern)
            poll_until([second], held.begun.is_set, "a rebalance is under way")
            create(broker, v=2)
            poll_until([second], lambda: "v" in second.subscription(), "the topic is seen")
        both = [first, second]
        poll_until(
            both,
            lambda: all(len(c.assignment()) == 2 and c.status().seconds > 1 for c in both),
            "two partitions each, and a second without a rebalance",
        )
        # 1: alone. 2 and 3: the two rounds of the newcomer. 4 and 5: the two rounds of the topic.
        assert first.status().generation == second.status().generation <= 5


def test_165_a_topic_that_appears_starts_a_rebalance_if_its_name_is_subscribed_or_matches(
    broker: EmbeddedBroker,
) -> None:
    with make(broker, metadata_max_age_ms=200) as consumer:
        consumer.subscribe(re.compile("[tv]"))
        poll_until([consumer], consumer.assignment, "the first assignment")
        create(broker, w=1)
        poll_until([consumer], lambda: consumer.status().seconds > 1, "five refreshes")
        assert consumer.status().generation == 1
        create(broker, v=1)
        wanted = {TP0, TP1, TopicPartition("v", 0)}
        poll_until([consumer], lambda: consumer.assignment() == wanted, "the topic that matches")
        assert consumer.status().generation == 2
        consumer.subscribe(["t", "x"])
        poll_until([consumer], lambda: consumer.status().generation == 3, "the names")
        assert consumer.assignment() == {TP0, TP1}
        create(broker, x=1)
        wanted = {TP0, TP1, TopicPartition("x", 0)}
        poll_until([consumer], lambda: consumer.assignment() == wanted, "the name")
        assert consumer.status().generation == 4


@pytest.mark.parametrize("automatic", [True, False])
def test_191_what_was_processed_is_committed_before_a_join_unless_commits_are_off(
    broker: EmbeddedBroker, automatic: bool
) -> None:
    write(broker, (0, b"zero"), (1, b"one"))
    seen: list[dict[TopicPartition, int]] = []
    more = {"enable_auto_commit": automatic, "auto_commit_interval_ms": 60_000}
    with make(broker, partition_assignment_strategy="range", **more) as consumer:
        consumer.subscribe(["t"], on_assign=lambda *_: seen.append(committed(broker)))
        read(consumer, 2)
        assert consumer.poll(0.1) is None  # the records before this poll are processed
        consumer.enforce_rebalance("a test")
        poll_until([consumer], lambda: len(seen) == 2, "the second assignment")
    assert seen == [{}, {TP0: 1, TP1: 1} if automatic else {}]


@pytest.mark.parametrize("timeout_s", [0.0, 1.0])
def test_201_closing_without_a_coordinator_is_bounded_and_ends_the_thread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, timeout_s: float
) -> None:
    """Neither the commit nor the leave is answered."""
    before = threading.active_count()
    with EmbeddedBroker(tmp_path) as broker:
        create(broker, t=2)
        write(broker, (0, b"zero"))
        consumer = make(broker)
        consumer.subscribe(["t"])
        read(consumer, 1)
        assert consumer.poll(0.1) is None  # the record is processed
    began = time.monotonic()
    consumer.close(timeout_s)
    assert time.monotonic() - began < timeout_s + 15
    until(lambda: threading.active_count() <= before, "the threads end")
    assert "the offsets of the last records may not be committed" in caplog.text


def test_202_a_static_member_that_is_replaced_ends_and_does_not_take_its_place_back(
    broker: EmbeddedBroker,
) -> None:
    with make(broker, group_instance_id="one") as first:
        first.subscribe(["t"])
        poll_until([first], first.assignment, "the first process has its partitions")
        with make(broker, group_instance_id="one") as second:
            second.subscribe(["t"])
            with pytest.raises(Fenced, match=r"group\.instance\.id"):
                poll_until([first, second], lambda: False, "the first process is fenced")
            poll_until([second], lambda: second.assignment() == {TP0, TP1}, "the second has them")
            member, generation = second.status().member, second.status().generation
            with pytest.raises(Fenced):
                first.poll(0)
            poll_until([second], lambda: second.status().seconds > 1, "a second passed")
            assert (second.status().member, second.status().generation) == (member, generation)
            assert second.assignment() == {TP0, TP1}
