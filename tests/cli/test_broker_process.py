"""``kohort broker`` as a process: started, stopped, refused, killed and started again."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from tests.waiting import until

pytestmark = pytest.mark.slow

READY = re.compile(r"kohort broker ready on (\S+) \(data in (.+)\)")
PATIENCE_S = 30


class Broker:
    """A broker process."""

    def __init__(self, data_dir: Path, *options: str) -> None:
        command = [sys.executable, "-m", "kohort.cli.main", "broker", "--data-dir", str(data_dir)]
        self.process = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = self.process.stdout.readline()
        ready = READY.match(line)
        assert ready, (line, self.process.stderr.read())
        self.bootstrap, self.data_dir = ready.groups()

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; returns (exit status, what it wrote on standard error)."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, errors


Start = Callable[..., Broker]
"""Takes the options of the command as strings."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts brokers on a free port and kills what is left of them."""
    running: list[Broker] = []

    def one(*options: str) -> Broker:
        broker = Broker(tmp_path / "data", "--port", "0", *options)
        running.append(broker)
        return broker

    yield one
    for broker in running:
        if broker.process.poll() is None:
            broker.end(signal.SIGKILL)


def refused(*options: str) -> str:
    """Run a broker that must not start; returns its one line."""
    done = subprocess.run(
        [sys.executable, "-m", "kohort.cli.main", "broker", *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2, done
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("kohort: ")
    return line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_broker_prints_that_it_is_ready_and_stops_cleanly(
    start: Start, number: signal.Signals, tmp_path: Path
) -> None:
    broker = start("--set", "group.initial.rebalance.delay.ms=0")
    assert broker.data_dir == str(tmp_path / "data")
    host, _, port = broker.bootstrap.rpartition(":")
    assert host == "127.0.0.1"
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("t", b"v")
    assert producer.flush(PATIENCE_S) == 0
    status, errors = broker.end(number)
    assert status == 0
    assert "Traceback" not in errors
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind((host, int(port)))
    assert (tmp_path / "data" / "t-0" / "00000000000000000000.log").stat().st_size > 0


def test_a_port_in_use_is_refused(start: Start, tmp_path: Path) -> None:
    port = start().bootstrap.rpartition(":")[2]
    other = tmp_path / "other"
    line = refused("--port", port, "--data-dir", str(other))
    assert f"cannot listen on 127.0.0.1:{port}" in line
    assert "choose another --port" in line
    assert not other.exists()


def test_a_data_directory_in_use_is_refused(start: Start, tmp_path: Path) -> None:
    start()
    line = refused("--port", "0", "--data-dir", str(tmp_path / "data"))
    assert "is in use by another broker" in line


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--set", "num.partition=1"], "unknown setting num.partition; did you mean"),
        (["--set", "num.partitions=none"], "num.partitions is 'none', expected a whole number"),
        (["--set", "num.partitions"], "expected name=value"),
        (["--config", "{tmp}/absent"], "cannot read settings from"),
        (["--host", "256.1.1.1"], "cannot listen on 256.1.1.1:0"),
        (["--advertised", "nowhere"], "expected HOST:PORT"),
        (["--nodes", "0"], "0 nodes were asked for, expected at least 1"),
        (["--nodes", "2", "--advertised", "h:1,h:2,h:3"], "3 advertised addresses for 2 nodes"),
        (["--nodes", "2", "--advertised", "h:1,h:1"], "h:1 is advertised for two nodes"),
        (["--nodes", "2", "--advertised", "h:65535"], "need ports up to 65536"),
        (["--nodes", "2", "--set", "node.id=2147483647"], "choose a lower node.id"),
        (["--log-level", "LOUD"], "expected DEBUG, INFO, WARNING or ERROR"),
        (["--log-file", "{tmp}"], "cannot log to"),
    ],
)
def test_wrong_arguments_print_one_line_and_write_nothing(
    tmp_path: Path, options: list[str], part: str
) -> None:
    data = tmp_path / "data"
    options = [option.replace("{tmp}", str(tmp_path)) for option in options]
    assert part in refused("--port", "0", "--data-dir", str(data), *options)
    assert not data.exists()


@pytest.mark.parametrize("port", ["65536", "99999", "-1"])
def test_a_wrong_port_is_refused(tmp_path: Path, port: str) -> None:
    line = refused("--port", port, "--data-dir", str(tmp_path / "data"))
    assert line == f"kohort: port is {port}, expected 1 to 65535, or 0 for a free one"
    assert not (tmp_path / "data").exists()


def test_a_directory_with_other_files_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear ...")
    line = refused("--port", "0", "--data-dir", str(tmp_path))
    assert "is not empty (letter.txt is in it); choose an empty directory" in line
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_newer_or_damaged_data_directory_is_not_changed(start: Start, tmp_path: Path) -> None:
    assert start().end(signal.SIGTERM)[0] == 0
    meta = tmp_path / "data" / "meta.properties"
    newer = meta.read_text().replace("layout.version=1", "layout.version=2")
    for text, part in ((newer, "use a newer kohort"), ("x=1", "not of a kohort data directory")):
        meta.write_text(text)
        assert part in refused("--port", "0", "--data-dir", str(tmp_path / "data"))
        assert meta.read_text() == text


def test_a_file_as_data_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    line = refused("--port", "0", "--data-dir", str(tmp_path / "file" / "data"))
    assert "as data directory" in line


def test_settings_come_from_a_file_and_the_advertised_address_is_used(
    start: Start, tmp_path: Path
) -> None:
    config = tmp_path / "server.properties"
    config.write_text("num.partitions=3\nauto.create.topics.enable=true\n")
    broker = start("--config", str(config), "--set", "num.partitions=5", "--log-level", "error")
    admin = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "allow.auto.create.topics": True}
    )
    until(
        lambda: len(admin.list_topics("t", PATIENCE_S).topics["t"].partitions) == 5,
        "the five partitions of t",
        PATIENCE_S,
    )
    admin.close()
    assert broker.end() == (0, "")
    broker = start("--advertised", "kafka.example:19092")
    assert broker.bootstrap == "kafka.example:19092"


class Flood(threading.Thread):
    """Produces numbers with acks=all until the broker's process is gone."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self.acknowledged: set[bytes] = set()
        self.broker = broker
        self.producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": 3000,
                "log_level": 0,
            }
        )

    def delivered(
        self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        if error is None:
            self.acknowledged.add(value_of(message))

    def run(self) -> None:
        number = 0
        while self.broker.process.poll() is None:
            try:
                self.producer.produce("t", b"%d" % number, on_delivery=self.delivered)
                number += 1
            except BufferError:
                pass
            self.producer.poll(0.0005)
        self.producer.flush(5)


def value_of(message: confluent_kafka.Message) -> bytes:
    value = message.value()
    assert value is not None
    return value


def commit(consumer: confluent_kafka.Consumer) -> dict[int, int]:
    """Commit the consumed offsets; returns the acknowledged ones by partition."""
    try:
        rows = consumer.commit(asynchronous=False)
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() != confluent_kafka.KafkaError._NO_OFFSET:
            raise
        return {}
    return {row.partition: row.offset for row in rows if row.error is None}


def test_sigkill_loses_no_acknowledged_record_or_commit(start: Start) -> None:
    """A producer with acks=all and a member that commits, while the broker is killed under them."""
    options = ("--set", "group.initial.rebalance.delay.ms=0", "--set", "num.partitions=3")
    broker = start(*options)
    flood = Flood(broker)
    flood.start()
    consumer = confluent_kafka.Consumer(consumer_settings(broker.bootstrap))
    consumer.subscribe(["t"])
    committed: dict[int, int] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(flood.acknowledged) < 20_000 or not committed:
        assert time.monotonic() < deadline, (len(flood.acknowledged), committed)
        if consumer.consume(500, 0.1):
            committed |= commit(consumer)
    os.kill(broker.process.pid, signal.SIGKILL)
    broker.process.communicate()
    flood.join()
    consumer.close()

    broker = start(*options)
    found, offsets = read_everything(broker.bootstrap)
    lost = flood.acknowledged - found
    assert not lost, f"{len(lost)} of {len(flood.acknowledged)} acknowledged records are gone"
    assert all(offsets[partition] >= offset for partition, offset in committed.items())
    assert broker.end()[0] == 0


def consumer_settings(bootstrap: str) -> dict[str, str | int | bool]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
    }


def read_everything(bootstrap: str) -> tuple[set[bytes], dict[int, int]]:
    """Every value in topic t, and the group's committed offsets."""
    consumer = confluent_kafka.Consumer(consumer_settings(bootstrap))
    partitions = [confluent_kafka.TopicPartition("t", number) for number in range(3)]
    ends = {
        row.partition: consumer.get_watermark_offsets(row, timeout=PATIENCE_S)[1]
        for row in partitions
    }
    offsets = {row.partition: row.offset for row in consumer.committed(partitions, PATIENCE_S)}
    for row in partitions:
        row.offset = 0
    consumer.assign(partitions)
    found: set[bytes] = set()
    reached = dict.fromkeys(ends, 0)
    deadline = time.monotonic() + PATIENCE_S
    while any(reached[number] < ends[number] for number in ends):
        assert time.monotonic() < deadline
        for message in consumer.consume(5000, 0.5):
            assert message.error() is None
            found.add(value_of(message))
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            reached[partition] = offset + 1
    consumer.close()
    return found, offsets


RECORDS = 1_000_000
MOST_MEMORY_MIB = 150


def test_a_million_records_need_little_memory(start: Start) -> None:
    """Produced as fast as librdkafka can, consumed by a group of two at the same time."""
    broker = start("--set", "num.partitions=4", "--set", "group.initial.rebalance.delay.ms=0")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "queue.buffering.max.messages": 2_000_000}
    )
    consumers = [confluent_kafka.Consumer(consumer_settings(broker.bootstrap)) for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe(["t"])
    value = b"x" * 100
    sent = seen = 0
    deadline = time.monotonic() + 4 * PATIENCE_S
    while seen < RECORDS:
        assert time.monotonic() < deadline, (sent, seen)
        for _ in range(min(20_000, RECORDS - sent)):
            producer.produce("t", value)
        sent = min(sent + 20_000, RECORDS)
        producer.poll(0)
        for consumer in consumers:
            for message in consumer.consume(10_000, 0.05):
                # The topic is made by the producer's first record, maybe after the subscription.
                seen += message.error() is None
    producer.flush(PATIENCE_S)
    for consumer in consumers:
        consumer.close()
    peak = peak_memory_mib(broker.process.pid)
    assert peak < MOST_MEMORY_MIB, f"{peak} MiB at the most"


def peak_memory_mib(pid: int) -> int:
    """The most memory that a process has held, by Linux's count."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))
