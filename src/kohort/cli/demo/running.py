"""Carries out the demo's story: starts, freezes, kills and ends processes, and takes pictures.

In: a ``DemoConfig`` and a view. Out: an ``Outcome``. Must not know: why something is started or
killed.
"""

from __future__ import annotations

import json
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from kohort.cli.broker_ready import wait_ready
from kohort.cli.demo.feeder import Feeder, lines_of
from kohort.cli.demo.observer import Observer
from kohort.cli.demo.outcome import Outcome
from kohort.cli.demo.picture import Application, Life, Picture
from kohort.cli.demo.processes import Guard, Tree
from kohort.cli.demo.story import BATCHES, NAMES, DemoFailed, Shown, play
from kohort.cli.demo.view import View
from kohort.cli.demo.web_events import web_events
from kohort.client.admin import Admin
from kohort.host.clock import monotonic_now
from kohort.model.ids import MemberId
from kohort.model.instants import MICROS_PER_SECOND, Instant
from kohort.spark.session import QUICK

TOPIC: Final = "web-access"
GROUP: Final = "demo"
PARTITIONS: Final = 12

# Setting -> (the demo's value, the default).
BROKER_SETTINGS: Final = {"group.initial.rebalance.delay.ms": ("0", "3000")}
CLIENT_SETTINGS: Final = {
    "session.timeout.ms": ("6000", "45000"),
    "heartbeat.interval.ms": ("1000", "3000"),
}
# Three Java processes share a laptop.
SPARK_SETTINGS: Final = {**QUICK, "spark.driver.memory": "768m"}

PRODUCER_SETTINGS: Final = {
    "client.id": "feeder",
    "enable.idempotence": True,
    "linger.ms": 20,
    "batch.size": 131_072,
    "queue.buffering.max.messages": 50_000,
}

_LOOK_EVERY_S: Final = 0.2
_END_S: Final = 45.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoConfig:
    """The input and output of a demo."""

    records: int
    """How many are fed in all."""
    seed: int
    given: Path | None
    """A text file to feed, one record a line; None: events generated with ``seed``."""
    sql: Path
    output: Path
    """An empty directory for everything that the demo writes."""

    @property
    def table(self) -> Path:
        """The directory that the applications write to."""
        return self.output / "table"

    @property
    def limit(self) -> int:
        """Most records of a micro-batch."""
        return max(PARTITIONS, self.records // BATCHES)

    @property
    def options(self) -> dict[str, tuple[object, object]]:
        """Option of ``kohort pipeline`` -> (the demo's value, the default)."""
        return {
            "limit": (self.limit, 500_000),
            "trigger-ms": (1_000, 500),
            "commit-interval": (1, 5),
            "master": ("local[1]", "local[2]"),
        }

    def differences(self) -> list[str]:
        """Every setting that differs from its default."""
        kafka = BROKER_SETTINGS | CLIENT_SETTINGS
        return [
            *(f"{name}={value} (default {default})" for name, (value, default) in kafka.items()),
            *(f"--{name} {value} (default {was})" for name, (value, was) in self.options.items()),
            *(f"{name}={value}" for name, value in SPARK_SETTINGS.items()),
        ]


class Run:
    """One run of the demo; a ``story.Demo``.

    Args:
        config: input and output.
        view: shows pictures and sentences.
        guard: ends all processes at the latest when it is left.
    """

    def __init__(self, config: DemoConfig, view: View, guard: Guard) -> None:
        self._config = config
        self._view = view
        self._guard = guard
        self._zero = monotonic_now()
        self._applications = {name: Application(name=name) for name in NAMES}
        self._trees: dict[str, Tree] = {}
        self._started_at: dict[str, Instant] = {}
        self._logs = config.output / "logs"
        history = self._logs / "broker-history.jsonl"
        self._observer = Observer(history, GROUP, config.table)
        self._broker, self._bootstrap = self._start_broker(history)
        with Admin(bootstrap_servers=self._bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        producer = Producer({"bootstrap.servers": self._bootstrap, **PRODUCER_SETTINGS})
        records = (
            lines_of(config.given) if config.given else web_events(config.records, config.seed)
        )
        self._feeder = Feeder(producer, TOPIC, records)

    def perform(self) -> Outcome:
        """Show the whole story and judge the table.

        Raises:
            DemoFailed: a process ended, or a step took too long.
        """
        try:
            shown = play(self, self._config.records)
        except DemoFailed as failed:
            tails = [f"--- {tree.log}\n{tree.tail()}" for tree in self._trees.values()]
            raise DemoFailed("\n".join([str(failed), *tails])) from None
        finally:
            del self._feeder  # and with it the producer, which would report the broker's end
        self.say("everything is consumed; the applications leave")
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda tree: tree.end(_END_S), self._trees.values()))
        outcome = self._judge(shown)
        self._broker.end(_END_S)
        return outcome

    # -- what the story can do --------------------------------------------------------------------

    def look(self) -> Picture:
        """See ``story.Demo``."""
        self._feeder.send_for(_LOOK_EVERY_S)
        if self._broker.poll() is not None:
            raise DemoFailed(f"the broker ended:\n{self._broker.tail()}")
        if self._feeder.failure is not None:
            raise DemoFailed(self._feeder.failure)
        now, ends = monotonic_now(), dict(self._feeder.ends)
        self._observer.follow(now, ends)
        self._applications = {name: self._present(name) for name in NAMES}
        picture = Picture(
            at=self._seconds(now),
            zero=self._zero,
            applications=self._applications,
            stable=self._observer.stable,
            ends=ends,
            positions=dict(self._observer.positions),
            rebalances=self._observer.rebalances,
        )
        self._view.show(picture)
        return picture

    def say(self, text: str) -> None:
        """See ``story.Demo``."""
        self._view.say(self._seconds(monotonic_now()), text)

    def feed(self, upto: int, per_second: int | None = None) -> None:
        """See ``story.Demo``."""
        self._feeder.feed(min(upto, self._config.records), per_second)

    def start(self, name: str) -> None:
        """See ``story.Demo``."""
        options = {
            "bootstrap": self._bootstrap,
            "topic": TOPIC,
            "group": GROUP,
            "sql": self._config.sql,
            "name": name,
            "output": self._config.table,
            **{option: value for option, (value, _) in self._config.options.items()},
        }
        kafka = {"client.id": name} | {n: value for n, (value, _) in CLIENT_SETTINGS.items()}
        starts = self._applications[name].starts + 1
        tree = self._kohort(
            f"{name}.{starts}.log",
            "pipeline",
            *(f"--{option}={value}" for option, value in options.items()),
            *(f"--set={setting}={value}" for setting, value in kafka.items()),
            *(f"--conf={setting}={value}" for setting, value in SPARK_SETTINGS.items()),
        )
        now = monotonic_now()
        self._trees[name], self._started_at[name] = tree, now
        self._applications[name] = Application(
            name=name, life=Life.STARTING, starts=starts, pid=tree.pid, since=self._seconds(now)
        )

    def kill(self, name: str, *, in_batch: bool) -> bool:
        """See ``story.Demo``. The first process commits micro-batches, so it is stopped before."""
        tree, members = self._trees[name], self._members(name)
        if in_batch and not self._observer.in_batch(members):
            return False
        tree.send_signal(signal.SIGSTOP)
        if in_batch and not self._observer.in_batch(members):
            tree.send_signal(signal.SIGCONT)
            return False
        tree.kill()
        self._applications[name] = replace(self._applications[name], life=Life.KILLED)
        return self._observer.in_batch(members)

    # -- parts ------------------------------------------------------------------------------------

    def _seconds(self, at: Instant) -> float:
        return (at - self._zero) / MICROS_PER_SECOND

    def _kohort(self, log: str, *arguments: str, piped: bool = False) -> Tree:
        command = [sys.executable, "-m", "kohort", *arguments]
        return self._guard.start(command, self._logs / log, piped=piped)

    def _start_broker(self, history: Path) -> tuple[Tree, str]:
        data = self._config.output / "broker"
        log = self._logs / "broker.log"
        tree = self._kohort(
            "broker.out",
            *("broker", "--port=0", f"--data-dir={data}", f"--history={history}"),
            f"--log-file={log}",
            *(f"--set={name}={value}" for name, (value, _) in BROKER_SETTINGS.items()),
            piped=True,
        )
        bootstrap = wait_ready(tree, [tree.log, log])
        self.say(f"broker ready on {bootstrap}, data in {data}")
        return tree, bootstrap

    def _members(self, name: str) -> list[MemberId]:
        return self._observer.members(name, self._started_at[name])

    def _present(self, name: str) -> Application:
        """The present state of an application."""
        before = replace(self._applications[name], landed=self._observer.landed[name])
        if before.life in {Life.ABSENT, Life.KILLED}:
            return replace(before, owned=frozenset())
        members = self._members(name)
        life = Life.MEMBER if members else before.life
        if self._trees[name].poll() is not None:
            life = Life.ENDED
        return replace(before, life=life, owned=self._observer.owned(members))

    def _judge(self, shown: Shown) -> Outcome:
        self.say("comparing every row in the table's files with the topic")
        found = self._verify()
        last = shown.last
        longest, usual = self._observer.pauses(Instant(self._zero + int(last.at * 1e6)))
        return Outcome(
            records_in=last.fed,
            rows_out=found["rows"],
            dead_letters=found["dead_letters"],
            filtered=found["filtered"],
            undecided=found["undecided"],
            holes=found["holes"] + found["unread"],
            duplicates=found["duplicates"],
            foreign=found["strangers"],
            unsound=sum(len(partition["troubles"]) for partition in found["partitions"]),
            orphans=len(found["orphans"]),
            rebalances=len(last.rebalances),
            longest_pause_s=None if longest is None else longest.micros / MICROS_PER_SECOND,
            usual_pause_s=usual,
            joined_under_backlog=shown.joined_under_backlog,
            killed_under_backlog=shown.killed_under_backlog,
            killed_in_batch=shown.killed_in_batch,
            output=str(self._config.table),
            seconds=self._seconds(monotonic_now()),
        )

    def _verify(self) -> dict[str, Any]:
        table, brokers = str(self._config.table), f"--bootstrap={self._bootstrap}"
        tree = self._kohort("verify.log", "table", "verify", table, "--json", brokers, piped=True)
        printed, _ = tree.communicate()
        try:
            found: dict[str, Any] = json.loads(printed)
        except ValueError:
            raise DemoFailed(f"the table was not compared: {tree.tail()}") from None
        return found
