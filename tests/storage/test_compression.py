"""Compression types: round trips, framing variants, and the limit for the output."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.model.errors import ErrorCode
from kohort.storage import compression, zstd
from kohort.storage.compression import (
    MAX_DECOMPRESSED_BYTES,
    CompressionType,
    compress,
    decompress,
)
from kohort.storage.errors import RefusedBatch

compress_zstd = partial(compress, kind=CompressionType.ZSTD)
COMPRESSED = [kind for kind in CompressionType if kind is not CompressionType.NONE]


@given(st.binary(max_size=2_000), st.integers(1, 100), st.sampled_from(list(CompressionType)))
def test_round_trip(piece: bytes, times: int, kind: CompressionType) -> None:
    data = piece * times
    section = compress(data, kind)
    assert bytes(decompress(section, kind)) == data
    within_an_answer = memoryview(b"head" + section + b"tail")[4:-4].toreadonly()
    assert bytes(decompress(within_an_answer, kind)) == data


@pytest.mark.parametrize("kind", COMPRESSED)
def test_data_that_expands_beyond_the_limit_is_refused(kind: CompressionType) -> None:
    bomb = compress(bytes(4 << 20), kind)
    assert len(bomb) < 300_000
    with pytest.raises(RefusedBatch, match="more than 1000000 bytes"):
        decompress(bomb, kind, limit=1_000_000)
    assert len(decompress(bomb, kind, limit=4 << 20)) == 4 << 20


@pytest.mark.parametrize("kind", COMPRESSED)
@pytest.mark.parametrize("data", [b"\xff", b"no such format", b"\xff" * 100])
def test_uncompressed_data_is_refused(kind: CompressionType, data: bytes) -> None:
    with pytest.raises(RefusedBatch) as error:
        decompress(memoryview(data), kind)
    assert error.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("kind", COMPRESSED)
def test_a_truncated_stream_is_refused(kind: CompressionType) -> None:
    whole = compress(bytes(range(256)) * 40, kind)
    with pytest.raises(RefusedBatch):
        decompress(whole[: len(whole) // 2], kind)


def as_java_writes(data: bytes) -> bytes:
    """A frame of independent blocks of 64 KiB, without sizes and checksums."""
    frame = bytearray.fromhex("04224d18604082")
    for begin in range(0, len(data), 65_536):
        plain = data[begin : begin + 65_536]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        stored = len(block) >= len(plain)
        frame += struct.pack("<I", len(plain) | 1 << 31 if stored else len(block))
        frame += plain if stored else block
    return bytes(frame + bytes(4))


def streamed_zstd(data: bytes) -> bytes:
    """A frame that does not tell its size, as producers write it."""
    compressor = cramjam.zstd.Compressor(level=3)
    compressor.compress(data)
    return bytes(compressor.finish())


def outcome(data: bytes, kind: CompressionType) -> bytes | str:
    try:
        return bytes(decompress(data, kind))
    except RefusedBatch as error:
        return str(error)


def damaged(whole: bytes, dice: random.Random) -> bytes:
    copy = bytearray(whole)
    copy[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
    return bytes(copy)


def test_lz4_blocks_are_read_as_the_library_reads_the_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also of damaged frames: both give the same records, or both refuse them."""
    dice = random.Random(5)
    text = b"".join(b"%d," % dice.getrandbits(12) for _ in range(50_000))
    whole = as_java_writes(text + dice.randbytes(100_000))
    assert compression._plain_lz4(whole, MAX_DECOMPRESSED_BYTES) is not None
    cases = [whole, whole + b"more", whole[:7] + bytes(4)]
    cases += [damaged(whole, dice) for _ in range(60)]
    by_blocks = [outcome(case, CompressionType.LZ4) for case in cases]
    monkeypatch.setattr(compression, "_plain_lz4", lambda *_: None)
    assert by_blocks == [outcome(case, CompressionType.LZ4) for case in cases]
    assert {type(found) for found in by_blocks} == {bytes, str}


@pytest.mark.parametrize("with_size", [False, True])
def test_zstd_is_read_alike_with_and_without_the_library_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, with_size: bool
) -> None:
    """Also damaged and cut frames, two frames in one section, and frames that grow much."""
    if zstd._library() is None:
        pytest.skip(f"this machine has no {zstd.LIBRARY}: cramjam decompresses zstd")
    dice = random.Random(7)
    write = compress_zstd if with_size else streamed_zstd
    text = b"".join(b"%d," % dice.getrandbits(12) for _ in range(4_000))
    whole = write(text)
    cases = [
        whole,
        whole + write(b"second frame"),
        whole + b"more",
        b"",
        write(b""),
        write(bytes(90_000)),
        write(dice.randbytes(300_000)),
    ]
    cases += [whole[: len(whole) // part] for part in (2, 100, 1_000)]
    cases += [damaged(whole, dice) for _ in range(60)]
    by_library = [read_or_refused(case) for case in cases]
    monkeypatch.setattr(zstd, "_library", lambda: None)
    assert by_library == [read_or_refused(case) for case in cases]
    assert by_library[:2] == [text, text + b"second frame"]
    assert None in by_library


def read_or_refused(data: bytes) -> bytes | None:
    """The two libraries name an error in their own words."""
    found = outcome(data, CompressionType.ZSTD)
    return found if isinstance(found, bytes) else None


def test_zstd_is_read_in_several_threads_at_once() -> None:
    dice = random.Random(8)
    texts = [dice.randbytes(500) * dice.randrange(1, 2_000) for _ in range(40)]
    sections = [streamed_zstd(text) for text in texts]
    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(partial(decompress, kind=CompressionType.ZSTD), sections)]
    assert [bytes(each) for each in found] == texts


def test_a_zstd_frame_that_claims_a_large_size_gets_no_memory_for_it() -> None:
    claims = bytes.fromhex("28b52ffd") + bytes([0xE0]) + (1 << 40).to_bytes(8, "little")
    with pytest.raises(RefusedBatch):
        decompress(claims + bytes(20), CompressionType.ZSTD)


def test_lz4_is_written_as_java_writes_it() -> None:
    dice = random.Random(6)
    for data in (b"", b"abc" * 50_000, dice.randbytes(70_000), bytes(65_536), bytes(65_537)):
        frame = compress(data, CompressionType.LZ4)
        assert frame == as_java_writes(data)
        assert bytes(cramjam.lz4.decompress(frame)) == data
        found = compression._plain_lz4(frame, MAX_DECOMPRESSED_BYTES)
        assert found is not None
        assert bytes(found) == data


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(RefusedBatch) as error:
        decompress(b"", 5)
    assert error.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_snappy_is_read_with_and_without_xerial_framing() -> None:
    data = b"some words, some words, some words" * 3_000
    assert decompress(bytes(cramjam.snappy.compress_raw(data)), CompressionType.SNAPPY) == data
    framed = compress(data, CompressionType.SNAPPY)
    assert framed.startswith(b"\x82SNAPPY\x00")
    assert decompress(framed, CompressionType.SNAPPY) == data


def test_gzip_of_other_encoders_is_read() -> None:
    assert decompress(gzip.compress(b"abc"), CompressionType.GZIP) == b"abc"
    with pytest.raises(RefusedBatch):
        decompress(zlib.compress(b"abc"), CompressionType.GZIP)


def test_lz4_frames_have_independent_blocks_as_javas_reader_demands() -> None:
    frame = compress(bytes(1 << 20), CompressionType.LZ4)
    assert frame[:4] == bytes.fromhex("04224d18")
    assert frame[4] & 0x20
