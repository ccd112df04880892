"""The end of the source's process: it leaves the group, and prints nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")

# Each child gets SIGTERM, and again just before a line of the handler: the first, the second ...
SOURCE = """
import os, signal, sys
from kohort.spark.source import data_source as source

def told_again_at(line):
    left = line

    def follow(frame, event, arg):
        nonlocal left
        left -= event == "line"
        if not left:
            sys.settrace(None)
            signal.raise_signal(signal.SIGTERM)
        return follow

    def handle(signum, frame):
        sys.settrace(follow if left > 0 else None)
        source._exit(signum, frame)

    signal.signal(signal.SIGTERM, handle)
    try:
        signal.raise_signal(signal.SIGTERM)
    except SystemExit as end:
        sys.settrace(None)
        signal.raise_signal(signal.SIGTERM)
        return end.code, left

for line in range(1, 30):
    child = os.fork()
    if not child:
        signal.alarm(60)  # Ends a child that waits for its own lock.
        code, left = told_again_at(line)
        print(line, "ended" if code == 143 else code, flush=True)
        os._exit(left > 0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        print(line, "killed by signal", os.WTERMSIG(status), flush=True)
    if status:
        break
"""


@pytest.mark.slow
def test_a_second_sigterm_neither_blocks_nor_interrupts_leaving_the_group() -> None:
    """Spark sends SIGTERM when a query fails and when it stops its source, sometimes twice."""
    done = subprocess.run(
        [sys.executable, "-c", SOURCE], stdout=subprocess.PIPE, text=True, check=True
    )
    told = done.stdout.splitlines()
    assert told == [f"{line} ended" for line in range(1, len(told) + 1)]
    assert 3 < len(told) < 29, "the second signal came at each line of the handler"


# Spark's runner calls ``stop`` like this when an error ends its loop.
RUNNER = """
import sys
from kohort.spark.source.data_source import KohortStreamReader

class Driver:
    def stop(self):
        print("left the group", flush=True)

options = {"kafka.bootstrap.servers": "h:1", "kafka.group.id": "g", "subscribe": "t"}
reader = KohortStreamReader(options)
reader._made = Driver()
try:
    try:
        raise ERROR("the loop ended")
    finally:
        reader.stop()
except BaseException as error:
    print("reports", type(error).__name__)
"""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("EOFError", "left the group\n"),
        ("BrokenPipeError", "left the group\n"),
        ("ValueError", "left the group\nreports ValueError\n"),
    ],
)
def test_the_runner_reports_an_error_unless_spark_closed_the_socket(error: str, told: str) -> None:
    """Spark's runner would print a stack trace of its report to the closed socket."""
    done = subprocess.run(
        [sys.executable, "-c", RUNNER.replace("ERROR", error)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == (told, "")
