"""Compresses and decompresses record sections with Kafka's five compression types.

In: the record section of a batch and its type. Out: the compressed or the plain section. Must not
know: batches, files. Only code that looks into records needs it (searches by time, compaction,
tools); the produce path never decompresses. The output has a limit, because a client chose the
input.

Source: attributes of a record batch (KIP-98); gzip (RFC 1952), snappy in xerial framing as Java's
clients write it, LZ4 frames with independent blocks, zstd (KIP-110, RFC 8878).
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import Final

import cramjam

from kohort.model.errors import ErrorCode
from kohort.model.memory import Memory, plain_memory
from kohort.storage import zstd
from kohort.storage.errors import RefusedBatch

MAX_DECOMPRESSED_BYTES: Final = 64 << 20
"""Default limit for one batch's records: 64 times Kafka's default for the largest batch."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 << 10
_LENGTH: Final = struct.Struct(">i")
_GZIP_WBITS: Final = 31
_LZ4_PLAIN: Final = bytes.fromhex("04224d18604082")
"""The header of a frame of independent blocks of at most 64 KiB, without sizes and checksums."""
_LZ4_BLOCK: Final = 64 << 10
_LZ4_END: Final = bytes(4)
_LZ4_SIZE: Final = struct.Struct("<I")
_LZ4_STORED: Final = 1 << 31
"""This bit of a block's length: the block is not compressed. The other bits are the length."""


class CompressionType(IntEnum):
    """The lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_growth: dict[object, float] = {}
"""By how much a section grew when the last one of its type was decompressed, and an eighth more.

A buffer that is too large costs time, since Python fills plain memory with zeros.
"""


def compress(data: bytes, kind: CompressionType) -> bytes:
    """``data`` as a record section of type ``kind``."""
    match kind:
        case CompressionType.NONE:
            return data
        case CompressionType.GZIP:
            deflate = zlib.compressobj(wbits=_GZIP_WBITS)
            return deflate.compress(data) + deflate.flush()
        case CompressionType.SNAPPY:
            return _snappy(data)
        case CompressionType.LZ4:
            return _lz4(data)
        case CompressionType.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=3))


def decompress(
    data: bytes | memoryview,
    kind: int,
    limit: int = MAX_DECOMPRESSED_BYTES,
    *,
    memory: Memory = plain_memory,
) -> bytes | memoryview:
    """The records inside a record section of type ``kind``.

    Args:
        data: the section.
        kind: see `CompressionType`.
        limit: most bytes of the records.
        memory: makes the memory of the records, for lz4 and zstd.

    Raises:
        RefusedBatch: an unknown type, damaged data, or more than ``limit`` bytes of records.
    """
    try:
        match kind:
            case CompressionType.NONE:
                return data
            case CompressionType.GZIP:
                return _gunzip(data, limit)
            case CompressionType.SNAPPY:
                return _unsnappy(bytes(data), limit)
            case CompressionType.LZ4:
                plain = _plain_lz4(data, limit, memory)
                return _growing(cramjam.lz4, data, limit, memory) if plain is None else plain
            case CompressionType.ZSTD:
                return _growing(zstd, data, limit, memory)
            case _:
                raise RefusedBatch(
                    f"compression type {kind}; known are 0 to {max(CompressionType)}",
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                )
    except (zlib.error, cramjam.DecompressionError, struct.error) as error:
        raise RefusedBatch(
            f"the records do not decompress as {CompressionType(kind).name.lower()}: {error}",
            ErrorCode.CORRUPT_MESSAGE,
        ) from error


def _too_large(limit: int) -> RefusedBatch:
    return RefusedBatch(
        f"the records of one batch decompress to more than {limit} bytes; send smaller batches",
        ErrorCode.CORRUPT_MESSAGE,
    )


def _gunzip(data: bytes | memoryview, limit: int) -> bytes:
    inflate = zlib.decompressobj(wbits=_GZIP_WBITS)
    out = inflate.decompress(data, limit + 1)
    if len(out) > limit:
        raise _too_large(limit)
    if not inflate.eof:
        raise zlib.error("the stream ends early")
    return out


def _snappy(data: bytes) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts += (_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _unsnappy(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _unsnappy_block(data, limit)
    parts: list[bytes] = []
    room = limit
    position = len(_XERIAL_HEADER)
    while position < len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if not 0 < length <= len(data) - position:
            raise struct.error(f"block of {length} bytes where {len(data) - position} are left")
        block = data[position : position + length]
        room -= cramjam.snappy.decompress_raw_len(block)
        if room < 0:
            raise _too_large(limit)
        parts.append(bytes(cramjam.snappy.decompress_raw(block)))
        position += length
    return b"".join(parts)


def _unsnappy_block(block: bytes, limit: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > limit:
        raise _too_large(limit)
    return bytes(cramjam.snappy.decompress_raw(block))


def _lz4(data: bytes) -> bytes:
    """A frame as Java's clients write it: `_plain_lz4` reads it block by block.

    Java's reader refuses blocks that refer to earlier blocks.
    """
    parts = [_LZ4_PLAIN]
    for start in range(0, len(data), _LZ4_BLOCK):
        plain = data[start : start + _LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts += (_LZ4_SIZE.pack(len(block)), block)
        else:
            parts += (_LZ4_SIZE.pack(len(plain) | _LZ4_STORED), plain)
    return b"".join([*parts, _LZ4_END])


def _plain_lz4(
    data: bytes | memoryview, limit: int, memory: Memory = plain_memory
) -> memoryview | None:
    """The records in a frame as Java's clients and librdkafka write it; None for any other data.

    The blocks are given to the library one by one: its reader of frames copies each block once
    more, which takes as long as the decompression (ADR 0092).
    """
    if data[: len(_LZ4_PLAIN)] != _LZ4_PLAIN:
        return None
    blocks, at = [], len(_LZ4_PLAIN)
    while at + 4 <= len(data) and (size := _LZ4_SIZE.unpack_from(data, at)[0]):
        length = size & ~_LZ4_STORED
        blocks.append((at + 4, length, size & _LZ4_STORED))
        at += 4 + length
    if at + 4 != len(data) or len(blocks) * _LZ4_BLOCK > limit:
        return None
    source, out, end = memoryview(data), memory(len(blocks) * _LZ4_BLOCK), 0
    for begin, length, stored in blocks:
        block, room = source[begin : begin + length], out[end : end + _LZ4_BLOCK]
        if stored:
            if length > _LZ4_BLOCK:
                return None
            room[:length] = block
            end += length
            continue
        try:
            end += cramjam.lz4.decompress_block_into(block, room)
        except cramjam.DecompressionError:
            return None  # the reader of frames tells what is wrong
    return out[:end].toreadonly()


def _expected(module: object, data: bytes | memoryview, limit: int) -> int:
    """The bytes to reserve for the records."""
    return min(limit, max(1 << 14, int(_growth.get(module, 8.0) * len(data))))


def _grew(module: object, data: bytes | memoryview, size: int) -> None:
    _growth[module] = 1.125 * size / len(data)


def _growing(module: object, data: bytes | memoryview, limit: int, memory: Memory) -> memoryview:
    # Neither format must declare its size, and a frame of some hundred bytes may hold gigabytes. So
    # the output buffer grows in steps and never beyond the limit.
    into = module.decompress_into  # type: ignore[attr-defined]
    size = _expected(module, data, limit)
    while True:
        out = memory(size)
        try:
            found = into(data, out)
            _grew(module, data, found)
            return out[:found].toreadonly()
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
            if size == limit:
                raise _too_large(limit) from error
        size = min(limit, 4 * size)
