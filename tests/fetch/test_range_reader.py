"""`RangeReader`: places to fetch, answers that wait, positions, errors; without connections."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.fetch.range_reader import RangeReader
from kohort.fetch.requests import FetchOptions, FetchWaits, Remedy, fetch_request
from kohort.fetch.sections import Damaged
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.instants import Instant
from kohort.model.positions import Position
from kohort.storage.record_batch import HEADER_SIZE, TRANSACTIONAL_BIT, parse_header
from kohort.storage.records import Record, assemble, build_batch
from kohort.wire.messages.k01_fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
NOW, BACKOFF, REPLICA = Instant(1_000), 100, 10_000
LEADER = -1


def reader(
    *starts: TopicPartition, most: int = 1 << 20, part: int = 1 << 16, committed: bool = False
) -> RangeReader:
    options = FetchOptions(
        max_wait_ms=200,
        min_bytes=1,
        max_bytes=1 << 20,
        partition_max_bytes=part,
        read_committed=committed,
        rack_id="r",
        check_crcs=True,
    )
    made = RangeReader(options, most_bytes=most, backoff_micros=BACKOFF, replica_micros=REPLICA)
    made.start(dict.fromkeys(starts, Position(0)))
    return made


def batch(offset: int, count: int = 2, **header: int) -> bytes:
    """A batch, in a transaction if it has a producer."""
    made = build_batch([Record(None, b"v" * 50)] * count, base_offset=offset)
    bits = TRANSACTIONAL_BIT if "producer_id" in header else 0
    return assemble(parse_header(made)._replace(attributes=bits, **header), made[HEADER_SIZE:])


def row(partition: TopicPartition, data: bytes = b"", code: int = 0, **more: Any) -> PartitionData:
    return PartitionData(
        partition_index=partition.partition,
        error_code=code,
        high_watermark=1_000,
        log_start_offset=0,
        records=data,
        **more,
    )


def response(*rows: PartitionData) -> FetchResponse:
    return FetchResponse(
        throttle_time_ms=0,
        error_code=0,
        session_id=0,
        responses=[FetchableTopicResponse(topic="t", partitions=list(rows))],
    )


def fetched(made: RangeReader, number: int, *rows: PartitionData, now: Instant = NOW) -> list[Any]:
    """Ask for the partitions of these rows, and take the answer."""
    partitions = [TopicPartition("t", each.partition_index) for each in rows]
    made.asked(number, partitions, 1_000)
    troubles = made.answered(number, response(*rows), now)
    made.ended(number)
    return troubles


def due(made: RangeReader, now: Instant = NOW) -> list[TopicPartition]:
    return [partition for partition, _ in made.due(now)]


def opened(made: RangeReader, records: int = 1_000) -> list[tuple[TopicPartition, list[int], int]]:
    return [
        (each.partition, [s.header.base_offset for s in each.sections], each.behind.offset)
        for each in made.portions(records, 1 << 20)
    ]


def test_a_partition_is_due_unless_it_is_asked_paused_or_full() -> None:
    made = reader(A, B, part=100, most=400)
    assert due(made) == [A, B]
    made.asked(1, [A], 10)
    assert due(made) == [B]
    made.pause([B], True)
    assert due(made) == []
    made.pause([B], False)
    made.answered(1, response(row(A, batch(0))), NOW)
    assert due(made) == [B], "as much of A waits as one fetch may bring"
    assert [partition for partition, _ in made.left_out(NOW)] == [A]
    assert opened(made) == [(A, [0], 2)]
    assert due(made) == [B, A], "the partition that got records is the last one"
    assert [place.offset for place in made.places([B, A], 50)] == [0, 2]


def test_a_full_partition_is_fetched_on_until_a_fourth_of_the_limit_waits() -> None:
    made = reader(A, B, part=100, most=2_000)
    before = 0
    while due(made) == [A, B] or due(made) == [B, A]:
        offset = made.places([A], 1)[0].offset
        before = made.buffered
        fetched(made, 1, row(A, batch(offset)))
    assert before < 500 <= made.buffered
    assert due(made) == [B]
    opened(made, records=2)
    assert due(made) == [B, A], "less than a fourth waits again"


def test_a_node_waits_shortly_while_full_partitions_are_left_out() -> None:
    waits = FetchWaits(50)
    assert waits.wait_ms("n", leaves_out=False) == 50
    assert [waits.wait_ms("n", leaves_out=True) for _ in range(4)] == [10, 20, 40, 50]
    assert waits.wait_ms("m", leaves_out=True) == 10
    waits.restart("n")
    assert waits.wait_ms("n", leaves_out=True) == 10
    assert waits.wait_ms("n", leaves_out=False) == 50
    assert waits.wait_ms("n", leaves_out=True) == 10
    assert FetchWaits(5).wait_ms("n", leaves_out=True) == 5


def test_answers_that_wait_or_may_come_fill_the_limit() -> None:
    made = reader(A, B, most=1_000)
    made.asked(1, [A], 600)
    assert made.room == 400
    made.asked(2, [B], 400)
    assert (made.room, due(made)) == (0, [])
    made.answered(1, response(row(A, batch(0, 5))), NOW)
    made.ended(1)
    assert made.room == 600 - made.buffered < 600
    opened(made)
    assert made.room == 600
    made.remove([A])
    assert (made.room, made.buffered) == (600, 0)


def test_batches_are_opened_in_turn_and_positions_move_when_they_are_handed_out() -> None:
    made = reader(A, B)
    fetched(made, 1, row(A, batch(0) + batch(2)), row(B, batch(0, partition_leader_epoch=7)))
    assert opened(made, 1) == [(A, [0], 2)]
    portion, other = made.portions(3, 1 << 20)
    assert (portion.partition, portion.behind) == (B, Position(2, 7))
    assert (other.partition, other.begin, other.behind.offset) == (A, 2, 4)
    assert opened(made) == []
    assert made.position(B) == Position(0)
    made.handed_out(B, Position(2, 7))
    assert made.position(B) == Position(2, 7)
    assert made.bounds(A) == (0, 1_000)


def test_an_answer_to_an_earlier_place_is_dropped() -> None:
    made = reader(A)
    made.asked(1, [A], 10)
    made.start({A: Position(50)})
    assert due(made) == [A]
    made.asked(2, [A], 10)
    assert made.answered(1, response(row(A, batch(0))), NOW) == []
    made.failed(1, [A], NOW)
    assert due(made) == [], "the second request is still under way"
    made.answered(2, response(row(A, batch(50))), NOW)
    assert opened(made) == [(A, [50], 52)]
    made.asked(3, [A], 10)
    made.remove([A])
    assert made.answered(3, response(row(A, batch(52))), NOW) == []


def test_a_seek_empties_and_keeps_the_pause() -> None:
    made = reader(A)
    fetched(made, 1, row(A, batch(0)))
    made.pause([A], True)
    assert opened(made) == []
    assert not made.has_answers
    made.start({A: Position(9)})
    assert made.paused == {A}
    assert made.buffered == 0
    assert made.position(A) == Position(9)


def test_batches_of_a_paused_partition_do_not_hold_the_whole_answer() -> None:
    made = reader(A, B)
    answer = bytearray(batch(0) * 2)
    parts = memoryview(answer)[: len(answer) // 2], memoryview(answer)[len(answer) // 2 :]
    made.asked(1, [A], 1_000)
    made.pause([A], True)
    for number, partition, part in ((1, A, parts[0]), (2, B, parts[1])):
        made.asked(number, [partition], 1_000)
        made.answered(number, response(row(partition, part)), NOW)  # type: ignore[arg-type]
    made.pause([B], True)
    assert opened(made) == []
    answer[:] = bytes(len(answer))
    made.pause([A, B], False)
    assert opened(made) == [(A, [0], 2), (B, [0], 2)], "checksums are right"


def test_a_named_replica_is_asked_for_a_time_and_left_after_an_error() -> None:
    made = reader(A)
    fetched(made, 1, row(A, preferred_read_replica=3))
    assert made.due(NOW) == [(A, 3)]
    assert made.due(Instant(NOW + REPLICA)) == [(A, LEADER)]
    behind = ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetched(made, 2, row(A, code=behind)) == [], "the leader must judge"
    later = Instant(NOW + BACKOFF)
    assert made.next_due(NOW) == later
    assert made.due(later) == [(A, LEADER)]
    fetched(made, 3, row(A, preferred_read_replica=3), now=later)
    made.asked(4, [A], 10)
    made.failed(4, [A], later)
    assert made.due(Instant(later + BACKOFF)) == [(A, LEADER)]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Remedy.AGAIN),
        (ErrorCode.UNKNOWN_SERVER_ERROR, Remedy.AGAIN),
        (ErrorCode.OFFSET_OUT_OF_RANGE, Remedy.OUT_OF_RANGE),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Remedy.REFUSED),
    ],
)
def test_an_error_waits_or_stops_until_a_seek(code: ErrorCode, found: Remedy) -> None:
    made = reader(A, B)
    (trouble,) = fetched(made, 1, row(A, code=code))
    assert (trouble.partition, trouble.offset, trouble.remedy) == (A, 0, found)
    assert due(made) == [B]
    again = found is not Remedy.OUT_OF_RANGE
    assert (A in due(made, Instant(NOW + BACKOFF))) == again
    made.start({A: Position(5)})
    assert set(due(made)) == {A, B}


def test_an_answer_without_visible_records_moves_on() -> None:
    """All records belong to an aborted transaction."""
    made = reader(A, committed=True)
    data = batch(0, producer_id=4)
    aborted = [AbortedTransaction(producer_id=4, first_offset=0)]
    fetched(made, 1, row(A, data, aborted_transactions=aborted, last_stable_offset=2))
    assert opened(made) == [(A, [], 2)]
    assert made.bounds(A) == (0, 2)
    assert made.buffered == 0


def test_records_before_a_damaged_batch_come_first_and_it_is_fetched_again() -> None:
    made = reader(A)
    damaged = bytearray(batch(2))
    damaged[-1] ^= 1
    fetched(made, 1, row(A, batch(0) + damaged))
    assert opened(made) == [(A, [0], 2)]
    with pytest.raises(Damaged, match="checksum"):
        opened(made)
    made.rewind(A, 2)
    assert made.position(A) == Position(0)
    assert made.buffered == 0
    fetched(made, 2, row(A, batch(2)))
    assert opened(made) == [(A, [2], 4)]


def test_requests_name_the_epoch_of_the_record_before_and_a_cut_log_is_out_of_range() -> None:
    """The last batch counts, also when it is no batch for the application (KIP-320, KIP-595)."""
    made = reader(committed=True)
    made.start({A: Position(5, 3)})
    assert [place.epoch for place in made.places([A], 10)] == [3]
    data = batch(5, partition_leader_epoch=3)
    data += batch(7, producer_id=4, partition_leader_epoch=6)
    aborted = [AbortedTransaction(producer_id=4, first_offset=7)]
    fetched(made, 1, row(A, data, aborted_transactions=aborted))
    (portion,) = made.portions(9, 1 << 20)
    assert portion.behind == Position(9, 6)
    request = [fetch_request(made._options, made.places([A], 10), version=v) for v in (11, 12)]
    assert [r.topics[0].partitions[0].last_fetched_epoch for r in request] == [-1, 6]
    cut = EpochEndOffset(epoch=3, end_offset=6)
    (trouble,) = fetched(made, 2, row(A, diverging_epoch=cut))
    assert (trouble.offset, trouble.remedy) == (9, Remedy.OUT_OF_RANGE)
    assert "cut at offset 6" in trouble.message
    assert due(made, Instant(NOW + BACKOFF)) == []


def test_bytes_that_are_no_batches_are_refused() -> None:
    made = reader(A)
    (trouble,) = fetched(made, 1, row(A, b"\0" * 100))
    assert (trouble.remedy, trouble.code) == (Remedy.REFUSED, ErrorCode.CORRUPT_MESSAGE)


def test_a_request_names_each_topic_once_and_keeps_the_order() -> None:
    made = reader(B, A)
    options = made._options
    request = fetch_request(options, made.places([B, A], 10), 500)
    (topic,) = request.topics
    assert [(p.partition, p.partition_max_bytes) for p in topic.partitions] == [(1, 10), (0, 10)]
    assert (request.max_bytes, request.rack_id, request.max_wait_ms) == (500, "r", 200)
    assert fetch_request(options, []).max_wait_ms == 0
