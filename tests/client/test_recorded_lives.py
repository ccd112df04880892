"""Histories of a live broker and live consumers pass the checks of the lab."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.client.stage import Feeder, topic

from kohort.broker.embedded import EmbeddedBroker
from kohort.cli.check import check
from kohort.client.async_consumer import AsyncConsumer
from kohort.client.config import parse_client_settings
from kohort.client.consumer import Consumer
from kohort.client.consuming.partition_reader import PartitionReader
from kohort.client.recording import ConsumerRecorder
from kohort.history.checker import Checker, Report, Verdict
from kohort.history.endings import with_endings
from kohort.model.client_facts import (
    ProcessKilled,
    ProcessStarted,
    ProcessStopped,
    RecordsDelivered,
)
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.instants import Instant
from kohort.model.wire_facts import CoordinatorBooted, CoordinatorStopped
from kohort.storage.fact_files import read_histories

pytestmark = pytest.mark.slow

PARTITIONS = 6
ROOT = Path(__file__).parents[2]


def settings_of(bootstrap: str, history: Path, **more: object) -> dict[str, object]:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "recorded",
        "client.id": history.stem,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 200,
        "auto.commit.interval.ms": 200,
        "kohort.history.file": str(history),
    }
    return {**settings, **more}


def consumer_of(bootstrap: str, history: Path, **more: object) -> Consumer:
    return Consumer(settings_of(bootstrap, history, **more))


COLUMNS = ("two", "late")
"""The consumers that read columns; the others read records."""


def poll(consumer: Consumer) -> None:
    if Path(consumer.settings.kohort_history_file).stem in COLUMNS:
        consumer.poll_arrow(0.02, 100)
    else:
        consumer.consume(100, 0.02)


def poll_all(consumers: list[Consumer], seconds: float, enough: object = None) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not (callable(enough) and enough()):
        for consumer in consumers:
            poll(consumer)


def shared(consumers: list[Consumer], total: int = PARTITIONS) -> bool:
    sizes = [len(c.assignment()) for c in consumers]
    return sum(sizes) == total and max(sizes) - min(sizes) <= 1


def play(bootstrap: str, folder: Path) -> list[Path]:
    """Two consumers and a third in a process that is killed; then one leaves and one joins."""
    files = [folder / f"{name}.jsonl" for name in ("one", "two", "killed", "late")]
    with (
        topic(bootstrap, PARTITIONS) as name,
        Feeder(bootstrap, name, PARTITIONS) as feeder,
    ):
        one, two = consumer_of(bootstrap, files[0]), consumer_of(bootstrap, files[1])
        for consumer in (one, two):
            consumer.subscribe([name])
        poll_all([one, two], 30, lambda: shared([one, two]))
        command = [sys.executable, "-m", "tests.client.recorded_consumer", bootstrap, name]
        process = subprocess.Popen(
            [*command, str(files[2])], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        try:
            poll_all([one, two], 40, lambda: shared([one, two], PARTITIONS * 2 // 3))
            assert process.stdout is not None
            assert process.stdout.readline() == "read\n"
            poll_all([one, two], 1)
        finally:
            process.kill()
            process.communicate()
        poll_all([one, two], 30, lambda: shared([one, two]))
        two.close()
        late = consumer_of(bootstrap, files[3])
        late.subscribe([name])
        poll_all([one, late], 30, lambda: shared([one, late]))
        del feeder
        poll_all([one, late], 12)
        one.close()
        late.close()
    return files


def judge(files: list[Path]) -> Report:
    found = read_histories(files)
    facts = list(with_endings(found.facts))
    return Checker().feed_all(facts).finish()


def told(report: Report) -> str:
    return "\n".join(
        f"{v.check} {v.name}: {v.message}\n   " + "\n   ".join(v.story)
        for v in report.violations[:5]
    )


JUDGED_LIVE = {1, 3, 4, 5, 6, 8, 11, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 29, 30, 31, 35, 36}
JUDGED_LIVE |= {37, 38, 39, 40, 41, 42, 43, 44, 45, 49, 51}


def test_histories_of_a_group_on_the_embedded_broker_pass_all_checks(tmp_path: Path) -> None:
    history = tmp_path / "broker.jsonl"
    settings: dict[str, Any] = {"group.initial.rebalance.delay.ms": 0}
    with EmbeddedBroker(history=history, **settings) as broker:
        files = play(broker.bootstrap_servers, tmp_path)
    report = judge([history, *files])
    assert report.clean, told(report)
    judged = {r.number for r in report.results if r.verdict is not Verdict.VACUOUS}
    assert JUDGED_LIVE - judged == set()
    facts = [r.fact for r in with_endings(read_histories([history, *files]).facts)]
    assert sum(isinstance(f, ProcessStarted) for f in facts) == 4
    assert sum(isinstance(f, ProcessStopped) for f in facts) == 3
    assert sum(isinstance(f, ProcessKilled) for f in facts) == 1
    assert sum(isinstance(f, CoordinatorBooted) for f in facts) == 1
    assert sum(isinstance(f, CoordinatorStopped) for f in facts) == 1
    result = CliRunner().invoke(check, [str(f) for f in (history, *files)])
    assert result.exit_code == 0, result.output
    client_side = judge(files)
    assert client_side.clean, told(client_side)


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_a_commit_of_given_offsets_comes_after_its_deliveries_in_the_history(
    kohort_broker: EmbeddedBroker, tmp_path: Path, kind: str
) -> None:
    bootstrap, history = kohort_broker.bootstrap_servers, tmp_path / "one.jsonl"
    more: dict[str, Any] = {"enable.auto.commit": False}

    def blocking(name: str) -> None:
        with consumer_of(bootstrap, history, **more) as consumer:
            consumer.subscribe([name])
            while (record := consumer.poll(0.1)) is None:
                pass
            consumer.commit({(name, record.partition() or 0): 1})

    async def by_loop(name: str) -> None:
        async with AsyncConsumer(settings_of(bootstrap, history, **more)) as consumer:
            consumer.subscribe([name])
            while (record := await consumer.poll(0.1)) is None:
                pass
            await consumer.commit({(name, record.partition() or 0): 1})

    with topic(bootstrap, 1) as name:
        Feeder(bootstrap, name, 1).once(1)
        if kind == "blocking":
            blocking(name)
        else:
            asyncio.run(by_loop(name))
    report = judge([history])
    assert report.clean, told(report)
    facts = [type(r.fact).__name__ for r in read_histories([history]).facts]
    assert facts.index("RecordsDelivered") < facts.index("CommitSent")


def test_a_delivery_has_the_instant_of_the_look_before_it(tmp_path: Path) -> None:
    """Later looks, at a membership that is not sure any more, say nothing about the delivery."""
    history = tmp_path / "one.jsonl"
    recorder = ConsumerRecorder(parse_client_settings(settings_of("127.0.0.1:1", history)))
    recorder.polled(Instant(5_000_000))
    recorder.handed(TopicPartition("t", 0), 7)
    recorder.polled(Instant(5_400_000))
    recorder.close(in_order=False)
    facts = [r.fact for r in read_histories([history]).facts]
    assert [f.handed_at for f in facts if isinstance(f, RecordsDelivered)] == [5_000_000]


def test_two_consumers_of_one_process_do_not_share_a_file(tmp_path: Path) -> None:
    history = tmp_path / "one.jsonl"
    with (
        consumer_of("127.0.0.1:1", history),
        pytest.raises(ConfigError, match="another consumer of this process"),
    ):
        consumer_of("127.0.0.1:1", history)
    consumer_of("127.0.0.1:1", history).close()


def test_a_broker_that_comes_back_goes_on_in_its_file(tmp_path: Path) -> None:
    history = tmp_path / "broker.jsonl"
    for _ in range(2):
        with EmbeddedBroker(tmp_path / "data", history=history):
            pass
    facts = read_histories([history]).facts
    assert [r.incarnation for r in facts] == [1, 1, 2, 2]


def test_history_that_cannot_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match="cannot record to"),
        EmbeddedBroker(history=tmp_path / "none" / "broker.jsonl"),
    ):
        pass


def test_a_record_that_is_delivered_after_its_revocation_is_found_in_a_live_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the bug, the records in the buffer outlive the revocation of their partition."""

    def found(folder: Path) -> set[int]:
        files = [folder / "one.jsonl", folder / "two.jsonl"]
        settings: dict[str, Any] = {"group.initial.rebalance.delay.ms": 0}
        with (
            EmbeddedBroker(**settings) as broker,
            topic(broker.bootstrap_servers, PARTITIONS) as name,
        ):
            Feeder(broker.bootstrap_servers, name, PARTITIONS).once(500)
            one, two = (
                consumer_of(broker.bootstrap_servers, file, **{"enable.auto.commit": False})
                for file in files
            )
            one.subscribe([name])
            while one.poll(0.1) is None:
                pass
            loop = one._loop
            while len({record.partition() for record in loop.buffer}) < PARTITIONS:
                loop.take(500, 0.1)  # Whichever partition is revoked, the buffer has its records.
            two.subscribe([name])
            deadline = time.monotonic() + 30
            while not shared([one, two]) and time.monotonic() < deadline:
                one.poll(0.02)
                two.poll(0.02)
            for _ in range(500 * PARTITIONS):
                one.poll(0)
            one.close()
            two.close()
        return {violation.check for violation in judge(files).violations}

    healthy, buggy = tmp_path / "healthy", tmp_path / "buggy"
    healthy.mkdir()
    buggy.mkdir()
    assert found(healthy) == set()
    monkeypatch.setattr(PartitionReader, "unbuffer", lambda _self, _partitions: False)
    assert 53 in found(buggy)
