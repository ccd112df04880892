"""Members of other Kafka clients continue after kohort's broker was killed and restarted.

A long test also bounces and kills members of four groups at once, in a drawn order.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer
from tests.interop.group import PARTITIONS, Group, Make
from tests.interop.makes import (
    AIOKAFKA,
    AIOKAFKA_RANGE,
    CONFLUENT,
    COOPERATIVE,
    KAFKA_PYTHON,
    KAFKA_PYTHON_COOPERATIVE,
)

from kohort.testing.ports import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.interop]


class BrokerProcess:
    """``kohort broker`` with a fixed directory and port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (self._port,) = free_ports(1)
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        command = [sys.executable, "-m", "kohort", "broker", "--port", str(self._port)]
        command += ["--data-dir", str(self._folder / "data")]
        command += ["--log-file", str(self._folder / "broker.log")]
        command += ["--set", "group.initial.rebalance.delay.ms=0"]
        command += ["--set", "group.min.session.timeout.ms=1000"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        ready = re.match(r"kohort broker ready on (\S+):(\d+)", self._process.stdout.readline())
        assert ready is not None
        return f"{ready[1]}:{ready[2]}"

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path)
    yield process
    process.kill()


# Without kcat: it ends when no broker is running.
@pytest.mark.parametrize("make", [COOPERATIVE, KAFKA_PYTHON, AIOKAFKA], ids=lambda make: make.name)
def test_members_continue_after_a_killed_broker_restarts(
    make: Make, broker: BrokerProcess, tmp_path: Path
) -> None:
    with Group.create(broker.start(), tmp_path) as group:
        for name in "abc":
            group.join(make, name)
        produced = group.produce(make, "before", 300)
        group.await_balance()
        group.await_values(produced)
        group.settle(produced, "before-")

        broker.kill()
        broker.start()

        # Acknowledged records and committed offsets are kept; no member was restarted.
        produced |= group.produce(make, "after", 300)
        group.await_values(produced)
        group.await_balance()
        group.settle(produced)


MIXED = [
    [CONFLUENT],
    [COOPERATIVE, KAFKA_PYTHON_COOPERATIVE],
    [CONFLUENT, KAFKA_PYTHON, AIOKAFKA_RANGE],
    [AIOKAFKA],
]
"""The makes of each group: their members have an assignor in common."""

SESSION_MS = 6_000
PATIENCE_S = 120.0
STEPS = 40
WORDS = ["bounce"] * 6 + ["kill"] * 4 + ["join", "leave"] * 3 + ["roll", "end", "crash"]


class Life:
    """Four groups on one broker, and drawn events."""

    def __init__(self, broker: BrokerProcess, logs: Path, seed: int) -> None:
        self.random = Random(seed)
        self.done: list[str] = []
        self._broker = broker
        bootstrap = broker.start()
        self.groups = [Group.create(bootstrap, logs) for _ in MIXED]
        self.produced: list[set[str]] = [set() for _ in MIXED]
        self._numbers = count()
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def join(self, at: int) -> None:
        make = self.random.choice(MIXED[at])
        self.groups[at].join(make, f"m{next(self._numbers)}", SESSION_MS)

    def feed(self) -> None:
        for group, produced in zip(self.groups, self.produced, strict=True):
            for _ in range(self.random.randrange(5, 40)):
                value = f"v-{next(self._numbers)}"
                produced.add(value)
                partition = self.random.randrange(PARTITIONS)
                self._producer.produce(group.topic, value.encode(), partition=partition)
        self._producer.poll(0)

    def step(self) -> None:
        """Make one event, and wait until the group that has changed is balanced."""
        self.feed()
        what, at = self.random.choice(WORDS), self.random.randrange(len(MIXED))
        self.done.append(f"{what} {at}")
        group = self.groups[at]
        match what:
            case "join" if len(group.members) < PARTITIONS:
                self.join(at)
            case "leave" if len(group.members) > 1:
                group.leave(self.random.choice(group.members))
            case "kill":
                group.kill(self.random.choice(group.members))
                self.join(at)
            case "end" | "crash":
                self._broker.end(signal.SIGKILL if what == "crash" else signal.SIGTERM)
                self._broker.start()
            case _:
                members = (
                    [*group.members] if what == "roll" else [self.random.choice(group.members)]
                )
                for member in members:
                    group.leave(member)
                    self.join(at)
                    self.feed()
        self.balanced()

    def balanced(self) -> None:
        for group in self.groups:
            group.await_balance(PATIENCE_S)

    def finish(self) -> None:
        """All records come, and their offsets are committed."""
        assert self._producer.flush(PATIENCE_S) == 0
        self.balanced()
        for group, produced in zip(self.groups, self.produced, strict=True):
            group.await_values(produced)
            group.await_commits(len(produced))
            assert group.seen().keys() == produced


# kcat is left out: kcat drops the record that it has polled when it is told to end.
@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(1, 4))
def test_drawn_bounces_and_deaths_of_members_and_broker_lose_no_record(
    broker: BrokerProcess, tmp_path: Path, seed: int
) -> None:
    life = Life(broker, tmp_path, seed)
    try:
        for at in range(len(MIXED)):
            life.join(at)
            life.join(at)
        life.balanced()
        for _ in range(STEPS):
            life.step()
        life.finish()
    except BaseException as error:
        error.add_note(f"seed {seed}, events: {', '.join(life.done)}")
        raise
    finally:
        for group in life.groups:
            for member in group.members:
                member.discard()
