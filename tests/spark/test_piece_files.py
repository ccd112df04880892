"""A task's rows in files: one for each run of a partition's rows, sealed as it was written."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pip install 'kohort[spark]'")

import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from kohort.model.ids import TopicPartition
from kohort.spark.ledgers import ledger
from kohort.spark.ledgers.ledger import Seal, WrittenFile, match_files
from kohort.spark.source.planning import Piece
from kohort.spark.tables.layout import TEMPORARY
from kohort.spark.tables.parquet_output import ParquetOutput, TableOutput
from kohort.spark.tables.piece_files import write_files, written_file
from kohort.spark.tables.seals import seal_of

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
AB0 = TopicPartition("ab", 0)


def rows(
    places: Sequence[TopicPartition], first_offset: int = 0, dead: Sequence[int] = ()
) -> pa.RecordBatch:
    """A row of each place, with its number as value; those in ``dead`` are malformed."""
    count = len(places)
    numbers = range(first_offset, first_offset + count)
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([place.topic for place in places]),
            "partition": pa.array([place.partition for place in places], pa.int32()),
            "offset": pa.array(numbers, pa.int64()),
            "record_hash": pa.array(numbers, pa.int64()),
            "value": pa.array([b"%d" % number for number in numbers]),
            "dead_letter": pa.array(["bad" if n in dead else None for n in numbers], pa.string()),
            "__kohort_key": pa.nulls(count, pa.binary()),
            "__kohort_value": pa.array([b"%d" % n if n in dead else None for n in numbers]),
        }
    )


def written(
    directory: Path, batches: Iterator[pa.RecordBatch], *, share: bool = False
) -> list[WrittenFile]:
    return [
        written_file(row["file"])
        for report in write_files(str(directory), "mark", batches, share=share)
        for row in report.to_pylist()
    ]


@pytest.mark.parametrize(
    "places",
    [
        [A0],
        [A0] * 5,
        [A0, A1, A1],
        # Another topic with the same partition number, also between rows of one topic.
        [A0, A0, B0],
        [A0, B0, B0, A0],
        [B0, AB0, A0, AB0, B0],
        [A0, A1, B0, A1, A0, A0],
    ],
)
@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_consecutive_rows_of_a_partition_become_one_file(
    tmp_path: Path, places: list[TopicPartition], batch_rows: int
) -> None:
    whole = rows(places)
    batches = (whole.slice(n, batch_rows) for n in range(0, len(places), batch_rows))
    files = written(tmp_path, batches)
    runs = [(place, len(list(run))) for place, run in groupby(places)]
    assert [(file.partition, file.rows) for file in files] == runs
    begins = [file.first_offset for file in files]
    assert begins[0] == 0
    assert all(former.last_offset + 1 == latter.first_offset for former, latter in pairwise(files))
    for file in files:
        [own] = file.files
        table = pq.read_table(tmp_path / own.path, partitioning=None)
        offsets = range(file.first_offset, file.last_offset + 1)
        assert table["offset"].to_pylist() == list(offsets)
        assert set(table["topic"].to_pylist()) == {file.partition.topic}
        assert table["value"].to_pylist() == [b"%d" % offset for offset in offsets]


def test_the_seals_of_both_files_match_their_bytes_on_disk(tmp_path: Path) -> None:
    (file,) = written(tmp_path, iter([rows([A0] * 1_000), rows([A0] * 10, 1_000, dead=[1_003])]))
    assert [each.rows for each in file.all_files] == [1_009, 1]
    for each in file.all_files:
        content = (tmp_path / each.path).read_bytes()
        assert each.seal == Seal(len(content), crc32c(content))


def test_a_seal_is_the_crc_32c_of_all_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"123456789")
    # The check value of CRC-32C (RFC 3720): the meaning of stored seals must never change.
    assert seal_of(path) == Seal(9, 0xE3069283)
    path.write_bytes(b"\0" * (3 << 20) + b"123456789")
    assert seal_of(path) == Seal((3 << 20) + 9, crc32c(path.read_bytes()))


def test_a_failed_task_leaves_no_file(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield rows([A0] * 200_000)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        written(tmp_path, broken())
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_range_of_a_file_covers_rows_in_any_order(tmp_path: Path) -> None:
    """A function of Python may return its rows in another order."""
    output = TableOutput(tmp_path, "data", "a.parquet", rows([A0]).schema, ("topic",))
    for numbers in ([5, 9, 7], [3, 8, 4]):
        output.add(A0, rows([A0] * 10).take(pa.array(numbers)))
    [part] = output.finish()[A0]
    assert part.offsets == (3, 9)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_is_told_with_the_path_of_the_file(tmp_path: Path) -> None:
    """Arrow says only «Error writing bytes to file»."""
    output = ParquetOutput(tmp_path, "data", "a.parquet", rows([A0]).schema)
    (tmp_path / "data").mkdir()
    written = tmp_path / "data" / f"a.parquet{TEMPORARY}"
    written.symlink_to("/dev/full")
    output.add(rows([A0]))
    with pytest.raises(OSError, match=f"No space left on device: '{written}'") as told:
        output.finish()
    assert (told.value.errno, told.value.filename) == (errno.ENOSPC, str(written))
    output.abandon()
    assert not written.is_symlink(), "an unfinished file is left"


def test_a_file_is_compared_with_the_pieces_of_its_partition_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of a topic with 1,000 partitions has as many pieces and files."""
    compared: list[Piece] = []
    holds = ledger._holds

    def noted(piece: Piece, file: WrittenFile) -> bool:
        compared.append(piece)
        return holds(piece, file)

    monkeypatch.setattr(ledger, "_holds", noted)
    files = written(tmp_path, iter([rows([TopicPartition("a", n) for n in range(40)])]))
    pieces = [
        Piece(partition=file.partition, begin=n, end=n + 1, epoch=1) for n, file in enumerate(files)
    ]
    assert match_files(pieces, reversed(files)) == list(zip(pieces, files, strict=True))
    assert len(compared) == len(files)
