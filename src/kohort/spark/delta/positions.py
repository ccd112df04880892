"""The numbers of partitions in a Delta table: positions, owners, and the changes that move them.

In: a snapshot of the log. Out: positions, and changes that a ledger commits. Must not know: files,
retries, Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.model.ids import TopicPartition
from kohort.spark.delta.commits import (
    begin_of,
    count_of,
    epoch_of,
    generation_of,
    position_of,
)
from kohort.spark.delta.log import Change, DeltaLog
from kohort.spark.ledgers.ledger import Acquired, LedgerPosition, Positions


def positions_in(
    log: DeltaLog,
    partitions: Iterable[TopicPartition],
    owners: Mapping[str, tuple[int, str]],
) -> Positions:
    """The positions of those partitions that had an owner.

    Args:
        log: a snapshot.
        partitions: the wanted partitions.
        owners: epoch and member of the last acquisition, by the name of the partition.
    """
    found: Positions = {}
    for partition in partitions:
        epoch = log.number(epoch_of(partition))
        if epoch is None:
            continue
        owner = owners.get(str(partition), (0, ""))
        found[partition] = LedgerPosition(
            next_offset=log.number(position_of(partition)),
            epoch=epoch,
            generation=log.number(generation_of(partition)) or 0,
            member=owner[1] if owner[0] == epoch else "",
        )
    return found


def partitions_in(log: DeltaLog, topics: Iterable[str]) -> list[TopicPartition]:
    """All partitions of the topics that can have had an owner."""
    counts = {name: log.number(count_of(name)) or 0 for name in sorted(topics)}
    return [TopicPartition(name, n) for name in counts for n in range(counts[name])]


def acquisition(
    log: DeltaLog, wanted: Iterable[TopicPartition], generation: int, member: str
) -> tuple[dict[TopicPartition, Acquired], Change]:
    """The new fence numbers with the present positions, and the change that sets them."""
    found = {
        p: Acquired(
            epoch=(log.number(epoch_of(p)) or 0) + 1,
            position=log.number(position_of(p)),
        )
        for p in wanted
    }
    numbers = {epoch_of(p): each.epoch for p, each in found.items()}
    numbers |= {generation_of(p): generation for p in found}
    note = {
        "acquired": {str(p): each.epoch for p, each in found.items()},
        "generation": generation,
        "member": member,
    }
    return found, Change(numbers=numbers | _counts(log, found), note=note)


def first_positions(
    log: DeltaLog, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
) -> Change | None:
    """The change that sets positions where there are none under these epochs; None for none."""
    new = {
        partition: offset
        for partition, offset in positions.items()
        if log.number(position_of(partition)) is None
        and log.number(epoch_of(partition)) == epochs[partition]
    }
    if not new:
        return None
    numbers = {position_of(p): offset for p, offset in new.items()}
    numbers |= {begin_of(p): offset for p, offset in new.items()}
    # A fence conflicts with this commit by the epoch.
    numbers |= {epoch_of(p): epochs[p] for p in new}
    return Change(
        numbers=numbers, note={"established": {str(p): offset for p, offset in new.items()}}
    )


def _counts(log: DeltaLog, partitions: Iterable[TopicPartition]) -> dict[str, int]:
    """The numbers that bound the partitions of each topic, where they grow."""
    highest: dict[str, int] = {}
    for topic, number in partitions:
        highest[topic] = max(highest.get(topic, 0), number + 1)
    return {
        count_of(topic): count
        for topic, count in highest.items()
        if count > (log.number(count_of(topic)) or 0)
    }
