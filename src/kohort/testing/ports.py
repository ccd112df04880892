"""Ports for servers that must be told theirs, or that come back on it.

Out go port numbers of the loopback address. They lie below those that the system gives to
outgoing connections: one of these could take the port of a server that is away for a moment, and a
client that knocks at such a port all the while may even meet itself.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
_LOWEST: Final = 10_000
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EPHEMERAL_ELSEWHERE: Final = 49_152  # RFC 6335; macOS keeps to it
_TRIES: Final = 1_000


def free_ports(count: int) -> list[int]:
    """Ports in a row that nobody has now.

    Raises:
        OSError: none were found.
    """
    below = _first_ephemeral() - count + 1
    chance = random.SystemRandom()
    for _ in range(_TRIES):
        first = chance.randrange(_LOWEST, below)
        ports = list(range(first, first + count))
        if _free(ports):
            return ports
    raise OSError(f"no {count} free ports in a row between {_LOWEST} and {_first_ephemeral() - 1}")


def _first_ephemeral() -> int:
    try:
        return int(_EPHEMERAL.read_text(encoding="ascii").split()[0])
    except OSError:
        return _EPHEMERAL_ELSEWHERE


def _free(ports: list[int]) -> bool:
    with ExitStack() as stack:
        for port in ports:
            try:
                stack.enter_context(socket.socket()).bind((HOST, port))
            except OSError:
                return False
    return True
