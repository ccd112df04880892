"""Pipelines on clusters: two nodes of Spark or YARN, a Kubernetes; drivers on several hosts.

The drivers have different names of hosts. The table is a shared directory, its ledger is in
PostgreSQL or in the Delta table. Executors get their Python from an archive.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, Protocol

import psutil
import pytest

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")
pytest.importorskip("psycopg", reason="pip install 'kohort[postgres]'")

import pyspark
from tests.java import temporary_files_removed
from tests.spark.conftest import PATIENCE_S, Feed
from tests.spark.delta_world import rows_of
from tests.spark.kubernetes_cluster import KubernetesCluster
from tests.spark.postgres_server import postgres_server
from tests.spark.process_trees import executors_below, kill_each, kill_tree
from tests.spark.test_applications import command, numbered, wait_for
from tests.spark.yarn_cluster import YarnCluster

from kohort.host.identity import VARIABLE
from kohort.host.java import find_java, keep_temporary_files, spark_java_home
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.postgres_ledger import use_database
from kohort.spark.tables.layout import is_delta
from kohort.spark.tables.table import open_ledger
from kohort.spark.tables.verify import verify
from kohort.testing.ports import free_ports

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(1200)]

_DEPLOY = "org.apache.spark.deploy"
NAMES = ("a", "b")
EVENTS = ("kill", "executor", "worker", "end")


class Cluster(Protocol):
    """A cluster of Spark, YARN or Kubernetes; see `YarnCluster`."""

    url: str
    settings: Sequence[str]
    environment: Mapping[str, str]
    processes: list[subprocess.Popen[str]]

    def executors(self) -> list[psutil.Process]:
        """The executors of all applications."""

    def homes(self) -> set[str]:
        """The applications that ran executors on the nodes."""


class Standalone:
    """A master of Spark and its workers, as processes."""

    settings: Sequence[str] = (
        "spark.cores.max=1", "spark.executor.memory=512m", "spark.executor.cores=1",
        "spark.driver.host=127.0.0.1",
    )  # fmt: skip
    environment: Mapping[str, str] = {}

    def __init__(self, folder: Path) -> None:
        self.url = f"spark://127.0.0.1:{free_ports(1)[0]}"
        self._folder = folder
        self._workers = 0
        self._variables = os.environ | {
            "JAVA_HOME": str(spark_java_home(find_java())),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join(keep_temporary_files(temporary_folder())),
        }
        self.processes: list[subprocess.Popen[str]] = []
        port = self.url.rpartition(":")[2]
        self._start("master", "master.Master", "--port", port)

    def add_worker(self) -> None:
        self._workers += 1
        name = f"worker-{self._workers}"
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
                stdout=log, stderr=log, text=True, env=self._variables,
            )  # fmt: skip
        self.processes.append(process)

    def bounce_worker(self, number: int) -> None:
        """Kill a worker with all its executors, and start another one in its place."""
        before = self.workers
        kill_tree(self.processes.pop(1 + number))
        self.add_worker()
        wait_for(lambda: self.workers > before, "the new worker", self.processes)

    def executors(self) -> list[psutil.Process]:
        """The executors of all applications."""
        return [child for worker in self.processes[1:] for child in executors_below(worker)]

    def homes(self) -> set[str]:
        """The applications that ran executors on the nodes."""
        return {path.name for path in self._folder.glob("worker-*/app-*")}

    @property
    def workers(self) -> int:
        """The workers that have registered with the master; on a slow machine some do it twice."""
        log = (self._folder / "master.log").read_text()
        return len(set(re.findall(r"Registering worker (\S+)", log)))


def temporary_folder() -> Path:
    return Path(os.environ["TMPDIR"])


@pytest.fixture(scope="module", autouse=True)
def temporary_files() -> Iterator[None]:
    with temporary_files_removed():
        yield


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    cluster = Standalone(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.add_worker()
        cluster.add_worker()
        wait_for(lambda: cluster.workers == 2, "two workers", cluster.processes)
        yield cluster
    finally:
        for process in reversed(cluster.processes):
            kill_tree(process)


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    cluster = KubernetesCluster(tmp_path_factory.mktemp("kubernetes"))
    try:
        yield cluster
    finally:
        cluster.close()
        end_java(cluster)


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    cluster = YarnCluster(tmp_path_factory.mktemp("yarn"))
    try:
        yield cluster
    finally:
        end_java(cluster)


def end_java(cluster: Cluster) -> None:
    """End a cluster that runs in one Java process."""
    (process,) = cluster.processes
    kill_tree(process)
    assert process.stdin is not None
    process.stdin.close()


class Applications:
    """Applications of one group, each with a driver on a host with a name of its own."""

    def __init__(self, cluster: Cluster, source: Feed, table: Path) -> None:
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.source = source
        self.table = table
        self._cluster = cluster
        self._archive = self._packed_python(table.parent)

    @staticmethod
    def _packed_python(folder: Path) -> Path:
        """An archive with a Python for the executors; it is unpacked for the drivers."""
        program = folder / "env" / "bin" / "python"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        program.chmod(0o755)
        return Path(shutil.make_archive(str(folder / "packed"), "gztar", folder / "env"))

    def log(self, name: str) -> Path:
        return self.table.parent / f"{name}.log"

    def start(self, name: str) -> None:
        executors = " ".join(keep_temporary_files(temporary_folder()))
        arguments = command(
            self.source, self.table, "SELECT value FROM records",
            *("--master", self._cluster.url, "--name", name, "--limit", "500"),
            *("--set", "session.timeout.ms=6000", "--set", "heartbeat.interval.ms=500"),
            *(word for setting in self._cluster.settings for word in ("--conf", setting)),
            *("--conf", f"spark.archives={self._archive}#env"),
            *("--conf", f"spark.executor.extraJavaOptions={executors}"),
        )  # fmt: skip
        with self.log(name).open("a") as log:
            self.running[name] = subprocess.Popen(
                arguments, stdout=log, stderr=log, text=True,
                env=os.environ | self._cluster.environment
                | {VARIABLE: f"host-of-{name}", "PYSPARK_PYTHON": "env/bin/python"},
                cwd=self.table.parent,
            )  # fmt: skip

    def kill(self, name: str) -> None:
        """SIGKILL to the driver and all that it started on its host."""
        kill_tree(self.running.pop(name))

    def end(self, name: str) -> None:
        """SIGTERM; the application prints one line and ends with status 0."""
        process = self.running.pop(name)
        before = self.log(name).stat().st_size
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        said = [
            line
            for line in self.log(name).read_bytes()[before:].decode().splitlines()
            if not line.startswith("batch ")
        ]
        assert len(said) == 1, said
        assert f"{name}: stopped; " in said[0]

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        wait_for(condition, what, [*self.running.values(), *self._cluster.processes])

    def kill_all(self) -> None:
        for name in [*self.running]:
            self.kill(name)


def ends_of(source: Feed) -> dict[int, int]:
    return {p: len(records) for p, records in source.records.items()}


@pytest.mark.parametrize("kind", ["standalone", "yarn", "kubernetes"])
def test_applications_are_added_killed_and_bounced_and_each_record_lands_once(
    feed: Callable[..., Any], request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    cluster: Cluster = request.getfixturevalue(kind)
    source, table, before = feed(4, numbered(2_000)), tmp_path / "table", cluster.homes()
    group = Applications(cluster, source, table)
    with postgres_server() as server:
        use_database(table, server.url)
        try:
            with closing(open_ledger(table, source.topic)) as ledger:

                def done() -> bool:
                    positions = ledger.all_positions()
                    found = {p.partition: at.next_offset for p, at in positions.items()}
                    return found == ends_of(source)

                def owners() -> int:
                    return len({at.member for at in ledger.all_positions().values()})

                group.start("a")
                group.wait(done, "the first records")
                group.start("b")
                group.wait(lambda: owners() == 2, "a share of the application that was added")
                source.put(numbered(2_000))
                group.kill("a")
                group.wait(done, "the records of an application that was killed")
                group.start("a")
                group.wait(lambda: owners() == 2, "a share of the application that came back")
                source.put(numbered(2_000))
                group.wait(done, "the last records")
                assert kill_each(cluster.executors()) > 0
                source.put(numbered(2_000))
                group.wait(done, "the records after the loss of all executors")
                group.end("b")
        finally:
            group.kill_all()
        verdict = verify(table, source.settings)
        assert verdict.ok, verdict
        with closing(open_ledger(table)) as reader:
            assert sum(row.rows for row in reader.manifest()) == 8_000
    assert len(cluster.homes() - before) == 3, "three applications ran executors on the nodes"
    assert all(process.poll() is None for process in cluster.processes)


@pytest.mark.parametrize("seed", range(2))
def test_drawn_kills_of_drivers_executors_and_workers_lose_and_double_nothing(
    feed: Callable[..., Any], standalone: Standalone, tmp_path: Path, seed: int
) -> None:
    """The judge reads the Delta table by its specification, and knows the records."""
    random = Random(seed)
    source, table = feed(4, numbered(1_000)), tmp_path / "table"
    group = Applications(standalone, source, table)
    told: list[str] = []

    def executor_killed() -> bool:
        found = standalone.executors()
        return kill_each(random.sample(found, min(1, len(found)))) == 1

    try:
        for name in NAMES:
            group.start(name)
        for _ in range(5):
            source.put(numbered(1_000))
            time.sleep(random.uniform(0, 8))  # anywhere in a start, a batch or a rebalance
            event, name = random.choice(EVENTS), random.choice(NAMES)
            told.append(f"{event} {name}")
            if event == "worker":
                standalone.bounce_worker(random.randrange(2))
            elif event == "executor":
                group.wait(executor_killed, "an executor")
            elif event == "end" and "batch" in group.log(name).read_text():
                group.end(name)
                group.start(name)
            else:
                group.kill(name)
                group.start(name)
        expected = [
            (TopicPartition(source.topic, p), n) for p, end in ends_of(source).items()
            for n in range(end)
        ]  # fmt: skip
        group.wait(lambda: is_delta(table) and len(rows_of(table)) >= 6_000, f"rows after {told}")
        assert rows_of(table) == sorted(expected), told
        for name in NAMES:
            group.end(name)
    finally:
        group.kill_all()
    verdict = verify(table, source.settings)
    assert not any(p.troubles for p in verdict.partitions), (told, verdict)
    for name in NAMES:
        assert "Traceback" not in group.log(name).read_text(), told
