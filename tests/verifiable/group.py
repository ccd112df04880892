"""Groups of verifiable consumers, each a process; starts, stops and kills them, reads their events.

``KOHORT`` and ``JAVA`` run verifiable consumers. The makes of ``tests/interop`` join through a
translation of their events (``translated``).
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.interop.group import CLIENTS
from tests.verifiable.judge import KILLED, Event, Member, judge

from kohort.client.admin import Admin
from kohort.host.java import find_java
from kohort.model.ids import TopicPartition
from kohort.testing.real_kafka import classpath

WAIT_S: Final = 60.0
SESSION_MS: Final = 6_000
HEARTBEAT_MS: Final = 300
RANGE: Final = "range"
COOPERATIVE: Final = "cooperative-sticky"
BOTH: Final = "cooperative-sticky,range"
_JAVA_NAMES: Final = {
    RANGE: "org.apache.kafka.clients.consumer.RangeAssignor",
    COOPERATIVE: "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Make:
    """A client, with the names of its assignors."""

    name: str
    assignors: str = RANGE
    script: str = ""
    """A script of tests/interop; empty for the two verifiable consumers."""
    more: tuple[str, ...] = ()

    def using(self, assignors: str) -> Make:
        """The same client with other assignors."""
        return replace(self, assignors=assignors)


KOHORT: Final = Make(name="kohort")
KOHORT_ASYNCIO: Final = Make(name="kohort-asyncio", more=("--asyncio",))
JAVA: Final = Make(name="java")
CONFLUENT: Final = Make(name="confluent", script="confluent_client.py")
KAFKA_PYTHON: Final = Make(name="kafka-python", script="kafka_python_client.py")
AIOKAFKA: Final = Make(name="aiokafka", script="aiokafka_client.py")


@dataclass(slots=True)
class Process:
    """One process of a group."""

    make: Make
    name: str
    """The name of this place in the group; the process that replaces this one has it, too."""
    member: Member
    log: Path
    history: Path | None
    """The history that kohort's consumers record."""
    popen: subprocess.Popen[str]
    reader: threading.Thread = field(init=False)

    def wait(self, timeout_s: float = 40.0) -> int:
        """Wait for the end of the process and of its events; returns its exit status."""
        status = self.popen.wait(timeout_s)
        self.reader.join()
        assert self.popen.stdout is not None
        self.popen.stdout.close()
        return status


class VerifiableGroup:
    """One group on one topic; a context manager that leaves no process behind.

    Args:
        bootstrap: the cluster.
        topic: read by all members; its name is the group's.
        partitions: of the topic.
        folder: for logs, settings and histories.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        folder: Path,
        session_ms: int = SESSION_MS,
    ) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.all: list[Process] = []
        self._folder = folder
        self._session_ms = session_ms
        self._settings = folder / "consumer.properties"
        self._settings.write_text(f"heartbeat.interval.ms={HEARTBEAT_MS}\n", encoding="utf-8")
        self._lock = threading.Lock()

    # -- processes --------------------------------------------------------------------------------

    def start(self, make: Make, name: str, instance: str | None = None) -> Process:
        """Start a member; it joins in the background."""
        number = len(self.all)
        history = self._folder / f"{number:03}-{name}.jsonl" if make.name in _RECORDED else None
        log = self._folder / f"{number:03}-{name}.log"
        with log.open("wb") as errors:
            popen = subprocess.Popen(
                self._command(make, name, instance, history),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        member = Member(name=f"{number:03}-{name}", instance=instance)
        process = Process(make, name, member, log, history, popen)
        process.reader = threading.Thread(target=self._read, args=(process,), name=member.name)
        process.reader.start()
        self.all.append(process)
        return process

    def stop(self, process: Process) -> None:
        """End a member in order: SIGTERM, and wait for its last event."""
        process.popen.send_signal(signal.SIGTERM)
        status = process.wait()
        told = f"{process.member.name} ended with {status}: {self._tail(process)}"
        assert process.member.clean, told
        # Java ends with the number of the signal.
        assert status == (128 + signal.SIGTERM if process.make.name == JAVA.name else 0), told

    def bounce(self, process: Process, make: Make | None = None) -> Process:
        """End a member in order and start one in its place, of the same make or another one."""
        self.stop(process)
        return self.start(make or process.make, process.name, process.member.instance)

    def kill(self, process: Process) -> None:
        """End a member with SIGKILL."""
        process.popen.kill()
        process.wait()
        self._take(process, {"timestamp": time.time_ns() // 1_000_000, "name": KILLED})

    def _command(
        self, make: Make, name: str, instance: str | None, history: Path | None
    ) -> list[str]:
        if make.script:
            command = [sys.executable, str(CLIENTS / make.script), "member"]
            command += ["--assignor", make.assignors, "--bootstrap", self.bootstrap]
            command += ["--topic", self.topic, "--group", self.topic, "--client-id", name]
            return [*command, "--session-timeout-ms", str(self._session_ms)]
        if make.name == "java":
            java = [str(find_java().executable), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
            command = [*java, "-Xmx128m", "-cp", classpath()]
            command += ["org.apache.kafka.tools.VerifiableConsumer"]
            names = ",".join(_JAVA_NAMES[each] for each in make.assignors.split(","))
        else:
            command = [sys.executable, "-m", "kohort", "verifiable-consumer"]
            names = make.assignors
        command += ["--bootstrap-server", self.bootstrap, "--topic", self.topic]
        command += ["--group-id", self.topic, "--session-timeout", str(self._session_ms)]
        command += ["--assignment-strategy", names, "--command-config", str(self._settings)]
        if instance is not None:
            command += ["--group-instance-id", instance]
        if history is not None:
            command += ["--set", f"kohort.history.file={history}", "--set", f"client.id={name}"]
        return [*command, *make.more]

    def _read(self, process: Process) -> None:
        assert process.popen.stdout is not None
        lines = (json.loads(line) for line in process.popen.stdout if line.startswith("{"))
        for event in translated(lines, self.topic) if process.make.script else lines:
            self._take(process, event)

    def _take(self, process: Process, event: Event) -> None:
        with self._lock:
            process.member.take(event)

    # -- waiting ----------------------------------------------------------------------------------

    @property
    def alive(self) -> list[Process]:
        """The processes that run."""
        return [p for p in self.all if not p.member.ended]

    def consumed(self) -> int:
        """Records consumed by all members, from the start."""
        return sum(p.member.consumed for p in self.all)

    def rebalances(self) -> int:
        """The most assignments that a running member had."""
        return max((p.member.assignments for p in self.alive), default=0)

    def await_members(self, count: int, timeout_s: float = WAIT_S) -> float:
        """Wait until ``count`` members run and share all partitions; returns the seconds."""

        def shared() -> bool:
            with self._lock:
                shares = [set(p.member.owned) for p in self.alive]
            owned = [place for share in shares for place in share]
            whole = len(owned) == len(set(owned)) == self.partitions
            working = sum(bool(share) for share in shares)
            return len(shares) == count and whole and working >= min(count, self.partitions)

        return self.until(shared, f"{count} members share all partitions", timeout_s)

    def await_consumed(self, more: int = 50) -> None:
        """Wait until ``more`` records were consumed."""
        wanted = self.consumed() + more
        self.until(lambda: self.consumed() >= wanted, f"{more} more records")

    def await_everything(self) -> dict[int, int]:
        """Wait until all records are consumed and committed; returns the ends of the logs."""
        log = [TopicPartition(self.topic, number) for number in range(self.partitions)]
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            ends = {at.partition: o.offset for at, o in admin.list_offsets(log).items()}

            def committed() -> bool:
                told = admin.committed(self.topic)
                return {at.partition: o.offset for at, o in told.items()} == ends

            self.until(committed, f"commits at {ends}")
        return ends

    def until(self, holds: Callable[[], Any], what: str, timeout_s: float = WAIT_S) -> float:
        """Wait for a condition; fail with a picture of the group. Returns the seconds."""
        begin = time.monotonic()
        while True:
            if holds():
                return time.monotonic() - begin
            waited = time.monotonic() - begin
            assert waited < timeout_s, f"not within {waited:.0f} s: {what}\n{self.picture()}"
            time.sleep(0.02)

    def picture(self) -> str:
        """The last events of each process, and the end of its log."""
        return "\n".join(
            f"{p.member.name}: ended {p.member.ended}, owns {sorted(p.member.owned)}, "
            f"{p.member.consumed} records, last {[e['name'] for e in p.member.events[-4:]]}\n"
            f"{self._tail(p)}"
            for p in self.all[-8:]
        )

    @staticmethod
    def _tail(process: Process) -> str:
        return process.log.read_text(encoding="utf-8", errors="replace")[-1_500:]

    # -- the end ----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Wait until everything is consumed, end all members in order, and judge all events."""
        ends = self.await_everything()
        for process in self.alive:
            self.stop(process)
        violations = judge([p.member for p in self.all], ends)
        assert violations == [], "\n".join(violations[:20])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.all:
            if process.popen.poll() is None:
                process.popen.kill()
            if process.reader.is_alive():
                process.wait()


_RECORDED: Final = frozenset({KOHORT.name, KOHORT_ASYNCIO.name})


def translated(lines: Iterator[Any], topic: str) -> Iterator[Event]:
    """Events of a client of ``tests/interop`` as events of a verifiable consumer.

    Records that no reported commit covers when their partition is revoked may be committed
    nevertheless: aiokafka calls its listener while a commit is under way. They are told as a
    refused commit, which is one with an unknown end.
    """
    position: dict[int, int] = {}

    def committed(at: int, of: Iterable[int], *, success: bool) -> Iterator[Event]:
        offsets = [{"topic": topic, "partition": p, "offset": position[p]} for p in sorted(of)]
        if offsets or success:
            event = {"timestamp": at, "name": "offsets_committed", "offsets": offsets}
            yield {**event, "success": success}

    for line in lines:
        name, at = line["event"], line["timestamp"]
        moved = line.get("partitions", ())
        rows = [{"topic": topic, "partition": p} for p in moved]
        if name in {"assigned", "revoked"}:
            yield from committed(at, position.keys() & set(moved), success=False)
            for partition in moved:
                position.pop(partition, None)
            yield {"timestamp": at, "name": f"partitions_{name}", "partitions": rows}
        elif name == "record":
            partition, offset = line["partition"], line["offset"]
            position[partition] = offset + 1
            row = {"topic": topic, "partition": partition, "count": 1}
            rows = [{**row, "minOffset": offset, "maxOffset": offset}]
            yield {"timestamp": at, "name": "records_consumed", "count": 1, "partitions": rows}
        elif name in {"committed", "commit_refused"}:
            yield from committed(at, position, success=name == "committed")
            if name == "committed":
                position.clear()
        elif name == "closed":
            yield from committed(at, position, success=False)
            yield {"timestamp": at, "name": "shutdown_complete"}
