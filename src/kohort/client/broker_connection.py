"""One blocking connection to one broker: a request out, its response in, within a deadline.

In come request messages of ``wire.messages``; out go responses, or an exception that says which
broker, what was asked and what to do. Used by the admin client; members have a thread and a
selector instead (``kohort.client.client_loop``). Must not know: which broker leads or coordinates
what.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import kohort
from kohort.client.errors import (
    BrokerUnreachable,
    ConnectionsRefused,
    RequestFailed,
    RequestTimedOut,
)
from kohort.model.errors import ErrorCode, ProtocolError
from kohort.wire.client_connection import ClientConnection

_READ_BYTES: Final = 65_536


class Posted(NamedTuple):
    """A request whose response is due."""

    correlation_id: int
    name: str


class BrokerConnection:
    """A connection that is opened on first use and, once broken, for good unusable.

    Args:
        host, port: where the broker listens.
        client_id: Kafka's client id.
        connect_timeout_s: longest wait for the connection, in seconds.
    """

    def __init__(self, host: str, port: int, *, client_id: str, connect_timeout_s: float) -> None:
        self.address = f"{host}:{port}"
        self._host, self._port = host, port
        self._connect_timeout_s = connect_timeout_s
        self._wire = ClientConnection(client_id=client_id, software_version=kohort.__version__)
        self._socket: socket.socket | None = None
        self.broken = False

    def connect(self, deadline: float) -> None:
        """Open the connection and learn the broker's versions.

        Args:
            deadline: on ``time.monotonic``.

        Raises:
            BrokerUnreachable: nobody answers there in time, or not in Kafka's protocol.
        """
        if self._socket is not None:
            return
        budget = min(self._connect_timeout_s, deadline - time.monotonic())
        try:
            self._socket = socket.create_connection((self._host, self._port), max(budget, 0.001))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(self._wire.open())
            handshake = min(deadline, time.monotonic() + self._connect_timeout_s)
            while not self._wire.ready:
                self._read(handshake)
        except (OSError, ProtocolError) as error:
            self.close()
            refused = isinstance(error, ConnectionRefusedError)
            raise (ConnectionsRefused if refused else BrokerUnreachable)(
                f"expected a Kafka broker at {self.address}, got: {_said(error)}; check the "
                "address, that the broker runs, and that its listener is PLAINTEXT"
            ) from error

    def request(self, message: object, deadline: float) -> Any:
        """Send one request and wait for its response.

        Raises:
            BrokerUnreachable: no connection, or it broke; the request may have been carried out.
            RequestTimedOut: no response by the deadline; the connection is closed.
            RequestFailed: the broker speaks no version of this request that kohort speaks.
        """
        return self.wait(self.post(message, deadline), deadline)

    def post(self, message: object, deadline: float) -> Posted:
        """Send one request; ``wait`` for its response later. Raises what ``request`` does."""
        self.connect(deadline)
        name = type(message).__name__.removesuffix("Request")
        try:
            data = self._wire.send(message)
        except ProtocolError as error:
            about = f"{name} to {self.address}"
            raise RequestFailed(ErrorCode.UNSUPPORTED_VERSION, about, str(error)) from error
        posted = Posted(self._wire.correlation_id, name)
        with self._told(name):
            self._settled().settimeout(max(deadline - time.monotonic(), 0.001))
            self._settled().sendall(data)
        return posted

    def wait(self, posted: Posted, deadline: float) -> Any:
        """The response to a request that was posted; those to earlier ones are dropped."""
        with self._told(posted.name):
            while True:
                for correlation_id, response in self._read(deadline):
                    if correlation_id == posted.correlation_id:
                        return response

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """Close the connection on any trouble, and say what was asked of whom."""
        try:
            yield
        except TimeoutError as error:
            self.close()
            raise RequestTimedOut(
                f"{self.address} did not answer {name} in time; it may have been carried out"
            ) from error
        except (OSError, ProtocolError) as error:
            self.close()
            raise BrokerUnreachable(
                f"the connection to {self.address} broke while {name} was under way "
                f"({_said(error)}); it may have been carried out"
            ) from error

    def version_of(self, request: type, deadline: float) -> int:
        """The version in which this broker is sent requests of this class.

        Raises:
            BrokerUnreachable: no connection.
            RequestFailed: there is no common version.
        """
        self.connect(deadline)
        try:
            return self._wire.version_of(request)
        except ProtocolError as error:
            about = f"{request.__name__.removesuffix('Request')} to {self.address}"
            raise RequestFailed(ErrorCode.UNSUPPORTED_VERSION, about, str(error)) from error

    def close(self) -> None:
        """Close the socket; harmless when there is none."""
        self.broken = True
        if self._socket is not None:
            self._socket.close()

    def _settled(self) -> socket.socket:
        if self._socket is None:
            raise BrokenPipeError("not connected")
        return self._socket

    def _read(self, deadline: float) -> list[tuple[int, Any]]:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        sock = self._settled()
        sock.settimeout(left)
        data = sock.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError("the other side closed the connection")
        responses = self._wire.receive(data)
        more = self._wire.take_output()
        if more:
            sock.sendall(more)
        return responses


def _said(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
