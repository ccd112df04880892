"""Memory of Arrow's pool: where columns and records are written."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from kohort.model.ids import TopicPartition
from kohort.storage.compression import CompressionType
from kohort.storage.record_batch import parse_header
from kohort.storage.records import Record, build_batch

pytest.importorskip("pyarrow", reason="pip install 'kohort[arrow]'")

import pyarrow as pa

from kohort.fetch import columns
from kohort.fetch.memory import Arena, array, owner, pooled
from kohort.fetch.rows import Run
from kohort.fetch.sections import open_batch

PLACE = TopicPartition("t", 0)
POOL = pa.proxy_memory_pool(pa.default_memory_pool())
"""Counts what is allocated while it is the default pool. It must outlive that memory."""


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    before = pa.default_memory_pool()
    pa.set_memory_pool(POOL)
    assert POOL.bytes_allocated() == 0
    yield POOL
    pa.set_memory_pool(before)


def test_memory_of_the_pool_can_be_written_and_goes_back(pool: pa.MemoryPool) -> None:
    room = pooled(1 << 20)
    assert (room.format, room.readonly, len(room)) == ("B", False, 1 << 20)
    room[:3] = b"\xffab"
    assert room[0] == 255
    numbers = array((2, 3), np.int64)
    numbers[:] = 7
    assert numbers.tolist() == [[7] * 3] * 2
    assert array(0, np.int32).tolist() == []
    assert len(pooled(0)) == 0
    assert pool.bytes_allocated() >= (1 << 20) + 48
    del room, numbers
    assert pool.bytes_allocated() == 0


def test_neighbours_in_an_arena_have_one_owner() -> None:
    arena = Arena(1_000)
    parts = [arena(size) for size in (400, 600, 1, 5_000, 10)]
    for n, part in enumerate(parts):
        part[:] = bytes([n]) * len(part)
    assert [(len(part), set(part)) for part in parts] == [
        (400, {0}),
        (600, {1}),
        (1, {2}),
        (5_000, {3}),
        (10, {4}),
    ]
    owners = [owner(part) for part in parts]
    assert owners[0] is owners[1]
    assert len({id(each) for each in owners}) == 4


def test_bytes_have_no_owner() -> None:
    assert owner(b"bytes") is None
    assert owner(memoryview(b"bytes")) is None
    room = bytearray(3)
    assert owner(memoryview(room)[1:].toreadonly()) is room


@pytest.mark.parametrize("kind", [CompressionType.LZ4, CompressionType.ZSTD])
def test_decompressed_records_and_their_columns_are_in_the_pool(
    kind: CompressionType, pool: pa.MemoryPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba", reason="pip install 'kohort[arrow]'")
    monkeypatch.setattr(columns._Chosen, "decode", columns._Chosen.decode)
    assert columns.load()
    records = [Record(key=None, value=b"%d" % n * 200, timestamp=n) for n in range(1_000)]
    batch = memoryview(build_batch(records, compression=kind))
    size = sum(len(each.value or b"") for each in records)
    section = open_batch(PLACE, parse_header(batch), batch, check=True, memory=pooled)
    opened = pool.bytes_allocated()
    assert opened >= size
    found = columns.to_arrow([Run(PLACE, [section], 0, len(records))])
    assert pool.bytes_allocated() >= opened + size
    del section
    assert found["value"].to_pylist() == [each.value for each in records]
    del found
    assert pool.bytes_allocated() == 0
