"""What rebalances cost: their length from a log, moves from assignments, pauses from commits.

Pure functions and a few accumulators. In go log lines, recorded facts and rows of the manifest;
out come ``Rebalance`` values and seconds. It must not know where these are read from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Final

from kohort.cli.demo.picture import Rebalance
from kohort.embedded.consumer import decode_assignment
from kohort.model.facts import GroupStabilized, MemberAdded
from kohort.storage.fact_codec import decode_fact

_FRAME: Final = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})\] \w+ (.*)")
_BEGUN: Final = re.compile(
    r"Preparing to rebalance group (?P<group>.+) in state \w+ with old generation (?P<old>-?\d+)"
    r" .*?\(reason: (?P<reason>.*)\)"
)
_ENDED: Final = re.compile(
    r"Assignment received from leader .+ for group (?P<group>.+) for generation (?P<new>\d+)\b"
)

# Kafka's reasons, as prefixes, in the words that fit a narrow column.
_CAUSES: Final = (
    ("Adding new member", "member joined"),
    ("explicit `LeaveGroup`", "member left"),
    ("Removing member", "member expired"),
    ("removing member", "member expired"),
    ("Updating metadata", "member asked again"),
    ("Leader", "leader asked again"),
    ("leader", "leader asked again"),
    ("Member", "member asked again"),
    ("Removing", "member did not sync"),
)


class LogReader:
    """Rebalances of one group out of a broker's log lines, in Kafka's wording.

    Args:
        group: whose lines count.
        zero: the wall clock's seconds that count as 0.
    """

    def __init__(self, group: str, zero: float) -> None:
        self._group = group
        self._zero = zero
        self._began: float | None = None
        self._cause = ""

    def read(self, line: str) -> Rebalance | None:
        """The rebalance that ended with this line, if one did."""
        framed = _FRAME.match(line)
        if framed is None:
            return None
        told = framed[3]
        begun = _BEGUN.search(told)
        if begun is not None and begun["group"] == self._group:
            # A group that is preparing may have more reasons to; the first one is the cause.
            if self._began is None:
                self._began, self._cause = self._seconds(framed), _shortened(begun["reason"])
            return None
        ended = _ENDED.search(told)
        if ended is None or ended["group"] != self._group or self._began is None:
            return None
        began, self._began = self._began, None
        return Rebalance(
            generation=int(ended["new"]),
            cause=self._cause,
            began=began,
            seconds=self._seconds(framed) - began,
        )

    def _seconds(self, framed: re.Match[str]) -> float:
        moment = datetime.strptime(framed[1], "%Y-%m-%d %H:%M:%S").astimezone()
        return moment.timestamp() + int(framed[2]) / 1_000 - self._zero


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """Who was assigned what in one generation: the owner's client id by partition."""

    generation: int
    owners: Mapping[int, str]


class AssignmentReader:
    """Assignments of one group out of a broker's recorded facts.

    Args:
        group: whose facts count.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._clients: dict[str, str] = {}

    def read(self, line: str) -> Assigned | None:
        """What this line says was assigned, if it is about that."""
        if not any(f'"is":"{kind.__name__}"' in line for kind in (MemberAdded, GroupStabilized)):
            return None
        held = json.loads(line)
        fact = decode_fact(held["is"], held["f"])
        if fact.group_id != self._group:
            return None
        if isinstance(fact, MemberAdded):
            self._clients[fact.member_id] = fact.client_id
            return None
        owners = {
            partition.partition: self._clients[member]
            for member, data in fact.assignments
            if data
            for partition in decode_assignment(data).partitions
        }
        return Assigned(generation=fact.generation_id, owners=owners)


class Moves:
    """Counts partitions whose owner changed, generation by generation.

    A partition that nobody owns for a generation keeps its last owner's name, as in the first round
    of a cooperative rebalance: it has moved when somebody else has it, not when it was given up.
    """

    def __init__(self) -> None:
        self._last: dict[int, str] = {}
        self._moved: dict[int, int] = {}

    def see(self, generation: int, owners: Mapping[int, str]) -> None:
        """What a generation assigned; seeing it again changes nothing."""
        moved = 0
        for partition, owner in owners.items():
            moved += self._last.get(partition, owner) != owner
            self._last[partition] = owner
        self._moved[generation] = self._moved.get(generation, 0) + moved

    def noted(self, rebalances: Iterable[Rebalance]) -> tuple[Rebalance, ...]:
        """The rebalances with their moves, of the generations that were seen."""
        return tuple(replace(r, moved=self._moved.get(r.generation)) for r in rebalances)


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """One commit of one partition's records to the table: a row of the manifest."""

    partition: int
    epoch: int
    begin: int
    end: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The time between two commits of a partition that kept its owner all the while."""

    partition: int
    seconds: float
    ended: float


class Drought:
    """Remembers when partitions had nothing to read, which is no fault of their readers."""

    def __init__(self) -> None:
        self._dry: dict[int, list[tuple[float, float]]] = {}
        self._now_dry: set[int] = set()

    def see(self, at: float, backlog: Mapping[int, int]) -> None:
        """The backlog of every partition at one moment."""
        for partition, waiting in backlog.items():
            spells = self._dry.setdefault(partition, [])
            if waiting > 0:
                self._now_dry.discard(partition)
            elif partition in self._now_dry:
                spells[-1] = (spells[-1][0], at)
            else:
                self._now_dry.add(partition)
                spells.append((at, at))

    def ended(self, partition: int, begin: float, end: float) -> float:
        """When the last dry spell between two moments was over; ``begin`` if there was none."""
        spells = self._dry.get(partition, ())
        return max(
            (until for since, until in spells if begin <= until and since <= end), default=begin
        )


def pauses(landings: Iterable[Landing], drought: Drought | None = None) -> list[Pause]:
    """Every gap between consecutive commits of one partition under one fence number.

    A partition that moved has a new fence number, so its hand-over is no gap here. Time during
    which there was nothing to read does not count: the pause begins when there was again.
    """
    found: list[Pause] = []
    ordered = sorted(landings, key=lambda each: (each.partition, each.begin, each.end))
    for before, after in pairwise(ordered):
        same = (before.partition, before.epoch) == (after.partition, after.epoch)
        # Rows of one batch share an instant: a partition's range may be in several files.
        if not same or after.at <= before.at:
            continue
        begin = before.at
        if drought is not None:
            begin = min(after.at, drought.ended(after.partition, before.at, after.at))
        found.append(Pause(partition=after.partition, seconds=after.at - begin, ended=after.at))
    return found


def longest_retained_pause(
    landings: Iterable[Landing],
    rebalances: Iterable[Rebalance],
    until: float,
    drought: Drought | None = None,
) -> Pause | None:
    """The longest gap of a retained partition that a rebalance falls into, before ``until``."""
    spans = [(r.began, r.began + r.seconds) for r in rebalances]
    touched = [
        pause
        for pause in pauses(landings, drought)
        if pause.ended <= until
        and any(pause.ended - pause.seconds <= end and begin <= pause.ended for begin, end in spans)
    ]
    return max(touched, key=lambda pause: pause.seconds, default=None)


def usual_pause(landings: Iterable[Landing]) -> float:
    """The median gap between two commits of a partition: what a batch takes, rebalance or not."""
    gaps = sorted(pause.seconds for pause in pauses(landings))
    return gaps[len(gaps) // 2] if gaps else 0.0


def _shortened(reason: str) -> str:
    for prefix, words in _CAUSES:
        if reason.startswith(prefix):
            return words
    return reason.split(";", 1)[0]
