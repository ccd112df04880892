"""Visible batches of a Fetch answer, and damaged batches."""

from __future__ import annotations

import pytest

from kohort.fetch.sections import (
    Batch,
    Damaged,
    Section,
    committed,
    open_batches,
    visible_batches,
)
from kohort.model.ids import TopicPartition
from kohort.storage.compression import CompressionType
from kohort.storage.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, parse_header
from kohort.storage.records import Record, assemble, build_batch
from kohort.wire.messages.k01_fetch import AbortedTransaction

PLACE = TopicPartition("t", 3)

COMMIT, ABORT = 1, 0


def batch(offset: int, producer: int = -1, mark: int | None = None, codec: int = 0) -> Batch:
    """A batch with one record, in a transaction if it has a producer, or a transaction marker."""
    key = None if mark is None else mark.to_bytes(4, "big")
    made = build_batch([Record(key, b"value " * 9)], base_offset=offset, producer_id=producer)
    header = parse_header(made)
    bits = (TRANSACTIONAL_BIT if producer >= 0 else 0) | (CONTROL_BIT if mark is not None else 0)
    whole = assemble(header._replace(attributes=bits | codec), made[61:])
    return parse_header(whole), memoryview(whole)


def offsets(batches: list[Batch], *aborted: tuple[int, int]) -> list[int]:
    told = [AbortedTransaction(producer_id=p, first_offset=first) for p, first in aborted]
    return [header.base_offset for header, _ in committed(batches, told)]


def test_records_of_aborted_transactions_are_skipped_up_to_the_abort_marker() -> None:
    log = [
        batch(0, producer=1),
        batch(1, producer=2),
        batch(2),
        batch(3, producer=1, mark=ABORT),
        batch(4, producer=2, mark=COMMIT),
        batch(5, producer=1),
        batch(6, producer=1, mark=COMMIT),
    ]
    assert offsets(log, (1, 0)) == [1, 2, 5]


def test_a_producer_may_abort_twice_and_commit_between() -> None:
    log = [
        batch(0, producer=1),
        batch(1, producer=1, mark=ABORT),
        batch(2, producer=1),
        batch(3, producer=1, mark=COMMIT),
        batch(4, producer=1),
        batch(5, producer=1, mark=ABORT),
    ]
    assert offsets(log, (1, 4), (1, 0)) == [2]


def test_an_aborted_transaction_that_began_before_the_answer_is_skipped() -> None:
    log = [batch(7, producer=1), batch(8, producer=1, mark=ABORT), batch(9, producer=1)]
    assert offsets(log, (1, 2)) == [9]


@pytest.mark.parametrize("codec", list(CompressionType))
def test_every_compression_is_decompressed(codec: CompressionType) -> None:
    header, whole = batch(5, codec=codec)
    plain = batch(5)[1][61:]
    assert list(open_batches(PLACE, [(header, whole)], check=True)) == [
        Section(header, bytes(plain))
    ]


def test_a_damaged_batch_is_refused_if_checksums_are_checked() -> None:
    header, whole = batch(5)
    damaged = bytearray(whole)
    damaged[-3] ^= 1
    why = r"t-3: the batch at offset 5 cannot be read: its checksum is .* its bytes have"
    with pytest.raises(Damaged, match=why):
        list(open_batches(PLACE, [(header, memoryview(damaged))], check=True))
    assert list(open_batches(PLACE, [(header, memoryview(damaged))], check=False))


def test_damaged_compression_is_damage_of_a_batch() -> None:
    header, whole = batch(5, codec=CompressionType.LZ4)
    damaged = bytearray(whole)
    damaged[61:65] = b"none"
    with pytest.raises(Damaged, match=r"t-3: the batch at offset 5 .* do not decompress as lz4"):
        list(open_batches(PLACE, [(header, memoryview(damaged))], check=False))


def test_control_batches_and_batches_before_the_offset_are_passed_over() -> None:
    log = [batch(0), batch(1, producer=1), batch(2, producer=1, mark=COMMIT)]
    data = b"".join(bytes(whole) for _, whole in log)
    found, behind, _ = visible_batches(data, 1, None)
    assert ([header.base_offset for header, _ in found], behind) == ([1], 3)


def test_a_batch_that_is_cut_off_waits_for_the_next_answer() -> None:
    data = b"".join(bytes(whole) for _, whole in (batch(0), batch(1)))
    found, behind, _ = visible_batches(data[:-1], 0, None)
    assert ([header.base_offset for header, _ in found], behind) == ([0], 1)
    assert visible_batches(data[:30], 0, None) == ([], 0, -1)
