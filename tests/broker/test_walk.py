"""How many files a JoinGroup and an OffsetCommit pass in the broker, from socket to socket."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from tests.broker.conftest import SUBSCRIPTION, Connect, RawClient, loop_of
from tests.waiting import until

from kohort.broker.broker_loop import BrokerLoop
from kohort.broker.embedded import EmbeddedBroker
from kohort.broker.journal import Journal
from kohort.broker.session import BufferedSession, Session
from kohort.wire.messages import k08_offset_commit, k11_join_group, k14_sync_group

ROOMS = ("kohort.broker", "kohort.engine", "kohort.wire", "kohort.coordinator")
"""The rooms that know requests. Other rooms hold primitives, observers and the disk."""


class Walk:
    """The modules that the broker's thread runs from a request to the next answer.

    While a write is on its way to the disk, nothing is noted. Constructors that ``dataclass``
    generates count for the module of their class.
    """

    def __init__(self) -> None:
        self._wanted = False
        self._passed: set[str] | None = None
        self._complete: set[str] = set()
        self._writing = False

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call":
            return
        if self._wanted and frame.f_code is BufferedSession.buffer_updated.__code__:
            self._wanted, self._passed = False, set()
        if self._passed is None:
            return
        if frame.f_code is BrokerLoop.appended.__code__:
            self._writing = False
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(ROOMS) and not self._writing:
            self._passed.add(module)
        if frame.f_code is Journal.write.__code__:
            self._writing = True
        if frame.f_code is Session.transmit.__code__:
            self._complete, self._passed = self._passed, None

    def of(self, client: RawClient, request: object, version: int) -> set[str]:
        self._wanted = True
        client.ask(request, version)
        return self._complete


@pytest.fixture
def walk() -> Iterator[Walk]:
    walk = Walk()
    logger = logging.getLogger("kohort")
    level = logger.level
    logger.setLevel(logging.ERROR)  # without observers
    threading.setprofile(walk)
    yield walk
    threading.setprofile(None)
    logger.setLevel(level)


@pytest.fixture
def broker(walk: Walk) -> Iterator[EmbeddedBroker]:
    """A broker with ``walk`` as the profile function of its thread."""
    with EmbeddedBroker(group_initial_rebalance_delay_ms=0) as broker:
        yield broker


def join_request(member_id: str) -> k11_join_group.JoinGroupRequest:
    m = k11_join_group
    return m.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )


def stable_pair(broker: EmbeddedBroker, a: RawClient, b: RawClient) -> tuple[str, str]:
    """The member ids of a Stable group of two; the first one leads."""
    first, _ = a.become_member("g")
    second = b.join("g").member_id
    b.send_join("g", second)
    parked(broker, 1)
    a.join("g", first)
    sync_both(a, first, b, second, b.receive().generation_id)
    return first, second


def sync_both(a: RawClient, first: str, b: RawClient, second: str, generation: int) -> None:
    m = k14_sync_group
    for client, member_id in ((a, first), (b, second)):
        synced = client.ask(
            m.SyncGroupRequest(group_id="g", generation_id=generation, member_id=member_id), 3
        )
        assert synced.error_code == 0


def parked(broker: EmbeddedBroker, count: int) -> None:
    """Wait until this many joins are parked and the next generation is durable."""
    group = loop_of(broker)._engine._coordinator._registry.groups["g"]
    until(
        lambda: group.parked_joins >= count and group.is_reserved(),
        f"{count} parked joins and a durable generation",
    )


def test_a_join_group_passes_fewer_than_15_files(
    walk: Walk, broker: EmbeddedBroker, connect: Connect
) -> None:
    a, b = connect(broker), connect(broker)
    first, second = stable_pair(broker, a, b)
    passed: set[str] = set()
    for generation in (3, 4):  # in the first of them the form of the answers is made
        a.send_join("g", first)
        parked(broker, 1)
        passed = walk.of(b, join_request(second), 9)
        assert a.receive().generation_id == generation
        sync_both(a, first, b, second, generation)
    assert {"kohort.coordinator.joining", "kohort.coordinator.rebalancing"} <= passed
    assert len(passed) < 15, sorted(passed)


def test_an_offset_commit_passes_fewer_than_18_files(
    walk: Walk, broker: EmbeddedBroker, connect: Connect
) -> None:
    client = connect(broker)
    client.create("t")
    m = k08_offset_commit
    partition = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = m.OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = m.OffsetCommitRequest(group_id="simple", topics=[topic])
    client.ask(request, 8)  # creates the topic of offsets
    client.ask(request, 8)  # is known by its bytes from now on
    passed = walk.of(client, request, 8)
    assert {"kohort.coordinator.offsets", "kohort.broker.journal"} <= passed
    assert len(passed) < 18, sorted(passed)
