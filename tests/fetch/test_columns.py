"""Decoding into columns: by numba and by numpy, compared with the decoder for single records."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stored_records import iterate_records

from kohort.model.ids import TopicPartition
from kohort.storage.record_batch import HEADER_SIZE, LOG_APPEND_TIME_BIT, parse_header
from kohort.storage.records import Record, assemble, build_batch, raw_records_of

pytest.importorskip("pyarrow", reason="pip install 'kohort[arrow]'")

import pyarrow as pa

from kohort.fetch import columns as decoding
from kohort.fetch import numpy_decoder
from kohort.fetch.columns import COLUMNS, WITH_HEADERS, to_arrow
from kohort.fetch.rows import Run
from kohort.fetch.sections import Damaged, Section

PLACE = TopicPartition("t", 3)
OTHER = TopicPartition("other", 0)
DECODERS = ["numpy", "numba"]

BYTES = st.none() | st.binary(max_size=70) | st.sampled_from([b"", b"x" * 8_000, b"y" * 9_000])
RECORDS = st.builds(
    Record,
    key=BYTES,
    value=BYTES,
    timestamp=st.integers(0, 2**42),
    headers=st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=2),
)


def use(decoder: str) -> None:
    """Decode with numba or with numpy from now on."""
    if decoder == "numpy":
        decoding._Chosen.decode = staticmethod(numpy_decoder.decode)
    else:
        pytest.importorskip("numba", reason="pip install 'kohort[arrow]'")
        assert decoding.load()


@pytest.fixture(autouse=True)
def usual_decoder() -> Iterator[None]:
    before = decoding._Chosen.decode
    yield
    decoding._Chosen.decode = staticmethod(before)


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


def row(place: TopicPartition, record: Record, stamped: bool) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": place.topic,
        "partition": place.partition,
        "offset": record.offset,
        "timestamp": record.timestamp * 1_000,
        "timestampType": int(stamped),
        "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
    }


def expected(place: TopicPartition, batches: Sequence[bytes]) -> list[dict[str, Any]]:
    return [
        row(place, record, parse_header(batch).is_log_append_time)
        for batch in batches
        for record in iterate_records(batch)
    ]


def rows_of(runs: Sequence[Run]) -> list[dict[str, Any]]:
    decoded = to_arrow(runs, WITH_HEADERS)
    decoded.validate(full=True)
    times = decoded.schema.get_field_index("timestamp")
    decoded = decoded.set_column(times, "timestamp", decoded.column(times).cast("int64"))
    rows: list[dict[str, Any]] = decoded.to_pylist()
    return rows


@pytest.mark.parametrize("decoder", DECODERS)
@given(logs(), logs(), st.data())
def test_columns_equal_the_records_decoded_one_by_one(
    decoder: str, batches: list[bytes], others: list[bytes], data: st.DataObject
) -> None:
    use(decoder)
    wanted = expected(PLACE, batches)
    offsets = [r["offset"] for r in wanted] or [0]
    begin = data.draw(st.integers(offsets[0] - 1, offsets[-1] + 1), label="begin")
    end = data.draw(st.integers(begin, offsets[-1] + 2), label="end")
    runs = [
        Run(PLACE, sections(batches), begin, end),
        Run(OTHER, sections(others), 0, 2**62),
    ]
    kept = [r for r in wanted if begin <= r["offset"] < end]
    assert rows_of(runs) == kept + expected(OTHER, others)


@pytest.mark.parametrize("decoder", DECODERS)
def test_chosen_columns_come_in_their_order_with_the_same_values(decoder: str) -> None:
    use(decoder)
    records = [Record(b"k", None, headers=[("h", b"1")]), Record(None, b"v", 7)]
    runs = [
        Run(place, sections([build_batch(records, base_offset=at)]), 0, 2**62)
        for place, at in ((PLACE, 5), (OTHER, 0))
    ]
    whole = to_arrow(runs, WITH_HEADERS)
    for columns in ([name] for name in WITH_HEADERS):
        assert to_arrow(runs, columns) == whole.select(columns)
    assert to_arrow(runs, WITH_HEADERS[::-1]) == whole.select(WITH_HEADERS[::-1])
    assert to_arrow(runs) == whole.select(COLUMNS)


def in_one_memory(runs: Sequence[Run], gap: int) -> list[Run]:
    """The same runs, the sections of all of them one after the other in one memory."""
    data = b"".join(bytes(gap) + bytes(each.records) for run in runs for each in run.sections)
    memory, at, found = memoryview(bytearray(data)), 0, []
    for run in runs:
        placed = []
        for header, records in run.sections:
            at += gap + len(records)
            placed.append(Section(header, memory[at - len(records) : at]))
        found.append(run._replace(sections=placed))
    return found


@pytest.mark.parametrize("decoder", DECODERS)
@given(logs(), logs(), st.data())
def test_columns_in_place_equal_the_usual_ones(
    decoder: str, batches: list[bytes], others: list[bytes], data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, 2**41), label="begin")
    runs = [
        Run(PLACE, sections(batches), begin, 2**62),
        Run(OTHER, sections(others), 0, 2**62),
    ]
    placed = in_one_memory(runs, data.draw(st.sampled_from([0, 1, 61]), label="gap"))
    headers = data.draw(st.booleans(), label="headers")
    usual = decoded(decoder, runs, headers=headers)
    assert decoded(decoder, placed, headers=headers, in_place=True) == usual


def test_values_in_place_are_in_the_memory_of_their_batches() -> None:
    use("numba")
    values = [b"%d" % n * 50 for n in range(200)]
    runs = [Run(PLACE, sections([build_batch([Record(b"k", each) for each in values])]), 0, 2**62)]
    fixed = pa.py_buffer(bytes(runs[0].sections[0].records))  # it refuses to be written to
    section = runs[0].sections[0]._replace(records=memoryview(fixed))
    found = to_arrow([runs[0]._replace(sections=[section])], in_place=True)
    assert found["value"].to_pylist() == values
    found = in_one_memory(runs, 10)
    whole = found[0].sections[0].records
    assert isinstance(whole, memoryview)
    assert to_arrow(found)["value"].to_pylist() == values
    before = bytes(whole)
    assert to_arrow(runs, in_place=True)["value"].to_pylist() == values  # they are read-only
    assert whole == before
    column = to_arrow(found, in_place=True)["value"]
    assert column.to_pylist() == values
    assert column.buffers()[2].address == pa.py_buffer(whole).address
    assert whole[: len(b"".join(values))] == b"".join(values)


@pytest.mark.parametrize("order", [[1, 0, 2], [2, 1, 0]])
def test_batches_of_other_memory_or_another_order_are_not_decoded_in_place(
    order: list[int],
) -> None:
    use("numba")
    batches = [
        build_batch([Record(b"k", b"%d" % n * 90)] * 20, base_offset=20 * n) for n in range(3)
    ]
    placed = in_one_memory([Run(PLACE, sections(batches), 0, 2**62)], 0)[0].sections
    shuffled = dict(zip(order, placed, strict=True))
    runs = [
        Run(PLACE, [Section(each.header, shuffled[n].records)], 0, 2**62)
        for n, each in enumerate(placed)
    ]
    for run, each in zip(runs, sections(batches), strict=True):
        memory = run.sections[0].records
        assert isinstance(memory, memoryview)
        memory[:] = each.records
    memories = sorted(
        (bytearray(len(each.records)) for each in placed),
        key=lambda m: int(pa.py_buffer(m).address),
    )
    apart = [
        run._replace(sections=[Section(each.header, memoryview(memory))])
        for run, memory, each in zip(runs, memories, sections(batches), strict=True)
    ]
    for room, each in zip(memories, sections(batches), strict=True):
        room[:] = each.records
    for mixed in (runs, apart):
        found = to_arrow(mixed, in_place=True)
        assert found["value"].to_pylist() == [b"%d" % n * 90 for n in range(3) for _ in range(20)]


@st.composite
def damaged_logs(draw: st.DrawFn) -> list[Section]:
    """Batches with a few bytes of the records, or the numbers of the header, replaced."""
    found = []
    base = 0
    for _ in range(draw(st.integers(1, 3))):
        records = draw(st.lists(RECORDS, min_size=1, max_size=20))
        batch = build_batch(records, base_offset=base)
        header = parse_header(batch)
        base = header.next_offset
        damaged = bytearray(batch[HEADER_SIZE:])
        for _ in range(draw(st.integers(0, 3))):
            at = draw(st.integers(0, len(damaged) - 1))
            damaged[at] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]))
        cut = draw(st.integers(0, 2))
        if draw(st.integers(0, 9)) == 0:
            count = draw(st.sampled_from([-1, 0, len(records) - 1, len(records) + 1, 2**31 - 1]))
            header = header._replace(record_count=count)
        if draw(st.integers(0, 9)) == 0:
            number = draw(st.sampled_from([-(2**63), -1, 2**63 - 1, 2**62]))
            name = draw(st.sampled_from(["base_offset", "base_timestamp", "max_timestamp"]))
            header = header._replace(**{name: number})
        found.append(Section(header, bytes(damaged[: len(damaged) - cut])))
    return found


def decoded(decoder: str, runs: Sequence[Run], *, headers: bool, in_place: bool = False) -> Any:
    use(decoder)
    try:
        batch = to_arrow(runs, WITH_HEADERS if headers else COLUMNS, in_place=in_place)
    except Damaged as error:
        return error.partition, error.offset
    batch.validate(full=True)
    return batch


@given(damaged_logs(), st.booleans(), st.integers(0, 40))
def test_both_decoders_judge_damaged_records_alike(
    damaged: list[Section], headers: bool, begin: int
) -> None:
    runs = [Run(PLACE, damaged, begin, 2**63 - 1)]
    by_numpy = decoded("numpy", runs, headers=headers)
    by_numba = decoded("numba", runs, headers=headers)
    assert by_numpy == by_numba
    placed = in_one_memory(runs, 0)
    assert decoded("numba", placed, headers=headers, in_place=True) == by_numba
    if not isinstance(by_numpy, tuple):
        # Decoded batches have at most the announced records, all within the received bytes.
        size = sum(len(section.records) for section in damaged)
        assert by_numba.num_rows <= sum(section.header.record_count for section in damaged)
        assert by_numba.column("value").nbytes <= size + 5 * (by_numba.num_rows + 64)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_a_wrong_record_count_is_damage(count: int, decoder: str) -> None:
    use(decoder)
    batch = build_batch([Record(b"k", b"v")], base_offset=7)
    header = parse_header(batch)._replace(record_count=count)
    with pytest.raises(Damaged, match=r"t-3: the batch at offset 7 cannot be read"):
        to_arrow([Run(PLACE, [Section(header, batch[HEADER_SIZE:])], 0, 10)])


@pytest.mark.parametrize("decoder", DECODERS)
def test_the_error_names_the_first_batch_that_is_damaged(decoder: str) -> None:
    use(decoder)
    good, bad = sections([build_batch([Record(b"k", b"v")], base_offset=n) for n in (5, 6)])
    bad = bad._replace(records=b"\x10" + b"\xff" * (len(bad.records) - 1))
    runs = [Run(OTHER, [good], 0, 10), Run(PLACE, [good, bad], 0, 10)]
    placed = in_one_memory(runs, 0)
    for case, in_place in ((runs, False), (placed, False), (placed, True)):
        with pytest.raises(Damaged) as raised:
            to_arrow(case, in_place=in_place)
        assert (raised.value.partition, raised.value.offset) == (PLACE, 6)


@pytest.mark.parametrize("decoder", DECODERS)
def test_offsets_that_go_back_between_batches_are_damage(decoder: str) -> None:
    use(decoder)
    batches = [build_batch([Record(b"k", b"v")] * 2, base_offset=n) for n in (5, 6)]
    with pytest.raises(Damaged, match="offset 6 cannot be read: the batch before it ends at"):
        to_arrow([Run(PLACE, sections(batches), 0, 10)])


@pytest.mark.parametrize("decoder", DECODERS)
def test_no_sections_give_no_rows(decoder: str) -> None:
    use(decoder)
    assert to_arrow([Run(PLACE, [], 0, 10)], WITH_HEADERS).num_rows == 0
    empty = parse_header(build_batch([Record(None, None)]))._replace(record_count=0)
    assert to_arrow([Run(PLACE, [Section(empty, b"")], 0, 10)]).num_rows == 0


def test_a_process_without_numba_decodes_with_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    use("numpy")
    monkeypatch.setitem(sys.modules, "kohort.fetch.compiled_decoder", None)
    monkeypatch.delattr("kohort.fetch.compiled_decoder", raising=False)
    assert not decoding.load()
    assert not decoding.is_compiled()
    batch = build_batch([Record(b"k", b"v")])
    assert to_arrow([Run(PLACE, sections([batch]), 0, 10)]).num_rows == 1


def test_the_first_rows_import_nothing_for_which_an_event_loop_would_stand_still() -> None:
    """``pa.array`` and ``pa.scalar`` import pandas, if it is there, with their first call."""
    program = """
import sys
from kohort.fetch.columns import WITH_HEADERS, to_arrow
from kohort.fetch.rows import Run
from kohort.fetch.sections import Section
from kohort.model.ids import TopicPartition
from kohort.storage.record_batch import HEADER_SIZE, parse_header
from kohort.storage.records import Record, build_batch
before = set(sys.modules)
batch = build_batch([Record(b"k", None, headers=[("a", b"b")]), Record(None, b"v")])
section = Section(parse_header(batch), batch[HEADER_SIZE:])
assert to_arrow([Run(TopicPartition("t", 0), [section], 0, 9)], WITH_HEADERS).num_rows == 2
print(sorted(name for name in set(sys.modules) - before if "." not in name))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
