"""Record batches compared with two other encoders, and all errors that a producer can make."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from tests.stored_records import iterate_records

from kohort.model.errors import ErrorCode
from kohort.storage.compression import CompressionType
from kohort.storage.errors import RefusedBatch
from kohort.storage.record_batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    check_batch,
    iterate_batches,
    parse_header,
    stored_prefix,
    with_log_append_time,
)
from kohort.storage.records import Record, all_have_keys, build_batch

NOW = 1_700_000_000_000
MAX_BYTES = 1 << 20

small_bytes = st.none() | st.binary(max_size=200)
header_lists = st.lists(st.tuples(st.text(max_size=10), small_bytes), max_size=3)
records = st.lists(
    st.builds(
        Record,
        key=small_bytes,
        value=small_bytes | st.binary(min_size=2_000, max_size=5_000),
        timestamp=st.integers(NOW - 10**6, NOW + 10**6),
        headers=header_lists,
    ),
    min_size=1,
    max_size=30,
)
codecs = st.sampled_from(list(CompressionType))

# kafka-python compresses with packages that are not installed here, except for these two.
KAFKA_PYTHON_CODECS = (CompressionType.NONE, CompressionType.GZIP)
AIOKAFKA = (AiokafkaBuilder, AiokafkaBatch)
KAFKA_PYTHON = (KafkaPythonBuilder, KafkaPythonBatch)
oracles = st.sampled_from(
    [(AIOKAFKA, codec) for codec in CompressionType]
    + [(KAFKA_PYTHON, codec) for codec in KAFKA_PYTHON_CODECS]
)


def refused(data: bytes, max_message_bytes: int = MAX_BYTES) -> ErrorCode:
    with pytest.raises(RefusedBatch) as error:
        check_batch(data, max_message_bytes)
    assert str(error.value)
    return error.value.code


def resealed(batch: bytes, **changes: int) -> bytes:
    """The batch with other header fields and a matching checksum."""
    header = parse_header(batch)._replace(**changes)
    body = HEADER.pack(*header)[CRC_START:] + batch[HEADER_SIZE:]
    return HEADER.pack(*header._replace(crc=crc32c(body))) + batch[HEADER_SIZE:]


def foreign_batch(builder: type, given_records: Sequence[Record], codec: CompressionType) -> bytes:
    built: Any = builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for offset, record in enumerate(given_records):
        built.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(built.build())


def seen_by(reader: type, batch: bytes) -> list[Record]:
    read: Any = reader(batch)
    assert read.validate_crc()
    return [Record(r.key, r.value, r.timestamp, list(r.headers), r.offset) for r in read]


def expected(given_records: Sequence[Record]) -> list[Record]:
    return [
        record._replace(offset=offset, headers=list(record.headers))
        for offset, record in enumerate(given_records)
    ]


def decoded(batch: bytes) -> list[Record]:
    return [record._replace(headers=list(record.headers)) for record in iterate_records(batch)]


@given(records, oracles)
def test_batches_of_other_encoders_are_read(
    given_records: list[Record], oracle: tuple[tuple[type, type], CompressionType]
) -> None:
    (builder, _), codec = oracle
    batch = foreign_batch(builder, given_records, codec)
    header, body = check_batch(batch, 1 << 30)
    assert stored_prefix(header, header.base_offset, header.partition_leader_epoch) + body == batch
    assert decoded(batch) == expected(given_records)


@given(records, oracles)
def test_other_decoders_read_our_batches(
    given_records: list[Record], oracle: tuple[tuple[type, type], CompressionType]
) -> None:
    (_, reader), codec = oracle
    batch = build_batch(given_records, compression=codec)
    assert seen_by(reader, batch) == expected(given_records)
    assert decoded(batch) == expected(given_records)


@given(records)
def test_uncompressed_batches_equal_those_of_other_encoders(
    given_records: list[Record],
) -> None:
    ours = build_batch(given_records)
    theirs = foreign_batch(KafkaPythonBuilder, given_records, CompressionType.NONE)
    # A producer may set any leader epoch: -1 here, 0 there.
    assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:]


def test_a_batch_of_another_encoder_may_be_anywhere_among_others() -> None:
    one = foreign_batch(AiokafkaBuilder, [Record(b"a", b"1", NOW)], CompressionType.LZ4)
    two = build_batch([Record(b"b", b"2", NOW), Record(b"c", None, NOW)], base_offset=7)
    found = [(header.base_offset, bytes(batch)) for header, batch in iterate_batches(one + two)]
    assert found == [(0, one), (7, two)]
    assert [record.offset for record in iterate_records(one + two)] == [0, 7, 8]


def test_an_incomplete_batch_at_the_end_is_left_out() -> None:
    one = build_batch([Record(b"a", b"1", NOW)])
    for size in range(len(one)):
        assert list(iterate_batches(one + one[:size])) == list(iterate_batches(one))


def test_offset_and_epoch_lie_outside_the_checksum() -> None:
    batch = build_batch([Record(b"a", b"1", NOW)])
    header, body = check_batch(batch, MAX_BYTES)
    stored = stored_prefix(header, 12_345, 7) + body
    again, _ = check_batch(stored, MAX_BYTES)
    assert (again.base_offset, again.partition_leader_epoch) == (12_345, 7)
    assert again.crc == header.crc


def test_log_append_time_changes_the_time_of_every_record() -> None:
    batch = build_batch([Record(b"a", b"1", NOW), Record(b"b", b"2", NOW + 5)])
    header, body = with_log_append_time(*check_batch(batch, MAX_BYTES), NOW + 99)
    stored = stored_prefix(header, 0, 0) + body
    check_batch(stored, MAX_BYTES)
    assert [record.timestamp for record in iterate_records(stored)] == [NOW + 99, NOW + 99]
    assert [r.timestamp for r in seen_by(KafkaPythonBatch, stored)] == [NOW + 99, NOW + 99]


@pytest.mark.parametrize("at", [CRC_START, CRC_START + 10, HEADER_SIZE, -1])
def test_a_flipped_bit_is_detected(at: int) -> None:
    batch = bytearray(build_batch([Record(b"a", b"1" * 50, NOW)]))
    batch[at] ^= 0x10
    assert refused(bytes(batch)) is ErrorCode.CORRUPT_MESSAGE


def test_anything_but_one_whole_batch_is_refused() -> None:
    batch = build_batch([Record(b"a", b"1", NOW)])
    assert refused(b"") is ErrorCode.INVALID_RECORD
    assert refused(batch[:60]) is ErrorCode.INVALID_RECORD
    assert refused(batch[:-1]) is ErrorCode.CORRUPT_MESSAGE
    assert refused(batch + batch) is ErrorCode.INVALID_RECORD
    assert refused(batch + b"\x00") is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 2**31 - 1])
def test_absurd_lengths_are_refused(length: int) -> None:
    batch = bytearray(build_batch([Record(b"a", b"1", NOW)]))
    struct.pack_into(">i", batch, 8, length)
    assert refused(bytes(batch)) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [-1, 0, 1, 3])
def test_other_message_formats_are_refused(magic: int) -> None:
    batch = resealed(build_batch([Record(b"a", b"1" * 40, NOW)]), magic=magic)
    assert refused(batch) is ErrorCode.INVALID_RECORD


def test_a_batch_larger_than_allowed_is_refused() -> None:
    batch = build_batch([Record(b"a", bytes(1_000), NOW)])
    assert refused(batch, len(batch) - 1) is ErrorCode.MESSAGE_TOO_LARGE
    check_batch(batch, len(batch))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"record_count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"record_count": 3}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 5}, ErrorCode.INVALID_RECORD),
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x10}, ErrorCode.INVALID_TXN_STATE),
        ({"producer_id": 5, "producer_epoch": 0, "base_sequence": -1}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 5, "producer_epoch": -1, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
    ],
)
def test_headers_that_break_a_rule_are_refused(changes: dict[str, int], code: ErrorCode) -> None:
    batch = build_batch([Record(b"a", b"1", NOW), Record(b"b", b"2", NOW)])
    assert refused(resealed(batch, **changes)) is code


def test_records_that_do_not_fill_their_batch_are_refused_when_read() -> None:
    batch = build_batch([Record(b"a", b"1", NOW), Record(b"b", b"2", NOW)])
    with pytest.raises(RefusedBatch, match="do not hold them"):
        list(iterate_records(resealed(batch, record_count=3, last_offset_delta=2)))


@given(st.data())
def test_damaged_records_raise_one_kind_of_error(data: st.DataObject) -> None:
    batch = bytearray(
        build_batch(
            [Record(b"k%d" % i, b"v" * i, NOW + i, (("h", b"x"),)) for i in range(5)],
            compression=data.draw(codecs),
        )
    )
    at = data.draw(st.integers(HEADER_SIZE, len(batch) - 1))
    batch[at] ^= data.draw(st.integers(1, 255))
    header = parse_header(batch)
    assert outcome(lambda: list(iterate_records(bytes(batch)))) in ALLOWED
    assert outcome(lambda: all_have_keys(header, bytes(batch))) in ALLOWED


ALLOWED = (None, ErrorCode.CORRUPT_MESSAGE)


def outcome(read: Callable[[], object]) -> ErrorCode | None:
    try:
        read()
    except RefusedBatch as error:
        return error.code
    return None


def test_keys_are_found_without_reading_the_rest() -> None:
    with_keys = build_batch([Record(b"", b"1", NOW), Record(b"b", None, NOW)])
    without = build_batch([Record(b"a", b"1", NOW), Record(None, b"2", NOW)])
    assert all_have_keys(parse_header(with_keys), with_keys)
    assert not all_have_keys(parse_header(without), without)


def test_the_last_sequence_wraps_like_the_producers_count() -> None:
    batch = build_batch(
        [Record(b"a", b"1", NOW)] * 3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2
    )
    assert parse_header(batch).last_sequence == 0
