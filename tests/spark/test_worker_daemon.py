"""Workers that wait for a task when Spark ends: they go without a word."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")


def last_words(module: str, folder: Path) -> str:
    """What a daemon and a worker of it say when the worker's socket is closed before any task."""
    # Unix sockets have short paths; pytest's folders are long.
    environment = os.environ | {
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": os.path.relpath(folder),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
    }
    daemon = subprocess.Popen(
        [sys.executable, "-m", module, "pyspark.worker"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert daemon.stdin is not None
    assert daemon.stdout is not None
    assert daemon.stderr is not None
    (length,) = struct.unpack(">i", daemon.stdout.read(4))
    place = daemon.stdout.read(length).decode()
    with socket.socket(socket.AF_UNIX) as spark:
        spark.connect(place)
        (worker,) = struct.unpack(">i", spark.recv(4, socket.MSG_WAITALL))
        waited_for = os.pidfd_open(worker)
    # The daemon's own end would kill the worker before it speaks.
    assert select.select([waited_for], [], [], 30)[0], "the worker did not end"
    os.close(waited_for)
    daemon.stdin.close()
    said = daemon.stderr.read().decode()
    daemon.wait(30)
    daemon.stdout.close()
    daemon.stderr.close()
    return said


def test_a_worker_that_waits_for_a_task_ends_quietly(tmp_path: Path) -> None:
    assert last_words("kohort.spark.worker_daemon", tmp_path) == ""


def test_sparks_own_worker_does_not(tmp_path: Path) -> None:
    """Fails as soon as Spark mends this: then ``worker_daemon`` has no reason to be."""
    assert "BrokenPipeError" in last_words("pyspark.daemon", tmp_path)
