"""Fetches of a read task, from the embedded broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.spark.conftest import Feed

pytest.importorskip("pyarrow", reason="pip install 'kohort[spark]'")

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.config import parse_client_settings
from kohort.client.errors import RequestFailed
from kohort.engine.member_outputs import Node
from kohort.fetch.requests import Answer, Remedy
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.spark.source.fetching import BatchFetcher, Wanted
from kohort.spark.source.options import DEFAULT_FETCH_BYTES, parse_options
from kohort.storage.compression import CompressionType
from kohort.storage.record_batch import parse_header
from kohort.storage.records import Record, build_batch


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_compressed_by_librdkafka_are_read(codec: str, feed: Callable[..., Feed]) -> None:
    source = feed(1)
    source.put([(b"k", b"%d" % n * 9) for n in range(2_000)], compression=codec)
    fetcher = BatchFetcher(source.settings)
    fetcher.ask([Wanted(TopicPartition(source.topic, 0), 0, 2_000)])
    (fetched,) = fetcher.answer()
    sections = list(fetched.sections)
    fetcher.close()
    assert sections
    assert {section.header.compression for section in sections} == {CompressionType[codec.upper()]}


@pytest.mark.slow
def test_an_unreachable_broker_is_a_retriable_problem(broker: EmbeddedBroker) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "default.api.timeout.ms": "3000"}
    fetcher = BatchFetcher(parse_client_settings(settings))
    fetcher.ask([Wanted(TopicPartition("no-such-topic", 0), 0, 1)])
    (fetched,) = fetcher.answer()
    problem = fetched.problem
    assert isinstance(problem, RequestFailed)
    assert problem.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    fetcher.close()


def test_an_error_of_a_follower_is_judged_by_the_leader(broker: EmbeddedBroker) -> None:
    """A follower that is behind answers that an offset is out of range; the record is there."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t", 1, 1)
    fetcher = BatchFetcher(parse_client_settings(bootstrap_servers=broker.bootstrap_servers))
    place = TopicPartition("t", 0)
    fetcher._replicas[place] = Node(node_id=1)
    seen = []
    for _ in range(2):
        fetcher.ask([Wanted(place, 5, 1)])
        (fetched,) = fetcher.answer()
        assert isinstance(fetched.problem, RequestFailed)
        seen.append((fetched.problem.code, fetched.remedy))
    fetcher.close()
    code = ErrorCode.OFFSET_OUT_OF_RANGE
    assert seen == [(code, Remedy.AGAIN), (code, Remedy.OUT_OF_RANGE)]


def test_a_fetch_asks_for_the_wanted_records_and_one_batch_more() -> None:
    fetcher = BatchFetcher(parse_client_settings(bootstrap_servers="127.0.0.1:1"))
    place = TopicPartition("t", 0)
    batch = build_batch([Record(None, b"v" * 1_000)] * 100)
    found = [(parse_header(batch), memoryview(batch))]
    fetcher._open(place, 0, Answer(found, 100, -1, len(batch), -1, (0, 100)))
    a_record = len(batch) // 100 + 1
    assert fetcher._place(Wanted(place, 100, 500)).max_bytes == 500 * a_record + len(batch)
    fetcher.close()


@pytest.mark.parametrize(("limit", "asked"), [(10.5, 10), (3, 3), (1, 1), (0.5, 0.5)])
def test_a_fetch_that_is_cut_off_by_its_limit_ends_with_a_whole_batch(
    limit: float, asked: float
) -> None:
    batch = build_batch([Record(None, b"v" * 1_000)] * 100)
    settings = {"bootstrap.servers": "127.0.0.1:1"}
    most = int(limit * len(batch))
    fetcher = BatchFetcher(parse_client_settings(settings | {"max.partition.fetch.bytes": most}))
    place = TopicPartition("t", 0)
    found = [(parse_header(batch), memoryview(batch))]
    fetcher._open(place, 0, Answer(found, 100, -1, len(batch), -1, (0, 100)))
    assert fetcher._place(Wanted(place, 100, 100_000)).max_bytes == int(asked * len(batch))
    fetcher.close()


def test_a_fetch_of_a_partition_is_larger_than_that_of_other_clients_unless_it_is_set() -> None:
    given = {"bootstrap": "b:1", "group.id": "g", "subscribe": "t"}
    name = "kafka.max.partition.fetch.bytes"
    assert parse_options(given).client.fetching.partition_max_bytes == DEFAULT_FETCH_BYTES
    assert parse_options({**given, name: "1000"}).client.fetching.partition_max_bytes == 1_000
