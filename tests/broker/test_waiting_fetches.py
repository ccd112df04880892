"""The index of parked fetches: which fetch is ready after which event."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.broker.waiting_fetches import WaitingFetch, WaitingFetches
from kohort.model.ids import ConnectionId, TopicPartition
from kohort.model.instants import Instant

A, B, C = (TopicPartition("t", n) for n in range(3))


Index = WaitingFetches[str]


@pytest.fixture
def index() -> Iterator[Index]:
    fetches: Index = WaitingFetches()
    yield fetches
    for fetch in fetches.everything():
        fetches.remove(fetch)
    assert (fetches._by_partition, fetches._by_connection, fetches._ready) == ({}, {}, {})


def park(
    index: Index, conn: int, partitions: tuple[TopicPartition, ...], missing: int = 1
) -> WaitingFetch[str]:
    fetch = WaitingFetch(
        conn=ConnectionId(conn),
        call=f"call {conn}",
        partitions=partitions,
        missing=missing,
        deadline=Instant(0),
    )
    index.park(fetch)
    return fetch


def test_an_append_wakes_the_fetches_that_wait_for_its_partition(index: Index) -> None:
    first, second = park(index, 1, (A, B)), park(index, 2, (C,))
    index.appended(B, 10)
    assert index.take_ready() == [first]
    assert index.take_ready() == []
    assert index.everything() == [second]


def test_min_bytes_add_up_over_partitions(index: Index) -> None:
    fetch = park(index, 1, (A, B), missing=100)
    index.appended(A, 60)
    assert index.take_ready() == []
    index.appended(B, 40)
    assert index.take_ready() == [fetch]


def test_two_appends_in_one_turn_wake_once(index: Index) -> None:
    fetch = park(index, 1, (A, B))
    index.appended(A, 5)
    index.appended(B, 5)
    assert index.take_ready() == [fetch]


def test_a_deleted_partition_wakes_whatever_is_missing(index: Index) -> None:
    fetch = park(index, 1, (A,), missing=10**9)
    index.changed([B])
    assert index.take_ready() == []
    index.changed([A, B])
    assert index.take_ready() == [fetch]


def test_a_lost_connection_is_forgotten_even_when_ready(index: Index) -> None:
    fetch = park(index, 1, (A,))
    index.appended(A, 1)
    assert index.lost(ConnectionId(1)) is fetch
    assert index.take_ready() == []
    assert index.lost(ConnectionId(1)) is None
