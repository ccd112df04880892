"""Fakes of Spark's micro-batch engine, of a group and of topics.

``Application.run`` is a generator that makes Spark's calls in Spark's order. It yields wherever a
test may stop or kill the process: before and after the entry in the offset log, after planning,
after reading, after the sink's commit, after the commit log. To drop the generator is SIGKILL, not
to resume it is a pause, and a new generator on the same ``Checkpoint`` is a restart.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from kohort.client.errors import RequestFailed
from kohort.client.membership import MembershipSnapshot
from kohort.model.errors import ErrorCode, KohortError
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position
from kohort.spark.ledgers.ledger import DataFile, Ledger, NotedTopic, WrittenFile
from kohort.spark.ledgers.sqlite_ledger import SqliteLedger
from kohort.spark.source.driver import SourceDriver
from kohort.spark.source.kafka_topics import KafkaTopics
from kohort.spark.source.options import SourceOptions, parse_options
from kohort.spark.source.planning import Piece
from kohort.spark.state.following import StateFollower


def open_ledger(directory: Path) -> SqliteLedger:
    """The ledger of the group, with the settings that applications use."""
    return SqliteLedger(directory, "g")


@functools.cache
def options_of(application: str, starting_offsets: str = "earliest") -> SourceOptions:
    """The options of a query that does not wait for records."""
    options = parse_options(
        {
            "bootstrap": "nowhere:1",
            "group.id": "g",
            "subscribe": "t",
            "startingOffsets": starting_offsets,
        }
    )
    return dataclasses.replace(options, application=application, idle_wait_s=0.0)


class FakeTopics(KafkaTopics):
    """Logs that grow; their records are their offsets."""

    def __init__(self, count: int) -> None:
        self.end: dict[TopicPartition, int] = {TopicPartition("t", n): 0 for n in range(count)}
        self.begin: dict[TopicPartition, int] = dict.fromkeys(self.end, 0)
        self.topic_id: str | None = "first"
        self.leader_epoch = 0
        self.bytes_of: dict[TopicPartition, float] = {}
        self.samples: list[TopicPartition] = []
        self.cut: dict[TopicPartition, int] = {}

    def names(self) -> frozenset[str]:
        return frozenset(partition.topic for partition in self.end)

    def partitions(self) -> list[TopicPartition]:
        return list(self.end)

    def described(self) -> dict[str, NotedTopic]:
        return {
            name: NotedTopic(
                topic_id=self.topic_id, partitions=sum(p.topic == name for p in self.end)
            )
            for name in self.names()
        }

    def beginnings(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {p: self.begin[p] for p in partitions}

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        for partition in partitions:
            if partition not in self.end:
                raise RequestFailed(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {partition.topic}"
                )
        return {p: Position(self.end[p], self.leader_epoch) for p in partitions}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Records of leader epoch 0 end where the first election cut the log."""
        return {
            p: self.cut.get(p, self.end[p]) if epoch < self.leader_epoch else self.end[p]
            for p, epoch in epochs.items()
        }

    def elect(self, **cut: int) -> None:
        """A new leader; its logs of partition tN end at ``cut``, without the records behind it."""
        self.leader_epoch += 1
        self.cut = {TopicPartition("t", int(name[1:])): end for name, end in cut.items()}
        self.end |= self.cut

    def record_bytes(self, partition: TopicPartition, offset: int) -> float | None:
        self.samples.append(partition)
        return self.bytes_of.get(partition)

    def close(self) -> None:
        pass


@dataclass
class Member:
    name: str
    alive: bool = True
    view: MembershipSnapshot[TopicPartition] | None = None
    """The last snapshot of an expired member that does not know of its expiry."""


@dataclass
class Coordinator:
    """Cooperative assignment: a partition moves after its owner released it or expired."""

    topics: FakeTopics
    members: dict[str, Member] = field(default_factory=dict)
    owner: dict[TopicPartition, str] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    draining: set[str] = field(default_factory=set)
    stateful: bool = False
    """Whether a partition moves only to a member with a warm copy."""
    warmed: set[tuple[str, TopicPartition]] = field(default_factory=set)
    generation: int = 0
    beats: int = 0

    def join(self, name: str) -> None:
        self.members[name] = Member(name)
        self._turn()

    def expire(self, name: str) -> None:
        """End the session of a member; the member does not notice."""
        member = self.members.get(name)
        if member is None or not member.alive:
            return
        member.view = self.snapshot(name)
        member.alive = False
        self._turn()

    def drain(self, name: str) -> None:
        self.draining.add(name)
        self._turn()

    def leave(self, name: str) -> None:
        if self.members.pop(name, None) is not None:
            self._turn()

    def release(self, name: str, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            if self.owner.get(partition) == name:
                del self.owner[partition]
        self._turn()

    def warm(self, name: str, partitions: Collection[TopicPartition]) -> None:
        self.warmed |= {(name, partition) for partition in partitions}

    def moves(self, partition: TopicPartition, name: str) -> bool:
        """Whether a partition moves away from its living owner now."""
        target = self.target(partition)
        ready = not self.stateful or (target, partition) in self.warmed
        return target != name and ready

    def copies(self, name: str) -> frozenset[TopicPartition]:
        """The partitions that will move to a member, and have another living owner."""
        if not self.stateful:
            return frozenset()
        return frozenset(
            p for p, owner in self.owner.items() if owner != name and self.target(p) == name
        )

    def target(self, partition: TopicPartition) -> str | None:
        living = sorted(n for n, m in self.members.items() if m.alive and n not in self.draining)
        return living[partition.partition % len(living)] if living else None

    def _turn(self) -> None:
        self.generation += 1
        for partition in self.topics.partitions():
            owner = self.owner.get(partition)
            if owner is None or owner not in self.members or not self.members[owner].alive:
                wanted = self.target(partition)
                if wanted is None:
                    self.owner.pop(partition, None)
                else:
                    self.owner[partition] = wanted

    def snapshot(self, name: str) -> MembershipSnapshot[TopicPartition]:
        self.beats += 1
        owned = frozenset(p for p, owner in self.owner.items() if owner == name)
        return MembershipSnapshot(
            assignments=1,
            generation=self.generation,
            member=name,
            owned=owned,
            revoking=frozenset(p for p in owned if self.moves(p, name)),
            copies=self.copies(name),
            preparing=frozenset(p for p in self.copies(name) if (name, p) not in self.warmed),
            confirmations=self.beats,
            confirmed=True,
        )


class FakeGroup:
    """The membership of one member; with ``zombie_confirmed`` an expired member looks confirmed."""

    knows_drains = True
    """Whether the leader knows drains."""
    draining = False

    def __init__(self, coordinator: Coordinator, name: str, zombie_confirmed: bool) -> None:
        self.coordinator = coordinator
        self.name = name
        self.zombie_confirmed = zombie_confirmed
        self.commits: list[Mapping[TopicPartition, int]] = []
        self.subscriptions: list[frozenset[str]] = []

    def join(self) -> None:
        self.coordinator.join(self.name)

    def subscribe(self, topics: Collection[str]) -> None:
        self.subscriptions.append(frozenset(topics))
        self.coordinator.join(self.name)

    def touch(self) -> None:
        pass

    def snapshot(self) -> MembershipSnapshot[TopicPartition]:
        member = self.coordinator.members.get(self.name)
        if member is not None and not member.alive:
            assert member.view is not None
            view = member.view
            return MembershipSnapshot(
                assignments=1,
                generation=view.generation,
                member=view.member,
                owned=view.owned,
                revoking=view.revoking,
                confirmations=view.confirmations,
                confirmed=self.zombie_confirmed,
            )
        return self.coordinator.snapshot(self.name)

    def wake_up(self) -> None:
        """Let an expired member notice its expiry and join again without partitions."""
        member = self.coordinator.members.get(self.name)
        if member is not None and not member.alive:
            del self.coordinator.members[self.name]
            self.coordinator.join(self.name)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        member = self.coordinator.members.get(self.name)
        if member is None or not member.alive:
            raise KohortError("UNKNOWN_MEMBER_ID")
        for partition in offsets:
            if self.coordinator.owner.get(partition) != self.name:
                raise KohortError("ILLEGAL_GENERATION")
        self.coordinator.offsets.update(offsets)
        self.commits.append(dict(offsets))

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        offsets = self.coordinator.offsets
        return {p: offsets[p] for p in partitions if p in offsets}

    def release(self, partitions: Collection[TopicPartition]) -> None:
        member = self.coordinator.members.get(self.name)
        if member is not None and member.alive:
            self.coordinator.release(self.name, partitions)

    def report_warm(self, partitions: Collection[TopicPartition]) -> None:
        self.coordinator.warm(self.name, partitions)

    def drain(self) -> None:
        self.draining = True
        if self.knows_drains:
            self.coordinator.drain(self.name)

    @property
    def drained(self) -> bool:
        owns = self.name in self.coordinator.owner.values()
        return self.draining and not (owns and self.knows_drains)

    def leave(self) -> None:
        self.coordinator.leave(self.name)


@dataclass
class Checkpoint:
    """Spark's offset log and the length of its commit log."""

    offsets: list[tuple[str, str]] = field(default_factory=list)
    committed: int = 0


@dataclass
class World:
    """The state outside of processes: topics, coordinator, ledger, written files."""

    directory: Path
    topics: FakeTopics
    make_ledger: Callable[[Path], Ledger] = open_ledger
    files: dict[str, list[tuple[TopicPartition, int]]] = field(default_factory=dict)
    clock: float = 0.0
    seconds_per_record: float = 0.0
    batch_s: float = 0.0
    """The time that the last batch with records took."""

    def __post_init__(self) -> None:
        self.coordinator = Coordinator(self.topics)
        self._ledgers: list[Ledger] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close the ledgers of all processes."""
        for ledger in self._ledgers:
            ledger.close()

    def open_ledger(self) -> Ledger:
        self._ledgers.append(self.make_ledger(self.directory))
        return self._ledgers[-1]

    def sleep(self, seconds: float) -> None:
        self.clock += seconds

    def write(self, rows: list[tuple[TopicPartition, int]]) -> str:
        """Write a file; its path."""
        path = f"file-{len(self.files)}"
        self.files[path] = rows
        return path

    def table(self) -> list[tuple[TopicPartition, int]]:
        """The records in committed files."""
        ledger = open_ledger(self.directory)
        rows = [record for row in ledger.manifest() if row.path for record in self.files[row.path]]
        ledger.close()
        return sorted(rows)

    def expected(self) -> list[tuple[TopicPartition, int]]:
        return [
            (partition, offset)
            for partition, end in sorted(self.topics.end.items())
            for offset in range(end)
            if survives(offset)
        ]


def survives(offset: int) -> bool:
    """The query's filter; it can drop all records of a range."""
    return offset % 7 < 5


class Application:
    """One start of one application on its checkpoint."""

    def __init__(
        self,
        world: World,
        name: str,
        checkpoint: Checkpoint,
        *,
        limit: int | None = 10,
        zombie_confirmed: bool = False,
        available_now: bool = False,
        drain_file: Path | None = None,
        fail_on_data_loss: bool = True,
        starting_offsets: str = "earliest",
        pattern: str | None = None,
        copies: StateFollower | None = None,
        idle_wait_s: float = 0.0,
    ) -> None:
        self.world = world
        self.name = name
        self.checkpoint = checkpoint
        self.limit = limit
        self.available_now = available_now
        self.calls: list[str] = []
        self.group = FakeGroup(world.coordinator, name, zombie_confirmed)
        self.ledger = world.open_ledger()
        self.sink = world.open_ledger()
        self.driver = SourceDriver(
            self.group,
            self.ledger,
            world.topics,
            dataclasses.replace(
                options_of(name, starting_offsets),
                drain_file=drain_file,
                idle_wait_s=idle_wait_s,
                fail_on_data_loss=fail_on_data_loss,
                pattern=None if pattern is None else re.compile(pattern),
            ),
            clock=lambda: world.clock,
            sleep=world.sleep,
            copies=copies,
        )
        self.done = False

    def kill(self) -> None:
        """SIGKILL: the member does not leave the group."""
        self.ledger.close()
        self.sink.close()

    def run(self) -> Iterator[str]:
        log = self.checkpoint
        if self.available_now:
            self.driver.prepare_available_now()
        if log.committed < len(log.offsets):
            start, end = log.offsets[log.committed]
            yield "replaying"
            yield from self._batch(end)
        else:
            start = log.offsets[-1][1] if log.offsets else json.dumps(self.driver.initial_offset())
            end = start
        while True:
            start = log.offsets[-1][1] if log.offsets else start
            self.calls.append("latestOffset")
            end = json.dumps(self.driver.latest_offset(json.loads(start), self.limit))
            if end == start:
                if self.available_now:
                    break
                yield "idle"
                continue
            yield "planned"
            log.offsets.append((start, end))
            yield "journalled"
            yield from self._batch(end)
        self.driver.stop()
        self.done = True

    def _batch(self, end: str) -> Iterator[str]:
        self.calls.append("partitions")
        plan = self.driver.read_plan(json.loads(end))
        yield "reading"
        files = [f for pieces in plan.tasks for f in self._write(pieces)]
        records = sum(piece.end - piece.begin for pieces in plan.tasks for piece in pieces)
        if records:
            self.world.batch_s = records * self.world.seconds_per_record
            self.world.sleep(self.world.batch_s)
        yield "written"
        self.sink.commit(self.name, files)
        yield "sunk"
        self.checkpoint.committed += 1
        yield "committed"

    def _write(self, pieces: list[Piece]) -> Iterator[WrittenFile]:
        for piece in pieces:
            rows = [(piece.partition, n) for n in range(piece.begin, piece.end) if survives(n)]
            if rows:
                path = self.world.write(rows)
                yield WrittenFile(
                    partition=piece.partition,
                    first_offset=rows[0][1],
                    last_offset=rows[-1][1],
                    files=(DataFile(path=path, rows=len(rows)),),
                )


def run_until(steps: Iterator[str], wanted: str) -> None:
    """Resume an application up to a point."""
    for point in steps:
        if point == wanted:
            return
    raise AssertionError(f"the application ended before {wanted!r}")


def ranges(document: str) -> dict[str, Any]:
    """The partitions of an offset document."""
    return dict(json.loads(document)["p"])
