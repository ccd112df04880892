"""The listening socket, and the gate for new connections.

In: an address and limits. Out: a bound socket; for each connection whether it may enter. Must not
know: requests.
"""

from __future__ import annotations

import logging
import resource
import socket
from collections import Counter
from collections.abc import Callable

from kohort.broker.limits import (
    DESCRIPTORS_OF_A_LOG,
    LEAST_SPARE_DESCRIPTORS,
    REFUSALS_LOGGED_MS,
    SPARE_DESCRIPTORS,
    SPARE_DESCRIPTORS_SHARE,
)
from kohort.broker.nodes import LAST_PORT, Address
from kohort.broker.session import Session
from kohort.host.clock import monotonic_now
from kohort.model.errors import ConfigError
from kohort.model.instants import MICROS_PER_MILLI

logger = logging.getLogger(__name__)

BACKLOG = 1024
"""Connections that may wait to be accepted; a thousand members may come at once."""

WILDCARDS = frozenset({"0.0.0.0", "::", ""})


def bind(address: Address) -> socket.socket:
    """Listen on an address; port 0 takes a free one.

    Clients that connect before the broker is ready wait in the backlog.

    Raises:
        ConfigError: no such port, the port is in use, or the address is not this machine's.
    """
    if not 0 <= address.port <= LAST_PORT:
        # getaddrinfo takes larger numbers and listens on another port than was asked for.
        raise ConfigError(f"port is {address.port}, expected 1 to {LAST_PORT}, or 0 for a free one")
    sock: socket.socket | None = None
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit it; a peer that vanished without a word is noticed in the end.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.bind(target)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        if sock is not None:
            sock.close()
        raise ConfigError(
            f"cannot listen on {address}: {error.strerror or error}; choose another --port "
            f"(0: a free one) or --host"
        ) from error
    return sock


def advertised_address(sock: socket.socket, listen: Address, wanted: Address | None) -> Address:
    """The address for clients: the wanted one, otherwise the address of the socket.

    A broker that listens on every interface advertises this machine's name, as Kafka does.
    """
    if wanted is not None:
        return wanted
    host = socket.getfqdn() if listen.host in WILDCARDS else listen.host
    return Address(host, sock.getsockname()[1])


def connections_that_fit(wanted: int, logs: int) -> int:
    """``max.connections``, but never the open files that this many logs need.

    Kafka's default is no bound at all. A broker without a free descriptor cannot roll a segment, so
    a flood of connections would end its commits.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return wanted
    share = max(LEAST_SPARE_DESCRIPTORS, files // SPARE_DESCRIPTORS_SHARE)
    spare = min(share, SPARE_DESCRIPTORS + logs * DESCRIPTORS_OF_A_LOG)
    return min(wanted, max(1, files - spare))


class Gate:
    """Counts connections and refuses those that are too many.

    Args:
        most: tells how many connections are allowed at a time, now.
        most_per_ip: of one address.
    """

    def __init__(self, most: Callable[[], int], most_per_ip: int) -> None:
        self._most = most
        self._most_per_ip = most_per_ip
        self._by_ip: Counter[str] = Counter()
        self._total = 0
        self._refused = 0
        self._logged_at = -REFUSALS_LOGGED_MS * MICROS_PER_MILLI

    def enter(self, session: Session) -> bool:
        """Whether this connection may come in; if so it counts until ``leave``."""
        host = session.peer_host
        if self._total >= self._most() or self._by_ip[host] >= self._most_per_ip:
            self._refuse(host)
            return False
        self._total += 1
        self._by_ip[host] += 1
        return True

    def _refuse(self, host: str) -> None:
        self._refused += 1
        now = monotonic_now()
        if now - self._logged_at < REFUSALS_LOGGED_MS * MICROS_PER_MILLI:
            return
        self._logged_at = now
        logger.warning(
            "refusing a connection of %s: %d are open, %d of them from there; allowed are %d and "
            "%d (max.connections, which open files may bound, and max.connections.per.ip); "
            "refused so far: %d",
            host,
            self._total,
            self._by_ip.get(host, 0),
            self._most(),
            self._most_per_ip,
            self._refused,
        )

    def leave(self, session: Session) -> None:
        """A connection that had come in is gone."""
        self._total -= 1
        self._by_ip[session.peer_host] -= 1
        if not self._by_ip[session.peer_host]:
            del self._by_ip[session.peer_host]
