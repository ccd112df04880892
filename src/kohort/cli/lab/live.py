"""``kohort lab --open``: one group under two policies, live, on a page that disturbs both alike.

In: sizes and policies. Out: a broker, two groups of consumer processes, a page over HTTP. Must not
know: the page (``kohort.dashboard``).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import click
import confluent_kafka

from kohort.cli.broker_ready import wait_ready
from kohort.cli.consume import ended_by_signals
from kohort.cli.dashboard_sources import follow_records, in_threads, look_often
from kohort.cli.groups.choice import Groups
from kohort.dashboard.board import Board
from kohort.dashboard.times import time_text
from kohort.explain.lines.values import client_of
from kohort.history.fewest_moves import fewest_moves
from kohort.model.errors import ConfigError, KohortError
from kohort.policies.registry import assignors
from kohort.testing.kafka_group import KafkaGroup
from kohort.testing.ports import HOST, free_ports

POLICIES: Final = {"eager": "range", "cooperative": "cooperative-sticky"}
SETTINGS: Final = {"max.poll.interval.ms": 20_000}
BACK_S: Final = 10.0
"""A killed member is back after this time: later than its session of 6 s ends."""
STALL_S: Final = 30.0
"""Longer than ``max.poll.interval.ms``."""
PAUSE_S: Final = 15.0
"""Longer than the session."""
_RECORDS_S: Final = 0.1
_MOST_LINES: Final = 12


class LiveBroker:
    """A broker in a process of its own, which can be restarted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (self._port,) = free_ports(1)
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{HOST}:{self._port}"

    def start(self) -> None:
        """Start; returns when clients can connect.

        Raises:
            BrokerNotReady: the broker ended, or was not ready in time; the message has its log.
        """
        command = [sys.executable, "-m", "kohort", "broker", "--port", str(self._port)]
        command += ["--data-dir", str(self._folder / "data")]
        command += ["--set", "group.initial.rebalance.delay.ms=0"]
        log = self._folder / "broker.log"
        command += ["--log-file", str(log)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            wait_ready(self._process, [log])
        except BaseException:
            self.kill()  # a process of its own session would outlive Ctrl-C
            raise

    def kill(self) -> None:
        """End without a word."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def restart(self) -> None:
        """Kill the coordinator and start it again with its data."""
        self.kill()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self.kill()


@dataclass(slots=True)
class LiveLab:
    """Two groups that are disturbed alike; see ``kohort.dashboard.playing.Play``."""

    broker: LiveBroker
    groups: list[KafkaGroup]
    _acts: list[tuple[str, str, float]] = field(default_factory=list)
    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_LINES))
    _busy: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def state(self) -> dict[str, Any]:
        """The groups, their members and numbers, and the last lines about them."""
        sides = [
            {
                "group": group.group,
                "policy": group.policy,
                "states": group.states,
                "numbers": [
                    ["partitions without an owner", str(group.partitions - len(group.owners))],
                    ["longest time without an owner", f"{group.max_idle_partition_s:.1f} s"],
                    ["partition-seconds without an owner", f"{group.idle_partition_s:,.0f}"],
                ],
            }
            for group in self.groups
        ]
        lines = list(reversed(self._lines))
        return {"bootstrap": self.broker.address, "sides": sides, "log": lines}

    def act(self, what: str, member: str) -> None:
        """Begin to disturb both groups; see ``Play``."""
        seconds = {"kill": BACK_S, "stall": STALL_S, "pause": PAUSE_S, "coordinator": 0.0}.get(what)
        if seconds is None:
            raise ConfigError(f"{what!r}: expected kill, stall, pause or coordinator")
        disturbed = "the coordinator" if what == "coordinator" else member
        with self._lock:
            if what != "coordinator" and member not in self.groups[0].states:
                raise ConfigError(f"there is no member {member!r}")
            if disturbed in self._busy:
                raise ConfigError(
                    f"{disturbed} is disturbed already; wait, or choose another member"
                )
            self._busy.add(disturbed)
            self._acts.append((what, member, seconds))
        told = _told_act(what, member, seconds)
        self._say(told)
        threading.Thread(
            target=self._do, args=(what, member, seconds, disturbed, told), daemon=True
        ).start()

    def _do(self, what: str, member: str, seconds: float, disturbed: str, told: str) -> None:
        if what == "coordinator":
            works: list[Callable[[], None]] = [self.broker.restart]
        else:
            works = [partial(getattr(group, what), member, seconds) for group in self.groups]
        threads = [threading.Thread(target=self._try, args=(work,), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with self._lock:
            self._busy.discard(disturbed)
        self._say(f"over: {told}")

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except KohortError as error:
            self._say(str(error))

    def _say(self, text: str) -> None:
        self._lines.append(f"{time_text(time.time(), dated=False)}  {text}")

    def as_test(self) -> str:
        """A file for pytest with the disturbances so far, of the second group; see ``Play``."""
        group = self.groups[-1]
        acts = [f"    kafka_group.{_call(*act)}" for act in self._acts if act[0] != "coordinator"]
        most = max(1, round(2 * group.max_idle_partition_s))
        sizes = f"members={len(group.states)}, partitions={group.partitions}"
        return "\n".join(
            [
                "import pytest",
                "",
                "",
                f'@pytest.mark.kafka_group({sizes}, policy="{group.policy}", settings={SETTINGS})',
                "def test_disturbed_group(kafka_group):",
                *(acts or ["    kafka_group.wait_settled()"]),
                f"    assert kafka_group.max_idle_partition_s < {most}",
                "",
            ]
        )


def _told_act(what: str, member: str, seconds: float) -> str:
    """The disturbance as a sentence for people."""
    if what == "coordinator":
        return "restart the coordinator"
    when = ", back after" if what == "kill" else " for"
    return f"{what} {member}{when} {seconds:g} s"


def _call(what: str, member: str, seconds: float) -> str:
    named = "back_s=" if what == "kill" else ""
    return f'{what}("{member}", {named}{seconds:g})'


def owners_told(group: KafkaGroup, recorded: Mapping[str, str]) -> dict[str, str]:
    """The present owners by partition: as members tell them, and other clients as recorded."""
    names, topic = group.states, group.group
    others = {
        int(partition.rpartition("-")[2]): owner
        for partition, owner in recorded.items()
        if client_of(owner) not in names and partition.startswith(f"{topic}-")
    }
    group.others_own(others, time.time())
    return {f"{topic}-{number}": owner for number, owner in group.owners.items()}


def _told(groups: list[KafkaGroup], name: str, recorded: Mapping[str, str]) -> dict[str, str]:
    """See `owners_told`; the groups are not there yet when the board is made."""
    return next((owners_told(g, recorded) for g in groups if g.group == name), {})


def live(
    *, members: int, partitions: int, policies: tuple[str, str], port: int, browser: bool
) -> None:
    """Run both groups and serve their page until SIGINT or SIGTERM.

    Raises:
        ConfigError: a policy is unknown, the extra ``dashboard`` is missing, or the port is taken.
    """
    try:
        from kohort.dashboard.app import LOCAL  # noqa: PLC0415 - of an extra
        from kohort.dashboard.serving import Server  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise ConfigError(f"{error.name} is missing: pip install 'kohort[dashboard]'") from error
    if policies[0] == policies[1]:
        raise ConfigError(f"--policy and --against are both {policies[0]!r}; name two policies")
    policies_of = [POLICIES.get(name, name) for name in policies]
    for name in policies_of:
        assignors(name)  # an unknown one ends the command
    with suppress(KeyboardInterrupt), ended_by_signals(), ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kohort-lab-")))
        broker = stack.enter_context(LiveBroker(folder))
        groups: list[KafkaGroup] = []
        tells = {name: partial(_told, groups, name) for name in policies}
        board = Board(broker.address, fewest_moves, policies, tells)
        sizes = {"members": members, "partitions": partitions}
        groups += [
            stack.enter_context(_group(board, broker.address, name, policy=assignor, **sizes))
            for name, assignor in zip(policies, policies_of, strict=True)
        ]
        stack.enter_context(_threads(broker, board, groups))
        try:
            server = Server(board, HOST, port, LOCAL, play=LiveLab(broker, groups))
        except OSError as error:
            raise ConfigError(f"--port {port} cannot be used: {error.strerror}") from error
        page = f"http://{HOST}:{server.port}/lab"
        click.echo(f"{page}  (any Kafka client may join: {broker.address})")
        if browser:
            webbrowser.open(page)
        server.serve()


def _group(board: Board, address: str, name: str, **sizes: Any) -> KafkaGroup:
    return KafkaGroup(
        address,
        group=name,
        settings=SETTINGS,
        changed=lambda: board.members_told(name, time.time()),
        **sizes,
    )


def _threads(
    broker: LiveBroker, board: Board, groups: list[KafkaGroup]
) -> AbstractContextManager[None]:
    """Threads that follow the groups, and write records for them."""
    settings: dict[str, object] = {"bootstrap.servers": broker.address}
    names = Groups(names=tuple(group.group for group in groups), every=False)
    return in_threads(
        lambda ended: follow_records(board, settings, ended),
        lambda ended: look_often(board, settings, names, 0.5, ended),
        lambda ended: _write(broker.address, groups, ended),
    )


def _write(address: str, groups: list[KafkaGroup], ended: threading.Event) -> None:
    """Write a record to each topic ten times a second, in turn to each partition."""
    quiet: dict[str, Any] = {"log_level": 0, "error_cb": lambda _error: None}
    producer = confluent_kafka.Producer({"bootstrap.servers": address, **quiet})
    number = 0
    while not ended.wait(_RECORDS_S):
        for group in groups:
            with suppress(BufferError):  # the coordinator is down
                producer.produce(group.group, b"x", partition=number % group.partitions)
        producer.poll(0)
        number += 1
    producer.purge()
    producer.flush(1)
