"""Ports that are asked for before a server listens on them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kohort.testing import ports
from kohort.testing.ports import HOST, free_ports


def test_they_follow_each_other_and_no_connection_is_given_one() -> None:
    found = free_ports(4)
    assert found == list(range(found[0], found[0] + 4))
    with socket.create_server((HOST, 0)) as given:
        assert found[-1] < given.getsockname()[1]


def test_one_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_ = free_ports(3)
    monkeypatch.setattr(ports, "_LOWEST", first)
    monkeypatch.setattr(ports, "_first_ephemeral", lambda: first + 3)
    with socket.create_server((HOST, first)):
        assert free_ports(2) == [first + 1, first + 2]


def test_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    (taken,) = free_ports(1)
    monkeypatch.setattr(ports, "_LOWEST", taken)
    monkeypatch.setattr(ports, "_first_ephemeral", lambda: taken + 1)
    with (
        socket.create_server((HOST, taken)),
        pytest.raises(OSError, match="no 1 free ports in a row"),
    ):
        free_ports(1)


def test_a_system_without_proc_has_the_range_of_the_rfc(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ports, "_EPHEMERAL", tmp_path / "absent")
    assert all(port < 49_152 for port in free_ports(2))


def test_a_system_that_gives_all_ports_to_connections_has_free_ones_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ports, "_first_ephemeral", lambda: 1_024)
    assert len(free_ports(3)) == 3
