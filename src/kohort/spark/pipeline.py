"""Runs one Spark application of a pipeline: from a topic through row-wise SQL into a table.

In: a ``PipelineConfig``. Out: a table that grows, and a progress report for each micro-batch. Must
not know: the command line.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

from kohort.client.errors import ClientError
from kohort.host.log_lines import VARIABLE, set_up_from_environment
from kohort.model.errors import ConfigError
from kohort.spark.application import Application
from kohort.spark.checkpoints import locked_checkpoint
from kohort.spark.draining import SUFFIX, DrainFile, Draining
from kohort.spark.failures import BrokersAway
from kohort.spark.pipeline_config import PipelineConfig, source_options
from kohort.spark.progress import Progress
from kohort.spark.session import make_session, stop_session
from kohort.spark.source.kafka_topics import KafkaTopics
from kohort.spark.source.options import SourceOptions, parse_options
from kohort.spark.state.stage import load_stage
from kohort.spark.tables.new_tables import check_partitions, is_begun, planned
from kohort.spark.tables.table import open_ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an application ended.

    ``left`` is False if the member may still be in its group: its process did not end in time.
    ``drained``: the group had taken all partitions away before.
    """

    left: bool
    drained: bool


def run_pipeline(
    config: PipelineConfig,
    report: Callable[[Progress], None],
    stop: threading.Event,
    started: Callable[[str], None] = lambda name: None,
    *,
    drain: threading.Event | None = None,
    session: SparkSession | None = None,
) -> Ending:
    """Run one application until its query ends, or until ``stop`` is set.

    Args:
        config: the settings of the application.
        report: called after each micro-batch.
        stop: when set, the application stops its query and leaves the group.
        started: called with the application's name when the query runs.
        drain: when set, the group takes all partitions away; after that, or after
            ``config.drain_s``, ``stop`` is set.
        session: a Spark session to use; None starts one and stops it at the end.

    Raises:
        ConfigError: a setting is wrong; nothing was started.
        ClientError: the brokers refuse this application; nothing was started.
        PipelineFailed: the query failed, or no broker answers (``BrokersAway``).
    """
    _check_topics(parse_options(source_options(config, config.output)))
    if config.evolve and config.state is not None:
        raise ConfigError(
            "--evolve does not work with --python (or --state): rows of other columns cannot be "
            "told from those of another function; leave it out, or name another output directory"
        )
    loaded = None if config.state is None else load_stage(config.state)
    begun = is_begun(config.output, config.group, config.table, config.partition_by)
    with locked_checkpoint(config.output, config.name) as checkpoint:
        name = checkpoint.name
        set_up_from_environment(application=name)
        if stop.is_set():
            return Ending(left=True, drained=False)
        # The view `records` belongs to a session, so each pipeline needs a session of its own.
        spark = session.newSession() if session is not None else _session(config, name)
        draining = Draining(
            wanted=drain or threading.Event(),
            file=DrainFile(checkpoint.path.with_name(name + SUFFIX).resolve()),
            timeout_s=config.drain_s,
        )
        draining.file.clear()
        left = True
        try:
            # A new table gets its columns when it is made.
            by, headers = config.partition_by, config.headers
            new = None if begun else planned(spark, config.sql, loaded, by, headers=headers)
            with closing(open_ledger(config.output, config.group, config.table, new=new)) as ledger:
                check_partitions(ledger, config.output, config.partition_by)
                application = Application(
                    spark=spark,
                    config=config,
                    ledger=ledger,
                    checkpoint=checkpoint,
                    report=report,
                    stop=stop,
                    draining=draining,
                    own_session=session is None,
                    loaded=loaded,
                )
                application.run(partial(started, name))
        finally:
            draining.file.clear()
            if session is None:
                left = stop_session(spark)
        return Ending(left=left, drained=draining.drained)


def _session(config: PipelineConfig, name: str) -> SparkSession:
    noted = os.environ.get(VARIABLE)
    # Executors on other hosts log as this process.
    logging = {} if noted is None else {f"spark.executorEnv.{VARIABLE}": noted}
    return make_session(f"kohort-{config.group}-{name}", config.master, {**logging, **config.spark})


def _check_topics(options: SourceOptions) -> None:
    try:
        with closing(KafkaTopics(options.topics, options.client, options.pattern)) as topics:
            topics.partitions()
    except ClientError as error:
        if not error.retriable:
            raise
        raise BrokersAway(f"{error}; nothing was started or written") from error
