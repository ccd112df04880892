"""Visible batches of a fetch, and damaged batches."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.spark.conftest import Feed

pytest.importorskip("pyarrow", reason="pip install 'kohort[spark]'")

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.config import parse_client_settings
from kohort.client.errors import RequestFailed
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.spark.columns import Section
from kohort.spark.fetching import Batch, BatchFetcher, committed, open_batches
from kohort.storage.compression import CompressionType
from kohort.storage.errors import RefusedBatch
from kohort.storage.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, parse_header
from kohort.storage.records import Record, assemble, build_batch
from kohort.wire.messages.k01_fetch import AbortedTransaction

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
    assert list(open_batches([(header, whole)], check=True)) == [Section(header, bytes(plain))]


def test_a_damaged_batch_is_refused_if_checksums_are_checked() -> None:
    header, whole = batch(5)
    damaged = bytearray(whole)
    damaged[-3] ^= 1
    with pytest.raises(RefusedBatch, match=r"offset 5 has the checksum .* its bytes have"):
        list(open_batches([(header, memoryview(damaged))], check=True))
    assert list(open_batches([(header, memoryview(damaged))], check=False))


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_compressed_by_librdkafka_are_read(codec: str, feed: Callable[..., Feed]) -> None:
    source = feed(1)
    source.put([(b"k", b"%d" % n * 9) for n in range(2_000)], compression=codec)
    fetcher = BatchFetcher(source.settings)
    fetcher.ask(TopicPartition(source.topic, 0), 0, 2_000)
    sections = list(fetcher.answer().sections)
    fetcher.close()
    assert sections
    assert {section.header.compression for section in sections} == {CompressionType[codec.upper()]}


@pytest.mark.slow
def test_an_unreachable_broker_is_a_retriable_problem(broker: EmbeddedBroker) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "default.api.timeout.ms": "3000"}
    fetcher = BatchFetcher(parse_client_settings(settings))
    fetcher.ask(TopicPartition("no-such-topic", 0), 0, 1)
    problem = fetcher.answer().problem
    assert isinstance(problem, RequestFailed)
    assert problem.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    fetcher.close()
