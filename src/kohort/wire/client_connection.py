"""The client's side of one connection, without the socket.

In: requests to send; received bytes. Out: bytes to send; responses with correlation ids. Must not
know: the purpose of requests, the broker, time-outs.

The first request on a connection is ApiVersions. Its answer decides the version of every other
request: the highest version that both sides know. If the listener wants a login, SaslHandshake and
SaslAuthenticate follow (KIP-152). Requests that come before the end of that wait here and leave
through ``take_output``.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from kohort.model.errors import AuthenticationError, ErrorCode, InvariantViolation, ProtocolError
from kohort.model.memory import Memory, plain_memory
from kohort.schema import VersionRange
from kohort.schema.codec import ENCODING_ERRORS, MAX_ELEMENTS, refuse_encoding, request_encoder
from kohort.schema.declare import holds_records, layout_of
from kohort.wire.apis import API_VERSIONS, BY_KEY, SASL_AUTHENTICATE, SASL_HANDSHAKE, Api
from kohort.wire.codec import (
    DEFAULT_MAX_FRAME,
    FrameSplitter,
    client_id_bytes,
    correlation_id_of,
    decode_response,
    encode_request,
    response_reader,
)
from kohort.wire.messages.k00_produce import ProduceRequest
from kohort.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from kohort.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest

_ERROR_CODE = struct.Struct(">h")
_NO_LOGINS = "this listener takes no logins: set security.protocol without SASL"
_MAX_CORRELATION_ID = 0x7FFF_FFFF


class Login(Protocol):
    """One login on one connection: the client's side of a SASL mechanism."""

    @property
    def mechanism(self) -> str:
        """Kafka's name of the mechanism: ``PLAIN``, ``SCRAM-SHA-256``."""
        ...

    def first(self) -> bytes:
        """The client's first step."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """The client's next step; None if the login is over.

        Raises:
            AuthenticationError: the node does not prove that it knows the secret.
        """
        ...


class _Route:
    """How to encode requests of one class and decode their responses, in the common version."""

    __slots__ = ("answered", "api", "client", "encode", "of_view", "read", "version")

    def __init__(self, api: Api, version: int, request: type, client_id: str | None) -> None:
        self.api = api
        self.version = version
        self.client = client_id_bytes(client_id)
        self.encode = request_encoder(request, version)
        self.read: Callable[[bytes, int], Any] = response_reader(api.response, version)
        self.answered = request is not ProduceRequest
        """Whether requests of this class are flexible."""
        self.of_view = holds_records(api.response)
        """Whether a response may be a view."""


class _Expected(NamedTuple):
    """An expected response."""

    correlation_id: int
    api: Api
    version: int
    route: _Route | None = None
    """None for ApiVersions and for the requests of a login."""


class ClientConnection:
    """Requests out, responses in, in the versions that the broker announced.

    Args:
        client_id: Sent with every request; None sends none.
        software_version: For the broker, which may log it (KIP-511).
        max_frame: Bytes of the largest response.
        login: Makes the login of this connection; None if the listener wants none.
        memory: Makes the memory of large responses.
    """

    def __init__(
        self,
        *,
        client_id: str | None,
        software_version: str = "unknown",
        max_frame: int = DEFAULT_MAX_FRAME,
        login: Callable[[], Login] | None = None,
        memory: Memory = plain_memory,
    ) -> None:
        self._client_id = client_id
        self._hello = ApiVersionsRequest(
            client_software_name="kohort", client_software_version=software_version
        )
        self._splitter = FrameSplitter(max_frame, memory=memory)
        self._expected: deque[_Expected] = deque()
        self._waiting: list[tuple[int, object]] = []
        self._output: list[bytes] = []
        self._versions: dict[int, VersionRange] | None = None
        self._routes: dict[type, _Route] = {}
        self.correlation_id = 0
        """The correlation id of the last request that was handed to ``send``."""
        self._make_login = login
        self._login: Login | None = None
        """The login that is under way."""
        self.ready = False
        """Whether the broker's versions are known and no login is under way."""
        self.session_lifetime_ms = 0
        """How long the broker accepts the last login; 0 if for ever (KIP-368)."""

    def open(self) -> bytes:
        """The first bytes to send: the request for the broker's versions."""
        return self._ask_versions(API_VERSIONS.client.high)

    def log_in_again(self) -> bytes:
        """The first bytes of a new login on this connection, before the session ends (KIP-368)."""
        self.ready = False
        return self._begin_login()

    def send(self, message: object) -> bytes:
        """Number ``message``, encode it in the best common version and return the bytes to send.

        Returns no bytes until the connection is ready; ``take_output`` returns them
        later. ``correlation_id`` is the message's number. Produce with acks=0 gets no response.

        Raises:
            ProtocolError: The broker has no version of this API in common with us, or the message
                has a value that the common version cannot carry.
        """
        correlation_id = self._next_correlation_id()
        if not self.ready:
            self._waiting.append((correlation_id, message))
            return b""
        return self._encode(correlation_id, message)

    def version_of(self, request: type) -> int:
        """The version in which a request of this class is sent.

        Raises:
            InvariantViolation: The broker's versions are not known yet.
            ProtocolError: There is none.
        """
        route = self._routes.get(request)
        if route is not None:
            return route.version
        api = self._api_of(request)
        if self._versions is None:
            raise InvariantViolation(f"{api}: asked for its version before the broker told its own")
        return self._common(api)

    def receive(self, data: bytes | bytearray | memoryview) -> list[tuple[int, Any]]:
        """Accept received bytes; return correlation id and response of each complete response.

        The answers to ``open`` and to a login are kept here. Call ``take_output`` afterwards.

        Raises:
            AuthenticationError: The broker refuses the login, or this side refuses the broker.
            ProtocolError: The bytes break the protocol or answer no request, or the broker
                and this side share no version of a request that waits. Close the connection.
        """
        responses: list[tuple[int, Any]] = []
        for frame in self._splitter.feed(data):
            expected = self._match(frame)
            route = expected.route
            if type(frame) is not bytes and (route is None or not route.of_view):
                frame = bytes(frame)  # noqa: PLW2901 - large, and not of batches
            if route is not None:
                responses.append((expected.correlation_id, route.read(frame, MAX_ELEMENTS)))
            elif expected.api is API_VERSIONS:
                self._learn_versions(expected, frame)
            else:
                self._go_on_with_login(expected, frame)
        return responses

    def room(self) -> memoryview | None:
        """Where the next bytes may be written before ``receive`` gets them from there; or None."""
        return self._splitter.room()

    def take_output(self) -> bytes:
        """Bytes to send that ``receive`` prepared; mostly none."""
        if not self._output:
            return b""
        data = b"".join(self._output)
        self._output.clear()
        return data

    def close(self) -> list[int]:
        """Forget everything; return the correlation ids of requests without a response."""
        left = [e.correlation_id for e in self._expected if e.route is not None]
        left += [correlation_id for correlation_id, _ in self._waiting]
        self._expected.clear()
        self._waiting.clear()
        self._output.clear()
        return left

    def _next_correlation_id(self) -> int:
        self.correlation_id = self.correlation_id % _MAX_CORRELATION_ID + 1
        return self.correlation_id

    def _ask_versions(self, version: int) -> bytes:
        correlation_id = self._next_correlation_id()
        self._expected.append(_Expected(correlation_id, API_VERSIONS, version))
        return encode_request(self._hello, version, correlation_id, self._client_id)

    def _encode(self, correlation_id: int, message: object) -> bytes:
        request = type(message)
        route = self._routes.get(request)
        if route is None:
            api = self._api_of(request)
            route = _Route(api, self._common(api), request, self._client_id)
            self._routes[request] = route
        try:
            data = route.encode(message, correlation_id, route.client)
        except ENCODING_ERRORS as error:
            refuse_encoding(message, route.version, error)
        if route.answered or message.acks != 0:  # type: ignore[attr-defined] # of Produce
            self._expected.append(_Expected(correlation_id, route.api, route.version, route))
        return data

    def _api_of(self, request: type) -> Api:
        layout = layout_of(request)
        api = BY_KEY.get(-1 if layout.api_key is None else layout.api_key)
        if api is None or not layout.is_request:
            raise ProtocolError(f"{layout.name} is no request that this connection may send")
        return api

    def _common(self, api: Api) -> int:
        theirs = (self._versions or {}).get(api.key)
        if theirs is None:
            raise ProtocolError(f"the broker does not announce {api}; use a newer broker")
        high = min(api.client.high, theirs.high)
        if high < max(api.client.low, theirs.low):
            raise ProtocolError(
                f"no common version of {api}: the broker speaks {theirs}, this side {api.client}; "
                "kohort works with Kafka 2.1 and newer"
            )
        return high

    def _match(self, frame: bytes) -> _Expected:
        correlation_id = correlation_id_of(frame)
        if not self._expected:
            raise ProtocolError(f"response {correlation_id} came without a request")
        expected = self._expected.popleft()
        if expected.correlation_id != correlation_id:
            raise ProtocolError(
                f"response {correlation_id} came where {expected.correlation_id} "
                f"({expected.api}) was due; responses keep the order of requests"
            )
        return expected

    def _learn_versions(self, expected: _Expected, frame: bytes) -> None:
        response = _api_versions_response(frame, expected.version)
        announced = {
            entry.api_key: VersionRange(entry.min_version, entry.max_version)
            for entry in response.api_keys
        }
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and expected.version > 0:
            theirs = announced.get(API_VERSIONS.key, VersionRange(0, 0))
            again = min(theirs.high, expected.version - 1)
            self._output.append(self._ask_versions(max(again, 0)))
            return
        if response.error_code:
            code = ErrorCode.of(response.error_code)
            raise ProtocolError(f"the broker refuses to tell its versions: {code.name}")
        self._versions = announced
        if self._make_login is None:
            self._become_ready()
        else:
            self._output.append(self._begin_login())

    def _become_ready(self) -> None:
        self.ready = True
        waiting, self._waiting = self._waiting, []
        for correlation_id, message in waiting:
            self._output.append(self._encode(correlation_id, message))

    # -- the login --------------------------------------------------------------------------------

    def _begin_login(self) -> bytes:
        if self._make_login is None:
            raise InvariantViolation("a login on a connection without one")
        if SASL_HANDSHAKE.key not in (self._versions or {}):
            raise AuthenticationError(_NO_LOGINS)
        self._login = self._make_login()
        return self._ask(SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=self._login.mechanism))

    def _ask(self, api: Api, message: object) -> bytes:
        version, correlation_id = self._common(api), self._next_correlation_id()
        self._expected.append(_Expected(correlation_id, api, version))
        return encode_request(message, version, correlation_id, self._client_id)

    def _go_on_with_login(self, expected: _Expected, frame: bytes) -> None:
        login = self._login
        if login is None:
            raise InvariantViolation(f"{expected.api}: an answer without a login")
        response: Any
        _, response = decode_response(expected.api.response, expected.version, frame)
        error = ErrorCode.of(response.error_code)
        if expected.api is SASL_HANDSHAKE:
            if error is ErrorCode.ILLEGAL_SASL_STATE:
                raise AuthenticationError(_NO_LOGINS)
            if error:
                raise AuthenticationError(
                    f"the broker refuses sasl.mechanism {login.mechanism} ({error.name}); this "
                    f"listener takes {', '.join(response.mechanisms) or 'none'}"
                )
            step: bytes | None = login.first()
        elif error:
            why = response.error_message or error.name
            raise AuthenticationError(f"the broker refuses the login by {login.mechanism}: {why}")
        else:
            step = login.answer(response.auth_bytes)
            self.session_lifetime_ms = response.session_lifetime_ms
        if step is not None:
            message = SaslAuthenticateRequest(auth_bytes=step)
            self._output.append(self._ask(SASL_AUTHENTICATE, message))
            return
        self._login = None
        self._become_ready()


def _api_versions_response(frame: bytes, version: int) -> ApiVersionsResponse:
    """Read the answer to ApiVersions; a refusal of the version has the layout of version 0."""
    if len(frame) >= 6 and _ERROR_CODE.unpack_from(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION:
        version = 0
    _, response = decode_response(ApiVersionsResponse, version, frame)
    return response
