"""``kohort spark``: batch jobs on Spark.

In: subcommands from the files of this folder. Out: the click group. Must not know: the jobs.
"""

from __future__ import annotations

import click

from kohort.cli.spark import history as spark_history
from kohort.cli.spark import sweep as spark_sweep


@click.group()
def spark() -> None:
    """Run batch jobs on Spark: sweeps of the lab over settings, histories of many groups."""


spark.add_command(spark_history.history)
spark.add_command(spark_sweep.sweep)
