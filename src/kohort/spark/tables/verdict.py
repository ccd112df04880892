"""The verdict of `kohort table verify` on one partition.

In: the counts and sentences of the checks. Out: one value. Must not know: files, records, Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.model.ids import TopicPartition


@dataclass(slots=True, kw_only=True)
class PartitionVerdict:
    """The verdict on one partition, from its first committed offset to its position.

    Attributes:
        begin, end: the range of committed offsets.
        records: records of the topic in the range.
        rows: rows in committed files.
        dead_letters: malformed records in committed files.
        filtered: records without a row that the SQL, run again, also drops.
        undecided: records without a row that were filtered or lost; ``remarks`` give the reason
            why that cannot be decided.
        holes: records that the table lost.
        duplicates: rows that repeat a record.
        strangers: rows without a record in the topic, or with another hash than their record.
        unchecked: offsets that the topic has deleted since, also by compaction.
        unread: records behind ``end``, or of a partition that nobody acquired; not a fault.
        troubles: sentences about faults, with examples.
        remarks: sentences about records and rows that cannot be judged; not a fault.
    """

    partition: TopicPartition
    begin: int
    end: int
    records: int = 0
    rows: int = 0
    dead_letters: int = 0
    filtered: int = 0
    undecided: int = 0
    holes: int = 0
    duplicates: int = 0
    strangers: int = 0
    unchecked: int = 0
    unread: int = 0
    troubles: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
