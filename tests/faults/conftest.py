"""Fixtures of the fault tests: raw connections, fast brokers, brokers in processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.conftest import Connect, Reachable, connect, raw
from tests.faults.members import Member
from tests.faults.processes import BrokerProcess

from kohort.broker.embedded import EmbeddedBroker

__all__ = ["connect", "raw"]

MakeMember = Callable[..., Member]
StartBroker = Callable[..., BrokerProcess]


@pytest.fixture
def broker(kohort_broker_factory: Callable[..., EmbeddedBroker]) -> EmbeddedBroker:
    """A broker that lets sessions be as short as half a second, with a topic t."""
    return kohort_broker_factory(
        group_min_session_timeout_ms=500, offsets_topic_num_partitions=1, num_partitions=2
    )


@pytest.fixture
def member(broker: EmbeddedBroker, connect: Connect) -> MakeMember:
    """Makes members, each over a connection of its own."""
    connect(broker).create("t", 2)

    def make(through: Reachable = broker, **options: Any) -> Member:
        return Member(connect(through), **options)

    return make


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts broker processes on one data directory, and kills what is left of them."""
    started: list[BrokerProcess] = []

    def start(*settings: str) -> BrokerProcess:
        started.append(BrokerProcess(tmp_path / "data", *settings))
        return started[-1]

    yield start
    for process in started:
        if process.running:
            process.kill()
