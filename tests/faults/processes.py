"""Brokers in processes of their own, and disks that fail them on command.

What lives here: starting, killing, stopping and continuing ``kohort broker``; a folder in which a
file called ``fail-sync`` or ``no-space`` makes the broker's disk do that (``faulty_broker.py``).
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

READY = re.compile(r"kohort broker ready on (\S+) \(data in (.+)\)")
FAULTY = Path(__file__).with_name("faulty_broker.py")
PATIENCE_S = 60
QUICK = ("group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=500")


class BrokerProcess:
    """A broker process on a free port."""

    def __init__(self, data_dir: Path, *settings: str) -> None:
        self.control = data_dir.with_name(data_dir.name + "-control")
        self.control.mkdir(exist_ok=True)
        self.log = data_dir.with_name(data_dir.name + ".log")
        command = [sys.executable, str(FAULTY), str(self.control), "broker", "--port", "0"]
        command += ["--data-dir", str(data_dir), "--log-file", str(self.log)]
        for setting in (*QUICK, *settings):
            command += ["--set", setting]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        ready = READY.match(line)
        self.bootstrap_servers = ready[1] if ready else ""
        if ready is None:
            self.output, self.errors = self.process.communicate(timeout=PATIENCE_S)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def send_signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.end(signal.SIGKILL)

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it; its exit status."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end; its exit status."""
        if self.process.stdout is not None and not self.process.stdout.closed:
            self.output, self.errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode

    @contextlib.contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """``fail-sync`` or ``no-space``, for as long as the block runs."""
        flag = self.control / name
        flag.touch()
        try:
            yield
        finally:
            flag.unlink()

    def memory_mib(self) -> int:
        """The most memory it has held, by Linux's count."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return next(int(row.split()[1]) // 1024 for row in status.splitlines() if "VmHWM" in row)
