"""A mirror between two real Kafkas: a rolling bounce of static workers (seed 002)."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.client.mirroring import Mirrored
from tests.waiting import until

from kohort.testing.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]


def generation_of(mirrored: Mirrored, log: Path) -> int:
    """The number of generations of the group, from the log of the broker."""
    said = f"Stabilized group {mirrored.group} generation "
    lines = [line for line in log.read_text().splitlines() if said in line]
    return int(lines[-1].split(said)[1].split()[0])


class Workers:
    """Processes of ``kohort mirror`` with static names."""

    def __init__(self, mirrored: Mirrored, folder: Path) -> None:
        self._mirrored, self._folder = mirrored, folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        mirrored = self._mirrored
        source, target = mirrored.addresses
        command = [sys.executable, "-m", "kohort.cli.main", "mirror", mirrored.topic]
        command += ["--from", source, "--to", target, "--group", mirrored.group]
        command += ["--set", f"group.instance.id={name}", "--set", "session.timeout.ms=30000"]
        command += ["--set", "heartbeat.interval.ms=200"]
        with (self._folder / f"{name}.err").open("ab") as err:
            self.running[name] = subprocess.Popen(command, stderr=err)

    def end(self, name: str, *, kill: bool) -> None:
        process = self.running[name]
        process.kill() if kill else process.terminate()
        assert process.wait(30) == (-9 if kill else 0), self.said(name)

    def said(self, name: str) -> str:
        return (self._folder / f"{name}.err").read_text()

    def kill_all(self) -> None:
        for name, process in self.running.items():
            process.kill()
            process.wait(30)
            sys.stdout.write(f"{name} said:\n{self.said(name)}\n")


@pytest.mark.parametrize("count", [2, 4])
def test_a_rolling_bounce_of_static_workers_costs_no_rebalance_and_no_record(
    real_kafka: RealKafka, narrow_kafka: RealKafka, tmp_path: Path, count: int
) -> None:
    with ExitStack() as stack:
        mirrored = Mirrored(real_kafka.bootstrap_servers, narrow_kafka.bootstrap_servers, stack)
        workers = Workers(mirrored, tmp_path)
        stack.callback(workers.kill_all)
        for n in range(count):
            workers.start(f"w{n}")
        until(lambda: mirrored.shares() == [4 // count] * count, "equal shares", 60)
        mirrored.write(50)
        mirrored.settled()
        before = generation_of(mirrored, real_kafka.log())
        for n in range(count):
            mirrored.write(50)
            workers.end(f"w{n}", kill=n % 2 == 1)
            workers.start(f"w{n}")
            mirrored.write(50)
            mirrored.settled()
        assert generation_of(mirrored, real_kafka.log()) == before, "no rebalance at all"
        source, target = mirrored.addresses
        wanted, found = mirrored.rows(source, mirrored.topic), mirrored.rows(target, mirrored.topic)
        for number, rows in wanted.items():
            assert list(dict.fromkeys(map(repr, found[number]))) == list(map(repr, rows))
