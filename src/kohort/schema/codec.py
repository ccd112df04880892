"""Encodes and decodes any declared message, and explains failures.

In: a message and a version, or bytes, a class and a version. Out: bytes, or a message. Must not
know: which messages exist, their surroundings on the wire.

A codec is compiled when its (class, version) is used for the first time, and kept on the class.
Every failure is a ProtocolError that names the message, version, field and byte.
"""

from __future__ import annotations

import struct as _struct
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, TypeVar

from kohort.model.errors import ProtocolError
from kohort.schema.declare import Layout, layout_of
from kohort.schema.decoders import make_decoder, make_request_decoder
from kohort.schema.encoders import make_encoder, make_request_encoder, make_response_encoder
from kohort.schema.faults import find_fault
from kohort.schema.source import place_of

T = TypeVar("T")

MAX_ELEMENTS = 4_000_000
"""Limit for array elements in one message unless the caller sets another one.

A peer pays one byte for an element that costs a hundred here, so the frame's size alone is no
limit.
"""

DECODING_ERRORS = (IndexError, ValueError, _struct.error)
"""Compiled functions raise one of these for bytes that are no such message."""
ENCODING_ERRORS = (AttributeError, TypeError, ValueError, IndexError, _struct.error)
"""Compiled functions raise one of these for a value that does not fit its field."""


def encode(message: object, version: int) -> bytes:
    """The bytes of ``message`` in ``version``, without any header.

    Raises:
        ProtocolError: The version does not exist, a value does not fit its field, or a field that
            the version lacks and that may not be dropped holds something.
    """
    function = encoder(type(message), version)
    try:
        return function(message)
    except ENCODING_ERRORS as error:
        refuse_encoding(message, version, error)


def decode(
    cls: type[T], version: int, data: bytes, offset: int = 0, *, max_elements: int = MAX_ELEMENTS
) -> tuple[T, int]:
    """Read a ``cls`` of ``version`` at ``offset``; return it and the offset after it.

    Bytes after the message are ignored. ``data`` other than ``bytes`` is copied once.

    Raises:
        ProtocolError: The version does not exist, or the bytes are not such a message. Nothing is
            allocated beyond the limits of the given bytes and ``max_elements``.
    """
    function = decoder(cls, version)
    if type(data) is not bytes:
        data = bytes(data)
    try:
        return function(data, offset, max_elements)  # type: ignore[no-any-return]
    except DECODING_ERRORS as error:
        refuse_decoding(function, cls, version, data, error)


def decoder(cls: type, version: int) -> Callable[..., Any]:
    """The compiled ``decode(data, offset, max_elements)`` of ``cls`` in ``version``."""
    return _compiled(cls, version, "decode", make_decoder)


def request_decoder(cls: type, version: int, header: type) -> Callable[..., Any]:
    """The compiled ``decode(data, correlation_id, n, max_elements)`` of a request's frame."""
    make = partial(make_request_decoder, header=header)
    return _compiled(cls, version, "request frame", make)


def encoder(cls: type, version: int) -> Callable[..., bytes]:
    """The compiled ``encode(message)`` of ``cls`` in ``version``."""
    return _compiled(cls, version, "encode", make_encoder)


def request_encoder(cls: type, version: int) -> Callable[..., bytes]:
    """The compiled ``encode(message, correlation_id, client)`` of a request with its frame."""
    return _compiled(cls, version, "request", make_request_encoder)


def response_encoder(cls: type, version: int, *, tagged_header: bool) -> Callable[..., bytes]:
    """The compiled ``encode(message, correlation_id)`` of a response with its frame."""

    def make(cls: type, version: int) -> Callable[..., bytes]:
        return make_response_encoder(cls, version, tagged_header=tagged_header)

    return _compiled(cls, version, "tagged response" if tagged_header else "response", make)


def _compiled(
    cls: type, version: int, what: str, make: Callable[[type, int], Callable[..., Any]]
) -> Callable[..., Any]:
    codecs: dict[tuple[str, int], Callable[..., Any]] = getattr(cls, "__codecs__", {})
    function = codecs.get((what, version))
    if function is None:
        layout = layout_of(cls)
        if version not in layout.versions:
            raise ProtocolError(
                f"{layout.name} exists in versions {layout.versions}, not {version}"
            )
        function = codecs[what, version] = make(cls, version)
    return function


def refuse_decoding(
    function: Callable[..., Any], cls: type, version: int, data: bytes, error: Exception
) -> NoReturn:
    """Raise the ProtocolError that names the place at which ``function`` stopped, and the cause."""
    path, offset = place_of(function, error)
    where = f" at {path}" if path else ""
    at = "" if offset is None else f", byte {min(offset, len(data))} of {len(data)}"
    raise ProtocolError(
        f"malformed {_title(layout_of(cls), version)}{where}{at}: {_reason(error)}"
    ) from error


def refuse_encoding(message: object, version: int, error: Exception) -> NoReturn:
    """Raise the ProtocolError that names the value of ``message`` that cannot be written."""
    path, reason = find_fault(message, version) or ("", str(error))
    where = f": {path}" if path else ""
    raise ProtocolError(
        f"cannot encode {_title(layout_of(type(message)), version)}{where}: {reason}"
    ) from error


def _title(layout: Layout, version: int) -> str:
    return f"{layout.name} version {version}"


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 ({error.reason} at its byte {error.start})"
    if isinstance(error, IndexError) or "unpack_from requires" in str(error):
        return "the data ends inside the message"
    return str(error)
