"""Members and brokers that are killed, stopped and started twice, as processes.

Under virtual time, with whole consumers and the checker: tests/lab.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.broker.conftest import Connect
from tests.faults.conftest import MakeMember, StartBroker
from tests.faults.members import Member, committed, described, form
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.model.errors import ErrorCode

pytestmark = pytest.mark.slow

SESSION_MS = 3_000
LONG_SESSION_MS = 30_000
"""Longer than a process takes to start, whatever else the machine does."""

SESSION_S = SESSION_MS / 1_000
SLACK_S = 15.0
ROOT = Path(__file__).parents[2]


class MemberProcess:
    """``member_process.py`` with its output."""

    def __init__(self, bootstrap: str, instance: str, session_ms: int) -> None:
        script = str(Path(__file__).with_name("member_process.py"))
        self.process = subprocess.Popen(
            [sys.executable, script, bootstrap, instance, str(session_ms)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self.said: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.strip())

    def stable(self) -> MemberProcess:
        until(lambda: any(line == "0 0" for line in self.said), "a stable member")
        return self

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


StartMember = Callable[..., MemberProcess]


@pytest.fixture
def start_member(broker: EmbeddedBroker, member: MakeMember) -> Iterator[StartMember]:
    """Starts members; the fixture ``member`` has made their topic."""
    started: list[MemberProcess] = []

    def start(instance: str = "-", session_ms: int = SESSION_MS) -> MemberProcess:
        started.append(MemberProcess(broker.bootstrap_servers, instance, session_ms))
        return started[-1]

    yield start
    for process in started:
        process.end()


def test_p1_p2_a_killed_member_is_waited_for_until_its_session_ends(
    start_member: StartMember, member: MakeMember
) -> None:
    """The newcomer is what the killed one becomes when it returns at once: another id."""
    start_member().stable().end()
    killed_at = time.monotonic()
    back = member(session_ms=SESSION_MS)
    assert back.join() == 0
    assert time.monotonic() - killed_at <= SESSION_S + SLACK_S
    assert back.others == [back.id]


def test_p3_a_killed_static_member_that_returns_takes_its_place(
    start_member: StartMember, broker: EmbeddedBroker, connect: Connect
) -> None:
    first = start_member("one", LONG_SESSION_MS).stable()
    told = first.said[0]
    first.end()
    second = start_member("one", LONG_SESSION_MS).stable()
    assert second.said[0] == told
    assert len(described(connect(broker))[1]) == 1


def test_p4_p11_a_stop_shorter_than_the_session_is_absorbed(
    start_member: StartMember, broker: EmbeddedBroker, connect: Connect
) -> None:
    process = start_member().stable()
    process.signal(signal.SIGSTOP)
    time.sleep(0.1 * SESSION_S)
    process.signal(signal.SIGCONT)
    before = committed(connect(broker))
    until(lambda: committed(connect(broker)) > before + 3, "more commits")
    assert process.said[1:] == ["0 0"]


def test_p4_a_stop_longer_than_the_session_ends_the_membership_without_a_stale_commit(
    start_member: StartMember, broker: EmbeddedBroker, connect: Connect
) -> None:
    process = start_member().stable()
    process.signal(signal.SIGSTOP)
    until(lambda: described(connect(broker))[0] == "Empty", "an empty group")
    last = committed(connect(broker))
    process.signal(signal.SIGCONT)
    assert process.process.wait(30) == 0
    process.reader.join()
    unknown = int(ErrorCode.UNKNOWN_MEMBER_ID)
    assert process.said[-1] == f"{unknown} {unknown}"
    # Bytes from before the stop may be read after the check; later bytes must not come.
    assert committed(connect(broker)) <= last + 1


def test_p8_a_leader_that_dies_before_its_plan_sends_the_others_back(member: MakeMember) -> None:
    group = [member(session_ms=SESSION_MS) for _ in range(2)]
    form(group)
    leader = next(one for one in group if one.leader)
    (follower,) = (one for one in group if one is not leader)
    leader.send_join()
    follower.beat_until(ErrorCode.REBALANCE_IN_PROGRESS)
    follower.send_join()
    assert (leader.joined(), follower.joined()) == (0, 0)
    follower.send_sync()
    leader.client.close()
    assert follower.synced() == ErrorCode.REBALANCE_IN_PROGRESS
    assert (follower.join(), follower.sync()) == (0, 0)
    assert follower.leader
    assert follower.others == [follower.id]


def test_p10_of_two_processes_with_one_instance_id_the_last_has_the_place(
    start_member: StartMember,
) -> None:
    first = start_member("one").stable()
    second = start_member("one").stable()
    assert first.process.wait(30) == 0
    first.reader.join()
    fenced = int(ErrorCode.FENCED_INSTANCE_ID)
    assert first.said[-1] == f"{fenced} {fenced}"
    assert second.said[0] == first.said[0], "and the generation stays"


def test_p12_a_broker_that_was_stopped_expires_nobody(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = start_broker("offsets.topic.num.partitions=1")
    connect(broker).create("t")
    group = [Member(connect(broker), session_ms=1_500) for _ in range(3)]
    form(group)
    broker.send_signal(signal.SIGSTOP)
    time.sleep(4)
    broker.send_signal(signal.SIGCONT)
    assert {one.beat() for one in group} == {0}
    assert "was asleep" in broker.log.read_text()
