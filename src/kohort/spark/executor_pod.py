"""Starts an executor of Spark in a pod of Kubernetes, with nothing but pip's Spark and Java.

In: the variables that Spark's driver has given to the pod. Out: the command of the executor. Must
not know: groups, tables. Spark's own image has a script for this. An image with Python and
``pip install 'kohort[spark]'`` has no script, and pip's Java lacks a module that Spark's options
name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kohort.model.errors import ConfigError

_BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_JAVA_OPTION: Final = "SPARK_JAVA_OPT_"
_ARGUMENTS: Final = (
    ("--driver-url", "SPARK_DRIVER_URL"),
    ("--executor-id", "SPARK_EXECUTOR_ID"),
    ("--cores", "SPARK_EXECUTOR_CORES"),
    ("--app-id", "SPARK_APPLICATION_ID"),
    ("--hostname", "SPARK_EXECUTOR_POD_IP"),
    ("--resourceProfileId", "SPARK_RESOURCE_PROFILE_ID"),
    ("--podName", "SPARK_EXECUTOR_POD_NAME"),
)


def executor_command(environ: Mapping[str, str], java: Path, jars: Path) -> list[str]:
    """The command of the executor that the variables of a pod describe.

    Args:
        environ: the variables of the pod.
        java: the Java program.
        jars: the folder with Spark's jars.

    Raises:
        ConfigError: a variable is missing, so this is no pod of an executor.
    """
    memory = "SPARK_EXECUTOR_MEMORY"
    missing = {memory, *(name for _, name in _ARGUMENTS)} - environ.keys()
    if missing:
        raise ConfigError(
            f"the variables {', '.join(sorted(missing))} are missing: expected a pod that a "
            "driver of Spark has made (`kohort pipeline --master k8s://...`); the template of its "
            "pods has the command [kohort, spark], and Spark adds the argument executor"
        )
    options = sorted(
        (int(name.removeprefix(_JAVA_OPTION)), option)
        for name, option in environ.items()
        if name.startswith(_JAVA_OPTION)
    )
    classes = (environ.get("SPARK_CONF_DIR"), environ.get("SPARK_CLASSPATH"), f"{jars}/*")
    return [
        str(java), *(option for _, option in options),
        f"-Xms{environ[memory]}", f"-Xmx{environ[memory]}",
        "-cp", ":".join(place for place in classes if place), _BACKEND,
        *(word for option, name in _ARGUMENTS for word in (option, environ[name])),
    ]  # fmt: skip
