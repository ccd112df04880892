"""Mistakes of applications: a typed exception says what to do, and processed records are committed.

Each row of `ROWS` reads ten records of partition 0, does something wrong, and tells which exception
must come, which words it must have, and which offset is committed at the end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.client.one_consumer import TP0, TP1, committed, make, read
from tests.waiting import until

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.connections import forking
from kohort.client.errors import CommitFailed, DeserializationFailed, WrongUse
from kohort.client.membership import GroupMembership

PROCESSED = 10


def _subscribed(consumer: Consumer[Any, Any], **callbacks: Any) -> None:
    """Read ten records of partition 0."""
    consumer.subscribe(["t"], **callbacks)
    until(lambda: (consumer.poll(0), consumer.assignment())[1], "the assignment")
    consumer.pause([TP1])
    consumer.seek(TP0, 0)
    read(consumer, PROCESSED)


def listener_raises(consumer: Consumer[Any, Any]) -> None:
    def revoked(*_: object) -> None:
        raise LookupError("the listener's own failure")

    _subscribed(consumer, on_revoke=revoked)
    consumer.unsubscribe()


def listener_hangs(consumer: Consumer[Any, Any]) -> None:
    """A rebalance calls the listener, which takes longer than ``max.poll.interval.ms``."""

    heard: list[object] = []

    def assigned(consumer: Consumer[Any, Any], partitions: list[object]) -> None:
        if not partitions:
            heard.append(partitions)
            while consumer.status().state.name != "UNJOINED":
                time.sleep(0.01)
            assert "assigned (test_bad_input.py:" in consumer.status().why
            consumer.commit({TP0: 99})

    _subscribed(consumer, on_assign=assigned)
    consumer.commit()
    consumer.enforce_rebalance("a test")
    until(lambda: consumer.poll(0.1) is not None and heard, "the listener ends")


def deserializer_raises(consumer: Consumer[Any, Any]) -> None:
    _subscribed(consumer)
    consumer.poll(5)


def close_inside_a_callback(consumer: Consumer[Any, Any]) -> None:
    _subscribed(consumer, on_revoke=lambda consumer, _: consumer.close())
    consumer.unsubscribe()


def poll_inside_a_callback(consumer: Consumer[Any, Any]) -> None:
    _subscribed(consumer, on_revoke=lambda consumer, _: consumer.poll(0))
    consumer.unsubscribe()


def second_thread(consumer: Consumer[Any, Any]) -> None:
    _subscribed(consumer)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with consumer._alone():
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(30)
    try:
        consumer.poll(0)
    finally:
        done.set()
        thread.join()


@dataclass(frozen=True, kw_only=True)
class Row:
    """One mistake."""

    use: Callable[[Consumer[Any, Any]], None]
    raises: type[Exception]
    says: str
    committed: int = PROCESSED


ROWS = [
    Row(use=listener_raises, raises=LookupError, says="own failure"),
    Row(use=listener_hangs, raises=CommitFailed, says=r"raise max\.poll\.interval\.ms"),
    Row(
        use=deserializer_raises,
        raises=DeserializationFailed,
        says=r"t-0 offset 10 .* poll again to go on after it",
    ),
    Row(use=close_inside_a_callback, raises=WrongUse, says="return first"),
    Row(use=poll_inside_a_callback, raises=WrongUse, says="return first"),
    Row(use=second_thread, raises=WrongUse, says="another thread .* one thread at a time"),
]


def number(data: bytes) -> int:
    found = int(data)
    if found == PROCESSED:
        raise ValueError("not this one")
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.use.__name__)
def test_a_mistake_is_named_and_processed_records_are_committed(
    broker: EmbeddedBroker, row: Row
) -> None:
    more: dict[Any, dict[str, Any]] = {
        listener_hangs: {"max_poll_interval_ms": 3_000},
        deserializer_raises: {"value_deserializer": number},
    }
    consumer = make(broker, **more.get(row.use, {}))
    with pytest.raises(row.raises, match=row.says):
        row.use(consumer)
    if row.raises is DeserializationFailed:
        consumer.seek(TP0, PROCESSED)
    consumer.close()
    assert committed(broker)[TP0] == row.committed


def test_a_close_during_a_rebalance_ends_soon_and_commits(broker: EmbeddedBroker) -> None:
    """The rebalance waits for a member that never joins it."""
    consumer = make(broker)
    _subscribed(consumer)
    slow = GroupMembership(
        ["t"], bootstrap_servers=broker.bootstrap_servers, group_id="g", max_poll_interval_ms=60_000
    )
    with slow:
        until(lambda: consumer.poll(0.05) is None and slow.snapshot().owned, "both own partitions")
        consumer.enforce_rebalance("a test")
        begun = time.monotonic()
        consumer.close()
        assert time.monotonic() - begun < 30
    assert committed(broker)[TP0] >= PROCESSED


def test_a_close_leaves_the_group_although_the_listener_takes_all_the_time(
    broker: EmbeddedBroker,
) -> None:
    """As the Java client. The session lasts a minute: only a LeaveGroup empties the group now."""
    consumer = make(broker, session_timeout_ms=60_000)
    _subscribed(consumer, on_revoke=lambda *_: time.sleep(0.3))
    consumer.close(0.2)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert not admin.describe_group("g").members
    assert committed(broker)[TP0] == PROCESSED


# -- after a fork ---------------------------------------------------------------------------------


def in_a_child(work: Callable[[], None]) -> int:
    """The exit status of a child process that does the work; its traceback is shown."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # a call that waits for a thread of the parent
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# From Python 3.12 on, a fork of a process with threads warns.
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_process_cannot_use_a_consumer_and_the_parent_goes_on(
    broker: EmbeddedBroker,
) -> None:
    consumer = make(broker)
    member = GroupMembership(["t"], bootstrap_servers=broker.bootstrap_servers, group_id="other")
    _subscribed(consumer)

    def child() -> None:
        calls: list[Callable[[], object]] = [
            lambda: consumer.poll(0.1),
            lambda: consumer.consume(5, 0.1),
            lambda: next(iter(consumer)),
            consumer.commit,
            lambda: consumer.seek(TP0, 5),
            lambda: consumer.end_offsets([TP0]),
            consumer.close,
            lambda: member.request_rejoin("a test"),
        ]
        for call in calls:
            with pytest.raises(WrongUse, match=r"before os\.fork\(\): make a new one"):
                call()
        # Frees librdkafka's consumer, if it can be freed.
        consumer._loop.reader.fetcher.__dict__.clear()

    with member:
        assert in_a_child(child) == 0
        read(consumer, 5)
    consumer.close()
    assert committed(broker)[TP0] == PROCESSED + 5


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_process_tells_all_objects_although_some_raise() -> None:
    told: list[int] = []

    class Made:
        def __init__(self, number: int) -> None:
            self.number = number
            forking.watch(self)

        def _after_fork(self) -> None:
            if self.number % 2:
                raise AttributeError("keep")
            told.append(self.number)

    made = [Made(number) for number in range(20)]  # told in any order

    def child() -> None:
        assert sorted(told) == [*range(0, 20, 2)]

    assert in_a_child(child) == 0
    assert not told, "the parent is no child"
    assert len(made) == 20
