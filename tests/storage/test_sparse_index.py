"""The sparse index compared with a plain list, and its stored form."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kohort.storage.sparse_index import SegmentExtent, SparseIndex, load_index

EXTENT = SegmentExtent(7, 1_000, 90, 5, 50, 80)
steps = st.lists(
    st.tuples(st.integers(1, 9), st.integers(61, 500), st.integers(0, 5)), min_size=0, max_size=30
)


def build(grown: list[tuple[int, int, int]]) -> tuple[SparseIndex, list[tuple[int, int, int]]]:
    index, entries = SparseIndex(), []
    offset = position = timestamp = 0
    for more_offset, more_position, more_time in grown:
        offset, position, timestamp = (
            offset + more_offset,
            position + more_position,
            timestamp + more_time,
        )
        index.add(offset, position, timestamp)
        entries.append((offset, position, timestamp))
    return index, entries


@given(steps, st.integers(-1, 300), st.integers(0, 16_000), st.integers(-1, 160))
def test_floors(
    grown: list[tuple[int, int, int]], offset: int, position: int, timestamp: int
) -> None:
    index, entries = build(grown)
    assert len(index) == len(entries)
    below = [entry[1] for entry in entries if entry[0] <= offset]
    assert index.floor_of_offset(offset) == (below[-1] if below else 0)
    below = [entry[1] for entry in entries if entry[1] <= position]
    assert index.floor_of_position(position) == (below[-1] if below else 0)
    # Every batch before the floor is older than the requested time.
    older = [entry[1] for entry in entries if entry[2] < timestamp]
    assert index.floor_of_timestamp(timestamp) == (older[-1] if older else 0)


@given(steps)
def test_round_trip(grown: list[tuple[int, int, int]]) -> None:
    index, _ = build(grown)
    loaded = load_index(index.to_bytes(EXTENT))
    assert loaded == (index, EXTENT)


@given(st.integers(0, 10**6), st.integers(1, 255), st.binary(max_size=60))
def test_a_damaged_index_is_detected(at: int, mask: int, noise: bytes) -> None:
    content = bytearray(build([(1, 100, 1)] * 3)[0].to_bytes(EXTENT))
    assert load_index(bytes(content[: at % len(content)])) is None
    content[at % len(content)] ^= mask
    assert load_index(bytes(content)) is None
    assert load_index(noise) is None


def test_an_entry_takes_sixteen_bytes() -> None:
    index, _ = build([(1, 100, 1)] * 100)
    columns = (index.offsets, index.positions, index.timestamps)
    assert sum(column.itemsize for column in columns) == 16
