"""A group member and a producer on kcat; translates kcat's output into the common protocol.

kcat commits at an interval and does not report commits; the broker has its offsets. It commits, but
does not print, a record that it has polled when it is told to end: end it when no record is left.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import threading
from typing import IO

import protocol


def member(options: argparse.Namespace) -> None:
    settings = {
        "session.timeout.ms": options.session_timeout_ms,
        "heartbeat.interval.ms": protocol.heartbeat_ms(options),
        "partition.assignment.strategy": options.assignor,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 200,
        "client.id": options.client_id,
    }
    command = ["kcat", "-u", "-b", options.bootstrap, "-f", "%p %o %s\\n"]
    for name, value in settings.items():
        command += ["-X", f"{name}={value}"]
    command += ["-G", options.group, options.topic]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGTERM))
    assert process.stdout is not None
    assert process.stderr is not None
    rebalances = threading.Thread(target=_tell_rebalances, args=(process.stderr,))
    rebalances.start()
    for line in process.stdout:
        partition, offset, value = line.rstrip("\n").split(" ", 2)
        protocol.emit_record(int(partition), int(offset), value.encode())
    rebalances.join()
    if process.wait() == 0:
        protocol.emit("closed")


def _tell_rebalances(told: IO[str]) -> None:
    for line in told:
        protocol.log(line.rstrip("\n"))
        found = re.search(r"rebalanced .*?(assigned|revoked): (.*)", line)
        if found:
            partitions = [int(number) for number in re.findall(r"\[(\d+)\]", found[2])]
            protocol.emit(found[1], partitions=partitions)


def produce(options: argparse.Namespace) -> None:
    lines = b"".join(key + b"\t" + value + b"\n" for key, value in protocol.values(options))
    command = ["kcat", "-P", "-b", options.bootstrap, "-t", options.topic, "-K", "\t"]
    command += ["-X", "enable.idempotence=true", "-X", "partitioner=murmur2_random"]
    subprocess.run(command, input=lines, check=True)
    protocol.emit("produced", count=options.count)


if __name__ == "__main__":
    given = protocol.arguments()
    {"member": member, "produce": produce}[given.role](given)
