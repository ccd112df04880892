"""The rules of Kafka's system tests over the events of verifiable consumers.

One judge for all makes: Java's VerifiableConsumer, ``kohort verifiable-consumer``, and other
clients with translated events. ``Member`` follows one process, event by event. ``judge``
compares whole streams at the end of a test.

The rules, with the names that violations begin with:

- *joined*: records come only to a member that has partitions: not before its first assignment, nor
  after a revocation of all of them (an incremental rebalance stops only what moves);
- *assigned*: records and commits name assigned partitions, revocations take assigned ones, and
  assignments bring others;
- *contiguous*: within one assignment of a partition no record is missing or repeated;
- *covered*: an accepted commit is not beyond the records that were consumed;
- *forward*: nobody consumes records before the group's committed offset;
- *alone*: no two processes have a partition at one time;
- *once*: if every process ended in order, and none gave up a partition after a refused commit, each
  record was consumed exactly once; otherwise at least once;
- *committed*: at the end the last accepted commit covers all consumed records, unless all members
  commit automatically and tell no commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Event = Mapping[str, Any]
Place = tuple[str, int]

KILLED = "killed"
"""The name of the event that the test itself adds when it kills a process."""
_RANKS = {
    "partitions_revoked": 0,
    "shutdown_complete": 0,
    KILLED: 0,
    "partitions_assigned": 1,
    "records_consumed": 2,
    "offsets_committed": 3,
}
"""The order of events of one millisecond, from different processes."""


def places(event: Event) -> list[Place]:
    """The partitions of an event."""
    return [(row["topic"], row["partition"]) for row in event["partitions"]]


@dataclass(slots=True)
class Member:
    """One process, as its events show it."""

    name: str
    instance: str | None = None
    """The ``group.instance.id``: its successor takes over before this process knows it."""
    joined: bool = False
    ended: bool = False
    clean: bool = False
    fenced: bool = False
    """Set by a test that fences this process: its last records come again."""
    owned: set[Place] = field(default_factory=set)
    position: dict[Place, int] = field(default_factory=dict)
    refused: dict[Place, int] = field(default_factory=dict)
    """Offsets of refused commits that no accepted commit covers."""
    loose: bool = False
    """Whether it gave a partition up after such a commit: the records come again."""
    consumed: int = 0
    assignments: int = 0
    revocations: int = 0
    events: list[Event] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Follow one event; note violations of the rules for one process."""
        self.events.append(event)
        match event["name"]:
            case "partitions_assigned":
                self._assigned(places(event))
            case "partitions_revoked":
                self._revoked(places(event))
            case "records_consumed":
                self._consumed(event)
            case "offsets_committed":
                self._committed(event)
            case "shutdown_complete" | "killed" as name:
                self.loose = self.loose or bool(self.refused)
                self.ended, self.joined, self.clean = True, False, name != KILLED
                self.owned.clear()
            case _:
                pass  # told, and without a rule

    def _assigned(self, partitions: list[Place]) -> None:
        self.assignments += 1
        self.joined = True
        twice = [place for place in partitions if place in self.owned]
        self._expect(not twice, f"assigned: {twice} came, but was assigned already")
        self.owned.update(partitions)

    def _revoked(self, partitions: list[Place]) -> None:
        self.revocations += 1
        foreign = [place for place in partitions if place not in self.owned]
        self._expect(not foreign, f"assigned: {foreign} was revoked, but was not assigned")
        self.owned.difference_update(partitions)
        for place in partitions:
            self.position.pop(place, None)
            self.loose = self.refused.pop(place, None) is not None or self.loose
        # An incremental rebalance stops only what moves; without partitions nothing can be read.
        self.joined = bool(self.owned)

    def _consumed(self, event: Event) -> None:
        self._expect(self.joined, f"joined: {event} while no assignment was valid")
        for row in event["partitions"]:
            place, first, last = (
                (row["topic"], row["partition"]),
                row["minOffset"],
                row["maxOffset"],
            )
            self._expect(place in self.owned, f"assigned: records of {place} came")
            at = self.position.get(place, first)
            whole = first == at and last - first + 1 == row["count"]
            self._expect(whole, f"contiguous: {place} from {first} to {last}, expected {at}")
            self.position[place] = last + 1
            self.consumed += row["count"]

    def _committed(self, event: Event) -> None:
        if not event["success"]:
            rows = {(r["topic"], r["partition"]): r["offset"] for r in event["offsets"]}
            self.refused |= {place: at for place, at in rows.items() if place in self.owned}
            return
        for row in event["offsets"]:
            place = (row["topic"], row["partition"])
            self._expect(place in self.owned, f"assigned: {place} was committed")
            at = self.position.get(place)
            covered = at is not None and row["offset"] <= at
            self._expect(covered, f"covered: {place} committed at {row['offset']}, position {at}")
            if row["offset"] >= self.refused.get(place, 0):
                self.refused.pop(place, None)

    def _expect(self, holds: bool, message: str) -> None:
        if not holds:
            self.violations.append(f"{message} ({self.name})")


def judge(members: Sequence[Member], produced: Mapping[int, int]) -> list[str]:
    """The violations of all rules, by all processes of one group that has ended.

    Args:
        members: every process that ever was in the group.
        produced: the number of records in each partition of the topic.
    """
    violations = [v for member in members for v in member.violations]
    group = _Group()
    for member, event in _in_time(members):
        group.take(member, event)
    violations += group.violations
    consumed: Counter[Place] = Counter()
    for member in members:
        for event in member.events:
            if event["name"] == "records_consumed":
                for row in event["partitions"]:
                    consumed[row["topic"], row["partition"]] += row["count"]
    committed = _last_commits(members)
    clean = all(m.clean and not m.fenced and not m.loose for m in members)
    topics = {place[0] for place in consumed}
    for place in sorted({(topic, number) for topic in topics for number in produced}):
        count, end = consumed[place], produced[place[1]]
        if count < end or (clean and count > end):
            how = "exactly" if clean else "at least"
            violations.append(f"once: {count} records of {place} consumed, expected {how} {end}")
        if committed and committed.get(place, 0) != end:
            violations.append(f"committed: {place} at {committed.get(place)}, expected {end}")
    if not topics and any(produced.values()):
        violations.append("once: nothing was consumed")
    return violations


def _in_time(members: Iterable[Member]) -> list[tuple[Member, Event]]:
    """All events by their time. Those of one millisecond stand in an order that breaks no rule."""
    found = [(m, e) for m in members for e in m.events if e["name"] in _RANKS]
    return sorted(found, key=lambda each: (each[1]["timestamp"], _RANKS[each[1]["name"]]))


@dataclass(slots=True)
class _Group:
    """Follows the events of all processes of a group."""

    owner: dict[Place, Member] = field(default_factory=dict)
    committed: dict[Place, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def take(self, member: Member, event: Event) -> None:
        name = event["name"]
        if name == "partitions_assigned":
            self._assigned(member, places(event))
        elif name == "records_consumed":
            self._consumed(member, event)
        elif name == "offsets_committed":
            for row in event["offsets"] if event["success"] else ():
                self.committed[row["topic"], row["partition"]] = row["offset"]
        else:
            gone = places(event) if "partitions" in event else list(self.owner)
            for place in [place for place in gone if self.owner.get(place) is member]:
                del self.owner[place]

    def _assigned(self, member: Member, partitions: list[Place]) -> None:
        for place in partitions:
            other = self.owner.get(place, member)
            if other is not member and not _succeeds(member, other):
                self.violations.append(f"alone: {place} of {other.name} came to {member.name}")
            self.owner[place] = member

    def _consumed(self, member: Member, event: Event) -> None:
        for row in event["partitions"]:
            place, first = (row["topic"], row["partition"]), row["minOffset"]
            at = self.committed.get(place, 0)
            if first < at and self.owner.get(place) is member:
                self.violations.append(
                    f"forward: {member.name} consumed {place} at {first}, {at} was committed"
                )


def _succeeds(member: Member, other: Member) -> bool:
    return member.instance is not None and member.instance == other.instance


def _last_commits(members: Sequence[Member]) -> dict[Place, int]:
    found: dict[Place, int] = {}
    for _, event in _in_time(members):
        if event["name"] == "offsets_committed" and event["success"]:
            for row in event["offsets"]:
                place = (row["topic"], row["partition"])
                found[place] = max(row["offset"], found.get(place, 0))
    return found
