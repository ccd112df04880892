"""The absence of a ledger: fences for sinks that keep none. At least once, not exactly once.

What lives here: ``UnfencedLedger``. Its fence numbers come from the group (generation and a nonce
of this start), so a replay of an earlier start never matches and its records are read again from
the group's committed offset. It knows no positions: the group's count. It must not know Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kohort.model.ids import TopicPartition
from kohort.spark.ledger import Acquired, Committed, ManifestRow, Position, WrittenFile
from kohort.spark.planning import Piece

NONCE_BITS = 32


class UnfencedLedger:
    """Issues ``generation * 2**32 + nonce`` as epoch and remembers nothing.

    Args:
        nonce: of this start of the application, 32 bits at random: a generation may be reached
            by two starts, or again after the group was deleted.
    """

    def __init__(self, nonce: int) -> None:
        self._nonce = nonce % (1 << NONCE_BITS)

    def acquire(
        self, partitions: Iterable[TopicPartition], generation: int, member: str
    ) -> dict[TopicPartition, Acquired]:
        """Numbers for the owner of this generation; positions are the group's to say."""
        epoch = (generation << NONCE_BITS) + self._nonce
        return {partition: Acquired(epoch=epoch, position=None) for partition in partitions}

    def establish(
        self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
    ) -> None:
        """Nothing is kept."""

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """Nothing is known."""
        return {}

    def intend(self, application: str, pieces: Sequence[Piece]) -> None:
        """Nothing is kept."""

    def commit(
        self, application: str, files: Sequence[WrittenFile], query: str | None = None
    ) -> Committed:
        """Nothing is committed here: the sink is the user's."""
        return Committed(rows=[], fenced=frozenset())

    def manifest(self) -> list[ManifestRow]:
        """Empty: the sink's files are the user's."""
        return []

    def close(self) -> None:
        """Nothing is held open."""
