"""Carries out the demo: starts and ends processes, takes pictures, obeys the script's cues.

What lives here: the loop and everything it starts. In go a ``DemoConfig`` and a view, out comes a
``Verdict``. Whatever happens, no process is left behind. It must not know why a cue is given.
"""

from __future__ import annotations

import json
import queue
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Self

from kohort.cli.demo.observing import (
    Actor,
    AssignmentWitness,
    LedgerWitness,
    LogWitness,
    Observer,
    bury,
)
from kohort.cli.demo.picture import Cue, Feed, Finish, Kill, Life, Picture, Say, Start
from kohort.cli.demo.processes import Tree, Undertaker, tail
from kohort.cli.demo.rebalances import (
    AssignmentReader,
    LogReader,
    longest_retained_pause,
    usual_pause,
)
from kohort.cli.demo.script import BATCHES, NAMES, DemoFailed, Script
from kohort.cli.demo.verdict import Verdict
from kohort.cli.demo.view import View
from kohort.client.admin import Admin
from kohort.client.config import parse_client_settings

TOPIC: Final = "web-access"
GROUP: Final = "demo"
PARTITIONS: Final = 12

BROKER_SETTINGS: Final = {"group.initial.rebalance.delay.ms": ("0", "3000")}
"""Setting -> (the demo's value, Kafka's default)."""

CLIENT_SETTINGS: Final = {
    "session.timeout.ms": ("6000", "45000"),
    "heartbeat.interval.ms": ("1000", "3000"),
}

TRIGGER_MS: Final = 1_000
MASTER: Final = "local[1]"

# Three Java processes share a laptop: small heaps, the quick compiler, one collector thread.
SPARK_SETTINGS: Final = {
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": "-Xss16m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
}

_LOOK_EVERY_S: Final = 0.2
_BROKER_READY_S: Final = 120.0
_APPLICATION_END_S: Final = 45.0
_READY: Final = re.compile(r"kohort broker ready on (\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoConfig:
    """What is to be shown.

    Attributes:
        records: how many will have been fed in the end.
        seed: of the generator; unused with ``given``.
        given: a text file to feed instead, one record a line; None for generated events.
        sql: file with the pipelines' query.
        output: directory of everything that the demo writes; absent or empty.
    """

    records: int
    seed: int
    given: Path | None
    sql: Path
    output: Path

    @property
    def table(self) -> Path:
        """Where the applications write."""
        return self.output / "table"

    @property
    def limit(self) -> int:
        """Records of a micro-batch, at most."""
        return max(PARTITIONS, self.records // BATCHES)

    def differences(self) -> list[str]:
        """Every setting that is not its default, for the reader."""
        told = [
            f"{name}={value} (default {default})"
            for name, (value, default) in (BROKER_SETTINGS | CLIENT_SETTINGS).items()
        ]
        return [
            *told,
            f"--limit {self.limit} (default 500000)",
            f"--trigger-ms {TRIGGER_MS} (default 500)",
            f"--master {MASTER} (default local[2])",
            *(f"{name}={value}" for name, value in SPARK_SETTINGS.items()),
        ]


class FeederProcess:
    """The producer, and what it has told up to now."""

    def __init__(self, config: DemoConfig, bootstrap: str) -> None:
        command = [sys.executable, "-m", "kohort.cli.demo.feeder", "--bootstrap", bootstrap]
        command += ["--topic", TOPIC, "--records", str(config.records), "--seed", str(config.seed)]
        if config.given is not None:
            command += ["--input", str(config.given)]
        self.tree = Tree(command, config.output / "logs" / "feeder.log", piped=True)
        self.acknowledged = 0
        self.out = False
        _each_line(self.tree.stdout, self._told)

    def allow(self, upto: int) -> None:
        """Let it go on until it has sent so many records in all."""
        try:
            self.tree.stdin.write(f"{upto}\n")
            self.tree.stdin.flush()
        except BrokenPipeError:
            raise DemoFailed(f"the feeder ended: {tail(self.tree.log)}") from None

    def _told(self, line: str) -> None:
        told = json.loads(line)
        self.acknowledged, self.out = told["acknowledged"], told["out"]


class Stage:
    """One performance; a context manager that leaves no process behind."""

    def __init__(self, config: DemoConfig, view: View) -> None:
        self._config = config
        self._view = view
        self._script = Script(config.records)
        self._zero = time.monotonic()
        self._wall = time.time()
        self._actors = {name: Actor(name=name) for name in NAMES}
        self._trees: dict[str, Tree] = {}
        self._cleanup = ExitStack()
        self._undertaker = self._cleanup.enter_context(Undertaker())
        self._finished = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._cleanup.close()

    def perform(self) -> Verdict:
        """Play the whole story and judge what it left.

        Raises:
            DemoFailed: a process ended that should not, or an act did not come to its end.
        """
        bootstrap = self._start_broker()
        settings = parse_client_settings({"bootstrap.servers": bootstrap})
        admin = self._cleanup.enter_context(Admin(settings))
        admin.create_topic(TOPIC, partitions=PARTITIONS)
        self._bootstrap = bootstrap
        self._feeder = FeederProcess(self._config, bootstrap)
        self._cleanup.callback(self._undertaker.watch(self._feeder.tree).kill)
        ledger = LedgerWitness(self._config.table)
        self._cleanup.callback(ledger.close)
        self._observer = Observer(
            admin=admin,
            group=GROUP,
            topic=TOPIC,
            ledger=ledger,
            log=LogWitness(self._broker_log, LogReader(GROUP, self._wall)),
            assignments=AssignmentWitness(self._history, AssignmentReader(GROUP)),
            partitions=PARTITIONS,
        )
        picture = self._play()
        self._end_applications()
        return self._judge(picture)

    @property
    def _broker_log(self) -> Path:
        return self._config.output / "logs" / "broker.log"

    @property
    def _history(self) -> Path:
        return self._config.output / "logs" / "broker-history.jsonl"

    def _now(self) -> float:
        return time.monotonic() - self._zero

    def _say(self, text: str) -> None:
        self._view.say(self._now(), text)

    def _start_broker(self) -> str:
        data, told = self._config.output / "broker", self._config.output / "logs" / "broker.out"
        command = [sys.executable, "-m", "kohort", "broker", "--port", "0"]
        command += ["--data-dir", str(data), "--log-file", str(self._broker_log)]
        command += ["--history", str(self._history)]
        for name, (value, _) in BROKER_SETTINGS.items():
            command += ["--set", f"{name}={value}"]
        tree = self._undertaker.watch(Tree(command, told, piped=True))
        self._trees["broker"] = tree
        self._cleanup.callback(tree.end, 10)
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        _each_line(tree.stdout, lines.put)
        try:
            ready = _READY.match(lines.get(timeout=_BROKER_READY_S))
        except queue.Empty:
            ready = None
        if ready is None:
            raise DemoFailed(f"the broker did not start: {tail(told) or 'it said nothing'}")
        self._say(f"broker ready on {ready[1]}, data in {data}")
        return ready[1]

    def _play(self) -> Picture:
        while True:
            began = time.monotonic()
            self._note_the_dead()
            picture = self._observer.look(
                self._now(), self._actors, self._feeder.acknowledged, fed_out=self._feeder.out
            )
            self._view.show(picture)
            try:
                cues = self._script.step(picture)
            except DemoFailed as failed:
                raise DemoFailed(f"{failed}\n{self._last_words()}") from None
            for cue in cues:
                self._carry_out(cue, picture)
            if self._finished:
                return picture
            time.sleep(max(0.0, _LOOK_EVERY_S - (time.monotonic() - began)))

    def _carry_out(self, cue: Cue, picture: Picture) -> None:
        match cue:
            case Say(text):
                self._say(text)
            case Start(name):
                self._start_application(name)
            case Kill(name, anyway):
                self._kill(name, picture, anyway=anyway)
            case Feed(upto):
                self._feeder.allow(upto)
            case Finish():
                self._finished = True

    def _start_application(self, name: str) -> None:
        config = self._config
        command = [sys.executable, "-m", "kohort", "pipeline", "--bootstrap", self._bootstrap]
        command += ["--topic", TOPIC, "--group", GROUP, "--sql", str(config.sql), "--name", name]
        command += ["--output", str(config.table), "--master", MASTER]
        command += ["--limit", str(config.limit), "--trigger-ms", str(TRIGGER_MS)]
        command += ["--set", f"client.id={name}"]
        for setting, (value, _) in CLIENT_SETTINGS.items():
            command += ["--set", f"{setting}={value}"]
        for setting, value in SPARK_SETTINGS.items():
            command += ["--conf", f"{setting}={value}"]
        actor = self._actors[name]
        actor.starts += 1
        log = config.output / "logs" / f"{name}.{actor.starts}.log"
        tree = self._undertaker.watch(Tree(command, log))
        self._cleanup.callback(tree.kill)
        self._trees[name] = tree
        actor.life, actor.pid, actor.since = Life.STARTING, tree.pid, self._now()

    def _kill(self, name: str, picture: Picture, *, anyway: bool) -> None:
        """Freezes the tree before looking: what is seen is then what dies."""
        tree, actor = self._trees[name], self._actors[name]
        tree.freeze()
        hit = self._observer.in_batch(actor)
        if not (hit or anyway):
            tree.thaw()
            return
        tree.kill()
        bury(actor)
        self._script.killed(picture, hit)

    def _note_the_dead(self) -> None:
        for name in ("broker", *NAMES):
            tree = self._trees.get(name)
            if tree is None or tree.ended is None:
                continue
            if name == "broker":
                raise DemoFailed(f"the broker ended by itself:\n{tail(self._broker_log)}")
            if self._actors[name].life is not Life.KILLED:
                self._actors[name].life = Life.ENDED
        if self._feeder.tree.ended is not None:
            raise DemoFailed(f"the feeder ended by itself: {tail(self._feeder.tree.log)}")

    def _last_words(self) -> str:
        told = []
        for name in NAMES:
            tree = self._trees.get(name)
            if tree is not None:
                told.append(f"--- {tree.log}\n{tail(tree.log)}")
        return "\n".join(told)

    def _end_applications(self) -> None:
        self._say("everything is consumed; the applications leave")
        threads = [
            threading.Thread(target=self._trees[name].end, args=(_APPLICATION_END_S,))
            for name in NAMES
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _judge(self, picture: Picture) -> Verdict:
        # Imported here, since it brings pyarrow along, which a failing start does not need.
        from kohort.spark.judging import SparkJudge  # noqa: PLC0415
        from kohort.spark.verify import verify  # noqa: PLC0415

        self._say("comparing every row in the table's files with the topic")
        settings = parse_client_settings({"bootstrap.servers": self._bootstrap})
        with SparkJudge() as judge:
            found = verify(self._config.table, settings, judge)
        landings = self._observer.landings(self._wall)
        longest = longest_retained_pause(
            landings, picture.rebalances, until=picture.at, drought=self._observer.drought
        )
        return Verdict(
            records_in=self._feeder.acknowledged,
            rows_out=found.total("rows"),
            dead_letters=found.total("dead_letters"),
            filtered=found.total("filtered"),
            untold=found.total("untold"),
            holes=found.total("holes") + found.total("unread"),
            duplicates=found.total("duplicates"),
            foreign=found.total("strangers"),
            unsound=sum(len(partition.troubles) for partition in found.partitions),
            orphans=len(found.orphans),
            rebalances=len(picture.rebalances),
            longest_pause_s=longest.seconds if longest is not None else None,
            usual_pause_s=usual_pause(landings),
            joined_under_backlog=self._script.joined_under_backlog,
            killed_under_backlog=self._script.killed_under_backlog,
            killed_in_batch=self._script.killed_in_batch,
            output=str(self._config.table),
            seconds=self._now(),
        )


def _each_line(stream: IO[str], tell: Callable[[str], None]) -> None:
    def read() -> None:
        try:
            for line in stream:
                tell(line)
        except ValueError:
            pass  # The pipe was closed while it was read, since its process was killed.

    threading.Thread(target=read, daemon=True).start()
