"""A member engine against scripts: bytes on both sides, in any versions."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from kohort.engine.connections import EngineSettings
from kohort.engine.member_engine import MemberEngine
from kohort.engine.member_outputs import Close, Connect, Output, Transmit
from kohort.member.config import MemberConfig
from kohort.model.ids import ConnectionId, GroupId
from kohort.model.instants import Instant
from kohort.wire.apis import APIS, Api, announced
from kohort.wire.messages.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from kohort.wire.server_connection import Received, ServerConnection

Script = Callable[[Any], Any]
"""A request in, its response out; None leaves it unanswered."""


def limited(**highest: int) -> tuple[Api, ...]:
    """All APIs, some of them in older versions only: ``limited(LeaveGroup=2)``."""
    rows = []
    for api in APIS:
        high = highest.get(api.name, api.broker.high)
        low = min(api.broker.low, high)
        rows.append(
            api._replace(
                broker=api.broker._replace(low=low, high=high),
                handled=api.handled._replace(low=low, high=high),
            )
        )
    return tuple(row for row in rows if row.broker.high >= 0)


class Peers:
    """Plays the shell and all brokers; ``log`` has (address, request) in the order of arrival."""

    def __init__(
        self,
        script: Script,
        *,
        bootstrap: tuple[str, ...] = ("one",),
        apis: tuple[Api, ...] = APIS,
        settings: EngineSettings | None = None,
        assigner: Any = None,
        **config: Any,
    ) -> None:
        values = {"group_id": GroupId("g"), "max_poll_interval_ms": None, **config}
        self.engine = MemberEngine(
            MemberConfig(**values),
            [(host, 9092) for host in bootstrap],
            entropy=random.Random(1),
            settings=settings,
            assigner=assigner,
        )
        self.script = script
        self.apis = apis
        self.down: set[str] = set()
        self.hanging: set[str] = set()
        self.now = Instant(0)
        self.log: list[tuple[str, Any]] = []
        self.connects: list[str] = []
        self.outputs: list[Output] = []
        self.open: dict[ConnectionId, tuple[str, ServerConnection]] = {}
        self.unanswered: list[tuple[ConnectionId, Received]] = []

    def carry_out(self, outputs: list[Output]) -> None:
        self.engine.check()
        for output in outputs:
            match output:
                case Connect():
                    self._connect(output)
                case Transmit():
                    self._serve(output.conn, output.data)
                case Close():
                    self.open.pop(output.conn, None)
                case _:
                    self.outputs.append(output)

    def _connect(self, output: Connect) -> None:
        self.connects.append(output.host)
        if output.host in self.down:
            self.carry_out(self.engine.lost(output.conn, self.now, "refused"))
        elif output.host not in self.hanging:
            self.open[output.conn] = (output.host, ServerConnection(apis=self.apis))
            self.carry_out(self.engine.connected(output.conn, self.now))

    def _serve(self, conn: ConnectionId, data: bytes) -> None:
        if conn not in self.open:
            return
        host, server = self.open[conn]
        for received in server.receive(data):
            request = received.request
            if isinstance(request, ApiVersionsRequest):
                answer: Any = ApiVersionsResponse(
                    api_keys=[
                        ApiVersion(api_key=key, min_version=low, max_version=high)
                        for key, low, high in announced(self.apis)
                    ]
                )
            else:
                self.log.append((host, request))
                answer = self.script(request)
            if answer is None:
                self.unanswered.append((conn, received))
            else:
                self._answer(conn, received, answer)

    def _answer(self, conn: ConnectionId, received: Received, answer: Any) -> None:
        if conn in self.open:
            data = self.open[conn][1].answer(received.token, answer)
            if data:
                self.carry_out(self.engine.received(conn, data, self.now))

    def answer(self, kind: type, response: Any) -> None:
        """Answer the oldest unanswered request of that kind."""
        index = next(i for i, (_, r) in enumerate(self.unanswered) if isinstance(r.request, kind))
        conn, received = self.unanswered.pop(index)
        self._answer(conn, received, response)

    def hang_up(self, kind: type) -> None:
        """Break the connection on which a request of that kind is unanswered."""
        conn = next(c for c, r in self.unanswered if isinstance(r.request, kind))
        del self.open[conn]
        self.unanswered = [(c, r) for c, r in self.unanswered if c != conn]
        self.carry_out(self.engine.lost(conn, self.now, "reset by peer"))

    def pass_ms(self, millis: int) -> None:
        end = self.now + millis * 1_000
        while (due := self.engine.next_deadline()) is not None and due <= end:
            self.now = Instant(max(self.now, due))
            self.carry_out(self.engine.advance(self.now))
        self.now = Instant(end)
        self.carry_out(self.engine.advance(self.now))

    def requests(self, kind: type) -> list[Any]:
        return [request for _, request in self.log if isinstance(request, kind)]

    def got(self, kind: type) -> list[Any]:
        return [output for output in self.outputs if isinstance(output, kind)]
