"""``kohort verifiable-consumer`` as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin

pytestmark = pytest.mark.slow


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kohort", "verifiable-consumer", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("more", [(), ("--asyncio",)], ids=["blocking", "asyncio"])
def test_events_tell_the_life_of_a_consumer(
    kohort_broker: EmbeddedBroker, tmp_path: Path, more: tuple[str, ...]
) -> None:
    address = kohort_broker.bootstrap_servers
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic("t", 1, 1)
    producer = confluent_kafka.Producer({"bootstrap.servers": address})
    for value in ("ä", "b", "c"):
        producer.produce("t", value)
    assert producer.flush(20) == 0
    config = tmp_path / "consumer.properties"
    config.write_text("max.poll.records=1\nenable.auto.commit=true\n", encoding="utf-8")
    given = ["--bootstrap-server", address, "--topic", "t", "--group-id", "g", "--verbose"]
    given += ["--assignment-strategy", "org.apache.kafka.clients.consumer.RoundRobinAssignor"]
    given += ["--consumer.config", str(config), "--group-protocol", "CLASSIC"]
    done = run(*given, "--max-messages", "2", *more)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event.pop("timestamp") > 1_700_000_000_000 for event in events] == [True] * 10
    at: dict[str, Any] = {"topic": "t", "partition": 0}

    def consumed(value: str, offset: int) -> list[dict[str, Any]]:
        summary = {**at, "count": 1, "minOffset": offset, "maxOffset": offset}
        commit = {**at, "offset": offset + 1}
        record = {"name": "record_data", "key": None, "value": value, **at, "offset": offset}
        return [
            record,
            {"name": "records_consumed", "count": 1, "partitions": [summary]},
            {"name": "offsets_committed", "offsets": [commit], "success": True},
        ]

    assert events == [
        {"name": "startup_complete"},
        {"name": "partitions_assigned", "partitions": [at]},
        *consumed("ä", 0),
        *consumed("b", 1),
        {"name": "partitions_revoked", "partitions": [at]},
        {"name": "shutdown_complete"},
    ]


def test_a_setting_that_kohort_does_not_have_is_refused_in_one_line() -> None:
    done = run("--topic", "t", "--group-id", "g", "--group-protocol", "consumer")
    assert done.returncode == 2
    assert done.stderr == "kohort: group.protocol is 'consumer', expected classic\n"
    assert done.stdout == ""
