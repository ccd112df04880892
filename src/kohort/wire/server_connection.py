"""The broker's side of one connection, without the socket.

In: received bytes; answers to requests, in any order. Out: requests with tokens; bytes to send, in
the order of the requests. Must not know: the meaning of a request, the source and time of its
answer.

Kafka's clients expect answers in the order of their requests, so an early answer waits for earlier
requests: a parked JoinGroup blocks its own connection and no other. Everything that a client can
fill has a limit: frames, array elements, unanswered requests, bytes of waiting answers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any, NamedTuple, TypeAlias

from kohort.model.errors import ErrorCode, InvariantViolation, ProtocolError
from kohort.model.ids import NO_CONNECTION, ConnectionId, Token, TopicPartition
from kohort.model.values import shared
from kohort.schema.codec import DECODING_ERRORS, ENCODING_ERRORS, refuse_encoding
from kohort.wire.apis import API_VERSIONS, APIS, Api
from kohort.wire.codec import (
    API_VERSIONS_KEY,
    DEFAULT_MAX_FRAME,
    HEAD,
    MAX_REQUEST_ELEMENTS,
    FrameSplitter,
    RequestDecoder,
    RequestHeader,
    ResponseEncoder,
    encode_response,
    peek,
    refuse_request,
    request_route,
    response_route,
)
from kohort.wire.messages.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Limits for the memory that one client can make the broker hold."""

    max_frame: int = DEFAULT_MAX_FRAME
    """Bytes of a request."""
    max_elements: int = MAX_REQUEST_ELEMENTS
    """Array elements in a request."""
    pause_at: int = 256
    """Unanswered requests at which the shell should stop reading (``wants_data``)."""
    max_unanswered: int = 4_096
    """Unanswered requests at which the connection is closed.

    It exceeds ``pause_at`` by more than one read can bring, so only a shell that does not pause
    lets a client reach it.
    """
    max_held: int = 256 * 1024 * 1024
    """Bytes of answers that wait for an earlier one."""


_DEFAULT_LIMITS = ServerLimits()
_make = tuple.__new__  # costs a third of calling the named tuple


Knows: TypeAlias = Callable[[TopicPartition], bool]
"""Tells whether the broker has a partition."""


class Received(NamedTuple):
    """A request that wants exactly one ``answer`` or ``skip``."""

    token: Token
    header: RequestHeader
    request: Any


@dataclass(frozen=True, slots=True)
class _Route:
    """A key and version that are served."""

    api: Api
    version: int
    decode: RequestDecoder
    response: type
    encode: ResponseEncoder


_Slot = tuple[_Route | None, int]
"""An unanswered request: route (None for a refused ApiVersions version), correlation id."""


class ServerConnection:
    """Requests in, answers out in the same order.

    Args:
        apis: The served APIs; a request for another one is a ProtocolError.
        limits: Limits for the client.
        next_token: Source of tokens; an engine gives all its connections the same source.
        id: The number of the connection. A connection that was opened later has a higher number.
        host: The client's host as Kafka writes it: a slash and the address.

    Attributes:
        is_idle: No request is unanswered, no frame has arrived in part, and nothing closed it.
        closed: Why the connection must be closed; empty while it may stay open. An answer can cause
            that, when too many bytes wait for an earlier answer.
    """

    __slots__ = (
        "_held",
        "_held_bytes",
        "_in_part",
        "_limits",
        "_next_token",
        "_pending",
        "_routes",
        "_serves_versions",
        "_splitter",
        "closed",
        "host",
        "id",
        "is_idle",
    )

    def __init__(
        self,
        *,
        apis: Iterable[Api] = APIS,
        limits: ServerLimits | None = None,
        next_token: Callable[[], int] | None = None,
        id: ConnectionId = NO_CONNECTION,
        host: str = "",
    ) -> None:
        self.id = id
        self.host = shared(host)
        self.is_idle = True
        self._limits = limits or _DEFAULT_LIMITS
        apis = tuple(apis)
        self._routes = _routes_of(apis)
        self._serves_versions = API_VERSIONS in apis
        self._splitter = FrameSplitter(self._limits.max_frame)
        self._next_token: Callable[[], Any] = next_token or count(1).__next__
        self._in_part = False
        """Whether the beginning of a request has arrived, and not its end."""
        self._pending: dict[int, _Slot] = {}
        self._held: dict[int, bytes] = {}
        self._held_bytes = 0
        self.closed = ""

    @property
    def wants_data(self) -> bool:
        """False while the client has so many unanswered requests that the shell should not read."""
        return len(self._pending) < self._limits.pause_at and not self.closed

    @property
    def unfinished(self) -> tuple[int, int]:
        """The incomplete request: its number on this connection, and its bytes so far.

        (0, 0) while there is none.
        """
        splitter = self._splitter
        return (splitter.started, splitter.buffered) if splitter.buffered else (0, 0)

    def receive(self, data: bytes | bytearray | memoryview) -> list[Received]:
        """Accept received bytes and return the complete requests.

        A request for ApiVersions in an unknown version is returned with empty fields. With any
        answer the client gets UNSUPPORTED_VERSION and the range of ApiVersions in the layout of
        version 0, as KIP-511 requires.

        Raises:
            ProtocolError: The bytes break the protocol or a limit, or the API is not served.
                The connection must be closed; requests of the same call are not handed out.
        """
        if self.closed:
            raise ProtocolError(self.closed)
        frames = self._splitter.feed(data)
        self._in_part = self._splitter.buffered > 0
        if not frames:
            self.is_idle = not (self._pending or self._in_part)
            return []
        pending = self._pending
        if len(frames) + len(pending) > self._limits.max_unanswered:
            raise ProtocolError(
                f"{len(frames) + len(pending)} unanswered requests on one connection; "
                f"at most {self._limits.max_unanswered} are held"
            )
        received = []
        for frame in frames:
            slot, header, request = self._read(frame)
            token = self._next_token()
            pending[token] = slot
            received.append(_make(Received, (token, header, request)))
        self.is_idle = False
        return received

    def receive_known(self, token: Token, route: int, correlation_id: int) -> Token:
        """Accept a request with bytes that the caller knows; returns ``token``, a new one.

        The request came complete, after no incomplete request. ``route`` is its key and version,
        as the number at the start of a request; a request of this key and version was read before.
        """
        self._pending[token] = (self._routes[route], correlation_id)
        self.is_idle = False
        return token

    def answer_with(self, token: Token, frame: bytes) -> bytes:
        """Like ``answer``, with the encoded response.

        Raises:
            InvariantViolation: The token was answered before.
        """
        pending, held = self._pending, self._held
        if token not in pending or token in held:
            return self._not_waiting(token)
        if len(pending) == 1:  # nearly always
            del pending[token]
            self.is_idle = not self._in_part
            return frame
        if next(iter(pending)) != token:
            held[token] = frame
            self._held_bytes += len(frame)
            if self._held_bytes > self._limits.max_held:
                self.close(f"{self._held_bytes} bytes of answers wait for an earlier one")
            return b""
        del pending[token]
        if not held:
            self.is_idle = not (pending or self._in_part)
            return frame
        parts = [frame]
        for first in list(pending):
            if first not in held:
                break
            ready = held.pop(first)
            del pending[first]
            self._held_bytes -= len(ready)
            parts.append(ready)
        self.is_idle = not (pending or self._in_part)
        return b"".join(parts)

    def answer(self, token: Token, response: object) -> bytes:
        """Answer the request of ``token``; return the bytes that may be sent now, maybe none.

        After ``close`` the answer is dropped.

        Raises:
            ProtocolError: ``response`` does not fit the version that the client asked in.
            InvariantViolation: The token was answered before, or the response is another API's.
        """
        slot = self._pending.get(token)
        if slot is None:
            return self._not_waiting(token)
        route, correlation_id = slot
        if route is None:
            return self.answer_with(token, _version_refusal(correlation_id))
        if type(response) is not route.response:
            raise InvariantViolation(
                f"{route.api} of token {token} answered with {type(response).__name__}"
            )
        try:
            data = route.encode(response, correlation_id)
        except ENCODING_ERRORS as error:
            refuse_encoding(response, route.version, error)
        return self.answer_with(token, data)

    def skip(self, token: Token) -> bytes:
        """Finish a request without an answer (Produce with acks=0); return bytes to send now.

        Raises:
            InvariantViolation: The token was answered before.
        """
        return self.answer_with(token, b"")

    def close(self, reason: str = "the connection was closed") -> list[Token]:
        """Forget everything; return the tokens of the unanswered requests.

        Answers that come later are dropped.
        """
        left = [Token(token) for token in self._pending if token not in self._held]
        self.closed = self.closed or reason
        self.is_idle = False
        self._pending.clear()
        self._held.clear()
        self._held_bytes = 0
        return left

    def _read(self, frame: bytes) -> tuple[_Slot, RequestHeader, Any]:
        try:
            key_and_version, correlation_id, length = HEAD(frame)
            route = self._routes[key_and_version]
        except (KeyError, struct.error):
            return self._refuse(frame)
        try:
            header, request = route.decode(frame, correlation_id, length, self._limits.max_elements)
        except DECODING_ERRORS as error:
            refuse_request(frame, error)
        return (route, correlation_id), header, request

    def _refuse(self, frame: bytes) -> tuple[_Slot, RequestHeader, Any]:
        """Refuse a request that is not served; only ApiVersions can carry a refusal."""
        key, version, correlation_id = peek(frame)
        if key != API_VERSIONS_KEY or not self._serves_versions:
            raise ProtocolError(f"API key {key} version {version} is not served here")
        header = RequestHeader(key, version, correlation_id, None)
        return (None, correlation_id), header, ApiVersionsRequest()

    def _not_waiting(self, token: Token) -> bytes:
        if self.closed:
            return b""
        raise InvariantViolation(
            f"token {token} waits for no answer: it was answered, or never given"
        )


class _Routes(dict[int, _Route]):
    """Served keys and versions by the number at the start of a request; filled on first use."""

    def __init__(self, apis: tuple[Api, ...]) -> None:
        super().__init__()
        self._apis = {api.key: api for api in apis}

    def __missing__(self, key_and_version: int) -> _Route:
        key, version = struct.unpack(">hh", key_and_version.to_bytes(4, "big"))
        api = self._apis[key]
        if version not in api.handled:
            raise KeyError(key_and_version)
        route = self[key_and_version] = _Route(
            api=api,
            version=version,
            decode=request_route(key, version),
            response=api.response,
            encode=response_route(api.response, version),
        )
        return route


@cache
def _routes_of(apis: tuple[Api, ...]) -> _Routes:
    """One table for all connections with the same APIs."""
    return _Routes(apis)


def _version_refusal(correlation_id: int) -> bytes:
    span = API_VERSIONS.broker
    own = ApiVersion(api_key=API_VERSIONS.key, min_version=span.low, max_version=span.high)
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
    return encode_response(response, 0, correlation_id)
