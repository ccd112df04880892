"""Runs client scripts as processes; keeps their partitions and records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

CLIENTS = Path(__file__).with_name("clients")
WAIT_S = 40.0
PARTITIONS = 6
SESSION_MS = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Make:
    """A Kafka client: its script and one of its assignors."""

    name: str
    script: str
    assignor: str

    def command(self, role: str, **options: object) -> list[str]:
        command = [sys.executable, str(CLIENTS / self.script), role, "--assignor", self.assignor]
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        return command


class Member:
    """One member process, with its events and records in order."""

    def __init__(self, make: Make, logs: Path, **options: object) -> None:
        self.name = str(options["client_id"])
        self.owned: set[int] = set()
        self.values: list[str] = []
        self.places: list[tuple[int, int]] = []
        self.told: list[str] = []
        self.committed: Counter[str] = Counter()
        """Values that this member has read and committed, as far as the client reports commits."""
        self._uncommitted: list[tuple[int, str]] = []
        """Partition and value of records of owned partitions since the last commit."""
        self.log = logs / f"{self.name}.log"
        with self.log.open("wb") as errors:
            self._process = subprocess.Popen(
                make.command("member", **options),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name=self.name)
        self._reader.start()

    def leave(self) -> None:
        """End the process with SIGTERM and wait until its consumer has closed."""
        self._process.send_signal(signal.SIGTERM)
        self._end()
        assert self.told[-1] == "closed", f"{self.name} did not close:\n{self.log.read_text()}"

    def kill(self) -> None:
        """End the process and its children with SIGKILL."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._end()

    def discard(self) -> None:
        """End the process after a test, if it still runs."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._end()

    def _end(self) -> None:
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self.owned.clear()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            event = told["event"]
            if event == "record":
                self.values.append(told["value"])
                self.places.append((told["partition"], told["offset"]))
                if told["partition"] in self.owned:
                    self._uncommitted.append((told["partition"], told["value"]))
            elif event == "committed":
                self.committed.update(value for _, value in self._uncommitted)
                self._uncommitted.clear()
            elif event == "assigned":
                self.owned = self.owned | set(told["partitions"])
            elif event == "revoked":
                self.owned = self.owned - set(told["partitions"])
                self._uncommitted = [each for each in self._uncommitted if each[0] in self.owned]
            self.told.append(event)


class Group:
    """The members of one group."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, logs: Path) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.members: list[Member] = []
        self.gone: list[Member] = []
        self._logs = logs
        self._settled: Counter[str] = Counter()
        """How often each value was read up to the last ``settle``."""

    @classmethod
    def create(cls, bootstrap: str, logs: Path) -> Self:
        """A group and a topic of six partitions, both new."""
        topic = f"interop-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        wanted = [NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)]
        admin.create_topics(wanted)[topic].result(30)
        return cls(bootstrap, topic, PARTITIONS, logs)

    def join(self, make: Make, name: str, session_timeout_ms: int = SESSION_MS) -> Member:
        member = Member(
            make,
            self._logs,
            bootstrap=self.bootstrap,
            topic=self.topic,
            group=self.topic,
            client_id=name,
            session_timeout_ms=session_timeout_ms,
        )
        self.members.append(member)
        return member

    def leave(self, member: Member) -> None:
        member.leave()
        self._forget(member)

    def kill(self, member: Member) -> None:
        member.kill()
        self._forget(member)

    def produce(self, make: Make, prefix: str, count: int) -> set[str]:
        """Produce values with this client; returns them when all are acknowledged."""
        done = subprocess.run(
            make.command(
                "produce",
                bootstrap=self.bootstrap,
                topic=self.topic,
                prefix=prefix,
                count=count,
                client_id=f"producer-{prefix}",
            ),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout.splitlines()[-1])
        assert (told["event"], told["count"]) == ("produced", count)
        return {f"{prefix}-{number}" for number in range(count)}

    def await_balance(self, timeout_s: float = WAIT_S) -> float:
        """Wait until each partition has one owner and shares differ by one; the seconds."""
        return self._await(self._balanced, "a balanced assignment", timeout_s)

    def await_values(self, wanted: set[str]) -> float:
        """Wait until some member has read each value; returns the seconds."""
        return self._await(lambda: wanted <= self.seen().keys(), f"{len(wanted)} records", WAIT_S)

    def await_commits(self, number: int) -> float:
        """Wait until the committed offsets are this many records; returns the seconds."""
        return self._await(lambda: self._committed() == number, f"{number} commits", WAIT_S)

    def settle(self, produced: set[str], under_way: str | None = None) -> None:
        """Wait until all values are committed; fail if a value is missing or was read twice.

        In a group without uncommitted records, no member that leaves, dies or restarts may cause
        duplicates. ``under_way`` is the prefix of values that were produced during a rebalance. A
        commit between a join phase and its assignments is refused, and the partition may move
        before the next commit. So such a value may be read again, but only if the members that
        read it before had not committed it.
        """
        self.await_commits(len(produced))
        seen = self.seen()
        assert seen.keys() == produced
        doubled = sorted(v for v, count in seen.items() if count > (self._settled[v] or 1))
        if under_way is not None:
            committed: Counter[str] = Counter()
            for member in self.gone + self.members:
                committed.update(member.committed)
            doubled = [
                v
                for v in doubled
                if v in self._settled or not v.startswith(under_way) or committed[v] > 1
            ]
        assert doubled == [], f"read more than once: {', '.join(doubled)}"
        self._settled = seen

    def _committed(self) -> int:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        asked = [ConsumerGroupTopicPartitions(self.topic)]
        answer = admin.list_consumer_group_offsets(asked)[self.topic].result(30)
        return sum(max(0, p.offset) for p in answer.topic_partitions)

    def seen(self) -> Counter[str]:
        """How often present and former members have read each value."""
        return Counter(value for member in self.gone + self.members for value in member.values)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for member in self.members:
            member.discard()

    def _forget(self, member: Member) -> None:
        self.members.remove(member)
        self.gone.append(member)

    def _balanced(self) -> bool:
        owned = [member.owned for member in self.members]
        sizes = [len(each) for each in owned]
        return (
            sum(sizes) == self.partitions
            and set().union(*owned) == set(range(self.partitions))
            and max(sizes) - min(sizes) <= 1
        )

    def _await(self, holds: Callable[[], bool], what: str, timeout_s: float) -> float:
        begin = time.monotonic()
        while not holds():
            waited = time.monotonic() - begin
            assert waited < timeout_s, f"waited {waited:.0f} s for {what}: {self._picture()}"
            time.sleep(0.02)
        return time.monotonic() - begin

    def _picture(self) -> str:
        lines = [
            f"{m.name}: owns {sorted(m.owned)}, {len(m.values)} records, told {m.told[-5:]}, log: "
            + m.log.read_text(errors="replace")[-1_000:]
            for m in self.members
        ]
        return "\n".join(["", *lines])
