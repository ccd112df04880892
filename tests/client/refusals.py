"""Mistakes that a cluster refuses, with the exception that tells them: scenes for every broker.

In: the address of a broker with the default for the longest session timeout. Out: assertions.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from typing import Any, Self, TypeAlias

import pytest
from tests.client.stage import QUICK, topic
from tests.waiting import until

from kohort import AsyncConsumer, Consumer
from kohort.client.errors import BrokerUnreachable, Fenced, RequestFailed
from kohort.model.errors import ConfigError, ErrorCode
from kohort.testing.ports import free_ports

PATIENCE_S = 20.0


class OfAsync:
    """An `AsyncConsumer` with the calls of `Consumer` that the scenes need.

    Its event loop runs inside the calls.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._consumer = AsyncConsumer(settings)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self._runner.run(self._consumer.close())
        self._runner.close()

    def subscribe(self, topics: list[str]) -> None:
        """As `Consumer.subscribe`."""

        async def call() -> None:
            self._consumer.subscribe(topics)

        self._runner.run(call())

    def poll(self, timeout: float) -> object:
        """As `Consumer.poll`."""
        return self._runner.run(self._consumer.poll(timeout))

    def assignment(self) -> object:
        """As `Consumer.assignment`."""
        return self._consumer.assignment()


Reader: TypeAlias = Consumer | OfAsync
Kind: TypeAlias = type[Consumer] | type[OfAsync]
each_kind = pytest.mark.parametrize("kind", [Consumer, OfAsync], ids=["Consumer", "AsyncConsumer"])


def poll(*consumers: Reader) -> None:
    """Poll in turn, for long."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for consumer in consumers:
            consumer.poll(0.05)


def told_by(kind: Kind, topics: list[str], settings: dict[str, Any]) -> RequestFailed:
    """The exception of a consumer that polls."""
    with kind(settings) as consumer:
        consumer.subscribe(topics)
        with pytest.raises(RequestFailed) as caught:
            poll(consumer)
    return caught.value


def an_unreachable_broker_is_told_and_tried_again(kind: Kind) -> None:
    """Nobody listens there; ``poll`` raises each time when a request has timed out."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    settings = {"bootstrap.servers": address, "group.id": "g", "request.timeout.ms": 500}
    expected = f"expected a Kafka broker at {address}, got: connection refused; check the address"
    with kind(settings) as consumer:
        consumer.subscribe(["t"])
        for _ in range(2):
            with pytest.raises(BrokerUnreachable, match=re.escape(expected)):
                poll(consumer)


def refusals_of_the_coordinator_are_told(bootstrap: str, kind: Kind) -> None:
    given = {**QUICK, "bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex}
    expected = r"group\.id is '', expected a name: .* Leave group\.id out to consume without"
    with pytest.raises(ConfigError, match=expected):
        kind(given | {"group.id": ""})
    with topic(bootstrap, 1) as name:
        error = told_by(kind, [name], given | {"session.timeout.ms": 1_800_001})
        assert error.code is ErrorCode.INVALID_SESSION_TIMEOUT
        assert "session.timeout.ms is 1800001, outside the broker's group.min.sess" in str(error)
        assert "Set session.timeout.ms between the two" in str(error)
        with kind(given | {"partition.assignment.strategy": "range"}) as first:
            first.subscribe([name])
            while not first.assignment():
                first.poll(0.1)
            error = told_by(kind, [name], given | {"partition.assignment.strategy": "roundrobin"})
            assert error.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            assert "offer both names in the first one" in str(error)


def a_fenced_member_is_told(bootstrap: str, kind: Kind) -> None:
    given = {**QUICK, "bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex}
    given |= {"group.instance.id": "i"}
    with topic(bootstrap, 1) as name, kind(given) as first, kind(given) as second:
        first.subscribe([name])
        while not first.assignment():
            first.poll(0.1)
        second.subscribe([name])
        with pytest.raises(Fenced, match=r"the same group\.instance\.id: give each"):
            poll(second, first)


def an_unknown_topic_is_told_and_read_once_it_exists(
    bootstrap: str, caplog: pytest.LogCaptureFixture, kind: Kind
) -> None:
    """No exception: the topic may be made later. The log says how to make it."""
    given = {**QUICK, "bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex}
    name = f"later-{uuid.uuid4().hex[:8]}"
    with kind(given) as consumer:
        consumer.subscribe([name])
        until(
            lambda: f"topic {name} does not exist" in caplog.text,
            "the warning of the missing topic",
            PATIENCE_S,
            between=lambda: consumer.poll(0.1),
        )
        assert f"`kohort topics create {name}` makes it" in caplog.text
