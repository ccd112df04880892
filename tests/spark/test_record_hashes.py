"""The hashes of whole columns are those of single records."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.spark.tables.layout import record_hash
from kohort.spark.tables.record_hashes import record_hashes

VALUES = st.none() | st.binary(max_size=70) | st.binary(min_size=100, max_size=300)
RECORDS = st.lists(st.tuples(VALUES, VALUES), max_size=30)


@given(RECORDS, st.integers(0, 30))
def test_each_hash_is_that_of_the_record(
    records: list[tuple[bytes | None, bytes | None]], begin: int
) -> None:
    keys, values = (
        pa.array([record[side] for record in records], pa.binary()).slice(begin) for side in (0, 1)
    )
    assert record_hashes(keys, values).to_pylist() == [record_hash(*r) for r in records[begin:]]


def test_a_column_of_nulls_has_no_bytes() -> None:
    keys = pa.nulls(2, pa.binary())
    values = pa.array([b"v" * 40, None], pa.binary())
    expected = [record_hash(None, b"v" * 40), record_hash(None, None)]
    assert record_hashes(keys, values).to_pylist() == expected


def test_the_hashes_without_numba_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    column = pa.array([b"", None, b"1234567890123456789"], pa.binary())
    compiled = record_hashes(column, column)
    monkeypatch.setitem(sys.modules, "kohort.spark.tables.crc_kernel", None)
    monkeypatch.delattr("kohort.spark.tables.crc_kernel", raising=False)
    assert record_hashes(column, column).equals(compiled)
