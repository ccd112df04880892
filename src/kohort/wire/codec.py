"""Frames and messages: cuts, reads and writes Kafka's bytes.

In: bytes as a socket delivers them; frames; messages with the fields of their header. Out: whole
frames; headers and messages; frames with their size, ready to send. Must not know: connections, the
order of answers, the meaning of a message.

A frame is four bytes of size, a header and a message. A request header is key, version, correlation
id and client id. Its version 2 (flexible requests) adds tagged fields and keeps the int16 length of
the client id. A response header is the correlation id; its version 1 adds tagged fields.
ApiVersions is the exception: its response always has header version 0, because a client that sends
ApiVersions does not know yet which versions the broker can read (KIP-511).

The table of APIs names the message classes. Each class is imported when its first frame arrives.
Compiled functions are kept here, under the four bytes of key and version at the start of a request.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any, Final, NoReturn, TypeVar, cast

from kohort.model.errors import ProtocolError
from kohort.model.memory import Memory
from kohort.schema.codec import (
    DECODING_ERRORS,
    ENCODING_ERRORS,
    MAX_ELEMENTS,
    decoder,
    refuse_decoding,
    refuse_encoding,
    request_decoder,
    request_encoder,
    response_encoder,
)
from kohort.schema.declare import Layout, layout_of
from kohort.schema.runtime import skip_tags
from kohort.wire.apis import BY_NAME, api_of

T = TypeVar("T")

DEFAULT_MAX_FRAME = 100 * 1024 * 1024
"""Bytes of the largest frame: Kafka's default of ``socket.request.max.bytes``."""

API_VERSIONS_KEY = 18
_MAX_CLIENT_ID = 32_767
_SIZE = struct.Struct(">i")
_LARGE_FRAME: Final = 1 << 18
"""Bytes of a frame that is collected on its own, because a copy of it costs more than that."""

MAX_REQUEST_ELEMENTS = 250_000
"""Limit for array elements in one request: far beyond real ones, about 50 MB in an attack."""

HEAD = struct.Struct(">Iih").unpack_from
"""Key and version as one number, correlation id, length of the client id."""

_HEAD_FIXED = struct.Struct(">hhi")
_CORRELATION = struct.Struct(">i")


class FrameSplitter:
    """Collects bytes until a frame is whole.

    Args:
        max_frame: bytes of the largest frame.
        memory: makes the memory of a large frame. With this the other side is trusted with memory:
            the frame is a view of memory that has the announced size from the start, so that a
            socket can write into it (``room``). None: a large frame grows as its bytes come.
    """

    __slots__ = (
        "_buffer",
        "_filled",
        "_large",
        "_memory",
        "_needed",
        "_whole",
        "max_frame",
        "started",
    )

    def __init__(self, max_frame: int = DEFAULT_MAX_FRAME, *, memory: Memory | None = None) -> None:
        self.max_frame = max_frame
        self._memory = memory
        self._whole: memoryview | None = None
        """A large frame that is collected in place."""
        self._filled = 0
        self._buffer = bytearray()
        self._needed = 4
        self._large: BytesIO | None = None
        """The beginning of a large frame, which is handed out without one more copy."""
        self.started = 0
        """Number of frames that arrived in parts.

        While ``buffered`` is not 0, it names the present one: a caller with a clock can measure how
        long one frame takes.
        """

    @property
    def buffered(self) -> int:
        """Bytes that wait for the rest of their frame."""
        if self._whole is not None:
            return 4 + self._filled
        return len(self._buffer) if self._large is None else 4 + self._large.tell()

    def room(self) -> memoryview | None:
        """The memory for the rest of a large frame; None if no large frame is collected in place.

        Write bytes to the beginning of this memory, and ``feed`` them from there.
        """
        return None if self._whole is None else self._whole[self._filled :]

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Add ``data`` and return the complete frames, in order; large ones are views if in place.

        Raises:
            ProtocolError: A frame announces a negative size or one above ``max_frame``. The stream
                cannot be followed from there on.
        """
        if self._whole is not None:
            return self._feed_in_place(self._whole, data)
        if self._large is not None:
            return self._feed_large(self._large, data)
        buffer = self._buffer
        if not buffer:
            # Nearly always one whole frame arrives alone; then no buffer is needed.
            size = len(data)
            if size >= 4 and _SIZE.unpack_from(data)[0] == size - 4 <= self.max_frame:
                return [bytes(data[4:])]
            self.started += 1
        buffer += data
        if len(buffer) < self._needed:
            return []
        return self._cut()

    def _cut(self) -> list[bytes]:
        frames: list[bytes] = []
        buffer, start, end = self._buffer, 0, len(self._buffer)
        with memoryview(buffer) as view:
            while True:
                if end - start < 4:
                    self._needed = 4
                    break
                size: int = _SIZE.unpack_from(view, start)[0]
                if not 0 <= size <= self.max_frame:
                    raise ProtocolError(
                        f"a frame announces {size} bytes; allowed are 0 to {self.max_frame}. "
                        "The peer does not speak Kafka's protocol, or speaks TLS to a plain port"
                    )
                if end - start - 4 < size:
                    self._needed = 4 + size
                    if size >= _LARGE_FRAME:
                        self._begin_large(view[start + 4 :], size)
                        start = end
                    break
                frames.append(bytes(view[start + 4 : start + 4 + size]))
                start += 4 + size
        if frames:
            self.started += 1
        del buffer[:start]
        return frames

    def _begin_large(self, data: memoryview, size: int) -> None:
        if self._memory is not None:
            self._whole, self._filled = self._memory(size), len(data)
            self._whole[: len(data)] = data
        else:
            self._large = BytesIO()
            self._large.write(data)

    def _feed_in_place(
        self, frame: memoryview, data: bytes | bytearray | memoryview
    ) -> list[bytes]:
        size = min(len(data), len(frame) - self._filled)
        end = self._filled + size
        if not (isinstance(data, memoryview) and data.obj is frame.obj):
            frame[self._filled : end] = data[:size]
        self._filled = end
        if end < len(frame):
            return []
        self._whole, self._needed = None, 4
        rest = data[size:]
        # The decoders of messages with record batches take a view; others get a copy.
        return [cast("bytes", frame), *(self.feed(rest) if rest else ())]

    def _feed_large(self, frame: BytesIO, data: bytes | bytearray | memoryview) -> list[bytes]:
        missing = self._needed - 4 - frame.tell()
        frame.write(data[:missing])
        if len(data) < missing:
            return []
        self._large, self._needed = None, 4
        rest = data[missing:]
        return [frame.getvalue(), *(self.feed(rest) if rest else ())]


@dataclass(slots=True)
class RequestHeader:
    """The header of a request.

    Made for every request, so it is cheap; callers must not change it.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def response_header_is_tagged(layout: Layout, version: int) -> bool:
    """Whether the header of this response, in ``version``, ends with tagged fields."""
    return version in layout.flexible and layout.api_key != API_VERSIONS_KEY


@lru_cache(maxsize=256)
def client_id_bytes(client_id: str | None) -> bytes:
    """A client id in the form of a request header.

    Raises:
        ProtocolError: It takes more than 32,767 bytes.
    """
    if client_id is None:
        return b"\xff\xff"
    data = client_id.encode()
    if len(data) > _MAX_CLIENT_ID:
        raise ProtocolError(f"client id of {len(data)} bytes; at most {_MAX_CLIENT_ID} fit")
    return len(data).to_bytes(2, "big") + data


ResponseEncoder = Callable[[Any, int], bytes]
"""Writes a response with its correlation id, as a frame."""


_ALIKE = frozenset(BY_NAME[name].key for name in ("Heartbeat", "Metadata", "ApiVersions"))
"""Responses without content, which are the same for every client."""

RequestDecoder = Callable[[bytes, int, int, int], tuple[RequestHeader, Any]]
"""From a frame, its correlation id, the client id's length and the most elements to a request."""

_requests: dict[int, RequestDecoder] = {}
_responses: dict[type, dict[int, ResponseEncoder]] = {}
_readers: dict[tuple[type, int], Callable[[bytes, int], Any]] = {}


def request_route(key: int, version: int) -> RequestDecoder:
    """The reader of requests of this key and version, for ``decode_request``.

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
    """Raise the ProtocolError that names the position in ``frame`` and the cause."""
    key, version, _ = peek(frame)
    cls = api_of(key).request
    decode = request_decoder(cls, version, RequestHeader)
    refuse_decoding(decode, cls, version, frame, error)


def peek(frame: bytes) -> tuple[int, int, int]:
    """API key, API version and correlation id of a request; the rest may be unreadable.

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
    """The writer of responses of this class and version, for ``encode_response``.

    For a value that does not fit it raises one of ``ENCODING_ERRORS``.

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
    """Correlation id and response in a whole frame; the caller knows the expected class.

    Raises:
        ProtocolError: The bytes are no such response.
    """
    read = response_reader(cls, version)
    return correlation_id_of(frame), read(frame, max_elements)


def response_reader(cls: type[T], version: int) -> Callable[[bytes, int], T]:
    """The reader of responses of this class and version, after their correlation id.

    It takes a whole frame and the limit for array elements, and raises ProtocolError when the bytes
    are no such response.
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


_CORRELATION_ID_BYTES = 4


def recalling(read: Callable[[bytes, int], T]) -> Callable[[bytes, int], T]:
    """A reader of a response that does not read the same bytes twice in a row.

    A broker's answer about thousands of partitions seldom changes, and is the same for all clients
    of a process. They share one message, so nobody may change it.
    """
    last: tuple[bytes, int, T] | None = None

    def read_or_recall(frame: bytes, max_elements: int) -> T:
        nonlocal last
        body = frame[_CORRELATION_ID_BYTES:]
        if last is not None and last[0] == body and last[1] <= max_elements:
            return last[2]
        message = read(frame, max_elements)
        last = (body, max_elements, message)
        return message

    return read_or_recall


def correlation_id_of(frame: bytes) -> int:
    """The correlation id at the start of a response; ProtocolError when the frame is shorter."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
    except struct.error as error:
        raise ProtocolError(f"a response of {len(frame)} bytes has no header") from error
    return int(correlation_id)
