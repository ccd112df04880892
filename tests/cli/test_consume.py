"""``kohort consume`` as a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import confluent_kafka
import pytest

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin

pytestmark = pytest.mark.slow


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kohort", "consume", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def address(kohort_broker: EmbeddedBroker) -> str:
    """A broker with the topic t: one partition, keys k0 to k9, values v0 to v9."""
    with Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as admin:
        admin.create_topic("t", 1, 1)
    producer = confluent_kafka.Producer({"bootstrap.servers": kohort_broker.bootstrap_servers})
    for number in range(10):
        producer.produce("t", f"v{number}", key=f"k{number}")
    assert producer.flush(20) == 0
    return kohort_broker.bootstrap_servers


def test_records_are_printed_one_a_line_and_the_next_run_continues(address: str) -> None:
    given = ("--topic", "t", "--group", "g", "--bootstrap", address, "--from-beginning")
    first = run(*given, "--max-messages", "4", "--key")
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines() == [f"k{n}\tv{n}" for n in range(4)]
    assert "assigned t-0" in first.stderr
    rest = run(*given, "--timeout-ms", "3000", "--json", "--quiet")
    assert [json.loads(line)["value"] for line in rest.stdout.splitlines()] == [
        f"v{n}" for n in range(4, 10)
    ]
    assert rest.stderr == ""


def test_sigterm_commits_leaves_and_ends_with_status_0(address: str) -> None:
    command = [sys.executable, "-m", "kohort", "consume", "--topic", "t", "--group", "g"]
    command += ["--bootstrap", address, "--from-beginning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(10)] == [f"v{n}\n" for n in range(10)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    with Admin(bootstrap_servers=address) as admin:
        assert [at.offset for at in admin.committed("g").values()] == [10]
        assert admin.describe_group("g").members == ()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--topic", "nope"), "topic nope does not exist"),
        (("--topic", "t", "--set", "sesion.timeout.ms=1"), "did you mean session.timeout.ms"),
        (("--topic", "t", "--set", "sasl.username=me"), "security.protocol is PLAINTEXT"),
    ],
)
def test_wrong_arguments_print_one_line_and_end_with_status_2(
    address: str, arguments: tuple[str, ...], text: str
) -> None:
    done = run(*arguments, "--group", "g", "--bootstrap", address)
    assert done.returncode == 2
    assert text in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_unreachable_broker_is_reported() -> None:
    patience = "socket.connection.setup.timeout.ms=500"
    given = ("--topic", "t", "--group", "g", "--bootstrap", "127.0.0.1:1", "--set", patience)
    done = run(*given)
    assert done.returncode == 2
    assert "expected a Kafka broker at 127.0.0.1:1, got: connection refused" in done.stderr
