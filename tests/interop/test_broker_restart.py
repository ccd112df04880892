"""Members of other Kafka clients continue after kohort's broker was killed and restarted."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.group import Group, Make
from tests.interop.makes import AIOKAFKA, COOPERATIVE, KAFKA_PYTHON

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
        if self._process is not None:
            self._process.kill()
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
