"""The times of a client's work, from its facts: callbacks, restores, polls, heartbeats, commits.

In: facts of applications in the order of their times. Out: `Timed` values. Must not know: files,
groups' stories.
"""

from __future__ import annotations

from typing import Final

from kohort.explain.events import Timed
from kohort.model import client_facts as c
from kohort.model.history_record import AnyFact
from kohort.model.ids import TopicPartition
from kohort.model.wire_facts import GroupApi

_REPEATED: Final = ("poll", "heartbeat", "commit")
"""Each is timed from one to the next."""


class ClientTimes:
    """Follows the clients of one history; the name of its source identifies a client."""

    def __init__(self) -> None:
        self.instances: dict[str, str] = {}
        """``group.instance.id`` by source."""
        self._begun: dict[tuple[str, str], tuple[float, int]] = {}
        """By source and part of the work: when the part began, and its size."""
        self._restoring: dict[str, tuple[float, set[TopicPartition]]] = {}
        """By source: the start of an assignment's callback, and partitions not read yet."""
        self._restored: dict[str, set[TopicPartition]] = {}
        """By source: the partitions that were read before."""

    def read(self, fact: AnyFact, at: float, source: str) -> Timed | None:
        """The time of the part of the work that ends with this fact; mostly None."""
        found: Timed | None = None
        match fact:  # in the order of their numbers
            case c.PollReturned():
                found = self._again("poll", fact, at, source, fact.records)
            case c.RequestSent() if fact.api is GroupApi.HEARTBEAT:
                found = self._again("heartbeat", fact, at, source)
            case c.CommitSent():
                found = self._again("commit", fact, at, source)
            case c.ProcessStarted():
                found = self._started(fact, at, source)
            case c.CallbackStarted() | c.CallbackEnded():
                found = self._called(fact, at, source)
            case c.PositionSet():
                found = self._positioned(fact, at, source)
            case _:
                pass
        return found

    def _started(self, fact: c.ProcessStarted, at: float, source: str) -> Timed:
        self.instances[source] = fact.group_instance_id or ""
        for name in _REPEATED:
            self._begun.pop((source, name), None)
        seconds = fact.session_timeout_ms / 1_000
        return Timed(group=fact.group_id, name="session", seconds=seconds, at=at)

    def _called(
        self, fact: c.CallbackStarted | c.CallbackEnded, at: float, source: str
    ) -> Timed | None:
        count = len(fact.partitions)
        if isinstance(fact, c.CallbackStarted):
            if fact.kind is c.CallbackKind.ASSIGNED:
                self._restoring[source] = at, set(fact.partitions)
            elif fact.kind is c.CallbackKind.REVOKED:
                self._begun[source, "flush"] = at, count
            return None
        begun = self._begun.pop((source, "flush"), None)
        if begun is None or fact.kind is not c.CallbackKind.REVOKED:
            return None
        seconds = at - begun[0]
        return Timed(group=fact.group_id, name="flush", seconds=seconds, count=count, at=at)

    def _positioned(self, fact: c.PositionSet, at: float, source: str) -> Timed | None:
        """From an assignment's callback until one of its partitions is read."""
        begun, waiting = self._restoring.get(source, (at, set()))
        if fact.partition not in waiting:
            return None
        waiting.discard(fact.partition)
        before = self._restored.setdefault(source, set())
        name = "restore again" if fact.partition in before else "restore"
        before.add(fact.partition)
        return Timed(
            group=fact.group_id,
            name=name,
            seconds=at - begun,
            at=at,
            client=source,
            partition=str(fact.partition),
        )

    def _again(
        self, name: str, fact: c.ClientFact, at: float, source: str, count: int = 1
    ) -> Timed | None:
        begun = self._begun.get((source, name))
        self._begun[source, name] = at, count
        if begun is None:
            return None
        seconds = at - begun[0]
        return Timed(group=fact.group_id, name=name, seconds=seconds, count=begun[1], at=at)
