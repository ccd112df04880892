"""Compares a table with its topics: every record must have one unchanged row.

In: the directory of a table and the settings of a cluster. Out: a verdict for each partition. Must
not know: Spark, how the files were made. Every committed file is read, and every row is compared
with its record: partition, offset and hash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kohort.client.admin import Admin
from kohort.client.config import ClientSettings
from kohort.client.errors import RequestFailed
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.positions import EARLIEST, LATEST
from kohort.spark.ledgers.ledger import ManifestRow
from kohort.spark.state.heads import STATE
from kohort.spark.state.judging import PartitionComputation
from kohort.spark.state.stage import Loaded
from kohort.spark.tables.missing_rows import MissingRows, QueryRunner, TableQueries
from kohort.spark.tables.partition_check import PartitionCheck, gone_records
from kohort.spark.tables.table import Orphan, open_ledger, orphans_of
from kohort.spark.tables.verdict import PartitionVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on the whole table. Undecided records are not a fault."""

    partitions: Sequence[PartitionVerdict]
    orphans: Sequence[Orphan]

    @property
    def ok(self) -> bool:
        """Whether the table has no hole, duplicate, stranger or orphan."""
        return self.rows_ok and not self.orphans

    @property
    def rows_ok(self) -> bool:
        """Whether the table has no hole, duplicate or stranger; orphans hold no row of a table."""
        return not any(p.troubles for p in self.partitions)

    def total(self, name: str) -> int:
        """The sum of one attribute of all partitions."""
        return sum(getattr(partition, name) for partition in self.partitions)


def verify(
    directory: Path,
    settings: ClientSettings,
    runner: QueryRunner | None = None,
    loaded: Loaded | None = None,
) -> Verdict:
    """Compare a table with its topics.

    Args:
        directory: the directory of the table.
        settings: the settings of the cluster.
        runner: runs the SQL of the table again to tell filtered records from lost ones; None to
            count them as ``undecided``.
        loaded: the function with state that made the rows of the table, to compute them and the
            state again from the rows of the SQL; None to compare such rows by offset and hash only.

    Raises:
        ConfigError: there is no table in the directory, another function made its rows, or this
            user may not read a file of it.
        ClientError: the cluster cannot be reached, or does not have the topics.
    """
    with closing(open_ledger(directory)) as ledger:
        stage = ledger.described(STATE)
        _check_stage(directory, stage, loaded)
        positions = ledger.all_positions()
        manifest = ledger.manifest()
        unsorted = None
        if not ledger.names_files_of_pieces:
            unsorted = (ledger.files(), ledger.files(dead=True))
        noted = ledger.noted_topics()
        queries = TableQueries(
            by_name=ledger.queries(), filtering=ledger.described("filtering") == "true"
        )
    by_partition: dict[TopicPartition, list[ManifestRow]] = {p: [] for p in positions}
    for row in manifest:
        by_partition.setdefault(row.partition, []).append(row)
    with Admin(settings) as admin:
        topics = admin.topics(sorted({p.topic for p in by_partition})) if by_partition else {}
        for topic in topics.values():
            for partition in topic.topic_partitions:
                by_partition.setdefault(partition, [])
        compacted = {name for name in topics if _is_compacted(admin, name)}
        begins = admin.list_offsets(by_partition, EARLIEST)
        ends = admin.list_offsets(by_partition, LATEST)
    verdicts = []
    for partition, rows in sorted(by_partition.items()):
        position = positions.get(partition)
        first = begins[partition].offset
        end = position.next_offset if position and position.next_offset is not None else first
        check = PartitionCheck(directory, partition, rows, end)
        check.unsorted = unsorted
        check.compacted = partition.topic in compacted
        if partition.topic in noted:
            check.compare_topic(noted[partition.topic], topics[partition.topic].topic_id, first)
        last = ends[partition].offset
        if stage is None:
            missing = MissingRows(rows, check.whole, queries, runner)
            check.compare(settings, first, last, missing)
        else:
            again = None
            if loaded is not None and runner is not None:
                again = PartitionComputation(loaded, runner, rows, queries)
            check.compare_state(settings, first, last, again)
        verdicts.append(check.verdict)
    return Verdict(partitions=verdicts, orphans=orphans_of(directory))


def compacted_rows(
    directory: Path, settings: ClientSettings, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, list[int]]:
    """The rows of compacted topics that have no record in the topic any more.

    Args:
        directory: the directory of a table without state.
        settings: the settings of the cluster.
        offsets: the first offset to look at, for each partition.

    Returns:
        The offsets of such rows; partitions without any are missing.

    Raises:
        ConfigError: there is no table, or this user may not read a file of it.
        LedgerError: a file is damaged.
        ClientError: the cluster cannot be reached, or does not have the topics.
    """
    with closing(open_ledger(directory)) as ledger:
        files = [*ledger.files(), *ledger.files(dead=True)]
    with Admin(settings) as admin:
        compacted = {name for name in {p.topic for p in offsets} if _is_compacted(admin, name)}
        wanted = {p: begin for p, begin in offsets.items() if p.topic in compacted}
        ends = admin.list_offsets(wanted, LATEST)
    found = {
        p: gone_records(directory, p, files, settings, begin=begin, log_end=ends[p].offset)
        for p, begin in wanted.items()
    }
    return {partition: gone for partition, gone in found.items() if gone}


def _check_stage(directory: Path, stage: str | None, loaded: Loaded | None) -> None:
    if loaded is not None and loaded.name != stage:
        made = f"the function {stage}" if stage else "no function with state"
        raise ConfigError(
            f"--state names {loaded.name}, but {made} made the rows of the table in "
            f"{directory}: give the --state of its pipelines"
        )


def _is_compacted(admin: Admin, topic: str) -> bool:
    """Whether the topic is compacted; False if this user may not read its settings."""
    try:
        policy = admin.topic_settings(topic)["cleanup.policy"].value or ""
    except (RequestFailed, KeyError):
        return False
    return "compact" in policy
