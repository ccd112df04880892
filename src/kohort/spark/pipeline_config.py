"""The settings of one application of a pipeline, and the options of its source.

In: the values of a command line or of a program. Out: a ``PipelineConfig``; options for Spark's
reader. Must not know: Spark, queries.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kohort.spark.source.options import DEFAULT_LIMIT_BYTES
from kohort.spark.state.copies import COPIES

_HEARTBEAT_MS: Final = "250"
"""A member learns of a rebalance with a heartbeat. At Kafka's 3 s that was most of a hand-over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """The settings of one application.

    Attributes:
        bootstrap: brokers as ``host:port``, separated by commas.
        topics: the topics to read, separated by commas.
        pattern: a regular expression for whole names of topics, in place of ``topics``.
        group: the group that all applications of this pipeline share.
        sql: text of the row-wise query over the view ``records``.
        state: ``FILE.py:OBJECT`` or ``MODULE:OBJECT``, a function with state that gets the rows of
            the query (``kohort.spark.state.stage``); None writes these rows.
        table: ``parquet`` or ``delta``; None for the kind of the existing table, and for Delta if
            there is none.
        partition_by: the partition columns of the table; None for those of the existing table, and
            for none if there is no table.
        evolve: whether the SQL may make other columns than the table has; not with ``state``.
        commit_interval_s: least time between the beginnings of two micro-batches, unless the first
            one left records behind; None for 5 s with a Delta table, and for 0 s with Parquet.
        min_rows: a micro-batch waits until this many records wait in the owned partitions.
        max_delay_s: but no longer than this after the beginning of the previous micro-batch.
        output: directory of the table; all applications of the group use it, with Parquet on one
            host.
        name: name of this application and of its checkpoint; None for the first free name.
        master: Spark master, such as ``local[2]``.
        available_now: end when the group has processed all records that exist at the start.
        starting_offsets: ``earliest`` or ``latest``, where neither ledger nor group has a position.
        limit: most offsets of a micro-batch.
        limit_bytes: most bytes of a micro-batch, as far as samples tell them.
        trigger_ms: least time between the beginnings of two micro-batches.
        skip_deleted: continue behind records that were deleted before they were read.
        headers: whether the view ``records`` has a column ``headers``.
        plain_reads: whether the rows of a plain query bypass Spark's JVM (ADR 0074).
        drain_s: longest time for the group to take all partitions away after ``drain`` is set.
        kafka: further client settings by Kafka's names.
        spark: further Spark settings.
    """

    bootstrap: str
    topics: str = ""
    pattern: str | None = None
    group: str
    sql: str
    output: Path
    state: str | None = None
    table: str | None = None
    partition_by: tuple[str, ...] | None = None
    evolve: bool = False
    commit_interval_s: float | None = None
    min_rows: int = 0
    max_delay_s: float = 900.0
    name: str | None = None
    master: str = "local[2]"
    available_now: bool = False
    starting_offsets: str = "earliest"
    limit: int = 500_000
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    trigger_ms: int = 500
    skip_deleted: bool = False
    headers: bool = False
    plain_reads: bool = True
    drain_s: float = 0.0
    kafka: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)


def source_options(config: PipelineConfig, checkpoint: Path) -> dict[str, str]:
    """The options for one start of the query, with a new name for the ledger.

    An application is known by its checkpoint, unless the settings say otherwise: groups and logs
    show its name, and with waits the next process on the checkpoint gets the partitions of this
    process.
    """
    kafka = {name.replace("_", "."): value for name, value in config.kafka.items()}
    return {
        **_state_options(config, checkpoint),
        "kafka.client.id": checkpoint.name,
        "kafka.heartbeat.interval.ms": _HEARTBEAT_MS,
        "kafka.kohort.member.identity": str(checkpoint.resolve()),
        **{f"kafka.{name}": value for name, value in kafka.items()},
        "kafka.bootstrap.servers": config.bootstrap,
        "kafka.group.id": config.group,
        **(
            {"subscribe": config.topics}
            if config.pattern is None
            else {"subscribePattern": config.pattern}
        ),
        "startingOffsets": config.starting_offsets,
        "maxOffsetsPerTrigger": str(config.limit),
        "maxBytesPerTrigger": str(config.limit_bytes),
        "minOffsetsPerTrigger": str(config.min_rows),
        "maxTriggerDelay": f"{round(1_000 * config.max_delay_s)}ms",
        "failOnDataLoss": "false" if config.skip_deleted else "true",
        "includeHeaders": str(config.headers).lower(),
        "ledger": str(config.output.resolve()),
        "application": uuid.uuid4().hex,
    }


def _state_options(config: PipelineConfig, checkpoint: Path) -> dict[str, str]:
    """The options for a function with state.

    If all tasks run on this host, it keeps copies of states. Then partitions move to members with a
    warm copy, unless the settings say otherwise.
    """
    if config.state is None:
        return {}
    whole = {"wholePartitions": "true"}
    if config.master.split("[")[0] != "local":
        return whole
    copies = (config.output / COPIES / checkpoint.name).resolve()
    stateful = {} if config.pattern else {"kafka.kohort.stateful.topics": config.topics}
    return whole | stateful | {"stateCopies": str(copies)}
