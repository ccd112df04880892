"""Processes that a test of the documents starts, as a reader would in terminals."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.waiting import until

PATIENCE_S = 120


class Terminals:
    """Processes in one folder; their output goes to files in the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.out").open("wb") as out:
            process = subprocess.Popen(
                [*command], cwd=self.folder, stdout=out, stderr=subprocess.STDOUT
            )
        self._running.append(process)
        return process

    def python(self, name: str, text: str) -> subprocess.Popen[bytes]:
        (self.folder / f"{name}.py").write_text(text, encoding="utf-8")
        return self.start(name, sys.executable, "-u", f"{name}.py")

    def run(self, name: str, *command: str) -> str:
        """The output of a command that must succeed."""
        status = self.start(name, *command).wait(PATIENCE_S)
        assert status == 0, self.said(name)
        return self.said(name)

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text(encoding="utf-8")

    def until(
        self, name: str, wanted: Callable[[str], object], patience_s: float = PATIENCE_S
    ) -> None:
        """Wait until the output of a process satisfies ``wanted``."""
        until(lambda: wanted(self.said(name)), lambda: self.said(name), patience_s)

    def end(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
                process.wait(PATIENCE_S)
