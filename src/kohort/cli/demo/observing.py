"""Takes pictures of the demo: from the coordinator, the broker's log and the table's ledger.

What lives here: everything that looks. Four witnesses are asked, none of them the applications
themselves: the coordinator says who is a member and owns what now, the broker's log when rebalances
began and ended, its history what every generation was assigned, the ledger what has landed and
which micro-batches are under way. It must not know what the script makes of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kohort.cli.demo.picture import Application, Life, Picture, Rebalance
from kohort.cli.demo.rebalances import (
    Assigned,
    AssignmentReader,
    Drought,
    Landing,
    LogReader,
    Moves,
)
from kohort.client.admin import Admin
from kohort.client.descriptions import GroupDescription
from kohort.model.ids import TopicPartition
from kohort.spark.sqlite_ledger import LEDGER_PATH

STABLE: Final = "Stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A partition at the ledger: who acquired it, under which fence number, how far it is."""

    member: str
    epoch: int
    position: int


class LedgerWitness:
    """Reads the ledger of a table that others write.

    Args:
        table: the table's directory; its ledger need not be there yet.
    """

    def __init__(self, table: Path) -> None:
        self._path = table / LEDGER_PATH
        self._connection: sqlite3.Connection | None = None

    def held(self) -> dict[int, Held]:
        """Every partition that was acquired by somebody."""
        rows = self._ask("SELECT partition, member, epoch, next_offset FROM position")
        return {row[0]: Held(member=row[1], epoch=row[2], position=row[3] or 0) for row in rows}

    def intended(self) -> dict[tuple[int, int], int]:
        """Records of batches that are planned and not committed, by (partition, fence number)."""
        rows = self._ask(
            "SELECT partition, epoch, sum(end_offset - begin_offset) FROM intent "
            "GROUP BY partition, epoch"
        )
        return {(row[0], row[1]): row[2] for row in rows}

    def landings(self, zero: float) -> list[Landing]:
        """The manifest; times relative to ``zero``, the wall clock's seconds."""
        rows = self._ask(
            "SELECT partition, epoch, begin_offset, end_offset, committed_at_ms FROM manifest"
        )
        return [
            Landing(partition=r[0], epoch=r[1], begin=r[2], end=r[3], at=r[4] / 1_000 - zero)
            for r in rows
        ]

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, question: str) -> list[tuple[Any, ...]]:
        if self._connection is None:
            if not self._path.is_file():
                return []
            self._connection = sqlite3.connect(self._path, timeout=5.0, isolation_level=None)
            self._connection.execute("PRAGMA query_only = ON")
        try:
            return self._connection.execute(question).fetchall()
        except sqlite3.OperationalError:
            # The first application is making the tables just now.
            return []


class Tail:
    """Follows a text file that another process appends to.

    Args:
        path: of the file; it need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._rest = ""

    def lines(self) -> Iterator[str]:
        """The lines that were finished since the last call."""
        if not self._path.exists():
            return
        with self._path.open(encoding="utf-8", errors="replace") as file:
            file.seek(self._read)
            text = self._rest + file.read()
            self._read = file.tell()
        *lines, self._rest = text.split("\n")
        yield from lines


class LogWitness:
    """Follows the broker's log for rebalances."""

    def __init__(self, log: Path, reader: LogReader) -> None:
        self._log = Tail(log)
        self._reader = reader
        self.rebalances: list[Rebalance] = []

    def follow(self) -> None:
        """Read what was written since the last call."""
        for line in self._log.lines():
            ended = self._reader.read(line)
            if ended is not None:
                self.rebalances.append(ended)


class AssignmentWitness:
    """Follows the broker's history for assignments: no generation is too short to be in it."""

    def __init__(self, history: Path, reader: AssignmentReader) -> None:
        self._history = Tail(history)
        self._reader = reader

    def follow(self) -> Iterator[Assigned]:
        """What was assigned since the last call."""
        for line in self._history.lines():
            assigned = self._reader.read(line)
            if assigned is not None:
                yield assigned


@dataclass(slots=True, kw_only=True)
class Actor:
    """What is known of an application besides what witnesses say.

    ``members`` are the member ids of its present process, ``buried`` those of processes that died.
    """

    name: str
    starts: int = 0
    life: Life = Life.ABSENT
    pid: int = 0
    members: set[str] = field(default_factory=set)
    buried: set[str] = field(default_factory=set)
    landed: int = 0
    since: float = 0.0


class Observer:
    """Puts what the witnesses say together.

    Args:
        admin: asks the cluster.
        group: the applications' group.
        topic: what they read.
        ledger: of the table that they write.
        log: the broker's.
        assignments: out of the broker's history.
        partitions: of the topic.
    """

    def __init__(
        self,
        *,
        admin: Admin,
        group: str,
        topic: str,
        ledger: LedgerWitness,
        log: LogWitness,
        assignments: AssignmentWitness,
        partitions: int,
    ) -> None:
        self._admin = admin
        self._group = group
        self._topic_partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._ledger = ledger
        self._log = log
        self._assignments = assignments
        self._moves = Moves()
        self.drought = Drought()
        self._before: dict[int, Held] = {}

    def look(self, at: float, actors: Mapping[str, Actor], fed: int, *, fed_out: bool) -> Picture:
        """The picture of this moment. Notes in ``actors`` which members they are."""
        ends = self._admin.list_offsets(self._topic_partitions)
        group = self._admin.describe_group(self._group)
        self._log.follow()
        held, intended = self._ledger.held(), self._ledger.intended()
        owned = _recognise(at, group, actors)
        self._count_landed(held, actors)
        for assigned in self._assignments.follow():
            self._moves.see(assigned.generation, assigned.owners)
        applications = {
            name: _application(actor, owned.get(name, frozenset()), held, intended)
            for name, actor in actors.items()
        }
        picture = Picture(
            at=at,
            applications=applications,
            stable=group.state == STABLE,
            fed=fed,
            fed_out=fed_out,
            ends={tp.partition: found.offset for tp, found in ends.items()},
            positions={number: each.position for number, each in held.items()},
            rebalances=self._moves.noted(self._log.rebalances),
        )
        self.drought.see(at, picture.backlog)
        return picture

    def in_batch(self, actor: Actor) -> bool:
        """Whether a micro-batch of the application is planned and not committed, at this moment."""
        return _in_batch(actor, self._ledger.held(), self._ledger.intended())

    def landings(self, zero: float) -> list[Landing]:
        """Every commit to the table."""
        return self._ledger.landings(zero)

    def _count_landed(self, held: dict[int, Held], actors: Mapping[str, Actor]) -> None:
        for number, now in held.items():
            before = self._before.get(number)
            begin = before.position if before is not None else now.position
            for actor in actors.values():
                # What a process committed just before it was killed is its own, too.
                if now.member in actor.members | actor.buried:
                    actor.landed += now.position - begin
        self._before = held


def bury(actor: Actor) -> None:
    """The application's process is dead; its members may stay in the group for a session."""
    actor.life = Life.KILLED
    actor.buried |= actor.members
    actor.members.clear()


def _recognise(
    at: float, group: GroupDescription, actors: Mapping[str, Actor]
) -> dict[str, frozenset[int]]:
    """Which application owns what; members are known by the client id, which is its name."""
    owned: dict[str, frozenset[int]] = {}
    for member in group.members:
        actor = actors.get(member.client_id)
        if actor is None or member.member_id in actor.buried:
            continue
        if actor.life is Life.KILLED:
            # It joined between the last look and its death.
            actor.buried.add(member.member_id)
            continue
        actor.members.add(member.member_id)
        if actor.life is Life.STARTING:
            actor.life, actor.since = Life.MEMBER, at
        mine = frozenset(p.partition for p in member.partitions or ())
        owned[actor.name] = owned.get(actor.name, frozenset()) | mine
    return owned


def _application(
    actor: Actor,
    owned: frozenset[int],
    held: Mapping[int, Held],
    intended: Mapping[tuple[int, int], int],
) -> Application:
    acquired = frozenset(p for p in owned if p in held and held[p].member in actor.members)
    return Application(
        name=actor.name,
        life=actor.life,
        starts=actor.starts,
        owned=owned,
        acquired=acquired,
        landed=actor.landed,
        in_batch=_in_batch(actor, held, intended),
        pid=actor.pid,
        since=actor.since,
    )


def _in_batch(
    actor: Actor, held: Mapping[int, Held], intended: Mapping[tuple[int, int], int]
) -> bool:
    return any(
        intended.get((number, each.epoch), 0) > 0
        for number, each in held.items()
        if each.member in actor.members
    )
