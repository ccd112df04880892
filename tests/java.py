"""Runs small Java programs with Kafka's own classes, from their source."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from kohort.host.java import find_java
from kohort.testing.kafka_jars import installed
from kohort.testing.real_kafka import absence, classpath


def skip_without_kafkas_classes() -> None:
    """Skip the test unless Kafka is fetched and Java has a compiler."""
    if installed() is None:
        pytest.skip(absence())
    modules = subprocess.run(
        [str(find_java().executable), "--list-modules"], capture_output=True, text=True, check=True
    )
    if "jdk.compiler" not in modules.stdout:
        pytest.skip("the Java program needs a Java with a compiler")


def java_output(program: Path, lines: Sequence[str]) -> list[str]:
    """The lines that the program prints for these lines of input."""
    done = subprocess.run(
        [str(find_java().executable), "-cp", classpath(), str(program)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
