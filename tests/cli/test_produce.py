"""``kohort produce``: lines become records; mistakes are told with an advice."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from tests.cli.commands import Kohort

from kohort.broker.embedded import EmbeddedBroker
from kohort.cli.produce import Interruptible, Tally
from kohort.client.admin import Admin
from kohort.client.errors import ClientError
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition


@pytest.fixture
def admin(kohort_broker: EmbeddedBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as made:
        made.create_topic("t", 3, configs={"max.message.bytes": "1000"})
        yield made


def written(broker: EmbeddedBroker, admin: Admin) -> list[confluent_kafka.Message]:
    """All records of the topic, partition by partition."""
    partitions = admin.topics(["t"])["t"].topic_partitions
    ends = admin.list_offsets(partitions)
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "r"}
    )
    found: list[confluent_kafka.Message] = []
    for tp in partitions:
        if count := ends[tp].offset:
            reader.assign([confluent_kafka.TopicPartition(tp.topic, tp.partition, 0)])
            found += reader.consume(count, 20.0)
    reader.close()
    return found


def test_lines_of_files_become_records_with_keys_and_headers(
    kohort: Kohort, kohort_broker: EmbeddedBroker, admin: Admin, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes("k1:one\nk2:zwö\r\n".encode())
    (tmp_path / "b").write_bytes(b"k1:a:b\nk3:NULL\nk4:")
    files = [str(tmp_path / name) for name in ("a", "b")]
    options = ("--key-separator", ":", "--null-marker", "NULL", "--header", "from=test")
    told = json.loads(kohort("produce", *files, "--topic", "t", *options, "--json"))
    assert (told["records"], told["failed"], told["errors"]) == (5, 0, [])
    assert told["bytes"] == len("onezwöa:b".encode())
    found = written(kohort_broker, admin)
    assert sorted((r.key(), r.value()) for r in found if r.value() is not None) == [
        (b"k1", b"a:b"),
        (b"k1", b"one"),
        (b"k2", "zwö".encode()),
        (b"k4", b""),
    ]
    assert [r.key() for r in found if r.value() is None] == [b"k3"]
    assert {tuple(r.headers() or ()) for r in found} == {(("from", b"test"),)}
    assert [r.value() for r in found if r.key() == b"k1"] == [b"one", b"a:b"], "in order"


@pytest.mark.parametrize("options", [[], ["--acks", "1", "--compression", "none"]])
def test_standard_input_goes_to_a_partition(
    kohort: Kohort, kohort_broker: EmbeddedBroker, admin: Admin, options: list[str]
) -> None:
    words = ("produce", "--topic", "t", "--partition", "2", *options)
    assert kohort(*words, typed="one\n\nthree\n") == ""
    assert kohort.errors.startswith("3 records, 0.0 MB in ")
    assert kohort.errors.endswith(" MB/s\n")
    assert [(r.partition(), r.key(), r.value()) for r in written(kohort_broker, admin)] == [
        (2, None, b"one"),
        (2, None, b""),
        (2, None, b"three"),
    ]


def test_only_the_record_that_is_too_large_is_refused(kohort: Kohort, admin: Admin) -> None:
    large = random.Random(1).randbytes(1_500).hex()
    lines = "".join(f"{'x' * 400}\n{text}\n" for text in ("small", large, "small", "small"))
    kohort("produce", "--topic", "t", "--partition", "0", status=1, typed=lines)
    assert kohort.errors.startswith("Error: 1 record not written: ")
    assert "`kohort topics config t --set max.message.bytes=N`\n7 records, " in kohort.errors
    (end,) = admin.list_offsets([TopicPartition("t", 0)]).values()
    assert end.offset == 7


def test_mistakes_are_told_before_anything_is_written(kohort: Kohort, admin: Admin) -> None:
    for words, error, told in (
        (["--topic", "nope"], ClientError, "`kohort topics create nope` makes it"),
        (["--topic", "t", "--partition", "3"], ConfigError, "has 3 partitions: expected 0 to 2"),
        (["--topic", "t", "--header", "x"], ConfigError, "--header is 'x', expected NAME=VALUE"),
    ):
        assert told in kohort("produce", *words, error=error)


def test_a_line_without_a_key_ends_the_input(kohort: Kohort, admin: Admin, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("a\tone\ntwo\nc\tthree\n")
    kohort("produce", str(path), "--topic", "t", "--key-separator", "\\t", status=1)
    assert kohort.errors.startswith(f"Error: line 2 of {path} has no key separator")
    assert "\n1 record, " in kohort.errors
    missing = tmp_path / "missing"
    kohort("produce", str(path), str(missing), "--topic", "t", status=1)
    assert f"cannot read {missing}: No such file or directory" in kohort.errors
    assert "\n3 records, " in kohort.errors


def test_failures_are_told_by_kind_with_an_advice() -> None:
    tally = Tally()
    for code in (
        confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
        confluent_kafka.KafkaError._MSG_TIMED_OUT,
        confluent_kafka.KafkaError._MSG_TIMED_OUT,
    ):
        tally.answered(confluent_kafka.KafkaError(code), None)
    first, second = tally.problems("t")
    assert first.startswith("1 record not written: ")
    assert first.endswith("this user may not write to the topic: it needs the operation Write")
    assert second.startswith("2 records not written: ")
    assert second.endswith("see `kohort topics describe t`")


def test_a_signal_ends_the_lines_but_no_record_half_way() -> None:
    line = ("f", 1, b"one")

    def interrupted() -> Iterator[tuple[str, int, bytes]]:
        yield line
        lines.interrupt(signal.SIGINT, None)
        yield line

    lines = Interruptible(iter([line, line]))
    assert next(lines) == line
    lines.interrupt(signal.SIGINT, None)  # while a record is given to the producer
    assert list(lines) == []
    with pytest.raises(KeyboardInterrupt):
        lines.interrupt(signal.SIGINT, None)
    lines = Interruptible(interrupted())
    assert next(lines) == line
    with pytest.raises(KeyboardInterrupt):
        next(lines)


@pytest.mark.slow
def test_ctrl_c_ends_the_input_and_the_lines_before_it_are_written(
    kohort_broker: EmbeddedBroker, admin: Admin
) -> None:
    words = ["produce", "--topic", "t", "--json", "--bootstrap", kohort_broker.bootstrap_servers]
    with subprocess.Popen(
        [sys.executable, "-m", "kohort", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("".join(f"{number}\n" for number in range(5_000)))
        process.stdin.flush()
        partitions = admin.topics(["t"])["t"].topic_partitions
        while not any(each.offset for each in admin.list_offsets(partitions).values()):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        told = json.loads(process.stdout.read())
    assert process.returncode == 0
    ends = admin.list_offsets(partitions).values()
    assert told["records"] == sum(each.offset for each in ends) > 0
