"""A real YARN in one Java process: a resource manager and two node managers.

The process is Hadoop's MiniYARNCluster. Maven Central has its jars; Ivy fetches them once.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil
import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from tests.spark.process_trees import executors_below

from kohort.host.java import find_java, keep_temporary_files
from kohort.testing.kafka_jars import JarSet, fetch

HADOOP: Final = JarSet(
    title="Hadoop 3.5.0 with YARN",
    folder="hadoop/3.5.0",
    artifacts=(
        "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
        # Classes that MiniYARNCluster needs; its jar neither has them nor names them.
        "org.junit.jupiter:junit-jupiter-api:5.13.4",
        "org.bouncycastle:bcprov-jdk18on:1.80",
        "org.bouncycastle:bcpkix-jdk18on:1.80",
        "org.apache.logging.log4j:log4j-core:2.25.5",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5",
        "org.apache.logging.log4j:log4j-1.2-api:2.25.5",
    ),
)

_JARS: Final = Path(pyspark.__file__).parent / "jars"
_YARN: Final = "org.apache.hadoop.yarn.server"
_NODES: Final = 2
_SETTINGS: Final = {
    "yarn.resourcemanager.scheduler.class": (
        f"{_YARN}.resourcemanager.scheduler.fifo.FifoScheduler"
    ),
    "yarn.scheduler.minimum-allocation-mb": "256",
    "yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.nodemanager.vmem-check-enabled": "false",
    # A test machine may have a full disk.
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
}


class YarnCluster:
    """A YARN with two nodes; all containers run on this machine.

    Attributes:
        url: the master for ``--master``.
        processes: the Java process of the cluster.
        environment: the variables that a driver needs to find the cluster.
        settings: Spark's settings for small executors.
    """

    url = "yarn"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.settings: Sequence[str] = (
            "spark.executor.instances=1", "spark.executor.memory=512m",
            "spark.yarn.am.memory=384m",
            # Otherwise each driver packs and uploads 400 MB of jars.
            f"spark.yarn.jars=local:{_JARS}/*",
            # Otherwise the home directory keeps the files of a killed driver.
            f"spark.yarn.stagingDir=file:{folder}/staging",
        )  # fmt: skip
        self.environment: Mapping[str, str] = {"HADOOP_CONF_DIR": str(folder / "conf")}
        self.processes: list[subprocess.Popen[str]] = []
        (jar,) = _JARS.glob("py4j-*.jar")
        with (folder / "yarn.log").open("w") as log:
            port, token, process = launch_gateway(
                jarpath=str(jar),
                classpath=f"{fetch(HADOOP)}/*",
                javaopts=[
                    "-Xmx400m",
                    f"-Dtest.build.data={folder / 'data'}",
                    *keep_temporary_files(folder),
                ],
                java_path=str(find_java().executable),
                die_on_exit=True,
                enable_auth=True,
                return_proc=True,
                redirect_stdout=log,
                redirect_stderr=log,
            )
        self.processes.append(process)
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        try:
            self._start_yarn(gateway.jvm)
        finally:
            gateway.close()

    def _start_yarn(self, java: JavaGateway.jvm) -> None:
        configuration = java.org.apache.hadoop.yarn.conf.YarnConfiguration()
        for name, value in _SETTINGS.items():
            configuration.set(name, value)
        cluster = java.org.apache.hadoop.yarn.server.MiniYARNCluster("kohort", _NODES, 1, 1)
        cluster.init(configuration)
        cluster.start()
        site = Path(self.environment["HADOOP_CONF_DIR"]) / "yarn-site.xml"
        site.parent.mkdir()
        writer = java.java.io.FileWriter(str(site))
        cluster.getConfig().writeXml(writer)
        writer.close()

    def executors(self) -> list[psutil.Process]:
        """The Java processes of all executors."""
        return executors_below(self.processes[0])

    def homes(self) -> set[str]:
        """The applications that ran containers on the nodes."""
        return {path.name for path in self._folder.glob("data/**/*-logDir-*/application_*")}
