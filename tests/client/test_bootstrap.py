"""Names of bootstrap servers: canonical ones if ``client.dns.lookup`` wants them (KIP-235)."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from kohort.client.config import CANONICAL_NAMES, parse_client_settings
from kohort.client.connections.opening import bootstrap_of
from kohort.model.errors import ConfigError

ADDRESSES = {"kafka": ["10.0.0.1", "10.0.0.2"], "other": ["10.0.0.2"]}
NAMES = {"10.0.0.1": "one.example", "10.0.0.2": "two.example"}


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, port: int, **_: object) -> list[Any]:
        if host not in ADDRESSES:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(0, 0, 0, "", (address, port)) for address in ADDRESSES[host]]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "getfqdn", NAMES.__getitem__)


def found(servers: str, lookup: str) -> list[tuple[str, int]]:
    return bootstrap_of(parse_client_settings(bootstrap_servers=servers, client_dns_lookup=lookup))


def test_by_default_names_stay_as_they_are_and_are_not_looked_up() -> None:
    assert found("kafka:1,nowhere:2", "use_all_dns_ips") == [("kafka", 1), ("nowhere", 2)]


def test_each_address_of_a_bootstrap_server_becomes_a_server_with_its_canonical_name() -> None:
    servers = found("kafka:1,other:1,nowhere:2", CANONICAL_NAMES)
    assert servers == [("one.example", 1), ("two.example", 1)]


def test_bootstrap_servers_without_any_address_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"got none for nowhere: Name or service not known"):
        found("nowhere:2", CANONICAL_NAMES)


def test_librdkafka_gets_the_settings_about_finding_nodes() -> None:
    share = parse_client_settings(
        client_dns_lookup=CANONICAL_NAMES,
        metadata_recovery_strategy="none",
        metadata_recovery_rebootstrap_trigger_ms=1_000,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=70,
    ).librdkafka()
    assert share["client.dns.lookup"] == CANONICAL_NAMES
    assert share["metadata.recovery.strategy"] == "none"
    assert share["metadata.recovery.rebootstrap.trigger.ms"] == 1_000
    assert (share["reconnect.backoff.ms"], share["reconnect.backoff.max.ms"]) == (20, 70)


def test_a_back_off_that_exceeds_its_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"reconnect\.backoff\.ms is 5000, expected at most"):
        parse_client_settings(reconnect_backoff_ms=5_000)
