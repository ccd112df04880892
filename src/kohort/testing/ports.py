"""Finds free ports for servers that need a fixed port.

In: a count. Out: port numbers of the loopback address. Must not know: the servers. If possible, the
ports are below the range of ports for outgoing connections. An outgoing connection could take the
port of a server that restarts. A client that retries such a port can even connect to itself.
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
_PORTS: Final = 65_536
_TRIES: Final = 1_000


def free_ports(count: int) -> list[int]:
    """Consecutive ports that no process uses now.

    Raises:
        OSError: there are none.
    """
    below = _first_ephemeral() - count + 1
    if below <= _LOWEST:
        below = _PORTS - count + 1  # the system gives every port to connections; none lies below
    chance = random.SystemRandom()
    for _ in range(_TRIES):
        first = chance.randrange(_LOWEST, below)
        ports = list(range(first, first + count))
        if _free(ports):
            return ports
    raise OSError(f"no {count} free ports in a row between {_LOWEST} and {below + count - 2}")


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
