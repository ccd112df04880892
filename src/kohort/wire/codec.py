"""Frames to messages and back: header and message together.

In: a frame without its size, or a message with what its header says. Out: a header and a message,
or a frame with its size, ready to send.
Must not know: connections, order of answers.

The message classes come from the table of APIs, each when its first frame is seen; the functions
that are compiled for them are kept here, by the four bytes of key and version that open a request.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from kohort.model.errors import ProtocolError
from kohort.schema.codec import (
    MAX_ELEMENTS,
    decoder,
    refuse_decoding,
    refuse_encoding,
    request_decoder,
    request_encoder,
    response_encoder,
)
from kohort.schema.declare import layout_of
from kohort.schema.runtime import skip_tags
from kohort.wire.apis import BY_NAME, api_of
from kohort.wire.headers import RequestHeader, client_id_bytes, response_header_is_tagged
from kohort.wire.repeats import recalling

T = TypeVar("T")

MAX_REQUEST_ELEMENTS = 250_000
"""Array elements in one request: far beyond any real one, some 50 MB when a stranger sends it."""

HEAD = struct.Struct(">Iih").unpack_from
"""Key and version as one number, correlation id, length of the client id."""

_HEAD_FIXED = struct.Struct(">hhi")
_CORRELATION = struct.Struct(">i")
DECODING_ERRORS = (IndexError, ValueError, struct.error)
ENCODING_ERRORS = (AttributeError, TypeError, ValueError, IndexError, struct.error)


ResponseEncoder = Callable[[Any, int], bytes]
"""Writes a response with the correlation id, in its frame."""


_ALIKE = frozenset(BY_NAME[name].key for name in ("Heartbeat", "Metadata", "ApiVersions"))
"""Responses that say the same again and again, and to everybody."""

RequestDecoder = Callable[[bytes, int, int, int], tuple[RequestHeader, Any]]
"""From a frame, its correlation id, the client id's length and the most elements to a request."""

_requests: dict[int, RequestDecoder] = {}
_responses: dict[type, dict[int, ResponseEncoder]] = {}
_readers: dict[tuple[type, int], Callable[[bytes, int], Any]] = {}


def request_route(key: int, version: int) -> RequestDecoder:
    """How requests of this key and version are read: what ``decode_request`` looks up.

    Raises:
        ProtocolError: The key or version is unknown.
    """
    key_and_version = int.from_bytes(struct.pack(">hh", key, version), "big")
    decode = _requests.get(key_and_version)
    if decode is None:
        decode = request_decoder(api_of(key).request, version, RequestHeader)
        _requests[key_and_version] = decode
    return decode


def decode_request(
    frame: bytes, *, max_elements: int = MAX_REQUEST_ELEMENTS
) -> tuple[RequestHeader, Any]:
    """Read a request and its header from a whole frame.

    Raises:
        ProtocolError: The key or version is unknown, or the bytes are no such request.
    """
    try:
        key_and_version, correlation_id, length = HEAD(frame)
    except struct.error as error:
        raise ProtocolError(f"a request of {len(frame)} bytes has no room for a header") from error
    try:
        decode = _requests[key_and_version]
    except KeyError:
        key, version, _ = peek(frame)
        decode = request_route(key, version)
    try:
        return decode(frame, correlation_id, length, max_elements)
    except DECODING_ERRORS as error:
        refuse_request(frame, error)


def refuse_request(frame: bytes, error: Exception) -> NoReturn:
    """Raise the ProtocolError that says where reading ``frame`` stopped, and why."""
    key, version, _ = peek(frame)
    cls = api_of(key).request
    decode = request_decoder(cls, version, RequestHeader)
    refuse_decoding(decode, cls, version, frame, error)


def peek(frame: bytes) -> tuple[int, int, int]:
    """API key, API version and correlation id of a request, whatever the rest is.

    Raises:
        ProtocolError: The frame is shorter than that.
    """
    try:
        return _HEAD_FIXED.unpack_from(frame)
    except struct.error as error:
        raise ProtocolError(f"a request of {len(frame)} bytes has no room for a header") from error


def encode_request(
    message: object, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """The frame, with its size, of a request.

    Raises:
        ProtocolError: The version is unknown, or a value does not fit it.
    """
    encode = request_encoder(type(message), version)
    try:
        return encode(message, correlation_id, client_id_bytes(client_id))
    except ENCODING_ERRORS as error:
        refuse_encoding(message, version, error)


def encode_response(message: object, version: int, correlation_id: int) -> bytes:
    """The frame, with its size, of a response.

    Raises:
        ProtocolError: The version is unknown, or a value does not fit it.
    """
    try:
        encode = _responses[type(message)][version]
    except KeyError:
        encode = response_route(type(message), version)
    try:
        return encode(message, correlation_id)
    except ENCODING_ERRORS as error:
        refuse_encoding(message, version, error)


def response_route(cls: type, version: int) -> ResponseEncoder:
    """How responses of this class and version are written: what ``encode_response`` looks up.

    What it raises for a value that does not fit is among ``ENCODING_ERRORS``.

    Raises:
        ProtocolError: The version is unknown.
    """
    known = _responses.setdefault(cls, {})
    encode = known.get(version)
    if encode is None:
        tagged = response_header_is_tagged(layout_of(cls), version)
        encode = known[version] = response_encoder(cls, version, tagged_header=tagged)
    return encode


def decode_response(
    cls: type[T], version: int, frame: bytes, *, max_elements: int = MAX_ELEMENTS
) -> tuple[int, T]:
    """Correlation id and response in a whole frame; the caller knows what it asked for.

    Raises:
        ProtocolError: The bytes are no such response.
    """
    read = response_reader(cls, version)
    return correlation_id_of(frame), read(frame, max_elements)


def response_reader(cls: type[T], version: int) -> Callable[[bytes, int], T]:
    """What reads responses of this class and version, past their correlation id.

    It takes a whole frame and how many elements an array may have at most, and raises ProtocolError
    when the bytes are no such response.
    """
    known = _readers.get((cls, version))
    if known is not None:
        return known
    decode = decoder(cls, version)
    tagged = response_header_is_tagged(layout_of(cls), version)

    def read(frame: bytes, max_elements: int = MAX_ELEMENTS) -> T:
        try:
            end = 4
            if tagged:
                end = 5 if frame[4] == 0 else skip_tags(frame, 4)
            message: T = decode(frame, end, max_elements)[0]
        except DECODING_ERRORS as error:
            refuse_decoding(decode, cls, version, frame, error)
        return message

    _readers[cls, version] = kept = recalling(read) if layout_of(cls).api_key in _ALIKE else read
    return kept


def correlation_id_of(frame: bytes) -> int:
    """The correlation id that opens a response; ProtocolError when the frame is shorter."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
    except struct.error as error:
        raise ProtocolError(f"a response of {len(frame)} bytes has no header") from error
    return int(correlation_id)
