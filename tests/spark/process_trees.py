"""Finds and kills the processes below a process of a test, of which any may end meanwhile."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from contextlib import suppress

import psutil
from tests.spark.conftest import PATIENCE_S


def below(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """All processes below this one; none if the process has ended."""
    found: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        found += psutil.Process(process.pid).children(recursive=True)
    return found


def executors_below(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The Java processes of Spark's executors below this process."""
    found = []
    for child in below(process):
        # A process that has ended has no command any more; the others are looked at.
        with suppress(psutil.NoSuchProcess):
            backend = any("CoarseGrainedExecutorBackend" in word for word in child.cmdline())
            if backend and child.name() == "java":
                found.append(child)
    return found


def kill_each(processes: Iterable[psutil.Process]) -> int:
    """Send SIGKILL to these processes; returns how many of them were there."""
    killed = 0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
            killed += 1
    return killed


def kill_tree(process: subprocess.Popen[str]) -> None:
    """Send SIGKILL to a process and all below it, such as a JVM and Python workers."""
    kill_each(below(process))
    process.kill()
    process.wait(PATIENCE_S)
    if process.stdout is not None:
        process.stdout.close()
