"""Opens the connections of a loop: addresses of a host, attempts side by side, the TLS handshake.

In: a host and a port, events of sockets. Out: one connected socket, or why there is none. Must not
know: engines, bytes on the wire.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Final, TypeAlias

from kohort.client.config import CANONICAL_NAMES, ClientSettings
from kohort.engine.connections import ConnectionSettings, Loss
from kohort.engine.member_recording import RequestNotes
from kohort.model.errors import AuthenticationError, ConfigError
from kohort.model.ids import ConnectionId
from kohort.model.instants import Instant, Millis
from kohort.model.release import VERSION

_STAGGER_MICROS: Final = 250_000
"""The next address of a host is tried after this time without an answer (RFC 8305)."""

Address: TypeAlias = tuple[Any, Any, int, str, Any]
"""A row of ``socket.getaddrinfo``."""

WOULD_BLOCK: Final = (
    BlockingIOError,
    InterruptedError,
    ssl.SSLWantReadError,
    ssl.SSLWantWriteError,
)
"""The exceptions of a socket without blocking, in place of waiting."""


@dataclass(frozen=True, slots=True)
class Transport:
    """How the sockets of a loop are secured.

    Attributes:
        tls: the TLS context; None without TLS.
        prepare: called before a connection is opened, on a thread of its own; may take long, and
            raises AuthenticationError if there can be no login. None if nothing is to be prepared.
    """

    tls: ssl.SSLContext | None = None
    prepare: Callable[[], object] | None = None


def connection_settings(
    settings: ClientSettings, notes: RequestNotes | None = None
) -> ConnectionSettings:
    """The engine's share of these settings about connections."""
    return ConnectionSettings(
        client_id=settings.client_id,
        software_version=VERSION,
        connect_timeout_ms=Millis(settings.socket_connection_setup_timeout_ms),
        reconnect_backoff_ms=Millis(settings.reconnect_backoff_ms),
        reconnect_backoff_max_ms=Millis(settings.reconnect_backoff_max_ms),
        rebootstrap_ms=settings.rebootstrap_ms,
        security_protocol=settings.security_protocol,
        login=settings.login(),
        notes=notes,
    )


def bootstrap_of(settings: ClientSettings) -> list[tuple[str, int]]:
    """The bootstrap servers as (host, port), with canonical names if the settings want them.

    Canonical names are looked up here, which may take long (KIP-235). Each address of a bootstrap
    server becomes one server.

    Raises:
        ConfigError: none is given, one is not ``host:port``, or none has an address.
    """
    servers = settings.bootstrap
    if settings.client_dns_lookup != CANONICAL_NAMES:
        return servers
    found: dict[tuple[str, int], None] = {}
    failures = []
    for host, port in servers:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            failures.append(f"{host}: {error.strerror}")
            continue
        found |= {(socket.getfqdn(str(row[4][0])), port): None for row in rows}
    if not found:
        raise ConfigError(
            "bootstrap.servers: expected names with an address, got none for "
            f"{'; '.join(failures)}; check the names, or use the default of client.dns.lookup"
        )
    return list(found)


def transport_of(settings: ClientSettings) -> Transport:
    """The transport with these settings.

    Raises:
        ConfigError: a certificate or a key cannot be read.
    """
    tokens = settings.tokens
    return Transport(settings.tls(), None if tokens is None else tokens.wait)


class Opening:
    """A connection that is being opened.

    Args:
        conn: the engine's number of the connection.
        host: a name or an address.
        transport: how the socket is secured.
        selector: the loop's; sockets are registered with this object as their data.
    """

    def __init__(
        self,
        conn: ConnectionId,
        host: str,
        transport: Transport,
        selector: selectors.BaseSelector,
    ) -> None:
        self.conn = conn
        self.host = host
        self.next_attempt: Instant | None = None
        """When the next address is to be tried."""
        self.loss = Loss.REFUSED
        """Why no attempt succeeded; REFUSED if all of them were refused."""
        self.failure = ""
        self._tls = transport.tls
        self._selector = selector
        self._addresses: deque[Address] = deque()
        self._attempts: list[socket.socket] = []

    def found(self, addresses: Sequence[Address], now: Instant) -> None:
        """The addresses of the host are known."""
        # IPv6 and IPv4 addresses take turns: if one family does not work, the delay is short
        # (RFC 8305).
        preferred = [a for a in addresses if a[0] == addresses[0][0]]
        others = [a for a in addresses if a[0] != addresses[0][0]]
        pairs = chain.from_iterable(zip_longest(preferred, others))
        self._addresses.extend(a for a in pairs if a is not None)
        self.next_attempt = now

    def fail(self, error: OSError | AuthenticationError, now: Instant) -> None:
        """No attempt can be made: the host has no address, or there can be no login."""
        self.loss = Loss.DENIED if isinstance(error, AuthenticationError) else Loss.BROKEN
        why = getattr(error, "strerror", None)
        self.failure = f"cannot resolve {self.host}: {why}" if why else str(error)
        self.next_attempt = now

    def attempt(self, now: Instant) -> bool:
        """Try the next address; False if none is left and no attempt is under way."""
        self.next_attempt = None
        while self._addresses:
            family, kind, protocol, _, address = self._addresses.popleft()
            try:
                sock = socket.socket(family, kind, protocol)
            except OSError as error:
                self._note(error.errno or 0)
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            number = sock.connect_ex(address)
            if number in (0, errno.EINPROGRESS):
                self._attempts.append(sock)
                self._selector.register(sock, selectors.EVENT_WRITE, self)
                if self._addresses:
                    self.next_attempt = Instant(now + _STAGGER_MICROS)
                return True
            sock.close()
            self._note(number)
        return bool(self._attempts)

    def go_on(self, sock: socket.socket, now: Instant) -> socket.socket | None:
        """Handle an event of a socket; return the connected socket, or None if there is none yet.

        If ``over`` is true afterwards, every attempt failed.
        """
        if sock not in self._attempts:
            return None
        if isinstance(sock, ssl.SSLSocket):
            return self._shake_hands(sock)
        number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._give_up(sock)
            self._note(number)
            self.attempt(now)
            return None
        self._attempts.remove(sock)
        self.close()
        self._attempts.append(sock)
        if self._tls is None:
            return sock
        self._selector.unregister(sock)
        self._attempts.clear()
        try:
            secured = self._tls.wrap_socket(
                sock, server_hostname=self.host, do_handshake_on_connect=False
            )
        except (OSError, ValueError) as error:  # the connection ended meanwhile
            sock.close()
            self._note_other_failure()
            self.failure = f"it ended the TLS handshake ({error})"
            return None
        self._attempts.append(secured)
        self._selector.register(secured, selectors.EVENT_WRITE, self)
        return self._shake_hands(secured)

    @property
    def over(self) -> bool:
        """Whether every attempt failed."""
        return not self._attempts and not self._addresses

    def close(self) -> None:
        """Give up every attempt."""
        for sock in self._attempts.copy():
            self._give_up(sock)
        self._addresses.clear()
        self.next_attempt = None

    def _shake_hands(self, sock: ssl.SSLSocket) -> socket.socket | None:
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            self._selector.modify(sock, selectors.EVENT_READ, self)
        except ssl.SSLWantWriteError:
            self._selector.modify(sock, selectors.EVENT_WRITE, self)
        except OSError as error:
            self.failure, self.loss = failure_of(error)
            if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError):
                self.failure = f"it ended the TLS handshake ({self.failure})"
            self._give_up(sock)
        else:
            return sock
        return None

    def _give_up(self, sock: socket.socket) -> None:
        self._attempts.remove(sock)
        with suppress(KeyError, ValueError):
            self._selector.unregister(sock)
        sock.close()

    def _note_other_failure(self) -> None:
        """Note that an attempt failed, and was not refused. `Loss.DENIED` is kept."""
        if self.loss is Loss.REFUSED:
            self.loss = Loss.BROKEN

    def _note(self, number: int) -> None:
        """An attempt failed with this ``errno``."""
        if number != errno.ECONNREFUSED:
            self._note_other_failure()
        self.failure = os.strerror(number).lower()


def failure_of(error: OSError) -> tuple[str, Loss]:
    """Why a socket failed, in words and as a kind."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}", Loss.DENIED
    if isinstance(error, ssl.SSLError) and error.reason:
        words = error.reason.replace("_", " ").lower()
        if "ALERT" in error.reason:
            return f"it refuses the certificate or the TLS of this client: {words}", Loss.DENIED
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return f"it does not speak TLS: {words}", Loss.BROKEN
        return words, Loss.BROKEN
    return (error.strerror or str(error)).lower(), Loss.BROKEN
