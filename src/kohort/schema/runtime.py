"""What generated codecs call: the rare and slow steps that are not worth writing out inline.

In: bytes and an offset, or a number. Out: numbers, offsets, bytes.
Must not know: messages.

Source: KIP-482 (unsigned varints, tagged fields).
"""

from __future__ import annotations

import struct

ONE_BYTE = tuple(bytes((n,)) for n in range(128))
"""Unsigned varints of one byte, ready made: nearly every length in the protocol is one of them."""

_MAX_VARINT_BYTES = 5
_MAX_UINT32 = 0xFFFF_FFFF
_READY_REPEATS = 64


class Malformed(ValueError):
    """Bytes that no peer that follows the protocol sends; becomes a ProtocolError."""


def uvarint(data: bytes, offset: int) -> tuple[int, int]:
    """Read an unsigned varint at ``offset``; return it and the offset behind it.

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
    """Read again, in full, the compact length whose first byte stands before ``offset``.

    Zero means null, which the caller has already ruled out or does not allow.
    """
    length, offset = uvarint(data, offset - 1)
    if length == 0:
        raise Malformed("null where a value must stand")
    return length, offset


def wide_count(data: bytes, offset: int) -> tuple[int, int]:
    """Read again, in full, the count whose first byte stands before ``offset``."""
    return uvarint(data, offset - 1)


def skip_tags(data: bytes, offset: int) -> int:
    """Step over a section of tagged fields, none of which is known; return the offset behind it."""
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


class Repeats:
    """``struct.Struct`` objects for n numbers of one type, the short ones ready made."""

    __slots__ = ("_code", "_ready")

    def __init__(self, code: str) -> None:
        self._code = code
        self._ready = tuple(struct.Struct(f">{n}{code}") for n in range(_READY_REPEATS))

    def __getitem__(self, count: int) -> struct.Struct:
        if count < _READY_REPEATS:
            return self._ready[count]
        return struct.Struct(f">{count}{self._code}")
