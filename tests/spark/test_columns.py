"""Decoding into columns, compared with the decoder for single records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.model.ids import TopicPartition
from kohort.storage.record_batch import HEADER_SIZE, LOG_APPEND_TIME_BIT, parse_header
from kohort.storage.records import (
    Record,
    assemble,
    build_batch,
    iterate_records,
    raw_records_of,
)

pytest.importorskip("pyarrow", reason="pip install 'kohort[spark]'")

from kohort.spark.columns import Malformed, Section, to_arrow

PLACE = TopicPartition("t", 3)

BYTES = st.none() | st.binary(max_size=70) | st.sampled_from([b"", b"x" * 8_000, b"y" * 9_000])
RECORDS = st.builds(
    Record,
    key=BYTES,
    value=BYTES,
    timestamp=st.integers(0, 2**42),
    headers=st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=2),
)


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Batches with gaps between and inside them, and timestamps from producer or broker."""
    batches, base = [], draw(st.integers(0, 2**40))
    for records in draw(st.lists(st.lists(RECORDS, min_size=1, max_size=150), max_size=4)):
        batch = build_batch(records, base_offset=base)
        header = parse_header(batch)
        base = header.next_offset + draw(st.integers(0, 3))
        if draw(st.booleans()):
            kept = [raw.encoded for raw in raw_records_of(header, batch) if raw.offset % 3]
            batch = assemble(header._replace(record_count=len(kept)), b"".join(kept))
        if draw(st.booleans()):
            stamped = parse_header(batch)
            stamped = stamped._replace(attributes=stamped.attributes | LOG_APPEND_TIME_BIT)
            batch = assemble(stamped, batch[HEADER_SIZE:])
        batches.append(batch)
    return batches


def sections(batches: Sequence[bytes]) -> list[Section]:
    return [Section(parse_header(batch), batch[HEADER_SIZE:]) for batch in batches]


def row(record: Record, stamped: bool) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": "t",
        "partition": 3,
        "offset": record.offset,
        "timestamp": record.timestamp * 1_000,
        "timestampType": int(stamped),
        "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
    }


def columns(batches: Sequence[bytes], begin: int, end: int) -> list[dict[str, Any]]:
    decoded = to_arrow(PLACE, sections(batches), begin, end, headers=True)
    times = decoded.schema.get_field_index("timestamp")
    decoded = decoded.set_column(times, "timestamp", decoded.column(times).cast("int64"))
    rows: list[dict[str, Any]] = decoded.to_pylist()
    return rows


@given(logs(), st.data())
def test_columns_equal_the_records_decoded_one_by_one(
    batches: list[bytes], data: st.DataObject
) -> None:
    expected = [
        row(record, parse_header(batch).is_log_append_time)
        for batch in batches
        for record in iterate_records(batch)
    ]
    offsets = [r["offset"] for r in expected] or [0]
    begin = data.draw(st.integers(offsets[0] - 1, offsets[-1] + 1), label="begin")
    end = data.draw(st.integers(begin, offsets[-1] + 2), label="end")
    assert columns(batches, begin, end) == [r for r in expected if begin <= r["offset"] < end]


@given(st.lists(RECORDS, min_size=1, max_size=20), st.data())
def test_damaged_records_raise_malformed_and_no_other_error(
    records: list[Record], data: st.DataObject
) -> None:
    batch = build_batch(records)
    damaged = bytearray(batch[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(1, 3), label="damages")):
        at = data.draw(st.integers(0, len(damaged) - 1), label="at")
        damaged[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]), label="byte")
    cut = data.draw(st.integers(0, 2), label="cut")
    section = Section(parse_header(batch), bytes(damaged[: len(damaged) - cut]))
    try:
        decoded = to_arrow(PLACE, [section], -(2**62), 2**62, headers=True)
    except Malformed:
        return
    decoded.validate(full=True)
    # Decoded batches have the announced number of records, all within the received bytes.
    assert decoded.num_rows == len(records)
    assert decoded.column("value").nbytes <= len(damaged) + 5 * (len(records) + 64)


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_a_wrong_record_count_is_malformed(count: int) -> None:
    batch = build_batch([Record(b"k", b"v")])
    header = parse_header(batch)._replace(record_count=count)
    with pytest.raises(Malformed):
        to_arrow(PLACE, [Section(header, batch[HEADER_SIZE:])], 0, 10)


def test_no_sections_give_no_rows() -> None:
    assert to_arrow(PLACE, [], 0, 10, headers=True).num_rows == 0
