"""Members of other Kafka clients in processes of their own: the Java client, and franz-go."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.java import java_with_kafka, skip_without_kafkas_classes

from kohort.model.ids import TopicPartition

_HERE = Path(__file__).parent
_BUILD_S = 120


class ProcessMember:
    """A process that prints the numbers of its partitions, and ends when its input ends."""

    def __init__(self, command: Sequence[str], topic: str) -> None:
        self._topic = topic
        self._numbers: list[int] = []
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._numbers = [int(word) for word in line.split()]

    def poll(self, _timeout: float, /) -> None:
        """The process polls by itself."""

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number) for number in self._numbers]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            self._process.stdout.close()


def java_member(bootstrap: str, name: str) -> ProcessMember:
    """A member of Kafka's Java client; skips the test without Kafka's classes."""
    skip_without_kafkas_classes()
    program = str(_HERE / "java" / "Member.java")
    return ProcessMember([*java_with_kafka(), program, bootstrap, name, name], name)


def go_member(bootstrap: str, name: str) -> ProcessMember:
    """A member of franz-go; skips the test if the program cannot be built."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("a member of franz-go needs Go")
    if reason := _not_built(go):
        pytest.skip(f"a member of franz-go cannot be built: {reason}")
    return ProcessMember([go, "run", "-C", str(_HERE / "go"), ".", bootstrap, name, name], name)


@functools.cache
def _not_built(go: str) -> str:
    """Why the program cannot be built here; without the network Go may wait for its modules."""
    try:
        built = subprocess.run(
            [go, "build", "-o", os.devnull, "."],
            cwd=_HERE / "go",
            capture_output=True,
            text=True,
            timeout=_BUILD_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {_BUILD_S} s"
    return built.stderr.strip()[-300:] if built.returncode else ""
