"""The common protocol of the client scripts: JSON lines on standard output, SIGTERM to end.

    {"event": "assigned", "partitions": [0, 1]}       new partitions of the member
    {"event": "revoked", "partitions": [0]}           partitions taken from the member
    {"event": "record", "partition": 0, "offset": 5, "value": "v-17"}
    {"event": "committed"}                            all records so far are committed
    {"event": "commit_refused", "reason": "..."}      a rebalance interrupted the commit
    {"event": "unreachable", "reason": "..."}         no broker listens; the script polls again
    {"event": "produced", "count": 100}
    {"event": "closed"}                               the member has left the group

Each line has a "timestamp", too: the time of day in milliseconds.

A script runs as ``python script.py member|produce --bootstrap … --topic … …``. It knows its own
library and this file, nothing of kohort.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from typing import IO


def emit(event: str, **details: object) -> None:
    now = time.time_ns() // 1_000_000
    _write(sys.stdout, json.dumps({"event": event, "timestamp": now, **details}))


def emit_record(partition: int, offset: int, value: bytes) -> None:
    emit("record", partition=partition, offset=offset, value=value.decode())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["member", "produce"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", default="")
    parser.add_argument("--client-id", default="interop")
    parser.add_argument("--session-timeout-ms", type=int, default=6_000)
    parser.add_argument("--assignor", default="range")
    parser.add_argument("--prefix", default="v", help="values are PREFIX-0, PREFIX-1, …")
    parser.add_argument("--count", type=int, default=0)
    return parser.parse_args()


def values(options: argparse.Namespace) -> list[tuple[bytes, bytes]]:
    """Keys and values to produce; the keys spread over all partitions."""
    return [(b"k%d" % n, f"{options.prefix}-{n}".encode()) for n in range(options.count)]


def stop_requested() -> threading.Event:
    """Set by SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    return stop


def heartbeat_ms(options: argparse.Namespace) -> int:
    """A short interval, also with long sessions, so that a rebalance is noticed soon."""
    session_ms: int = options.session_timeout_ms
    return min(500, session_ms // 6)


def log(text: str) -> None:
    """Write a line to the log of a test."""
    _write(sys.stderr, text)


def _write(stream: IO[str], line: str) -> None:
    # One call, since kcat's script writes from two threads.
    stream.write(line + "\n")
    stream.flush()
