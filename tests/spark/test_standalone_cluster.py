"""Pipelines on a Spark standalone cluster: a master, two workers, drivers on several hosts.

The drivers have different names of hosts. The table is a shared directory, its ledger is in
PostgreSQL.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")
pytest.importorskip("psycopg", reason="pip install 'kohort[postgres]'")

import pyspark
from tests.spark.postgres_server import postgres_server
from tests.spark.test_applications import command, numbered, wait_for

from kohort.host.identity import VARIABLE
from kohort.host.java import find_java, spark_java_home
from kohort.spark.postgres_ledger import use_database
from kohort.spark.table import open_ledger
from kohort.spark.verify import verify
from kohort.testing.ports import free_ports

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(1200)]

_DEPLOY = "org.apache.spark.deploy"
_SMALL = (
    "spark.cores.max=1", "spark.executor.memory=512m", "spark.executor.cores=1",
    "spark.driver.host=127.0.0.1",
)  # fmt: skip


def kill_tree(process: subprocess.Popen[str]) -> None:
    """Send SIGKILL to a process and all below it."""
    for member in [*psutil.Process(process.pid).children(recursive=True), process]:
        member.kill()
    process.wait()


class Cluster:
    """A master and its workers, as processes."""

    def __init__(self, folder: Path) -> None:
        self.url = f"spark://127.0.0.1:{free_ports(1)[0]}"
        self._folder = folder
        self._environment = os.environ | {
            "JAVA_HOME": str(spark_java_home(find_java())),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        self.processes: list[subprocess.Popen[str]] = []
        port = self.url.rpartition(":")[2]
        self._start("master", "master.Master", "--port", port)

    def add_worker(self) -> None:
        name = f"worker-{len(self.processes)}"
        work = self._folder / name
        sizes = ("--cores", "2", "--memory", "1200m", "--work-dir", str(work))
        self._start(name, "worker.Worker", *sizes, self.url)

    def _start(self, name: str, program: str, *more: str) -> None:
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        with (self._folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                [
                    str(spark_class), f"{_DEPLOY}.{program}",
                    "--host", "127.0.0.1", "--webui-port", "0", *more,
                ],
                stdout=log, stderr=log, text=True, env=self._environment,
            )  # fmt: skip
        self.processes.append(process)

    @property
    def workers(self) -> int:
        """The workers that have registered with the master; on a slow machine some do it twice."""
        log = (self._folder / "master.log").read_text()
        return len(set(re.findall(r"Registering worker (\S+)", log)))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    try:
        cluster.add_worker()
        cluster.add_worker()
        wait_for(lambda: cluster.workers == 2, "two workers", cluster.processes)
        yield cluster
    finally:
        for process in reversed(cluster.processes):
            kill_tree(process)


def test_applications_are_added_killed_and_bounced_and_each_record_lands_once(
    feed: Callable[..., Any], cluster: Cluster, tmp_path: Path
) -> None:
    source, table = feed(4, numbered(2_000)), tmp_path / "table"
    running: dict[str, subprocess.Popen[str]] = {}

    def start(name: str) -> None:
        arguments = command(
            source, table, "SELECT value FROM records",
            *("--master", cluster.url, "--name", name, "--limit", "500"),
            *("--set", "session.timeout.ms=6000", "--set", "heartbeat.interval.ms=500"),
            *(word for setting in _SMALL for word in ("--conf", setting)),
        )  # fmt: skip
        with (tmp_path / f"{name}.log").open("a") as log:
            running[name] = subprocess.Popen(
                arguments, stdout=log, stderr=log, text=True,
                env=os.environ | {VARIABLE: f"host-of-{name}"},
            )  # fmt: skip

    with postgres_server() as server:
        use_database(table, server.url)
        try:
            with closing(open_ledger(table, source.topic)) as ledger:

                def done() -> bool:
                    ends = {p: len(records) for p, records in source.records.items()}
                    positions = ledger.all_positions()
                    found = {p.partition: at.next_offset for p, at in positions.items()}
                    return found == ends

                def owners() -> int:
                    return len({at.member for at in ledger.all_positions().values()})

                def wait(condition: Callable[[], bool], what: str) -> None:
                    wait_for(condition, what, [*running.values(), *cluster.processes])

                start("a")
                wait(done, "the first records")
                start("b")
                wait(lambda: owners() == 2, "a share of the application that was added")
                source.put(numbered(2_000))
                kill_tree(running.pop("a"))
                wait(done, "the records of an application that was killed")
                start("a")
                wait(lambda: owners() == 2, "a share of the application that came back")
                source.put(numbered(2_000))
                wait(done, "the last records")
        finally:
            for process in running.values():
                kill_tree(process)
        verdict = verify(table, source.settings)
        assert verdict.ok, verdict
        with closing(open_ledger(table)) as reader:
            assert sum(row.rows for row in reader.manifest()) == 6_000
    homes = [path.name for path in tmp_path.glob("worker-*/app-*")]
    assert len(set(homes)) == 3, homes  # three applications ran their executors on the workers
    assert all(psutil.pid_exists(process.pid) for process in cluster.processes)
