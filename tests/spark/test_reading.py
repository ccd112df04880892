"""Read tasks on the embedded broker: each record of a piece, once and in order."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import pytest
from tests.spark.conftest import Feed

from kohort.fetch.columns import WITH_HEADERS, load
from kohort.model.ids import TopicPartition
from kohort.spark.source import reading
from kohort.spark.source.data_source import KohortStreamReader, PiecesPartition
from kohort.spark.source.fetching import BatchFetcher, Wanted
from kohort.spark.source.planning import Piece
from kohort.spark.source.reading import ReadFailed, read_pieces, warm_up
from kohort.testing.fault_proxy import FaultProxy

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def thaw() -> object:
    """Undo the worker's freeze of the garbage collector after each test."""
    yield
    gc.unfreeze()


def piece(feed: Feed, partition: int, begin: int, end: int) -> Piece:
    return Piece(partition=TopicPartition(feed.topic, partition), begin=begin, end=end, epoch=1)


def places(feed: Feed, pieces: list[Piece]) -> list[tuple[int, int, bytes]]:
    return [
        (row["partition"], row["offset"], row["value"])
        for batch in read_pieces(feed.settings, pieces)
        for row in batch.to_pylist()
    ]


def expected(feed: Feed, pieces: list[Piece]) -> list[tuple[int, int, bytes | None]]:
    return [
        (p.partition.partition, n, feed.records[p.partition.partition][n][1])
        for p in pieces
        for n in range(p.begin, p.end)
    ]


def test_pieces_are_read_in_turn_and_up_to_their_ends(
    feed: Callable[..., Feed],
) -> None:
    source = feed(3, [(None, b"%d" % n) for n in range(90_000)])
    pieces = [
        piece(source, 2, 0, 30_000),
        piece(source, 0, 5, 29_000),
        piece(source, 1, 29_999, 30_000),
    ]
    assert places(source, pieces) == expected(source, pieces)
    # The worker keeps its fetcher; a second task reads its own offsets.
    again = [piece(source, 1, 3, 9), piece(source, 2, 29_990, 30_000), piece(source, 0, 0, 2)]
    assert places(source, again) == expected(source, again)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kept_columns_stay_as_they_are_while_the_next_ones_are_read(
    codec: str, feed: Callable[..., Feed]
) -> None:
    """Values are written over the batches that they came from, several batches in one memory."""
    assert load()
    source = feed(2)
    source.put([(b"%d" % n, b"%06d" % n * 200) for n in range(8_000)], compression=codec)
    pieces = [piece(source, 1, 3, 3_990), piece(source, 0, 0, 4_000)]
    kept = list(read_pieces(source.settings, pieces, columns=["partition", "offset", "value"]))
    assert len(kept) > 2
    rows = [(r["partition"], r["offset"], r["value"]) for batch in kept for r in batch.to_pylist()]
    assert rows == expected(source, pieces)


def test_small_pieces_are_fetched_together(
    feed: Callable[..., Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = feed(12, [(None, b"%d" % n) for n in range(36)])
    source.put([(None, b"%d" % n) for n in range(36, 72)])
    asked: list[int] = []
    ask = BatchFetcher.ask

    def noted(fetcher: BatchFetcher, wanted: Sequence[Wanted]) -> None:
        asked.append(len(wanted))
        ask(fetcher, wanted)

    monkeypatch.setattr(BatchFetcher, "ask", noted)
    pieces = [piece(source, number, 1, 6) for number in range(12)]
    assert places(source, pieces) == expected(source, pieces)
    assert asked == [12]
    # Each answer has one batch of the first partition only: the other ones are asked again.
    source.more = {"max.partition.fetch.bytes": 1}
    asked.clear()
    assert places(source, pieces) == expected(source, pieces)
    assert sorted(set(asked), reverse=True) == [*range(12, 0, -1)]
    assert asked == sorted(asked, reverse=True)


def test_two_pieces_of_one_partition_are_read_in_turn(feed: Callable[..., Feed]) -> None:
    source = feed(1, [(None, b"%d" % n) for n in range(100)])
    pieces = [piece(source, 0, 50, 60), piece(source, 0, 10, 20)]
    assert places(source, pieces) == expected(source, pieces)


def test_a_worker_stays_usable_after_a_reader_that_stopped_early(feed: Callable[..., Feed]) -> None:
    source = feed(2, [(None, b"%d" % n) for n in range(50_000)])
    reading = read_pieces(source.settings, [piece(source, 0, 0, 25_000)])
    next(reading)
    reading.close()
    pieces = [piece(source, 0, 100, 200), piece(source, 1, 0, 10)]
    assert places(source, pieces) == expected(source, pieces)


def test_a_range_beyond_the_end_of_the_log_fails_after_the_patience(
    feed: Callable[..., Feed],
) -> None:
    source = feed(1, [(None, b"x")] * 5)
    with pytest.raises(ReadFailed, match=r"from offset 5 \(up to 9\) within 0.5 s"):
        list(read_pieces(source.settings, [piece(source, 0, 0, 9)], patience_s=0.5))


def test_a_range_that_begins_behind_the_log_end_fails_at_once(feed: Callable[..., Feed]) -> None:
    source = feed(1, [(None, b"x")] * 5)
    with pytest.raises(ReadFailed, match="made again, or its log was cut"):
        list(read_pieces(source.settings, [piece(source, 0, 70, 90)], patience_s=20))


def test_headers_nulls_and_empty_values_are_kept_apart(feed: Callable[..., Feed]) -> None:
    source = feed(1)
    source.put([(None, None), (b"", b"")], headers=[("a", b"1"), ("a", None)])
    source.put([(b"k", b"v")])
    rows = [
        row
        for batch in read_pieces(source.settings, [piece(source, 0, 0, 3)], columns=WITH_HEADERS)
        for row in batch.to_pylist()
    ]
    assert [(row["key"], row["value"]) for row in rows] == [(None, None), (b"", b""), (b"k", b"v")]
    two = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert [row["headers"] for row in rows] == [two, two, None]


def test_warm_up_connects_and_fetches_no_record(
    feed: Callable[..., Feed], kohort_fault_proxy: Callable[..., FaultProxy]
) -> None:
    source = feed(1, [(None, b"needle")])
    proxy = kohort_fault_proxy(source.bootstrap)
    source.bootstrap = proxy.bootstrap_servers
    answers: list[bytes] = []

    def note(answer: bytes) -> bytes:
        answers.append(answer)
        return answer

    proxy.change_answer("Fetch", note)
    warm_up(source.settings)
    assert proxy.open_connections > 0
    proxy.change_answer("Fetch", note)
    assert places(source, [piece(source, 0, 0, 1)]) == [(0, 0, b"needle")]
    assert [b"needle" in answer for answer in answers] == [False, True]


@pytest.mark.parametrize("plain", [True, False])
def test_the_reading_worker_of_a_warm_up_batch_is_warm(
    plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark gives the workers of a task other parts of the next one."""
    warmed: list[str] = []
    monkeypatch.setattr(reading, "warm_up", lambda client: warmed.append(client.group_id))
    options = {"kafka.bootstrap.servers": "localhost:1", "kafka.group.id": "g", "subscribe": "t"}
    reader = KohortStreamReader(options | {"piecesOnly": str(plain).lower()})
    rows = sum(batch.num_rows for batch in reader.read(PiecesPartition(0, warm_up=True)))
    assert (rows, warmed) == (int(plain), ["g"])
    rows = sum(batch.num_rows for batch in reader.read(PiecesPartition(0)))
    assert (rows, warmed) == (int(plain), ["g"])
