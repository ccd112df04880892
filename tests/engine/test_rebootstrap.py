"""Clients that ask the bootstrap servers again (KIP-899, KIP-1102)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.member_peers import Broker, ask, joined
from tests.engine.scripted import Peers

from kohort.engine.connections import ConnectionSettings, EngineSettings
from kohort.engine.member_outputs import Answered, Target
from kohort.model.errors import ErrorCode
from kohort.model.instants import Millis
from kohort.wire.messages.k03_metadata import MetadataRequest, MetadataResponse

MINUTE = Millis(60_000)
REQUIRED = ErrorCode.REBOOTSTRAP_REQUIRED


class Moving(Broker):
    """Answers the next Metadata requests with the codes in ``refusals``."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals: list[int] = []

    def answer(self, request: Any, code: int) -> Any:
        if isinstance(request, MetadataRequest) and self.refusals:
            return MetadataResponse(error_code=self.refusals.pop(0))
        return super().answer(request, code)


def peers_of(broker: Broker, rebootstrap_ms: Millis | None) -> Peers:
    """A member that knows the nodes one and two, and came through the bootstrap server seed."""
    settings = EngineSettings(connections=ConnectionSettings(rebootstrap_ms=rebootstrap_ms))
    peers = Peers(broker, bootstrap=("seed",), settings=settings)
    joined(peers)
    ask(peers, Target.CONTROLLER, MetadataRequest(topics=[]))
    peers.log.clear()
    peers.connects.clear()
    return peers


def asked(peers: Peers) -> list[str]:
    return [host for host, request in peers.log if isinstance(request, MetadataRequest)]


def test_a_broker_that_requires_it_sends_the_client_to_the_bootstrap_servers() -> None:
    broker = Moving()
    peers = peers_of(broker, MINUTE)
    broker.refusals = [REQUIRED]
    answers = len(peers.got(Answered))
    ask(peers, Target.CONTROLLER, MetadataRequest(topics=[]))
    peers.pass_ms(1_000)
    assert asked(peers)[0] == "two"
    assert asked(peers)[1] == "seed"
    assert "seed" in peers.connects, "the old connections were closed"
    assert len(peers.got(Answered)) == answers + 1, "the request was repeated and answered"


def test_a_client_that_never_starts_over_hands_the_refusal_on() -> None:
    broker = Moving()
    peers = peers_of(broker, None)
    broker.refusals = [REQUIRED]
    ask(peers, Target.CONTROLLER, MetadataRequest(topics=[]))
    assert asked(peers) == ["two"]
    assert peers.got(Answered)[-1].message.error_code == REQUIRED


@pytest.mark.parametrize(("rebootstrap_ms", "seeds"), [(MINUTE, True), (None, False)])
def test_bootstrap_servers_stay_candidates_unless_the_strategy_is_none(
    rebootstrap_ms: Millis | None, seeds: bool
) -> None:
    peers = peers_of(Moving(), rebootstrap_ms)
    peers.down |= {"one", "two", "seed"}
    for conn in list(peers.open):
        del peers.open[conn]
        peers.carry_out(peers.engine.lost(conn, peers.now, "reset by peer"))
    peers.pass_ms(20_000)
    assert {"one", "two"} & set(peers.connects)
    assert ("seed" in peers.connects) == seeds


def test_without_metadata_for_long_only_the_bootstrap_servers_are_asked() -> None:
    peers = peers_of(Moving(), MINUTE)
    peers.hanging |= {"one", "two", "seed"}
    for conn in list(peers.open):
        del peers.open[conn]
        peers.carry_out(peers.engine.lost(conn, peers.now, "reset by peer"))
    for _ in range(6):
        ask(peers, Target.ANY, MetadataRequest(topics=[]))
        peers.pass_ms(31_000)
    peers.connects.clear()
    peers.pass_ms(60_000)
    assert set(peers.connects) == {"seed"}
    peers.hanging.clear()
    ask(peers, Target.ANY, MetadataRequest(topics=[]))
    peers.pass_ms(31_000)
    assert "one" in peers.connects, "the member found its coordinator"
