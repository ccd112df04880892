"""``kohort spark executor``: the command that the variables of a pod describe."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.model.errors import ConfigError
from kohort.spark.executor_pod import executor_command

VARIABLES = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "lake-exec-3",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    **{f"SPARK_JAVA_OPT_{n}": f"-Dn={n}" for n in (10, 9, 0)},
}


def test_the_variables_of_a_pod_become_the_command_of_its_executor() -> None:
    assert executor_command(VARIABLES, Path("/java"), Path("/jars")) == [
        "/java", "-Dn=0", "-Dn=9", "-Dn=10", "-Xms512m", "-Xmx512m",
        "-cp", "/opt/spark/conf:/jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        "--driver-url", "spark://CoarseGrainedScheduler@10.0.0.7:7078", "--executor-id", "3",
        "--cores", "2", "--app-id", "spark-1", "--hostname", "10.0.0.8",
        "--resourceProfileId", "0", "--podName", "lake-exec-3",
    ]  # fmt: skip


def test_outside_a_pod_of_spark_the_missing_variables_are_named() -> None:
    given = {name: value for name, value in VARIABLES.items() if name != "SPARK_DRIVER_URL"}
    with pytest.raises(ConfigError, match="the variables SPARK_DRIVER_URL are missing"):
        executor_command(given, Path("/java"), Path("/jars"))
