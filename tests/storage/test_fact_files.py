"""Histories on disk: every fact is read back, torn ends are left out, newer files are refused."""

from __future__ import annotations

import dataclasses
import json
import tracemalloc
import types
from pathlib import Path
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

import pytest

from kohort.model.errors import ErrorCode
from kohort.model.history_record import FACT_TYPES, SCHEMA_VERSION, Recorded
from kohort.model.ids import GenerationId, GroupId, MemberId, Ticket, TopicPartition
from kohort.model.instants import Instant
from kohort.model.member_facts import SessionUnconfirmed
from kohort.model.wire_facts import PersistFailed
from kohort.storage.fact_codec import decode_fact, encode_fact
from kohort.storage.fact_files import (
    Header,
    HistoryFileError,
    OpenHistory,
    fact_line,
    next_life,
    read_histories,
    write_history,
)


def sample(hint: Any, alternative: int = 0) -> Any:  # noqa: PLR0911 - one kind a line
    """A value of a type, different from any default.

    ``alternative`` selects the class of a union.
    """
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [a for a in get_args(hint) if a is not type(None)]
        return sample(kinds[alternative % len(kinds)])
    if get_origin(hint) is tuple:
        args = get_args(hint)
        if args[-1] is Ellipsis:
            return (sample(args[0]), sample(args[0]))
        return tuple(sample(a) for a in args)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return make(hint, alternative)
    if hint is TopicPartition:
        return TopicPartition("orders, größer", 7)
    if isinstance(hint, type) and issubclass(hint, ErrorCode):
        return ErrorCode.FENCED_INSTANCE_ID
    special = {bytes: b"\x00\xff", str: 'é"\n', bool: True, int: 2**40}
    return special[hint] if hint in special else list(hint)[-1]


def make(kind: type[Any], alternative: int = 0) -> Any:
    hints = get_type_hints(kind)
    return kind(**{f.name: sample(hints[f.name], alternative) for f in dataclasses.fields(kind)})


def minimal(kind: type[Any]) -> Any:
    hints = get_type_hints(kind)
    required = [f for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING]
    return kind(**{f.name: sample(hints[f.name]) for f in required})


EVERY = [
    *[make(kind, n) for kind in FACT_TYPES.values() for n in range(5)],
    *[minimal(kind) for kind in FACT_TYPES.values()],
]


def history(*facts: Any, source: str = "broker", start: int = 0) -> list[Recorded]:
    return [
        Recorded(sequence=n, at=Instant(start + n * 10), incarnation=1, source=source, fact=fact)
        for n, fact in enumerate(facts, start=1)
    ]


def test_every_kind_of_fact_survives_json() -> None:
    for fact in EVERY:
        fields = json.loads(json.dumps(encode_fact(fact)))
        assert decode_fact(type(fact).__name__, fields) == fact


@pytest.mark.parametrize("name", ["h.jsonl", "h.parquet"])
def test_a_written_history_is_read_back(tmp_path: Path, name: str) -> None:
    facts = history(*EVERY)
    write_history(tmp_path / name, facts)
    found = read_histories([tmp_path / name])
    assert found.facts == facts
    assert found.remarks == []


@pytest.mark.parametrize("name", ["h.jsonl", "h.parquet"])
def test_an_empty_history_is_a_history(tmp_path: Path, name: str) -> None:
    write_history(tmp_path / name, [])
    assert read_histories([tmp_path / name]).facts == []


def test_a_file_cut_at_any_byte_gives_its_whole_facts_and_a_remark(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    facts = history(make(PersistFailed), make(SessionUnconfirmed))
    write_history(path, facts)
    whole = path.read_bytes()
    header = len(Header().line()) + 1
    lines = [header + len((fact_line(facts[0]) + "\n").encode()), len(whole)]
    for size in range(header, len(whole)):
        path.write_bytes(whole[:size])
        found = read_histories([path])
        expected = sum(1 for end in lines if end <= size)
        assert found.facts == facts[:expected]
        assert bool(found.remarks) == (size not in (header, *lines))
        assert all("truncated" in remark for remark in found.remarks)


def test_an_incomplete_header_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(Header().line())
    with pytest.raises(HistoryFileError, match="is no history"):
        read_histories([path])
    write_history(path, history(make(PersistFailed)))
    with path.open("a") as out:
        out.write(Header().line())
    found = read_histories([path])
    assert len(found.facts) == 1
    assert "truncated: line 3" in found.remarks[0]


@pytest.mark.parametrize("name", ["h.jsonl", "h.parquet"])
def test_a_history_can_be_iterated_several_times(tmp_path: Path, name: str) -> None:
    facts = history(*EVERY)
    write_history(tmp_path / name, facts)
    opened = OpenHistory([tmp_path / name])
    assert list(opened) == facts
    assert list(opened) == facts


def test_a_file_is_never_held_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    write_history(path, history(*[make(PersistFailed)] * 3_000))
    opened = OpenHistory([path])
    tracemalloc.start()
    try:
        assert sum(1 for _ in opened) == 3_000
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < path.stat().st_size // 4


def test_damage_in_the_middle_is_reported_during_the_iteration(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    facts = history(*[make(PersistFailed)] * 3)
    lines = [Header().line(), *map(fact_line, facts)]
    lines[2] = lines[2][:-9]
    path.write_text("\n".join(lines) + "\n")
    going = iter(OpenHistory([path]))
    assert next(going) == facts[0]
    with pytest.raises(HistoryFileError, match="line 3: a fact was expected"):
        next(going)


def test_a_newer_schema_is_refused_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    newer = {"kohort_history": SCHEMA_VERSION + 1, "clock": "x", "wall_micros": 0}
    path.write_text(json.dumps(newer) + "\n")
    with pytest.raises(HistoryFileError, match=f"reads 1 to {SCHEMA_VERSION}: use a kohort as new"):
        read_histories([path])


def test_an_unknown_fact_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    line = json.dumps({"n": 1, "at": 1, "life": 1, "src": "b", "is": "Sneezed", "f": {}})
    path.write_text(f"{Header().line()}\n{line}\n{fact_line(history(EVERY[0])[0])}\n")
    with pytest.raises(HistoryFileError, match=r"line 2.*Sneezed"):
        read_histories([path])


@pytest.mark.parametrize("text", ["", "hello\n", "{}\n", '[1]\n{"a":1}\n', "\x00\xff\xfe\n"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(text)
    with pytest.raises(HistoryFileError, match="is no history"):
        read_histories([path])


def test_a_field_of_the_wrong_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    good = history(make(PersistFailed), make(PersistFailed))
    held = json.loads(fact_line(good[0]))
    held["f"]["ticket"] = "seven"
    path.write_text(f"{Header().line()}\n{json.dumps(held)}\n{fact_line(good[1])}\n")
    with pytest.raises(HistoryFileError, match=r"line 2.*int was expected"):
        read_histories([path])


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HistoryFileError, match="cannot be read: No such file"):
        read_histories([tmp_path / "none.jsonl"])


def test_a_foreign_parquet_file_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(HistoryFileError, match="no history of kohort"):
        read_histories([tmp_path / "a.parquet"])


def expired(at: int) -> PersistFailed:
    return PersistFailed(group_id=GroupId("g"), ticket=Ticket(at), error=ErrorCode.NONE)


def test_files_of_one_clock_are_merged_by_instant(tmp_path: Path) -> None:
    one = history(expired(1), expired(2), source="broker")
    two = history(expired(3), expired(4), source="client", start=5)
    write_history(tmp_path / "a", one, Header(clock="boot-1", wall_micros=100))
    write_history(tmp_path / "b", two, Header(clock="boot-1", wall_micros=999))
    found = read_histories([tmp_path / "a", tmp_path / "b"])
    assert [(r.sequence, r.at, r.source) for r in found.facts] == [
        (1, 10, "broker"),
        (2, 15, "client"),
        (3, 20, "broker"),
        (4, 25, "client"),
    ]
    assert found.remarks == []


def test_files_of_two_clocks_are_aligned_by_time_of_day(tmp_path: Path) -> None:
    write_history(tmp_path / "a", history(expired(1)), Header(clock="x", wall_micros=1_000))
    write_history(tmp_path / "b", history(expired(2)), Header(clock="y", wall_micros=400))
    found = read_histories([tmp_path / "a", tmp_path / "b"])
    assert [r.at for r in found.facts] == [10 - 600, 10]
    assert "time of day" in found.remarks[0]


def test_a_next_life_appends_behind_the_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    assert next_life(path) == 1
    facts = history(expired(1), expired(2))
    write_history(path, facts)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert next_life(path) == 2
    assert path.read_bytes().endswith(b"\n")
    with path.open("a") as out:
        out.write(Header().line() + "\n")
        later = Recorded(
            sequence=1,
            at=Instant(50),
            incarnation=2,
            source="broker",
            fact=SessionUnconfirmed(
                at=Instant(50),
                group_id=GroupId("g"),
                member_id=MemberId("m"),
                generation_id=GenerationId(1),
            ),
        )
        out.write(fact_line(later) + "\n")
    assert next_life(path) == 3
    found = read_histories([path])
    assert [r.incarnation for r in found.facts] == [1, 2]


@pytest.mark.parametrize("name", ["h.jsonl", "h.parquet"])
def test_skipped_kinds_are_counted_and_the_others_keep_their_numbers(
    tmp_path: Path, name: str
) -> None:
    facts = history(*EVERY, source='a","is":"PersistFailed","f":{}')
    path = tmp_path / name
    write_history(path, facts)
    opened = OpenHistory([path], frozenset({"PersistFailed", "SessionUnconfirmed"}))
    kept = [r for r in facts if not isinstance(r.fact, PersistFailed | SessionUnconfirmed)]
    for _ in range(2):
        assert list(opened) == kept
        assert opened.skipping.count == len(facts) - len(kept) > 0


def test_facts_of_several_lives_are_numbered_anew_and_none_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    facts = history(*[make(PersistFailed)] * 3)
    write_history(path, facts)
    with path.open("a") as out:
        out.write(f"{Header().line()}\n{fact_line(facts[2])}\n")
    opened = OpenHistory([path], frozenset({"PersistFailed"}))
    assert [r.sequence for r in opened] == [1, 2, 3, 4]
    assert opened.skipping.count == 0


@pytest.mark.parametrize("text", ["{", '{"a":1},{}', "[]", "7"])
def test_a_row_of_parquet_without_fields_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "h.parquet"
    write_history(path, history(*[make(PersistFailed)] * 3))
    pq = pytest.importorskip("pyarrow.parquet")
    table = pq.read_table(path)
    texts = table["fact"].to_pylist()
    texts[1] = text
    pq.write_table(table.set_column(5, table.schema.field(5), [texts]), path)
    going = iter(OpenHistory([path]))
    assert next(going).sequence == 1
    with pytest.raises(HistoryFileError, match="row 2: "):
        next(going)
