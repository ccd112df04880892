"""Waiting requests: long polls, parked joins, clients that do not read their answers."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from tests.broker.conftest import (
    Connect,
    MakeFetch,
    MakeProduce,
    RawClient,
    ValuesOf,
    bytes_of,
    loop_of,
)

from kohort.broker.embedded import EmbeddedBroker
from kohort.broker.session import Session
from kohort.model.errors import ErrorCode
from kohort.wire.messages import k03_metadata, k12_heartbeat, k18_api_versions, k20_delete_topics

LONG_MS = 15_000
SOON_S = 5.0


def test_an_append_wakes_a_waiting_fetch(
    kohort_broker: EmbeddedBroker, connect: Connect, fetch_request: MakeFetch, values_of: ValuesOf
) -> None:
    waiting, other = connect(kohort_broker), connect(kohort_broker)
    other.create("t", partitions=2)
    waiting.send(fetch_request({("t", 0): 0, ("t", 1): 0}, max_wait_ms=LONG_MS))
    assert waiting.silent(0.05)
    other.produce("t", [b"a"], partition=1)
    rows = waiting.receive(SOON_S).responses[0].partitions
    assert [values_of(row.records) for row in rows] == [[], [b"a"]]


def test_a_fetch_waits_for_min_bytes(
    kohort_broker: EmbeddedBroker, connect: Connect, fetch_request: MakeFetch, values_of: ValuesOf
) -> None:
    waiting, other = connect(kohort_broker), connect(kohort_broker)
    other.create("t")
    other.produce("t", [b"x" * 100])
    waiting.send(fetch_request({("t", 0): 0}, max_wait_ms=LONG_MS, min_bytes=500))
    assert waiting.silent(0.05)
    other.produce("t", [b"x" * 100])
    assert waiting.silent(0.05)
    other.produce("t", [b"x" * 200])
    answer = waiting.receive(SOON_S)
    assert len(values_of(answer.responses[0].partitions[0].records)) == 3


def test_a_fetch_is_answered_when_its_time_is_over(
    raw: RawClient, fetch_request: MakeFetch
) -> None:
    raw.create("t")
    began = time.monotonic()
    row = raw.fetch("t", max_wait_ms=150)
    took = time.monotonic() - began
    assert (row.error_code, bytes_of(row)) == (0, b"")
    assert 0.15 <= took < SOON_S


def test_a_fetch_of_nothing_does_not_wait(raw: RawClient, fetch_request: MakeFetch) -> None:
    raw.send(fetch_request({}, max_wait_ms=LONG_MS))
    assert raw.receive(SOON_S).responses == []


def test_deleting_a_topic_wakes_the_fetches_that_wait_for_it(
    kohort_broker: EmbeddedBroker, connect: Connect, fetch_request: MakeFetch
) -> None:
    waiting, other = connect(kohort_broker), connect(kohort_broker)
    other.create("t")
    waiting.send(fetch_request({("t", 0): 0}, max_wait_ms=LONG_MS, min_bytes=10**6))
    assert waiting.silent(0.05)
    other.ask(k20_delete_topics.DeleteTopicsRequest(topic_names=["t"]), version=5)
    row = waiting.receive(SOON_S).responses[0].partitions[0]
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_waiting_fetch_holds_up_its_own_connection_only(
    kohort_broker: EmbeddedBroker, connect: Connect, fetch_request: MakeFetch
) -> None:
    waiting, other = connect(kohort_broker), connect(kohort_broker)
    other.create("t")
    waiting.send(fetch_request({("t", 0): 0}, max_wait_ms=LONG_MS))
    waiting.send(k18_api_versions.ApiVersionsRequest())
    assert waiting.silent(0.05)
    assert other.ask(k18_api_versions.ApiVersionsRequest()).error_code == 0
    other.produce("t", [b"a"])
    assert waiting.receive(SOON_S).responses[0].partitions[0].high_watermark == 1
    assert waiting.receive(SOON_S).error_code == 0


def test_answers_leave_in_request_order_behind_a_parked_join(
    kohort_broker: EmbeddedBroker, connect: Connect
) -> None:
    one, two = connect(kohort_broker), connect(kohort_broker)
    member_id, generation = one.become_member("g")
    beat = k12_heartbeat.HeartbeatRequest(
        group_id="g", generation_id=generation, member_id=member_id
    )
    newcomer = two.join("g").member_id
    two.send_join("g", newcomer)
    two.send(k03_metadata.MetadataRequest(topics=[]))
    two.send(k12_heartbeat.HeartbeatRequest(group_id="other", member_id="x"))
    assert two.silent(0.1)
    # The parked join holds up two's connection alone, and one is told to join again.
    assert one.ask(beat).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert one.join("g", member_id).error_code == 0
    joined = two.receive(SOON_S)
    assert (joined.error_code, joined.member_id) == (0, newcomer)
    assert joined.generation_id == generation + 1
    assert len(two.receive(SOON_S).brokers) == 1
    assert two.receive(SOON_S).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_many_pipelined_requests_are_all_answered_in_order(
    raw: RawClient, produce_request: MakeProduce
) -> None:
    raw.create("t")
    for _ in range(500):
        raw.send(produce_request("t", [b"v"]))
    offsets = [raw.receive().responses[0].partition_responses[0].base_offset for _ in range(500)]
    assert offsets == list(range(500))


@pytest.mark.slow
def test_a_client_that_does_not_read_is_not_served_on(
    kohort_broker: EmbeddedBroker, connect: Connect, fetch_request: MakeFetch, values_of: ValuesOf
) -> None:
    """It pipelines fetches of 4 MiB each; the broker must not fill its memory with answers."""
    greedy, other = connect(kohort_broker), connect(kohort_broker)
    other.create("t")
    for _ in range(4):
        other.produce("t", [b"x" * 1_000_000])
    asked = fetch_request({("t", 0): 0}, partition_max_bytes=1 << 23)
    greedy.send_all([asked] * 100)
    assert other.produce("t", [b"y"]).error_code == 0
    transports = [session._transport for session in _server_sessions(kohort_broker)]
    unread = [each.get_write_buffer_size() for each in transports if each is not None]
    assert max(unread) < 2 * 8 * 1024 * 1024
    for _ in range(100):
        row = greedy.receive().responses[0].partitions[0]
        assert len(values_of(row.records)) >= 4


def _server_sessions(broker: EmbeddedBroker) -> list[Session]:
    # Looked at from another thread, which is good enough for a number that only grows.
    return list(loop_of(broker).sessions.values())


def test_connections_beyond_the_limit_are_refused(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect
) -> None:
    broker = kohort_broker_factory(max_connections=2)
    one, two = connect(broker), connect(broker)
    for client in (one, two):
        assert client.ask(k18_api_versions.ApiVersionsRequest()).error_code == 0
    assert connect(broker).hung_up()
    one.close()
    deadline = time.monotonic() + SOON_S
    while True:
        client = connect(broker)
        try:
            assert client.ask(k18_api_versions.ApiVersionsRequest()).error_code == 0
            break
        except (AssertionError, ConnectionError):
            assert time.monotonic() < deadline, "the place of a closed connection stays taken"


def test_idle_connections_are_closed(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect
) -> None:
    client = connect(kohort_broker_factory(connections_max_idle_ms=200))
    assert client.hung_up()


@pytest.mark.parametrize("version", range(4))
def test_api_versions_are_answered_and_unknown_ones_too(raw: RawClient, version: int) -> None:
    answer = raw.ask(k18_api_versions.ApiVersionsRequest(), version)
    ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert ranges[1] == (4, 18)
    assert ranges[0] == (0, 9)
    assert ranges[11] == (0, 9)
