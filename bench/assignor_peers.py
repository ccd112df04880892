"""Kafka's own assignor and franz-go's, measured with the groups of ``bench.assignors``.

In: a group as lines. Out: CPU time, time and moves of the two programs in ``bench/beside``; or why
a program cannot run here. Must not know: kohort's assignors.

Java needs a fetched Kafka and a JDK. Go loads the modules of ``beside/go.mod`` as any Go program.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kohort.host.java import find_java
from kohort.model.errors import KohortError
from kohort.testing.real_kafka import classpath

BESIDE = Path(__file__).parent / "beside"
JAVA, GO = "java", "franz-go"
BUILD_S = 600
JAVA_OPTIONS = ("-XX:+UseParallelGC", "-Xms4g", "-Xmx4g", "-Xmn3g")
"""The best of four settings that were tried with a new group of a million partitions."""

LIMIT_S = 180.0
"""A program that needs longer for both states of a group is ended."""

REPEATED = 1 / 18
"""A state of a group is measured again for at most this share of the limit."""


class PeerUnavailable(KohortError):
    """A program cannot be built or run here; the message says why."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The least CPU time and the least time of all rounds, and the partitions that moved."""

    cpu_ms: float
    wall_ms: float
    moves: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Peer:
    """A program that plans with another implementation."""

    name: str
    command: Sequence[str]

    def measured(self, lines: Sequence[str], limit_s: float) -> Mapping[str, Figures]:
        """The figures by state; a state that was not planned within the limit is missing.

        Raises:
            PeerUnavailable: the program failed.
        """
        try:
            done = subprocess.run(
                [*self.command, str(limit_s * REPEATED)],
                input="\n".join(lines).encode(),
                capture_output=True,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired as expired:
            return figures((expired.stdout or b"").decode())
        if done.returncode:
            raise PeerUnavailable(last_line(done.stderr.decode()))
        return figures(done.stdout.decode())


def figures(output: str) -> dict[str, Figures]:
    """The figures in the whole lines of a program's output."""
    found = {}
    for line in output.splitlines(keepends=True):
        if line.endswith("\n"):
            state, cpu_ms, wall_ms, moves, rounds = line.split()
            found[state] = Figures(float(cpu_ms), float(wall_ms), int(moves), int(rounds))
    return found


@contextlib.contextmanager
def peers() -> Iterator[Mapping[str, Peer | PeerUnavailable]]:
    """Each program by the name of its implementation, or why it cannot run here."""
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as folder:
        found: dict[str, Peer | PeerUnavailable] = {}
        for name, command in ((GO, go_command), (JAVA, java_command)):
            try:
                found[name] = Peer(name, command(Path(folder)))
            except KohortError as missing:
                found[name] = PeerUnavailable(str(missing))
        yield found


def java_command(_folder: Path) -> Sequence[str]:
    """Java compiles the one source file when it starts."""
    java = str(find_java().executable)
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True)
    if "jdk.compiler" not in modules.stdout:
        raise PeerUnavailable("this Java has no compiler")
    return [java, *JAVA_OPTIONS, "-cp", classpath(), str(BESIDE / "Plans.java")]


def go_command(folder: Path) -> Sequence[str]:
    """Build the Go program in ``folder``."""
    go = shutil.which("go")
    if go is None:
        raise PeerUnavailable("no Go on PATH")
    program = str(folder / "plans")
    try:
        done = subprocess.run(
            [go, "build", "-o", program, "."],
            cwd=BESIDE,
            env=os.environ | {"GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            timeout=BUILD_S,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        raise PeerUnavailable(f"go build took longer than {BUILD_S} s") from expired
    if done.returncode:
        raise PeerUnavailable(f"go build: {last_line(done.stderr)}")
    return [program]


def last_line(text: str) -> str:
    return next(iter(reversed(text.strip().splitlines())), "no message")
