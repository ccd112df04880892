"""Stateful tasks on the embedded broker: each record counts once in the state."""

from __future__ import annotations

import random
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.client.counting import (
    PARTITIONS,
    Words,
    counted_from_the_changelog,
    every_word_counts_once_while_processes_come_and_go,
    killed_processes_lose_and_repeat_nothing,
    standbys_take_over,
)
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.config import parse_client_settings
from kohort.client.errors import ClientError, WrongUse
from kohort.client.tasks.changelog import ChangelogRecord, batch, claim
from kohort.client.tasks.copies import Copies
from kohort.client.tasks.stateful_tasks import StatefulTasks
from kohort.client.tasks.task import Task, TaskState
from kohort.client.tasks.writer import ChangelogWriter, ResultFailed
from kohort.model.errors import ConfigError, ProtocolError
from kohort.model.ids import TopicPartition


@pytest.fixture
def words(kohort_broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Words]:
    with ExitStack() as stack:
        yield Words(kohort_broker.bootstrap_servers, stack, tmp_path)


@pytest.mark.slow
def test_every_word_counts_once_while_processes_come_and_go(words: Words) -> None:
    every_word_counts_once_while_processes_come_and_go(words)


def test_standbys_take_over(words: Words) -> None:
    words.settings["kohort.standby.replicas"] = 1
    standbys_take_over(words)


@pytest.mark.slow
def test_killed_processes_lose_and_repeat_nothing(words: Words) -> None:
    killed_processes_lose_and_repeat_nothing(words)


def test_a_lost_folder_is_restored_from_the_changelog(words: Words) -> None:
    words.write(200)
    first = words.start("a")
    words.settled(4)
    words.stop(first)
    assert counted_from_the_changelog(words) == words.sent


def test_a_failed_record_counts_when_it_is_processed_again(words: Words) -> None:
    words.write(30)
    words.fail_at = b"w3"
    first = words.start("a", commit_interval_s=60)
    words.ended(first)
    assert [type(error) for error in words.failures] == [ZeroDivisionError]
    words.failures.clear()
    words.fail_at = None
    second = words.start("a")
    words.settled(4)
    words.stop(second)
    assert words.counted(second) == words.sent


def write_records(words: Words, number: int, records: list[ChangelogRecord]) -> None:
    """Write into a changelog as another process would."""
    writer = ChangelogWriter(parse_client_settings(words.settings))
    delivery = writer.send(TopicPartition(words.changelog, number), records)
    writer.wait()
    assert delivery.error is None
    writer.close()


def test_late_writes_of_a_former_owner_do_not_count(
    words: Words, caplog: pytest.LogCaptureFixture
) -> None:
    words.write(20)
    tasks = words.start("a")
    words.settled(4)
    write_records(words, 1, batch({b"w1": b"999", b"other": b"1"}, 0, b"z" * 16, 77))
    words.write(20)
    words.settled(4)
    until(lambda: "another process has written" in caplog.text, "the owner notices")
    words.write(5)
    words.stop(tasks)
    assert counted_from_the_changelog(words) == words.sent


def test_an_owner_that_was_fenced_claims_its_tasks_again(
    words: Words, caplog: pytest.LogCaptureFixture
) -> None:
    words.write(20)
    tasks = words.start("a")
    words.settled(4)
    write_records(words, 2, [claim(50, b"z" * 16)])
    words.write(20)
    until(lambda: "another process has written" in caplog.text, "the owner notices")
    words.stop(tasks)
    assert counted_from_the_changelog(words) == words.sent


def test_a_changelog_with_records_of_another_program_ends_the_run(words: Words) -> None:
    words.admin.create_topic(words.changelog, PARTITIONS, 1, {"cleanup.policy": "compact"})
    words.producer.produce(words.changelog, b"value", b"key", partition=3)
    assert words.producer.flush(20) == 0
    words.ended(words.start("a"))
    (error,) = words.failures
    assert isinstance(error, ProtocolError)
    expected = f"{words.changelog}-3: the record at offset 0 does not belong to a changelog"
    assert expected in str(error)


def test_a_cut_off_changelog_is_read_from_its_first_record(words: Words) -> None:
    words.write(20)
    first = words.start("a")
    words.settled(4)
    words.stop(first)
    for number in range(PARTITIONS):
        path = words.folder / "a" / words.group / words.topic / f"{number}.db"
        with sqlite3.connect(path) as base:
            base.execute("UPDATE checkpoint SET next_offset = 10000")
            base.execute("UPDATE entries SET value = '777'")
        base.close()
    second = words.start("a")
    words.settled(4)
    words.stop(second)
    assert words.counted(second) == words.sent


def test_a_process_with_a_used_folder_is_refused(words: Words) -> None:
    words.start("a")
    words.settled(4)
    words.ended(words.start("a"))
    (error,) = words.failures
    assert isinstance(error, ConfigError)
    assert "give each process a state_dir of its own" in str(error)
    words.failures.clear()
    words.settled(4)


@pytest.mark.parametrize(
    ("partitions", "policy", "expected"),
    [
        (PARTITIONS + 1, "compact", f"has {PARTITIONS + 1} partitions, expected {PARTITIONS}"),
        (PARTITIONS, "delete", "has cleanup.policy=delete, expected compact"),
    ],
)
def test_a_changelog_that_cannot_keep_the_state_is_refused(
    words: Words, partitions: int, policy: str, expected: str
) -> None:
    words.admin.create_topic(words.changelog, partitions, 1, {"cleanup.policy": policy})
    words.ended(words.start("a"))
    assert [type(error) for error in words.failures] == [ConfigError]
    assert expected in str(words.failures[0])


def test_a_missing_input_is_refused(words: Words) -> None:
    words.admin.delete_topics([words.topic])
    words.ended(words.start("a"))
    assert "does not exist: create it before its tasks run" in str(words.failures[0])


def test_results_are_delivered_before_the_task_commits(words: Words) -> None:
    words.admin.create_topic("results", 1, 1)

    def emit(task: Task, record: object) -> None:
        task.emit("results", b"one", key=b"k")

    words.count = emit  # type: ignore[method-assign]
    words.write(5)
    tasks = words.start("a")
    words.settled(4)
    words.stop(tasks)
    (end,) = words.admin.list_offsets([TopicPartition("results", 0)]).values()
    assert end.offset == sum(words.sent.values())


def test_a_result_that_cannot_be_delivered_ends_the_run(words: Words) -> None:
    words.admin.create_topic("results", 1, 1, {"max.message.bytes": "1000"})
    count = words.count

    def emit(task: Task, record: object) -> None:
        count(task, record)
        task.emit("results", random.Random(1).randbytes(5_000))

    words.count = emit  # type: ignore[method-assign]
    words.write(5)
    words.ended(words.start("a"))
    (error,) = words.failures
    assert isinstance(error, ResultFailed)
    assert "topic results" in str(error)
    words.failures.clear()
    words.count = count  # type: ignore[method-assign]
    assert counted_from_the_changelog(words) == words.sent, "nothing was committed"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"commit_interval_s": 0}, "commit interval above 0 s, got 0"),
        ({"acceptable_recovery_lag": -1}, "recovery lag of at least 0, got -1"),
    ],
)
def test_wrong_arguments_are_refused(more: dict[str, float], expected: str, tmp_path: Path) -> None:
    settings = {"bootstrap.servers": "h:1", "group.id": "g"}
    with pytest.raises(ConfigError, match=expected):
        StatefulTasks(settings, "t", print, state_dir=tmp_path, **more)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"group\.id is missing"):
        StatefulTasks({"bootstrap.servers": "h:1"}, "t", print, state_dir=tmp_path)


def test_run_can_be_called_once(words: Words) -> None:
    tasks = words.start("a")
    words.settled(4)
    with pytest.raises(WrongUse, match="make new StatefulTasks"):
        tasks.run()


def test_a_restore_shows_its_progress(words: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    words.write(40)
    first = words.start("a")
    words.settled(4)
    words.stop(first)
    look, turns, free = Copies.look, threading.Semaphore(0), threading.Event()

    def held(copies: Copies, timeout_s: float) -> None:
        # The test hands out the turns of the restore, each with one record, until it sets free.
        if free.is_set() or turns.acquire(timeout=0.01):
            look(copies, timeout_s)

    monkeypatch.setattr(Copies, "look", held)
    monkeypatch.setattr("kohort.client.tasks.copies._MOST_RECORDS", 1)
    second = words.start("b")

    def restoring() -> list[int | None]:
        return [s.left for s in second.status() if s.state is TaskState.RESTORING]

    def one_more_turn() -> bool:
        turns.release()
        return any(restoring())

    until(one_more_turn, "a restore shows how much is left")
    free.set()
    until(lambda: len(words.owned(second)) == PARTITIONS, "the restore is over")
    assert restoring() == []


def test_the_changelog_is_made_over_connections_with_the_security_of_the_settings(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        settings = {
            "bootstrap.servers": f"127.0.0.1:{listener.getsockname()[1]}",
            "group.id": "g",
            "security.protocol": "SSL",
            "socket.connection.setup.timeout.ms": 1_000,
        }
        tasks = StatefulTasks(settings, "t", lambda task, record: None, state_dir=tmp_path)
        raised: list[BaseException] = []
        thread = threading.Thread(target=lambda: raised.append(failure_of_run(tasks)))
        thread.start()
        listener.settimeout(10)
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(1) == b"\x16", "expected a TLS handshake"
        thread.join(30)
        assert isinstance(raised[0], ClientError)


def failure_of_run(tasks: StatefulTasks) -> BaseException:
    with pytest.raises(ClientError) as raised:
        tasks.run()
    return raised.value
