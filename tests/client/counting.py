"""Processes that count words with stateful tasks, on any broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
from tests.waiting import until

from kohort.client.admin import Admin
from kohort.client.tasks.stateful_tasks import StatefulTasks
from kohort.client.tasks.store import StoreFile
from kohort.client.tasks.task import Task, TaskState
from kohort.model.ids import TopicPartition

PARTITIONS = 4
WORDS = [b"w%d" % n for n in range(7)]


class Words:
    """A topic of words, and threads that count them.

    Args:
        address: the broker.
        stack: ends the threads.
        folder: for the stores.
        settings: further settings.
    """

    def __init__(self, address: str, stack: ExitStack, folder: Path, **settings: object) -> None:
        self.group = f"count-{uuid.uuid4().hex[:8]}"
        self.topic = f"words-{uuid.uuid4().hex[:8]}"
        self.settings: dict[str, Any] = {
            "bootstrap.servers": address,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 100,
            "fetch.max.wait.ms": 20,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.folder = folder
        self.running: list[StatefulTasks] = []
        self.failures: list[BaseException] = []
        self.sent: Counter[bytes] = Counter()
        self.fail_at: bytes | None = None
        """The function raises for this word."""
        self._threads: dict[StatefulTasks, threading.Thread] = {}
        self._folders: dict[StatefulTasks, Path] = {}
        self._stack = stack
        self.admin = stack.enter_context(Admin(bootstrap_servers=address))
        self.admin.create_topic(self.topic, PARTITIONS, 1)
        self.producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 1})
        stack.callback(self.producer.close)

    @property
    def changelog(self) -> str:
        return f"{self.group}-{self.topic}-changelog"

    def write(self, rounds: int) -> None:
        """Write each word this many times into each partition."""
        for n in range(rounds):
            for number in range(PARTITIONS):
                word = WORDS[(n + number) % len(WORDS)]
                self.producer.produce(self.topic, word, partition=number)
                self.sent[word] += 1
        assert self.producer.flush(20) == 0

    def count(self, task: Task, record: Any) -> None:
        word = record.value()
        if word == self.fail_at:
            raise ZeroDivisionError("a word that cannot be counted")
        task.store[word] = b"%d" % (int(task.store.get(word, b"0")) + 1)

    def start(self, name: str, **more: Any) -> StatefulTasks:
        """Start a process with a folder of this name."""
        options = {"commit_interval_s": 0.2, **more}
        tasks = StatefulTasks(
            self.settings, self.topic, self.count, state_dir=self.folder / name, **options
        )

        def run() -> None:
            try:
                tasks.run()
            except BaseException as error:
                self.failures.append(error)

        thread = self._threads[tasks] = threading.Thread(target=run)
        self._folders[tasks] = self.folder / name
        self._stack.callback(thread.join)
        self._stack.callback(tasks.stop, 0)
        thread.start()
        self.running.append(tasks)
        return tasks

    def stop(self, tasks: StatefulTasks, timeout_s: float = 20.0) -> None:
        tasks.stop(timeout_s)
        self.ended(tasks)

    def ended(self, tasks: StatefulTasks) -> None:
        self._threads[tasks].join(30)
        assert not self._threads[tasks].is_alive(), "run() ends"
        self.running.remove(tasks)

    def owned(self, tasks: StatefulTasks) -> set[int]:
        """The partitions that a process works on."""
        return {
            status.partition.partition
            for status in tasks.status()
            if status.state is TaskState.RUNNING
        }

    def settled(self, *shares: int) -> None:
        """Wait until the processes work on this many partitions, and have counted everything."""

        def there() -> bool:
            assert not self.failures, self.failures
            found = [status for tasks in self.running for status in tasks.status()]
            running = [s for s in found if s.state is TaskState.RUNNING]
            ends = self.admin.list_offsets(
                TopicPartition(self.topic, number) for number in range(PARTITIONS)
            )
            return sorted(len(self.owned(tasks)) for tasks in self.running) == sorted(shares) and {
                s.partition: s.position for s in running
            } == {tp: end.offset for tp, end in ends.items()}

        until(there, f"shares {shares} and everything counted")

    def counted(self, tasks: StatefulTasks) -> Counter[bytes]:
        """All counts in the folder of a process that has ended, which owned everything."""
        found: Counter[bytes] = Counter()
        for number in range(PARTITIONS):
            path = self._folders[tasks] / self.group / self.topic / f"{number}.db"
            file = StoreFile(path, 3_600)
            found.update({key: int(file.get(key) or b"0") for key in file})
            file.close()
        return found


def counted_from_the_changelog(words: Words) -> Counter[bytes]:
    """The counts of a process that has no files of its own."""
    fresh = words.start("fresh")
    words.settled(4)
    words.stop(fresh)
    return words.counted(fresh)


def every_word_counts_once_while_processes_come_and_go(words: Words) -> None:
    """Joins, a warm handover, a stop, a lost folder: in the end each count is right."""
    words.write(50)
    first = words.start("a")
    words.settled(4)
    second = words.start("b")
    words.write(50)
    words.settled(2, 2)
    words.stop(first)
    words.write(50)
    words.settled(4)
    third = words.start("c")
    words.settled(2, 2)
    words.stop(second)
    words.write(10)
    words.settled(4)
    words.stop(third)
    assert words.counted(third) == words.sent


def killed_processes_lose_and_repeat_nothing(words: Words) -> None:
    """Processes die by SIGKILL in the middle of their work, and come back."""
    words.settings |= {"kohort.standby.replicas": 1, "scheduled.rebalance.max.delay.ms": 3_000}

    def run(name: str) -> subprocess.Popen[bytes]:
        options = json.dumps([words.settings, words.topic, str(words.folder / name)])
        command = [sys.executable, "-m", "tests.client.counting", options]
        return subprocess.Popen(command, cwd=Path(__file__).parents[2])

    processes = {name: run(name) for name in "abc"}
    try:
        for turn in range(6):
            words.write(300)
            if turn % 2:
                name = "abc"[turn // 2]
                before = sum(committed(words).values())
                until(partial(further, words, before), "work goes on")
                processes[name].kill()
                processes[name].wait()
                processes[name] = run(name)
        until(lambda: sum(committed(words).values()) == sum(words.sent.values()), "all is counted")
        for name, process in processes.items():
            until(Path(words.folder, name, f"ready-{process.pid}").exists, f"{name} has begun")
    finally:
        for process in processes.values():
            process.terminate()
        codes = [process.wait(60) for process in processes.values()]
    assert codes == [0, 0, 0]
    assert counted_from_the_changelog(words) == words.sent


def further(words: Words, before: int) -> bool:
    """Whether the group has committed more than this many records."""
    return sum(committed(words).values()) > before


def committed(words: Words) -> dict[TopicPartition, int]:
    """The positions of the group."""
    return {tp: at.offset for tp, at in words.admin.committed(words.group).items()}


def main(settings: dict[str, Any], topic: str, folder: str) -> None:
    """One process: counts words until SIGTERM."""

    def count(task: Task, record: Any) -> None:
        task.store[record.value()] = b"%d" % (int(task.store.get(record.value(), b"0")) + 1)

    tasks = StatefulTasks(settings, topic, count, state_dir=folder, commit_interval_s=0.2)
    signal.signal(signal.SIGTERM, lambda *_: tasks.stop(5))
    Path(folder).mkdir(exist_ok=True)
    Path(folder, f"ready-{os.getpid()}").touch()
    tasks.run()


def standbys_take_over(words: Words) -> None:
    """With standbys each process has copies of the tasks of the other process."""
    words.write(50)
    first, second = words.start("a"), words.start("b")
    words.settled(2, 2)

    def copies(tasks: StatefulTasks) -> set[int]:
        return {
            s.partition.partition
            for s in tasks.status()
            if s.state is TaskState.STANDBY and s.left == 0 and s.position
        }

    until(lambda: copies(first) == words.owned(second), "copies of the second one's tasks")
    until(lambda: copies(second) == words.owned(first), "copies of the first one's tasks")
    words.stop(first)
    words.settled(4)
    words.stop(second)
    assert words.counted(second) == words.sent


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
