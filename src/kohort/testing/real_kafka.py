"""Starts and stops a real Apache Kafka on loopback, with one KRaft node or three.

In: a directory and settings by Kafka's names. Out: bootstrap addresses. Must not know: the clients
of the cluster, pytest (``kohort kafka`` uses this module too). The jars come from ``kafka_jars``,
the Java from ``kohort.host.java``.
"""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from kohort.host.java import (
    archive_classes_at_exit,
    archived_classes,
    find_java,
    keep_temporary_files,
)
from kohort.host.last_lines import last_lines
from kohort.model.errors import ConfigError
from kohort.testing.kafka_jars import KAFKA, JarSet, KafkaUnavailable, home, installed
from kohort.testing.ports import HOST, free_ports

START_TIMEOUT_S: Final = 90
STOP_TIMEOUT_S: Final = 20
_POLL_S: Final = 0.05
_READY: Final = "Kafka Server started"

# For a Java that ends soon: without the optimising compiler, with one thread that collects garbage.
_QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# At Kafka's 500 ms the records of an idle controller are half of a node's CPU time.
_QUIET: Final[Mapping[str, str | int]] = {"metadata.max.idle.interval.ms": 10_000}

_LOGGING: Final = """\
status=warn
appender.file.type=File
appender.file.name=file
appender.file.fileName={path}
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=info
rootLogger.appenderRef.file.ref=file
"""


class RealKafka:
    """A cluster of one node or three in one directory; a context manager.

    ``settings`` are server properties by Kafka's names. They override the defaults here, which are
    Kafka's own except for sizes (8 partitions of ``__consumer_offsets``, 4 of a created topic).
    ``ports`` are two for each node (clients, controller), free ports by default. ``heap`` is the
    heap of each node, as Java writes it. A ``quick`` node starts in half the CPU time, computes
    slowly, and idles with half the CPU time. ``racks`` are the racks of the nodes
    (``broker.rack``); by default they have none.
    ``listeners`` are more listeners for clients: a name in capitals and its security protocol;
    ``settings`` say more about them (``listener.name.<name>.…``), and ``address`` tells where they
    are. ``scram`` has users of SCRAM with their passwords. ``options`` are options of Java. The
    release is that of ``jars``.
    """

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 1,
        settings: Mapping[str, str | int] | None = None,
        ports: Sequence[int] = (),
        heap: str = "512m",
        quick: bool = False,
        racks: Sequence[str] = (),
        listeners: Mapping[str, str] | None = None,
        scram: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        jars: JarSet = KAFKA,
    ) -> None:
        if nodes not in {1, 3}:
            raise ConfigError(f"nodes is {nodes}, expected 1 or 3")
        if ports and len(ports) != 2 * nodes:
            raise ConfigError(f"expected {2 * nodes} ports for {nodes} nodes, got {len(ports)}")
        if racks and len(racks) != nodes:
            raise ConfigError(f"expected {nodes} racks for {nodes} nodes, got {len(racks)}")
        self.directory = directory
        self._racks = racks
        self._nodes = range(1, nodes + 1)
        self._settings = {**(_QUIET if quick else {}), **(settings or {})}
        self._listeners = dict(listeners or {})
        self._scram = dict(scram or {})
        more = free_ports(nodes * len(self._listeners)) if self._listeners else []
        self._more_ports = {
            name: more[at * nodes : (at + 1) * nodes] for at, name in enumerate(self._listeners)
        }
        chosen = list(ports) or free_ports(2 * nodes)
        self._client_ports, self._controller_ports = chosen[:nodes], chosen[nodes:]
        self._options = [f"-Xms{heap}", f"-Xmx{heap}", *(_QUICK if quick else ["-XX:+UseG1GC"])]
        self._options += options
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._jars = jars
        self._java = ""
        self._classpath = ""

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all nodes, as clients take them."""
        return ",".join(f"{HOST}:{port}" for port in self._client_ports)

    def address(self, listener: str) -> str:
        """Addresses of all nodes at one of ``listeners``, as clients take them."""
        return ",".join(f"{HOST}:{port}" for port in self._more_ports[listener])

    @property
    def pids(self) -> dict[int, int]:
        """Node id -> process id, for the started nodes."""
        return {node: process.pid for node, process in self._processes.items()}

    def log(self, node: int = 1) -> Path:
        """The node's log file, in Kafka's wording."""
        return self.directory / f"server-{node}.log"

    def start(self) -> Self:
        """Format new directories, start all nodes, wait until all of them serve.

        Raises:
            KafkaUnavailable: the jars are missing, or a node ended or was not ready in 90 s.
            ConfigError: no Java 17 or newer.
        """
        self._java, self._classpath = str(find_java().executable), classpath(self._jars)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._format()
        try:
            for node in self._nodes:
                self._launch(node)
            for node in self._nodes:
                self._await_ready(node)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all nodes with SIGTERM, and after 20 s with SIGKILL."""
        for process in self._processes.values():
            process.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for process in self._processes.values():
            _await_end(process, deadline)
        self._processes.clear()

    def kill(self, node: int = 1) -> None:
        """End a node with SIGKILL."""
        process = self._processes.pop(node)
        process.kill()
        process.wait()

    def shut_down(self, node: int = 1) -> None:
        """End a node with SIGTERM: it hands its partitions and groups to other nodes first."""
        process = self._processes.pop(node)
        process.terminate()
        _await_end(process, time.monotonic() + STOP_TIMEOUT_S)

    def restart(self, node: int = 1) -> None:
        """Start an ended node on its ports and its data, and wait until it serves."""
        self.log(node).unlink(missing_ok=True)
        self._launch(node)
        self._await_ready(node)

    def tool(self, main_class: str, *arguments: str, timeout_s: float = 60) -> str:
        """Run a tool of Kafka, such as ``org.apache.kafka.tools.TopicCommand``; returns its output.

        Raises:
            KafkaUnavailable: the tool failed; the message ends with its output.
        """
        return run_tool(main_class, *arguments, timeout_s=timeout_s)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _format(self) -> None:
        identity = self.directory / "cluster-id"
        if not identity.exists():
            identity.write_text(_cluster_id(), encoding="ascii")
        cluster = identity.read_text(encoding="ascii")
        running: list[tuple[int, subprocess.Popen[bytes], Path]] = []
        with ExitStack() as files:
            for node in self._nodes:
                properties = self.directory / f"server-{node}.properties"
                properties.write_text(self._properties(node), encoding="utf-8")
                output = self.directory / f"format-{node}.log"
                out = files.enter_context(output.open("wb"))
                command = [self._java, *_QUICK, *archived_classes(class_archive(self._jars))]
                command += ["-cp", self._classpath]
                command += ["kafka.tools.StorageTool", "format"]
                command += ["--ignore-formatted", "-t", cluster, "-c", str(properties)]
                for user, password in self._scram.items():
                    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                        command += ["-S", f"{mechanism}=[name={user},password={password}]"]
                process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
                running.append((node, process, output))
            codes = [process.wait() for _, process, _ in running]
        for (node, _, output), code in zip(running, codes, strict=True):
            if code != 0:
                raise KafkaUnavailable(
                    f"the directory of node {node} could not be formatted:\n{last_lines(output)}"
                )

    def _launch(self, node: int) -> None:
        logging = self.directory / f"log4j2-{node}.properties"
        logging.write_text(_LOGGING.format(path=self.log(node)), encoding="utf-8")
        self.log(node).unlink(missing_ok=True)
        command = [self._java, *archived_classes(class_archive(self._jars)), *self._options]
        command += keep_temporary_files(self.directory)  # Tests kill nodes.
        command += [f"-Dlog4j2.configurationFile={logging}", "-cp", self._classpath]
        command += ["kafka.Kafka", str(self.directory / f"server-{node}.properties")]
        with self._output(node).open("wb") as out:
            # A session of its own: Ctrl-C in the terminal ends the tests, and they stop the node.
            self._processes[node] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _await_ready(self, node: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        process = self._processes[node]
        while time.monotonic() < deadline:
            if self.log(node).exists() and _READY in self.log(node).read_text(errors="replace"):
                return
            if process.poll() is not None:
                raise KafkaUnavailable(
                    f"node {node} ended with status {process.returncode} before it served:\n"
                    f"{last_lines(self.log(node))}\n{last_lines(self._output(node))}"
                )
            time.sleep(_POLL_S)
        raise KafkaUnavailable(
            f"node {node} did not serve within {START_TIMEOUT_S} s; its log is {self.log(node)}:\n"
            f"{last_lines(self.log(node))}"
        )

    def _output(self, node: int) -> Path:
        return self.directory / f"out-{node}.log"

    def _properties(self, node: int) -> str:
        port, controller = self._client_ports[node - 1], self._controller_ports[node - 1]
        copies = len(self._nodes)
        voters = ",".join(f"{n}@{HOST}:{self._controller_ports[n - 1]}" for n in self._nodes)
        more = "".join(f",{name}://{HOST}:{p[node - 1]}" for name, p in self._more_ports.items())
        kinds = "".join(f",{name}:{kind}" for name, kind in self._listeners.items())
        properties: dict[str, str | int] = {
            "process.roles": "broker,controller",
            "node.id": node,
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}{more}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port}{more}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{kinds}",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.directory / f"data-{node}"),
            "num.partitions": 4,
            "default.replication.factor": copies,
            "offsets.topic.num.partitions": 8,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.num.partitions": 4,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": 1,
            "log.cleaner.dedupe.buffer.size": 20 * 1024 * 1024,
            "num.network.threads": 2,
            "num.io.threads": 4,
        }
        if self._racks:
            properties["broker.rack"] = self._racks[node - 1]
        properties |= self._settings
        return "".join(f"{name}={value}\n" for name, value in properties.items())


def _await_end(process: subprocess.Popen[bytes], deadline: float) -> None:
    """Wait for the end of a process; kill it at the deadline."""
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def classpath(jars: JarSet = KAFKA) -> str:
    """The Java class path of a release's fetched jars.

    Raises:
        KafkaUnavailable: the jars are missing.
    """
    libs = installed(jars)
    if libs is None:
        raise KafkaUnavailable(absence(jars))
    return f"{libs}{os.sep}*"


def run_tool(main_class: str, *arguments: str, timeout_s: float = 60) -> str:
    """Run a tool of Kafka against the broker in its arguments; returns its output.

    Raises:
        KafkaUnavailable: the tool failed; the message ends with its output.
    """
    command = [str(find_java().executable), *_QUICK, *archived_classes(class_archive())]
    command += ["-cp", classpath(), main_class, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        output = "\n".join((done.stdout + done.stderr).splitlines()[-10:])
        raise KafkaUnavailable(f"{main_class} ended with status {done.returncode}:\n{output}")
    return done.stdout


def class_archive(jars: JarSet = KAFKA) -> Path:
    """The file with an archive of a release's classes, which may be missing."""
    return home(jars) / "classes.jsa"


def archive_classes(jars: JarSet = KAFKA) -> None:
    """Make the archive of Kafka's classes from those that a node of its own loads, if missing.

    Raises:
        KafkaUnavailable: the jars are missing, or the node did not start.
    """
    if class_archive(jars).exists():
        return
    with tempfile.TemporaryDirectory(dir=home(jars)) as folder:
        made = Path(folder) / "classes.jsa"
        options = archive_classes_at_exit(made)
        node = RealKafka(Path(folder), quick=True, options=options, jars=jars).start()
        process = node._processes[1]
        node.stop()
        # A Java that was killed while it wrote leaves half an archive; not every Java makes one.
        if process.returncode != -signal.SIGKILL and made.exists():
            made.replace(class_archive(jars))


def absence(jars: JarSet = KAFKA) -> str:
    """A message that the jars are missing, with the command that fetches them."""
    which = "" if jars is KAFKA else f" --release {jars.version}"
    return (
        f"{jars.title} is missing in {home(jars)}; `kohort kafka fetch{which}` fetches it from "
        "Maven Central (60 MB, once)"
    )


def _cluster_id() -> str:
    # 16 bytes in the URL alphabet without padding; a leading "-" would look like an option.
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return text.replace("-", "_", 1) if text.startswith("-") else text
