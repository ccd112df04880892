"""The observer of the demo: recorded facts and the table's ledger in, pictures out.

In: the history file that the broker writes, the ledger's intents. Out: the members of the group and
their partitions, commits, rebalances and pauses. Must not know: the story.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from kohort.history.cost_values import Pause, Rebalance
from kohort.history.following import follow
from kohort.history.rebalances import GroupTimeline, longest_across
from kohort.history.world import World
from kohort.model.facts import OffsetsCommitted
from kohort.model.group_state import GroupState
from kohort.model.history_record import Recorded
from kohort.model.ids import GroupId, MemberId
from kohort.model.instants import MICROS_PER_SECOND, Instant
from kohort.spark.tables.table import kind_of, open_ledger
from kohort.storage.fact_files import parse_line


class Observer:
    """Follows one group.

    Args:
        history: the broker's history file.
        group: the group's id.
        table: the directory that the group's applications write to.
    """

    def __init__(self, history: Path, group: str, table: Path) -> None:
        self._history = history
        self._read = 0
        self._group_id = GroupId(group)
        self._table = table
        self._world = World()
        self._timeline = GroupTimeline()
        self._ends: list[tuple[Instant, dict[int, int]]] = []
        self.positions: dict[int, int] = {}
        """For each partition, the offset that the group has committed."""
        self.landed: Counter[str] = Counter()
        """Committed records by client id."""

    def follow(self, now: Instant, ends: dict[int, int]) -> None:
        """Read all new facts; ``ends`` are the ends of the partitions at this moment."""
        if not self._ends or self._ends[-1][1] != ends:
            self._ends.append((now, ends))
        for recorded in self._new_facts():
            fact = recorded.fact
            if getattr(fact, "group_id", None) == self._group_id:
                self._timeline.feed(recorded)
                if isinstance(fact, OffsetsCommitted):
                    self._committed(fact)
            follow(self._world, recorded)

    @property
    def stable(self) -> bool:
        """Whether the group's state is Stable."""
        return self._world.group(self._group_id).state is GroupState.STABLE

    @property
    def rebalances(self) -> tuple[Rebalance, ...]:
        """The rebalances that led to a generation."""
        return tuple(r for r in self._timeline.rebalances if r.generation_id is not None)

    def members(self, client_id: str, since: Instant) -> list[MemberId]:
        """The members with this client id that joined the group after an instant."""
        group = self._world.group(self._group_id)
        return [
            member.member_id
            for member in group.members.values()
            if self._client_id(member.member_id) == client_id and member.added_at >= since
        ]

    def owned(self, members: Sequence[MemberId]) -> frozenset[int]:
        """The partitions of these members in the last stable generation."""
        stable = self._world.group(self._group_id).stable
        targets = (stable.targets if stable is not None else None) or {}
        return frozenset(tp.partition for m in members for tp in targets.get(m, ()))

    def in_batch(self, members: Sequence[MemberId]) -> bool:
        """Whether a micro-batch of these members is planned and not committed at this moment."""
        if kind_of(self._table) is None:
            return False
        with closing(open_ledger(self._table)) as ledger:
            running = ledger.under_way()
            positions = ledger.all_positions()
        return any(positions[partition].member in members for partition in running)

    def pauses(self, until: Instant) -> tuple[Pause | None, float]:
        """The longest pause across a rebalance, and the median seconds between two commits.

        Time without records to read is not part of a pause.
        """
        found = [self._with_records(p) for p in self._timeline.pauses if p.end <= until]
        usual = sorted(pause.micros for pause in self._timeline.pauses)
        median = usual[len(usual) // 2] / MICROS_PER_SECOND if usual else 0.0
        return longest_across(found, self.rebalances), median

    def _with_records(self, pause: Pause) -> Pause:
        """The part of a pause during which the partition had records to read."""
        number = pause.partition.partition
        readable = next(
            (at for at, ends in self._ends if ends.get(number, 0) > pause.offset), pause.begin
        )
        return replace(pause, begin=min(max(pause.begin, readable), pause.end))

    def _committed(self, fact: OffsetsCommitted) -> None:
        name = self._client_id(fact.member_id)
        for partition, offset in fact.offsets:
            before = self.positions.get(partition.partition, 0)
            self.landed[name] += offset - before
            self.positions[partition.partition] = offset

    def _client_id(self, member_id: MemberId) -> str:
        offer = self._world.group(self._group_id).offers.get(member_id)
        return "" if offer is None else offer.client_id

    def _new_facts(self) -> Iterator[Recorded]:
        with self._history.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                recorded = parse_line(line)
                if recorded is not None:
                    yield recorded
