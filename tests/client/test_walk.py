"""How many files ``commit()`` passes in the client, from the call to the socket and back."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from tests.client.one_consumer import TP0, committed, make, read
from tests.waiting import until

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.connections.client_loop import ClientLoop
from kohort.client.connections.driver_thread import DriverThread
from kohort.engine.commit_requests import CommitRequests
from kohort.wire.client_connection import ClientConnection

ROOMS = ("kohort.client", "kohort.consumer", "kohort.engine", "kohort.member", "kohort.wire")
"""The rooms that know requests. Other rooms hold primitives."""

HEARTBEATS = "heartbeat-response-time-count"

POINTS = frozenset(
    function.__code__
    for function in (
        ClientLoop.post,
        ClientConnection.send,
        ClientLoop._flush,
        ClientConnection.receive,
        CommitRequests.ended,
        DriverThread.take,
    )
)
"""The order to the driver's thread, the bytes, the socket, the answer, the future's result."""


class Walk:
    """The files that hold a request on its way, and the objects made around it.

    A file counts if one of its functions has called the function at a point, directly or through
    others. Side work counts for objects only: deadlines, facts.
    """

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.made: list[str] = []
        self._noting = False

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if not self._noting or event != "call":
            return
        if frame.f_code in POINTS:
            caller: FrameType | None = frame
            while caller is not None:
                self.files.add(str(caller.f_globals.get("__name__")))
                caller = caller.f_back
        module = str(frame.f_globals.get("__name__"))
        if frame.f_code.co_name == "__init__" and module.startswith(ROOMS):
            self.made.append(type(frame.f_locals["self"]).__name__)

    def of_a_commit(self, consumer: Consumer, offset: int) -> None:
        sys.setprofile(self)
        self._noting = True
        consumer.commit({TP0: offset})
        self._noting = False
        sys.setprofile(None)
        self.files = {name for name in self.files if name.startswith(ROOMS)}


@pytest.fixture
def walk(broker: EmbeddedBroker) -> Iterator[Walk]:
    """The profile function of threads that start after those of the broker."""
    assert broker.bootstrap_servers
    walk = Walk()
    threading.setprofile(walk)
    yield walk
    threading.setprofile(None)
    sys.setprofile(None)


def test_a_commit_passes_fewer_than_11_files_in_fewer_than_8_objects(
    walk: Walk, broker: EmbeddedBroker
) -> None:
    with make(broker, enable_auto_commit=False, heartbeat_interval_ms=2_000) as consumer:
        consumer.subscribe(["t"])
        read(consumer, 1)
        consumer.commit()  # opens the connection
        # Heartbeats take the same walk: the next one comes half a second after an answer.
        answers = consumer.metrics()[HEARTBEATS]
        until(lambda: consumer.metrics()[HEARTBEATS] > answers, "a heartbeat was answered")
        walk.of_a_commit(consumer, 7)
        assert committed(broker)[TP0] == 7
    assert {"kohort.client.connections.client_loop", "kohort.engine.commit_requests"} <= walk.files
    assert len(walk.files) < 11, sorted(walk.files)
    assert len(walk.made) < 8, walk.made
