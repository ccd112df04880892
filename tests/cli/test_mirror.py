"""``kohort mirror`` as a process."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from tests.client.one_consumer import write
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.model.ids import TopicPartition

COMMAND = [sys.executable, "-m", "kohort.cli.main", "mirror"]


@pytest.mark.slow
def test_a_worker_copies_until_it_is_ended(kohort_broker: EmbeddedBroker) -> None:
    address = kohort_broker.bootstrap_servers
    copy = TopicPartition("copy-of-t", 0)
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic("t", 1)
        write(kohort_broker, (0, b"one"))
        clusters = ["--from", address, "--to", address, "--group", "g"]
        process = subprocess.Popen(
            [*COMMAND, "t", *clusters, "--rename", "copy-of-{topic}"],
            stderr=subprocess.PIPE,
            text=True,
        )

        def copied() -> bool:
            assert process.poll() is None
            return "copy-of-t" in admin.topics() and admin.list_offsets([copy])[copy].offset == 1

        until(copied, "the record is copied")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0
    assert said.endswith("1 records copied.\n")


@pytest.mark.slow
def test_a_missing_topic_is_one_line_and_status_2(kohort_broker: EmbeddedBroker) -> None:
    address = kohort_broker.bootstrap_servers
    command = [*COMMAND, "nothing", "--from", address, "--to", address, "--group", "g"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "the topic nothing does not exist in the source" in done.stderr
    assert "Traceback" not in done.stderr
