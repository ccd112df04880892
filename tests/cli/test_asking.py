"""Commands that wait for a cluster: an unreachable broker is reported soon, a late answer too."""

from __future__ import annotations

import socket
import time

import pytest
from click.testing import CliRunner

from kohort.broker.embedded import EmbeddedBroker
from kohort.cli.asking import QUIET_S, REFUSED_TRIES, asking
from kohort.cli.main import cli
from kohort.client.admin import Admin
from kohort.client.config import parse_client_settings
from kohort.client.connections.client_loop import ClientLoop
from kohort.client.errors import BrokerUnreachable, ConnectionsRefused
from kohort.engine.member_outputs import Connect

NOBODY = "127.0.0.1:1"


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses at which a connection was tried."""
    seen: list[str] = []
    plain = ClientLoop._connect

    def noted(self: ClientLoop, wish: Connect) -> None:
        seen.append(f"{wish.host}:{wish.port}")
        plain(self, wish)

    monkeypatch.setattr(ClientLoop, "_connect", noted)
    return seen


def test_a_command_gives_up_after_a_few_refused_connections(tries: list[str]) -> None:
    result = CliRunner().invoke(cli, ["topics", "list", "--bootstrap", NOBODY])
    assert isinstance(result.exception, ConnectionsRefused)
    assert "connection refused" in str(result.exception)
    assert tries == [NOBODY] * REFUSED_TRIES


def test_an_admin_of_a_program_waits_longer_than_a_command(tries: list[str]) -> None:
    settings = {"socket.connection.setup.timeout.ms": 1_500, "retry.backoff.max.ms": 100}
    with (
        Admin({"bootstrap.servers": NOBODY, **settings}) as admin,
        pytest.raises(ConnectionsRefused),
    ):
        admin.topics()
    assert len(tries) > REFUSED_TRIES


def test_a_command_prints_a_line_while_it_waits_for_a_silent_broker(
    capsys: pytest.CaptureFixture[str], tries: list[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = parse_client_settings(
            {"bootstrap.servers": address, "socket.connection.setup.timeout.ms": 1_800}
        )
        started = time.monotonic()
        with asking(address, settings) as admin, pytest.raises(BrokerUnreachable) as caught:
            admin.topics()
    assert time.monotonic() - started > QUIET_S
    assert not isinstance(caught.value, ConnectionsRefused)
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"waiting for an answer from {address}" in told
    assert "1.8 s" in told


def test_a_command_waits_for_a_silent_address_among_refusing_ones(tries: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"{NOBODY},127.0.0.1:{silent.getsockname()[1]}"
        settings = parse_client_settings(
            {"bootstrap.servers": address, "socket.connection.setup.timeout.ms": 300}
        )
        with asking(address, settings) as admin, pytest.raises(BrokerUnreachable) as caught:
            admin.topics()
    assert not isinstance(caught.value, ConnectionsRefused)


def test_a_command_with_a_quick_answer_prints_nothing(
    kohort_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.cli.asking.QUIET_S", 30.0)  # a loaded machine is slow
    result = CliRunner().invoke(
        cli, ["topics", "list", "--bootstrap", kohort_broker.bootstrap_servers]
    )
    assert (result.exit_code, result.output) == (0, "")
