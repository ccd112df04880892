"""The member engine at listeners that want a login: first, renewed and refused logins."""

from __future__ import annotations

from typing import Any

from tests.engine.member_peers import Broker, ask, commit, joined
from tests.engine.scripted import Peers

from kohort.engine.connections import ConnectionSettings, EngineSettings
from kohort.engine.member_outputs import (
    Answered,
    Committed,
    RequestErrorKind,
    Target,
    Unserved,
)
from kohort.member.effects import Lost
from kohort.member.events import Join
from kohort.model.errors import AuthenticationError
from kohort.wire.apis import APIS
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kohort.wire.messages.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kohort.wire.messages.k60_describe_cluster import DescribeClusterRequest

SASL = tuple(
    a._replace(broker=a.client, handled=a.client) if a.key in (17, 36) else a for a in APIS
)
LIFETIME_MS = 60_000


class Question:
    """A login of two steps."""

    mechanism = "QUESTION"

    def __init__(self) -> None:
        self.challenges: list[bytes] = []

    def first(self) -> bytes:
        return b"who are you?"

    def answer(self, challenge: bytes) -> bytes | None:
        self.challenges.append(challenge)
        if challenge == b"nobody":
            raise AuthenticationError("the broker does not know the secret")
        return b"and you?" if len(self.challenges) == 1 else None


class Guarded(Broker):
    """A broker that wants logins."""

    def __init__(self) -> None:
        super().__init__()
        self.lifetime_ms = LIFETIME_MS
        self.refuse_handshake = self.refuse_login = 0
        self.challenge = b"broker"

    def answer(self, request: Any, code: int) -> Any:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(
                error_code=self.refuse_handshake, mechanisms=["PLAIN", "OTHER"]
            )
        if isinstance(request, SaslAuthenticateRequest):
            return SaslAuthenticateResponse(
                error_code=self.refuse_login,
                error_message="Authentication failed" if self.refuse_login else None,
                auth_bytes=self.challenge,
                session_lifetime_ms=self.lifetime_ms,
            )
        return super().answer(request, code)


def guarded(broker: Guarded, **more: Any) -> Peers:
    connections = ConnectionSettings(login=Question, **more)
    return Peers(broker, apis=SASL, settings=EngineSettings(connections=connections))


def logins(peers: Peers) -> int:
    return len(peers.requests(SaslHandshakeRequest))


def test_every_connection_begins_with_a_login() -> None:
    peers = guarded(Guarded())
    joined(peers)
    assert logins(peers) == len(peers.connects)
    first = [type(request) for _, request in peers.log[:4]]
    steps = [SaslHandshakeRequest, SaslAuthenticateRequest, SaslAuthenticateRequest]
    assert first[:3] == steps
    assert first[3] not in steps
    assert [r.auth_bytes for r in peers.requests(SaslAuthenticateRequest)][:2] == [
        b"who are you?",
        b"and you?",
    ]


def test_a_session_is_renewed_on_its_connection_before_its_end() -> None:
    peers = guarded(Guarded())
    joined(peers)
    before, connects = logins(peers), len(peers.connects)
    peers.pass_ms(int(LIFETIME_MS * 0.84))
    assert logins(peers) == before
    peers.pass_ms(int(LIFETIME_MS * 0.12))
    assert logins(peers) == before + len(peers.open), "every connection logs in again"
    assert len(peers.connects) == connects
    assert not peers.got(Lost)


def test_a_session_without_an_end_is_never_renewed() -> None:
    broker = Guarded()
    broker.lifetime_ms = 0
    peers = guarded(broker)
    joined(peers)
    before = logins(peers)
    peers.pass_ms(10 * LIFETIME_MS)
    assert logins(peers) == before


def test_requests_wait_while_a_session_is_renewed() -> None:
    broker = Guarded()
    peers = guarded(broker)
    joined(peers)
    broker.park = {SaslHandshakeRequest}
    peers.pass_ms(int(LIFETIME_MS * 0.96))
    waiting = [r for _, r in peers.unanswered if isinstance(r.request, SaslHandshakeRequest)]
    assert waiting
    beats = len(peers.requests(HeartbeatRequest))
    peers.pass_ms(3_500)
    assert len(peers.requests(HeartbeatRequest)) == beats
    broker.park = set()
    for _ in waiting:
        peers.answer(SaslHandshakeRequest, SaslHandshakeResponse(mechanisms=["QUESTION"]))
    assert len(peers.requests(HeartbeatRequest)) > beats
    assert not peers.got(Lost)


def test_a_login_that_takes_too_long_ends_its_connection() -> None:
    broker = Guarded()
    broker.park = {SaslAuthenticateRequest}
    peers = guarded(broker)
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    peers.pass_ms(10_500)
    assert len(peers.connects) == 2, "tried again after socket.connection.setup.timeout.ms"
    broker.park = set()
    peers.pass_ms(1_500)
    assert peers.got(Unserved) == []


def test_158_a_refused_login_is_told_and_tried_again_without_a_busy_loop() -> None:
    broker = Guarded()
    broker.refuse_login = 58
    peers = guarded(broker)
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    (told,) = peers.got(Unserved)
    assert told.error.message == (
        "one:9092: the broker refuses the login by QUESTION: Authentication failed"
    )
    peers.pass_ms(60_000)
    assert 10 < logins(peers) < 90, "about one try a second"
    broker.refuse_login = 0
    peers.pass_ms(1_500)
    joined(peers)


def test_requests_of_the_owner_fail_at_once_when_the_login_is_refused() -> None:
    broker = Guarded()
    broker.refuse_login = 58
    peers = guarded(broker)
    ask(peers, Target.ANY, DescribeClusterRequest())
    (answer,) = peers.got(Answered)
    assert answer.error is not None
    assert answer.error.kind is RequestErrorKind.DENIED


def test_a_commit_fails_at_once_when_the_login_of_its_connection_is_refused() -> None:
    broker = Guarded()
    peers = guarded(broker)
    joined(peers)
    broker.refuse_login = 58
    commit(peers)
    (answer,) = peers.got(Committed)
    assert answer.error is not None
    assert answer.error.kind is RequestErrorKind.DENIED
    assert not peers.got(Lost)


def test_a_renewal_that_is_refused_ends_its_connection() -> None:
    broker = Guarded()
    peers = guarded(broker)
    joined(peers)
    broker.refuse_login = 58
    peers.pass_ms(int(LIFETIME_MS * 0.96))
    assert peers.got(Unserved)
    broker.refuse_login = 0
    peers.pass_ms(5_000)
    assert not peers.got(Lost)
    assert peers.requests(HeartbeatRequest)


def test_a_mechanism_that_the_listener_does_not_take() -> None:
    broker = Guarded()
    broker.refuse_handshake = 33
    peers = guarded(broker)
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    assert "refuses sasl.mechanism QUESTION" in peers.got(Unserved)[0].error.message
    assert "this listener takes PLAIN, OTHER" in peers.got(Unserved)[0].error.message


def test_a_broker_that_proves_nothing_is_refused() -> None:
    broker = Guarded()
    broker.challenge = b"nobody"
    peers = guarded(broker)
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    assert "does not know the secret" in peers.got(Unserved)[0].error.message


def test_a_broker_without_logins() -> None:
    peers = Peers(Broker(), settings=EngineSettings(connections=ConnectionSettings(login=Question)))
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    assert "this listener takes no logins" in peers.got(Unserved)[0].error.message
