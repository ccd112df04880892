"""Group records on their way to the disk: records that wait for one sync share a batch."""

from __future__ import annotations

from kohort.broker.journal import SHARED_BATCH_BYTES, _shares
from kohort.engine.coordinator_writes import Write
from kohort.model.ids import Ticket
from kohort.model.instants import WallMillis


def write(ticket: int, size: int) -> Write:
    return Write(Ticket(ticket), 0, ((b"key", bytes(size)),), WallMillis(0), 27 + size)


def test_small_writes_share_a_batch_in_their_order() -> None:
    writes = [write(n, 50) for n in range(100)]
    assert list(_shares(writes)) == [writes]


def test_a_batch_is_not_filled_beyond_its_bound_and_a_large_write_goes_alone() -> None:
    large = write(2, 2 * SHARED_BATCH_BYTES)
    writes = [write(0, 10), write(1, 10), large, write(3, 10)]
    assert list(_shares(writes)) == [writes[:2], [large], writes[3:]]
    many = [write(n, SHARED_BATCH_BYTES // 4) for n in range(9)]
    shares = list(_shares(many))
    assert [w for share in shares for w in share] == many
    assert [len(share) for share in shares] == [3, 3, 3]


def test_tombstones_count_by_their_key() -> None:
    gone = Write(Ticket(1), 0, ((b"key", None),), WallMillis(0), 27)
    assert list(_shares([gone, gone])) == [[gone, gone]]
