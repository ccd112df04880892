"""Helpers of generated codecs: the rare and slow steps that are not generated inline.

In: bytes and an offset, or a number. Out: numbers, offsets, bytes. Must not know: messages.

Source: KIP-482 (unsigned varints, tagged fields).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

ONE_BYTE = tuple(bytes((n,)) for n in range(128))
"""All unsigned varints of one byte: nearly every length in the protocol is one of them."""

MAX_STRING_BYTES = 32_767
"""Limit for a string in every version: Kafka neither writes nor reads a longer one."""

_MAX_VARINT_BYTES = 5
_MAX_UINT32 = 0xFFFF_FFFF
SHORT_ARRAY = 32
"""Arrays of fewer numbers than this are read and written by ready-made functions."""


class Malformed(ValueError):
    """Bytes that break the protocol; becomes a ProtocolError."""


def uvarint(data: bytes, offset: int) -> tuple[int, int]:
    """Read an unsigned varint at ``offset``; return it and the offset after it.

    Raises:
        Malformed: It does not fit into 32 bits.
        IndexError: The data ends inside it.
    """
    value = 0
    for place in range(_MAX_VARINT_BYTES):
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if value > _MAX_UINT32:
                break
            return value, offset
    raise Malformed("a varint is longer than 32 bits")


def wide_length(data: bytes, offset: int) -> tuple[int, int]:
    """Read the whole compact length at ``offset``; return it and the place of its last byte.

    Zero means null; the caller has already excluded null.
    """
    length, offset = uvarint(data, offset)
    if length == 0:
        raise Malformed("null where a value must stand")
    return length, offset - 1


def wide_text_length(data: bytes, offset: int) -> tuple[int, int]:
    """Like ``wide_length``, for a string, which has the same limit in compact and plain form.

    Raises:
        Malformed: it is null, or longer than ``MAX_STRING_BYTES``; Kafka closes then, too.
    """
    length, offset = wide_length(data, offset)
    if length > MAX_STRING_BYTES + 1:
        raise Malformed(f"a string of {length - 1} bytes; at most {MAX_STRING_BYTES} are possible")
    return length, offset


def wide_count(data: bytes, offset: int) -> tuple[int, int]:
    """Read the whole count; its first byte is before ``offset``."""
    return uvarint(data, offset - 1)


def skip_tags(data: bytes, offset: int) -> int:
    """Skip a section of unknown tagged fields; return the offset after it."""
    count, offset = uvarint(data, offset)
    for _ in range(count):
        _, offset = uvarint(data, offset)
        size, offset = uvarint(data, offset)
        offset += size
        if offset > len(data):
            raise Malformed("a tagged field reaches beyond the end")
    return offset


def uvarint_bytes(value: int) -> bytes:
    """``value`` as an unsigned varint."""
    if value < 128:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text_length_bytes(length: int) -> bytes:
    """The length of a compact string, plus one, as an unsigned varint.

    Raises:
        Malformed: longer than ``MAX_STRING_BYTES``.
    """
    if length > MAX_STRING_BYTES + 1:
        raise Malformed(f"a string of {length - 1} bytes; at most {MAX_STRING_BYTES} are possible")
    return uvarint_bytes(length)


def readers_of(code: str) -> tuple[Callable[[bytes, int], tuple[int, ...]], ...]:
    """``unpack_from`` for 0, 1, 2 … numbers of one type: arrays are nearly always short."""
    return tuple(struct.Struct(f">{n}{code}").unpack_from for n in range(SHORT_ARRAY))


def read_numbers(code: str, count: int, data: bytes, offset: int) -> tuple[int, ...]:
    """``count`` numbers of one type; the caller has checked that the data holds them."""
    return struct.unpack_from(f">{count}{code}", data, offset)


def writers_of(before: str, code: str) -> tuple[Callable[..., bytes], ...]:
    """``pack`` for fixed fields ``before`` and then 0, 1, 2 … numbers of one type."""
    return tuple(struct.Struct(f">{before}{n}{code}").pack for n in range(SHORT_ARRAY))


def write_numbers(code: str, values: Sequence[int]) -> bytes:
    """The bytes of numbers of one type, without their count."""
    return struct.pack(f">{len(values)}{code}", *values)
