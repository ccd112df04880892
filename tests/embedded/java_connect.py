"""Random values of Connect's workers, in the lines that ``java/Connect.java`` reads and prints.

``python -m tests.embedded.java_connect`` writes ``java/connect.txt``: values with the bytes that
Connect's own classes make. Kafka must be fetched, and Java must have a compiler.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from tests.java import java_output

from kohort.embedded.connect import (
    EAGER,
    SESSIONED,
    ConnectAssignment,
    ConnectorTask,
    WorkerState,
    decode_worker_assignment,
    decode_worker_state,
    encode_worker_assignment,
    encode_worker_state,
)
from kohort.model.instants import Millis

PROGRAM = Path(__file__).parent / "java" / "Connect.java"
RECORDED = PROGRAM.with_name("connect.txt")

NAMES = "abcdefghijklmno"
"""Connect writes connectors in the order of a hash set: for these names, the alphabetical one."""

Value = WorkerState | ConnectAssignment


def random_value(rng: random.Random, version: int) -> Value:
    """A state or an assignment."""
    if rng.random() < 0.5:
        return _assignment(rng, version)
    own = None if version == EAGER or rng.random() < 0.3 else _assignment(rng, version)
    return WorkerState(url=_url(rng), config_offset=rng.randrange(2**62), allocation=own)


def _assignment(rng: random.Random, version: int) -> ConnectAssignment:
    return ConnectAssignment(
        leader=f"worker-{rng.randrange(99)}",
        leader_url=_url(rng),
        config_offset=rng.choice((-1, rng.randrange(2**62))),
        assigned=_tasks(rng),
        revoked=_tasks(rng) if version > EAGER else frozenset(),
        delay_ms=Millis(rng.randrange(2**31) if version > EAGER else 0),
        error=rng.choice((0, 1)),
    )


def _url(rng: random.Random) -> str:
    return rng.choice(("http://h:8083/", "https://bücher.example:8443/", "u" * 300))


def _tasks(rng: random.Random) -> frozenset[ConnectorTask]:
    names = rng.sample(NAMES, rng.choice((0, 1, 5, 15)))
    return frozenset(ConnectorTask(name, n) for name in names for n in _numbers(rng))


def _numbers(rng: random.Random) -> list[int]:
    return rng.sample(range(-1, 12), rng.randrange(1, 8))


def encoded(value: Value, version: int) -> bytes:
    """Kohort's bytes of a value."""
    if isinstance(value, WorkerState):
        return encode_worker_state(value, version)
    return encode_worker_assignment(value, version)


def decoded(value: Value, data: bytes) -> Value:
    """The value that kohort reads; it has the kind of the first argument."""
    if isinstance(value, WorkerState):
        return decode_worker_state(data)
    return decode_worker_assignment(data)


def text(value: Value) -> str:
    """The value as the Java program writes it."""
    if isinstance(value, WorkerState):
        own = "-" if value.allocation is None else text(value.allocation)
        return f"state {value.url} {value.config_offset} {own}"
    head = f"assignment {value.error} {value.leader} {value.leader_url} {value.config_offset}"
    lists = (
        ",".join(f"{name}:{n}" for name, n in sorted(tasks)) or "-"
        for tasks in (value.assigned, value.revoked)
    )
    return " ".join([head, str(value.delay_ms), *lists])


def values(seed: int, count: int) -> list[tuple[int, Value]]:
    """Random values, each with the version to write it in."""
    rng = random.Random(seed)
    versions = [rng.randrange(SESSIONED + 1) for _ in range(count)]
    return [(version, random_value(rng, version)) for version in versions]


def connects_answers(asked: list[tuple[int, Value]]) -> list[str]:
    """Connect's bytes of each value, and the value that Connect reads in kohort's bytes."""
    # Connect ignores the bytes that only workers of kohort read.
    ours = ((v, value, replace(value, detail=b"of kohort")) for v, value in asked)
    lines = [f"{v} {encoded(each, v).hex()} {text(value)}" for v, value, each in ours]
    return java_output(PROGRAM, lines)


if __name__ == "__main__":
    RECORDED.write_text("\n".join([*connects_answers(values(0, 40)), ""]), encoding="utf-8")
