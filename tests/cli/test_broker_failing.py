"""``kohort broker`` after a failure of the disk: one line and exit status 1."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from click.testing import CliRunner

from kohort.cli.broker import LOGGERS
from kohort.cli.main import cli
from kohort.storage.flush_job import FlushJob
from kohort.testing.ports import free_ports


def produce_until(stopped: threading.Event, port: int) -> None:
    """Records, one after the other: how long the broker takes to start decides nothing."""
    producer = confluent_kafka.Producer({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
    while not stopped.is_set():
        producer.produce("t", b"v")
        producer.flush(1)
    producer.purge()
    producer.flush(5)


@pytest.fixture
def loggers() -> Iterator[None]:
    """The command sets up the loggers of this process; later tests need them as they were."""
    before = [(each, each.level, list(each.handlers)) for each in map(logging.getLogger, LOGGERS)]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.mark.slow
@pytest.mark.usefixtures("loggers")
def test_a_failed_sync_ends_the_broker_with_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(job: FlushJob) -> None:
        job.error = OSError(5, "the disk is gone")

    monkeypatch.setattr(FlushJob, "run", fail)
    (port,) = free_ports(1)
    stopped = threading.Event()
    producing = threading.Thread(target=produce_until, args=(stopped, port))
    producing.start()
    result = CliRunner().invoke(
        cli,
        [
            *("broker", "--port", str(port), "--data-dir", str(tmp_path / "data")),
            *("--set", "log.flush.interval.messages=1"),
        ],
    )
    stopped.set()
    producing.join()
    assert result.exit_code == 1, result.output
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("kohort: broker stopped: ")
    assert "data/t-0: a sync failed" in last
    assert "the disk is gone" in last
    assert "look at the disk" in last
