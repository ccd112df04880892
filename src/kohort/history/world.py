"""The state of all groups and processes at one point of a history.

Changed fact by fact by ``following`` and the modules that it names; read by checks and reports.
Must not know: facts' kinds beyond those it holds, checks, files.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from kohort.history.promises import BUILT_IN, NO_PROMISES, Promises, declared
from kohort.history.views import GroupView, ProcessView
from kohort.model.history_record import Recorded
from kohort.model.ids import GroupId, Token
from kohort.model.instants import MICROS_PER_MILLI, Instant
from kohort.model.wire_facts import PersistBegun, RequestReceived
from kohort.model.world_facts import PolicyDeclared

_STALLS_KEPT: Final = 1_000

RequestKey = tuple[str, int, Token, GroupId]


@dataclass(slots=True)
class TopicView:
    """A topic's size, and the sizes that it had."""

    partitions: int = 0
    earlier: list[tuple[Instant, int]] = field(default_factory=list)
    """Smaller sizes, each with the instant at which it ended; 0: the topic did not exist."""

    def resize(self, partitions: int, now: Instant) -> None:
        """Another size from now on. Sizes that are not smaller never count again."""
        self.earlier.append((now, self.partitions))
        self.earlier = [(end, size) for end, size in self.earlier if size < partitions]
        self.partitions = partitions

    def least_after(self, instant: Instant) -> int:
        """The smallest size that somebody can have seen who looked later than that."""
        return min([self.partitions, *(size for end, size in self.earlier if end > instant)])


class World:
    """What a history has said so far."""

    def __init__(self) -> None:
        self.groups: dict[GroupId, GroupView] = {}
        self.before_boot: dict[GroupId, GroupView] = {}
        """Groups as they were when their coordinator was last seen before its latest boot."""
        self.processes: dict[str, ProcessView] = {}
        self.topics: dict[str, TopicView] = {}
        self.settings: dict[str, int] = {}
        self.writes: dict[GroupId, list[PersistBegun]] = {}
        """Records of a group that are durable or may be: the last that is, and any begun after."""
        self.durable: dict[GroupId, PersistBegun] = {}
        self.requests: dict[RequestKey, Recorded] = {}
        """Requests without an answer."""
        self.request_in_hand: RequestReceived | None = None
        """The last request that came: what follows belongs to it, unless it says otherwise."""
        self.boots = 0
        self.loading = False
        """A coordinator has stopped and not come back to serve."""
        self.coordinator_seen = False
        self.disturbed_at = Instant(0)
        """When something last happened that concerns every group."""
        self.stalls: deque[tuple[Instant, int]] = deque(maxlen=_STALLS_KEPT)
        self.now = Instant(0)
        self._promises: dict[str, Promises] = dict(BUILT_IN)

    def group(self, group_id: GroupId) -> GroupView:
        """The group of that id; one that was never heard of is empty.

        After a boot that was recorded it is known to be: all others were loaded.
        """
        found = self.groups.get(group_id)
        if found is None:
            found = self.groups[group_id] = GroupView(group_id=group_id, known=self.boots > 0)
        return found

    def promises(self, protocol_name: str) -> Promises:
        """What a policy is held to."""
        return self._promises.get(protocol_name, NO_PROMISES)

    def declare(self, fact: PolicyDeclared) -> None:
        """A history says what a policy promises."""
        self._promises[fact.protocol_name] = declared(fact)

    def disturbed(self, group: GroupView) -> Instant:
        """When something last happened that calls for a rebalance of this group."""
        return max(group.disturbed_at, self.disturbed_at)

    def stalled_micros(self, begin: Instant, end: Instant) -> int:
        """For how long the coordinator stood still between two instants."""
        return sum(micros for at, micros in self.stalls if begin <= at <= end)

    def process_of(self, member_id: str) -> ProcessView | None:
        """The running process that holds a member id."""
        for process in self.processes.values():
            if process.member_id == member_id and process.running:
                return process
        return None

    def request_key(self, recorded: Recorded, token: Token, group_id: GroupId) -> RequestKey:
        """How a request is found again: tokens begin anew with each life of a coordinator."""
        return (recorded.source, recorded.incarnation, token, group_id)


def millis(micros: int) -> int:
    """Whole milliseconds."""
    return micros // MICROS_PER_MILLI
