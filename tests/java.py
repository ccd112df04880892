"""Runs small Java programs with Kafka's own classes; removes temporary files of killed Sparks."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from kohort.host.java import archived_classes, find_java, temporary_files_of_spark
from kohort.testing.kafka_jars import installed
from kohort.testing.real_kafka import absence, class_archive, classpath


def skip_without_kafkas_classes() -> None:
    """Skip the test unless Kafka is fetched and Java has a compiler."""
    if installed() is None:
        pytest.skip(absence())
    modules = subprocess.run(
        [str(find_java().executable), "--list-modules"], capture_output=True, text=True, check=True
    )
    if "jdk.compiler" not in modules.stdout:
        pytest.skip("the Java program needs a Java with a compiler")


def java_with_kafka() -> list[str]:
    """A command line of Java with Kafka's classes, for a program that ends soon."""
    java = [str(find_java().executable), "-XX:TieredStopAtLevel=1"]
    return [*java, *archived_classes(class_archive()), "-cp", classpath()]


def java_output(program: Path, lines: Sequence[str]) -> list[str]:
    """The lines that the program prints for these lines of input."""
    done = subprocess.run(
        [*java_with_kafka(), str(program)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@contextmanager
def temporary_files_removed() -> Iterator[None]:
    """Spark applications that are started meanwhile leave no temporary file, even if killed."""
    # A short path: Spark makes Unix sockets in the folder.
    files = tempfile.TemporaryDirectory(prefix="k", ignore_cleanup_errors=True)
    with files as folder, pytest.MonkeyPatch.context() as patch:
        for name, value in temporary_files_of_spark(Path(folder)).items():
            patch.setenv(name, value)
        yield
