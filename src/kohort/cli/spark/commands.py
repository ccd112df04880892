"""``kohort spark``: batch jobs on Spark, and executors on Kubernetes.

In: subcommands from the files of this folder. Out: the click group. Must not know: the jobs.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from kohort.cli.spark import history as spark_history
from kohort.cli.spark import sweep as spark_sweep


@click.group()
def spark() -> None:
    """Run batch jobs on Spark: sweeps of the lab over settings, histories of many groups."""


@spark.command()
def executor() -> None:
    """Run an executor of Spark in a pod of Kubernetes.

    Spark's driver makes the pod and its variables. Its template of pods has the command
    [kohort, spark]; Spark adds the argument `executor`.
    """
    import pyspark  # noqa: PLC0415 - heavy

    from kohort.host.java import find_java, spark_java_home  # noqa: PLC0415 - as above
    from kohort.spark.executor_pod import executor_command  # noqa: PLC0415 - as above

    java = spark_java_home(find_java()) / "bin" / "java"
    jars = Path(pyspark.__file__).parent / "jars"
    command = executor_command(os.environ, java, jars)
    os.execv(command[0], command)


spark.add_command(spark_history.history)
spark.add_command(spark_sweep.sweep)
