"""The state of all groups and processes at one point of a history.

In: changes by ``following`` and its modules. Out: values for checks and reports. Must not know:
checks, files, kinds of facts that it does not store.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from kohort.history.promises import BUILT_IN, NO_PROMISES
from kohort.history.views import GroupView, ProcessView
from kohort.model.client_facts import CommitSent, RequestSent
from kohort.model.history_record import Recorded
from kohort.model.ids import GroupId, Token
from kohort.model.instants import MICROS_PER_MILLI, Instant
from kohort.model.wire_facts import PersistBegun, RequestReceived
from kohort.model.world_facts import PolicyDeclared

_STALLS_KEPT: Final = 1_000

RequestKey = tuple[str, int, Token, GroupId]
SentKey = tuple[str, int, int]
"""The source, its incarnation, and the number of the request."""


@dataclass(slots=True)
class TopicView:
    """The present size of a topic, and its earlier sizes."""

    partitions: int = 0
    earlier: list[tuple[Instant, int]] = field(default_factory=list)
    """Smaller sizes, each with its last instant; 0: the topic did not exist."""

    def resize(self, partitions: int, now: Instant) -> None:
        """Set the size. Earlier sizes that are not smaller are forgotten."""
        self.earlier.append((now, self.partitions))
        self.earlier = [(end, size) for end, size in self.earlier if size < partitions]
        self.partitions = partitions

    def least_after(self, instant: Instant) -> int:
        """The smallest size that a reader after this instant can have seen."""
        return min([self.partitions, *(size for end, size in self.earlier if end > instant)])


class World:
    """The state after all facts so far."""

    def __init__(self) -> None:
        self.groups: dict[GroupId, GroupView] = {}
        self.before_boot: dict[GroupId, GroupView] = {}
        """The groups before the latest start of their coordinator."""
        self.processes: dict[str, ProcessView] = {}
        self.topics: dict[str, TopicView] = {}
        self.settings: dict[str, int] = {}
        self.writes: dict[GroupId, list[PersistBegun]] = {}
        """For each group the last durable write, and all writes that began after it."""
        self.durable: dict[GroupId, PersistBegun] = {}
        self.requests: dict[RequestKey, Recorded] = {}
        """Requests without an answer."""
        self.sent: dict[SentKey, tuple[Instant, RequestSent]] = {}
        """Requests of clients without an answer."""
        self.commits: dict[SentKey, CommitSent] = {}
        """Commits of clients without an end."""
        self.request_in_hand: RequestReceived | None = None
        """The last request; facts after it are its effects unless they name another cause."""
        self.boots = 0
        self.loading = False
        """A coordinator has stopped and does not serve yet."""
        self.coordinator_seen = False
        self.disturbed_at = Instant(0)
        """The last event that concerns all groups."""
        self.stalls: deque[tuple[Instant, int]] = deque(maxlen=_STALLS_KEPT)
        self.now = Instant(0)
        self.policies = dict(BUILT_IN)

    def group(self, group_id: GroupId) -> GroupView:
        """The group with this id; an unknown group is empty.

        After a recorded start an unknown group is certainly empty, since all others were loaded.
        """
        found = self.groups.get(group_id)
        if found is None:
            found = self.groups[group_id] = GroupView(group_id=group_id, known=self.boots > 0)
        return found

    def policy(self, protocol_name: str) -> PolicyDeclared:
        """The promises of a policy."""
        return self.policies.get(protocol_name, NO_PROMISES)

    def disturbed(self, group: GroupView) -> Instant:
        """The last event that requires a rebalance of this group."""
        return max(group.disturbed_at, self.disturbed_at)

    def stalled_micros(self, begin: Instant, end: Instant) -> int:
        """How long the coordinator was stopped between two instants."""
        return sum(micros for at, micros in self.stalls if begin <= at <= end)

    def process_of(self, member_id: str) -> ProcessView | None:
        """The running process with a member id."""
        for process in self.processes.values():
            if process.member_id == member_id and process.running:
                return process
        return None

    def request_key(self, recorded: Recorded, token: Token, group_id: GroupId) -> RequestKey:
        """The key of a request; tokens start over with each start of a coordinator."""
        return (recorded.source, recorded.incarnation, token, group_id)


def millis(micros: int) -> int:
    """Whole milliseconds."""
    return micros // MICROS_PER_MILLI
