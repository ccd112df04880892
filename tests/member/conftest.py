"""A member in a test's hands: events in, effects compared, invariants checked after every step."""

from __future__ import annotations

import random
from typing import Any, TypeVar

import pytest

from kohort.member.config import MemberConfig
from kohort.member.effects import Effect, Joined, Observe, PrepareJoin, Send
from kohort.member.events import (
    CoordinatorFound,
    Event,
    HeartbeatAnswered,
    Join,
    JoinAnswered,
    JoinPrepared,
    LeaveAnswered,
    SyncAnswered,
)
from kohort.member.member import Member
from kohort.member.requests import Heartbeat, JoinGroup, Request, SyncGroup
from kohort.model.errors import ErrorCode
from kohort.model.ids import GenerationId, GroupId, MemberId, ProtocolName, ProtocolType
from kohort.model.instants import Instant
from kohort.model.join import JoinProtocol

T = TypeVar("T")
OFFER = (JoinProtocol(ProtocolName("cooperative-sticky"), b"offer"),)


class Harness:
    """Time in milliseconds; `effects` has what the last step asked for, facts left out."""

    def __init__(self, **config: Any) -> None:
        self.member = Member(MemberConfig(**{"group_id": GroupId("g"), **config}), random.Random(7))
        self.now_ms = 0
        self.effects: list[Effect] = []
        self.facts: list[Any] = []
        self.sends: list[Send] = []
        self.attempt = 0

    @property
    def now(self) -> Instant:
        return Instant(self.now_ms * 1_000)

    @property
    def sure_until(self) -> Instant:
        """Until when the membership is certain; there must be one."""
        until = self.member.sure_until
        assert until is not None, "no membership"
        return until

    def do(self, event: Event) -> list[Effect]:
        return self._took(self.member.handle(event, self.now))

    def pass_ms(self, millis: int) -> list[Effect]:
        """Let time pass deadline by deadline; returns everything that was asked for meanwhile."""
        end = self.now_ms + millis
        gathered: list[Effect] = []
        while (due := self.member.next_deadline()) is not None and due <= end * 1_000:
            self.now_ms = max(self.now_ms, -(-due // 1_000))
            gathered += self._took(self.member.advance(self.now))
        self.now_ms = end
        gathered += self._took(self.member.advance(self.now))
        self.effects = gathered
        return gathered

    def _took(self, effects: list[Effect]) -> list[Effect]:
        self.member.check()
        self.facts += [e.fact for e in effects if isinstance(e, Observe)]
        for prepare in (e for e in effects if isinstance(e, PrepareJoin)):
            self.attempt = prepare.attempt
        self.sends += [e for e in effects if isinstance(e, Send)]
        self.effects = [e for e in effects if not isinstance(e, Observe)]
        return self.effects

    def one(self, kind: type[T]) -> T:
        """The one effect of that kind in the last step."""
        found = [e for e in self.effects if isinstance(e, kind)]
        assert len(found) == 1, f"wanted one {kind.__name__}: {self.effects}"
        return found[0]

    def sent(self, kind: type[T]) -> T:
        """The one request of that kind sent in the last step."""
        found = [e.request for e in self.effects if isinstance(e, Send)]
        wanted = [r for r in found if isinstance(r, kind)]
        assert len(wanted) == 1, f"wanted one {kind.__name__}: {self.effects}"
        return wanted[0]

    def send_of(self, kind: type[Request]) -> Send:
        sends = [e for e in self.effects if isinstance(e, Send) and isinstance(e.request, kind)]
        assert len(sends) == 1, f"wanted one {kind.__name__}: {self.effects}"
        return sends[0]

    def last_send(self, kind: type[Request]) -> Send:
        """The request of that kind sent last, however long ago."""
        return next(s for s in reversed(self.sends) if isinstance(s.request, kind))

    def none_of(self, *kinds: type) -> None:
        found = [
            e
            for e in self.effects
            if isinstance(e, kinds) or (isinstance(e, Send) and isinstance(e.request, kinds))
        ]
        assert not found, found

    # -- shorthand for answers ----------------------------------------------------------------

    def start(self) -> None:
        """Wanted, coordinator known, prepared: JoinGroup is out."""
        self.do(Join())
        self.do(CoordinatorFound())
        self.prepared()

    def prepared(self, offer: tuple[JoinProtocol, ...] = OFFER) -> None:
        self.do(JoinPrepared(attempt=self.attempt, protocols=offer))

    def join_answer(
        self, request: Send, error: ErrorCode = ErrorCode.NONE, **fields: Any
    ) -> list[Effect]:
        ok = error is ErrorCode.NONE
        values: dict[str, Any] = {
            "member_id": MemberId("m1"),
            "generation_id": GenerationId(1 if ok else -1),
            "protocol_type": ProtocolType("consumer"),
            "protocol_name": ProtocolName("cooperative-sticky") if ok else None,
            "leader": MemberId("other" if ok else ""),
            "skip_assignment": False,
            "members": (),
        }
        values |= fields
        return self.do(JoinAnswered(request_id=request.request_id, error=error, **values))

    def sync_answer(
        self,
        request: Send,
        error: ErrorCode = ErrorCode.NONE,
        assignment: bytes = b"assigned",
        protocol_name: str | None = "cooperative-sticky",
    ) -> list[Effect]:
        name = None if protocol_name is None else ProtocolName(protocol_name)
        return self.do(
            SyncAnswered(
                request_id=request.request_id,
                error=error,
                protocol_type=ProtocolType("consumer"),
                protocol_name=name,
                assignment=assignment,
            )
        )

    def beat_answer(self, request: Send, error: ErrorCode = ErrorCode.NONE) -> list[Effect]:
        return self.do(HeartbeatAnswered(request_id=request.request_id, error=error))

    def leave_answer(self, request: Send, error: ErrorCode = ErrorCode.NONE) -> list[Effect]:
        return self.do(LeaveAnswered(request_id=request.request_id, error=error))

    def stable(self, generation: int = 1) -> Joined:
        """All the way into a generation, as a follower."""
        self.start()
        return self.on_to(generation)

    def on_to(self, generation: int) -> Joined:
        """From a JoinGroup on its way into that generation."""
        self.join_answer(self.last_send(JoinGroup), generation_id=GenerationId(generation))
        self.sync_answer(self.send_of(SyncGroup))
        return self.one(Joined)

    def next_heartbeat(self) -> Send:
        """Let a heartbeat interval pass."""
        self.pass_ms(self.member.config.heartbeat_interval_ms)
        return self.send_of(Heartbeat)


@pytest.fixture
def world() -> Harness:
    return Harness()


@pytest.fixture
def make_world() -> type[Harness]:
    return Harness
