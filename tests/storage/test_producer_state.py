"""Idempotent producers: repeated batches, order, epochs, and the number of remembered ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.model.errors import ErrorCode
from kohort.storage.errors import RefusedBatch
from kohort.storage.log_state import LogState, load_state
from kohort.storage.producer_state import BATCHES_REMEMBERED, ProducerStates
from kohort.storage.record_batch import BatchHeader, parse_header
from kohort.storage.records import Record, build_batch

NOW = 1_700_000_000_000


def header(sequence: int, *, count: int = 1, epoch: int = 0, producer_id: int = 1) -> BatchHeader:
    return parse_header(
        build_batch(
            [Record(b"k", b"v", NOW)] * count,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    )


def accept(states: ProducerStates, batch: BatchHeader, offset: int = 0, now_ms: int = NOW) -> None:
    assert states.check(batch) is None
    states.appended(batch, offset, now_ms)


def refused(states: ProducerStates, batch: BatchHeader) -> ErrorCode:
    with pytest.raises(RefusedBatch) as error:
        states.check(batch)
    return error.value.code


@pytest.fixture
def states() -> ProducerStates:
    return ProducerStates(limit=100)


def test_the_last_five_batches_are_recognised(states: ProducerStates) -> None:
    for i in range(7):
        accept(states, header(2 * i, count=2), offset=100 + 2 * i)
    for i in range(7 - BATCHES_REMEMBERED, 7):
        known = states.check(header(2 * i, count=2))
        assert known is not None
        assert (known.base_offset, known.last_offset) == (100 + 2 * i, 101 + 2 * i)
    assert refused(states, header(2, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeated_batch_has_the_same_first_and_last_sequence(states: ProducerStates) -> None:
    accept(states, header(0, count=3))
    assert states.check(header(0, count=3)) is not None
    assert refused(states, header(0, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(states, header(1, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_out_of_order(states: ProducerStates) -> None:
    accept(states, header(0))
    assert refused(states, header(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    accept(states, header(1))


def test_an_unknown_producer_may_begin_anywhere(states: ProducerStates) -> None:
    accept(states, header(77))
    accept(states, header(78))


def test_sequences_wrap(states: ProducerStates) -> None:
    accept(states, header(2**31 - 2, count=3))
    accept(states, header(1))
    last = ProducerStates(limit=1)
    accept(last, header(2**31 - 1))
    accept(last, header(0))


def test_an_older_epoch_is_fenced(states: ProducerStates) -> None:
    accept(states, header(0, epoch=3))
    assert refused(states, header(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_new_epoch_begins_with_zero(states: ProducerStates) -> None:
    accept(states, header(0, epoch=0))
    assert refused(states, header(1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    accept(states, header(0, epoch=1), offset=9)
    known = states.check(header(0, epoch=1))
    assert known is not None
    assert known.base_offset == 9


def test_producers_do_not_disturb_each_other(states: ProducerStates) -> None:
    accept(states, header(0, producer_id=1))
    accept(states, header(0, producer_id=2))
    accept(states, header(1, producer_id=1))
    assert len(states) == 2


def test_the_longest_silent_producer_is_forgotten_at_the_limit() -> None:
    states = ProducerStates(limit=2)
    accept(states, header(0, producer_id=1))
    accept(states, header(0, producer_id=2))
    accept(states, header(1, producer_id=1))
    accept(states, header(0, producer_id=3))
    assert list(states.entries()) == [1, 3]


def test_silent_producers_are_forgotten_after_the_expiration_time(states: ProducerStates) -> None:
    accept(states, header(0, producer_id=1), now_ms=NOW)
    accept(states, header(0, producer_id=2), now_ms=NOW + 10)
    assert states.expire(NOW + 100, after_ms=100) == 0
    assert states.expire(NOW + 101, after_ms=100) == 1
    assert list(states.entries()) == [2]


batches = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(1, 3)), max_size=40)


@given(batches)
def test_state_from_the_log_and_from_a_snapshot_are_the_same(
    sent: list[tuple[int, int, int]],
) -> None:
    replayed = LogState(100)
    sequences: dict[tuple[int, int], int] = {}
    newest: dict[int, int] = {}
    offset = 0
    for producer_id, wanted, count in sent:
        newest[producer_id] = epoch = max(wanted, newest.get(producer_id, 0))
        sequence = sequences.get((producer_id, epoch), 0)
        sequences[producer_id, epoch] = sequence + count
        batch = header(sequence, count=count, epoch=epoch, producer_id=producer_id)
        batch = batch._replace(base_offset=offset, partition_leader_epoch=offset // 10)
        assert replayed.producers.check(batch) is None
        replayed.replay(batch)
        offset = batch.next_offset
    loaded = load_state(replayed.to_bytes(offset), 100)
    assert loaded is not None
    assert loaded.offset == offset
    assert loaded.producers.entries() == replayed.producers.entries()
    assert list(loaded.producers.entries()) == list(replayed.producers.entries())
    assert loaded.epochs.starts == replayed.epochs.starts


@given(st.binary(max_size=50), st.integers(0, 10**6))
def test_a_torn_snapshot_is_not_used(noise: bytes, at: int) -> None:
    content = LogState(10).to_bytes(5)
    assert load_state(content[: at % len(content)], 10) is None
    assert load_state(noise, 10) is None
