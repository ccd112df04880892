"""Planning, replay filter and packing as functions of numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kohort.model.ids import TopicPartition
from kohort.spark.source.offsets import OwnedRange, SourceOffset
from kohort.spark.source.planning import Dropped, Piece, pack, pieces_of, plan, replay_filter, share

A, B, C = (TopicPartition("t", n) for n in range(3))


def owned(begin: int, end: int, epoch: int) -> OwnedRange:
    return OwnedRange(begin=begin, end=end, epoch=epoch)


def test_without_new_records_the_same_offset_is_returned() -> None:
    start = SourceOffset(ranges={A: owned(0, 10, 4), B: owned(3, 3, 1)})
    assert plan(start, {A: 4, B: 1}, {A: 10, B: 3}, {A: 10, B: 3}, None) is start


def test_after_the_warm_up_the_same_offset_stays_the_same() -> None:
    start = SourceOffset(warm_up=1)
    assert plan(start, {}, {}, {}, None) is start


def test_a_partition_without_new_records_has_an_empty_range_at_its_end() -> None:
    start = SourceOffset(ranges={A: owned(0, 10, 4), B: owned(0, 3, 1)})
    end = plan(start, {A: 4, B: 1}, {A: 10, B: 3}, {A: 12, B: 3}, None)
    assert end == SourceOffset(ranges={A: owned(10, 12, 4), B: owned(3, 3, 1)})


def test_a_change_of_ownership_gives_a_new_offset() -> None:
    start = SourceOffset(ranges={A: owned(0, 10, 4)})
    assert plan(start, {}, {}, {}, None) == SourceOffset()
    assert plan(start, {A: 5}, {A: 10}, {A: 10}, None) == SourceOffset(ranges={A: owned(10, 10, 5)})


def test_the_range_of_a_new_partition_begins_at_its_first_offset() -> None:
    end = plan(SourceOffset(), {A: 1}, {A: 70}, {A: 100}, None)
    assert end.ranges[A] == owned(70, 100, 1)


def test_an_end_behind_the_position_reads_nothing() -> None:
    start = SourceOffset(ranges={A: owned(5, 10, 4)})
    assert plan(start, {A: 4}, {A: 10}, {A: 7}, None) is start


backlogs = st.dictionaries(
    st.integers(0, 40).map(lambda n: TopicPartition("t", n)), st.integers(0, 1000), min_size=1
)


@given(backlogs, st.integers(0, 5000))
def test_shares_use_the_whole_limit_and_starve_no_partition(
    backlog: dict[TopicPartition, int], limit: int
) -> None:
    shares = share(backlog, limit)
    assert sum(shares.values()) == min(limit, sum(backlog.values()))
    assert all(0 <= shares[p] <= backlog[p] for p in backlog)
    hungry = [shares[p] for p in backlog if shares[p] < backlog[p]]
    if hungry:
        assert max(shares.values()) <= min(hungry) + 1


def test_a_replayed_range_is_kept_only_with_the_same_owner_epoch_and_position() -> None:
    end = SourceOffset(
        ranges={
            A: owned(0, 10, 4),
            B: owned(0, 10, 4),
            C: owned(0, 10, 4),
            TopicPartition("t", 3): owned(0, 10, 4),
            TopicPartition("t", 4): owned(10, 10, 4),
        }
    )
    kept, dropped = replay_filter(
        end, {A: 4, B: 5, C: 4, TopicPartition("t", 4): 4}, {A: 0, B: 0, C: 10}
    )
    assert kept == {A: owned(0, 10, 4)}
    assert dropped == {
        B: Dropped.OTHER_EPOCH,
        C: Dropped.MOVED_ON,
        TopicPartition("t", 3): Dropped.NOT_OWNED,
    }


packable = st.dictionaries(
    st.integers(0, 20).map(lambda n: TopicPartition("t", n)),
    st.tuples(st.integers(0, 100), st.integers(0, 100_000)).map(lambda t: owned(t[0], sum(t), 7)),
)


@given(packable, st.integers(1, 16), st.integers(1, 20_000))
def test_packing_reads_every_offset_once_in_few_even_tasks(
    ranges: dict[TopicPartition, OwnedRange], tasks: int, smallest: int
) -> None:
    packed = pack(ranges, tasks, smallest)
    assert len(packed) <= tasks
    assert all(packed)
    joined: dict[TopicPartition, OwnedRange] = {}
    for piece in pieces_of(packed):
        assert piece.begin < piece.end
        before = joined.get(piece.partition)
        assert before is None or before.end == piece.begin
        begin = piece.begin if before is None else before.begin
        joined[piece.partition] = owned(begin, piece.end, piece.epoch)
    assert joined == {p: r for p, r in ranges.items() if r.size}
    for pieces in packed:
        assert len({piece.partition for piece in pieces}) == len(pieces)


def test_a_large_range_is_split_and_small_ranges_share_a_task() -> None:
    packed = pack({A: owned(0, 100_000, 1), B: owned(5, 10_005, 2), C: owned(0, 10_000, 3)}, 4)
    assert packed == [
        [Piece(partition=A, begin=0, end=30_000, epoch=1)],
        [Piece(partition=A, begin=30_000, end=60_000, epoch=1)],
        [Piece(partition=A, begin=60_000, end=90_000, epoch=1)],
        [
            Piece(partition=A, begin=90_000, end=100_000, epoch=1),
            Piece(partition=B, begin=5, end=10_005, epoch=2),
            Piece(partition=C, begin=0, end=10_000, epoch=3),
        ],
    ]


def test_a_small_batch_is_one_task() -> None:
    assert len(pack({A: owned(0, 10, 1), B: owned(0, 10, 1)}, 8)) == 1
