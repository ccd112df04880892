"""A process that consumes and records until a signal ends it."""

from __future__ import annotations

import signal
import sys

from kohort.client.consumer import Consumer


def main(bootstrap: str, topic: str, history: str, session_ms: str = "6000") -> None:
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "recorded",
        "client.id": "killed",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": int(session_ms),
        "heartbeat.interval.ms": 200,
        "auto.commit.interval.ms": 200,
        "kohort.history.file": history,
    }
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        while not stopping:
            if consumer.poll(0.1) is not None:
                sys.stdout.write("read\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
