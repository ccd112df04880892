"""The measured servers: kohort's broker as users start it, the floor, and a running Kafka.

Linux only: CPU time and memory come from ``/proc``; CPU time has ticks of usually 10 ms.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Peer:
    """A server in a process of its own."""

    name: str
    host: str
    port: int
    pid: int

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self.host, self.port

    def cpu_seconds(self) -> float:
        """User and system time of the process so far."""
        stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii")
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def own_bytes(self) -> int:
        """Memory of the process that belongs to no file."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("RssAnon:"))
        return int(line.split()[1]) * 1024


def running(bootstrap: str, pid: int) -> Peer:
    host, _, port = bootstrap.rpartition(":")
    return Peer("kafka", host, int(port), pid)


@contextlib.contextmanager
def own_broker(*settings: str) -> Iterator[Peer]:
    """A broker on a free port, without initial rebalance delay and with ``settings``."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "kohort.cli.main", "broker", "--port", "0"),
            *("--data-dir", str(Path(folder) / "data"), "--log-level", "WARNING"),
            *("--set", "group.initial.rebalance.delay.ms=0"),
            *(part for setting in settings for part in ("--set", setting)),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if " ready on " not in line:
                sys.exit("the broker did not start")
            host, _, port = line.split(" ready on ")[1].split()[0].rpartition(":")
            yield Peer("kohort", host, int(port), process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


@contextlib.contextmanager
def floor_server(kind: str | int = "constant") -> Iterator[Peer]:
    """A server of ``bench.floor``: of that name, or a group of this many members."""
    command = [sys.executable, "-m", "bench.floor", str(kind)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        name = "floor, synced" if kind == "synced" else "floor"
        yield Peer(name, "127.0.0.1", int(process.stdout.readline()), process.pid)
    finally:
        process.terminate()
        process.wait(timeout=30)


ROOT = Path(__file__).parent.parent
