"""One rebalance, with its phases, the members that it waited for, and its costs.

In and out: values. Must not know: events, groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kohort.explain.amounts import Amount, Known, Stop, weakest
from kohort.explain.causes import Cause
from kohort.explain.events import Place, Side


class Ending(StrEnum):
    """How a member ended the wait for members, as the end of a sentence about the member."""

    LAST = "joined last"
    EXPIRED = "expired"
    LEFT = "left"
    DROPPED = "did not join"


@dataclass(frozen=True, slots=True)
class Waited:
    """A member that the coordinator waited for."""

    member: str
    ending: Ending
    known: Known


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A member in one rebalance. Times in seconds, None if unknown."""

    member: str
    """The instance id, if the member has one; else the member id, or the client id."""
    noticed: float | None = None
    """When its client noticed the rebalance; known from clients only."""
    asked: float | None = None
    """When its JoinGroup came; from a client's log: when the client sent it."""
    joined: float | None = None
    """When its JoinGroup was answered; None: together with all others."""
    assigned: float | None = None
    """When it had its assignment."""
    ending: Ending | None = None
    """How it ended the wait if it did not join; ``gone`` has the time."""
    gone: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """One rebalance, as one broker or one client saw it. Times in seconds, None if unknown."""

    side: Side
    cause: Cause
    reason: str = ""
    """The whole reason, in the words of the log."""
    member: str = ""
    instance: str = ""
    client: str = ""
    host: str = ""
    """The address of the member's client; known from the offsets topic and from some lines."""
    client_reason: str = ""
    session_s: float | None = None
    """``session.timeout.ms`` of the member, in seconds; None if unknown."""
    certain: bool = True
    """Whether the log tells the cause; otherwise an earlier line makes the cause likely."""
    before: int | None = None
    """The generation that ended."""
    generation: int | None = None
    """The generation that began; None if no generation came of it."""
    began: float | None = None
    joined: float | None = None
    """When all members had joined."""
    assigned: float | None = None
    """When the leader's assignment had come."""
    waited: tuple[Waited, ...] = ()
    """The members that the coordinator waited for last; empty if the sources do not tell them."""
    joins: tuple[Join, ...] = ()
    """The members of which the sources tell when they joined, in the order of their joins."""
    asked: float | None = None
    """When the client asked to join; known from clients only."""
    members: int | None = None
    static: int | None = None
    partitions: int | None = None
    """Partitions with an owner in the new generation."""
    assignor: str = ""
    """The assignor of the generation; known from clients and the offsets topic."""
    topics_differ: bool = False
    """Whether members want different topics; known from the offsets topic only."""
    moved: int | None = None
    """Partitions with another owner than before; not known from a broker's log."""
    needless: int | None = None
    """Moved partitions beyond the fewest moves to a balanced assignment."""
    stops: tuple[Stop, ...] = ()
    """The times in which partitions stood still."""
    covered: bool = False
    """Whether all members told their partitions: then a partition without a stop worked on."""
    duplicates: Amount | None = None
    """Records that were processed again, because their partition moved before a commit."""
    place: Place
    """The first line."""

    @property
    def join_s(self) -> float | None:
        """Seconds that the coordinator waited for members to join."""
        if self.side is Side.CLIENT and self.began == self.joined:
            return None  # no line of the client tells the beginning
        return seconds_between(self.began, self.joined)

    @property
    def leader_s(self) -> float | None:
        """Seconds until the leader had assigned."""
        return seconds_between(self.joined, self.assigned)

    @property
    def dead(self) -> Amount | None:
        """The longest time in seconds in which a partition stood still.

        Without stops, the length of the whole rebalance is an upper bound.
        """
        if self.stops:
            longest = max(self.stops, key=lambda stop: stop.seconds)
            return Amount(longest.seconds, longest.known)
        if self.covered:
            return Amount(0.0, Known.MEASURED)
        whole = seconds_between(self.began, self.assigned)
        if whole is None or self.side is not Side.BROKER:
            return None
        if self.cause is Cause.EXPIRED:
            return None if self.session_s is None else Amount(whole + self.session_s, Known.BOUNDED)
        return Amount(whole, Known.BOUNDED)

    @property
    def cost(self) -> Amount | None:
        """Partition-seconds: the sum over all partitions of the seconds that they stood still."""
        if self.stops:
            known = weakest({stop.known for stop in self.stops})
            return Amount(sum(stop.seconds for stop in self.stops), known)
        if self.dead is None or self.partitions is None:
            return None
        return Amount(self.dead.value * self.partitions, self.dead.known)

    @property
    def ended(self) -> float | None:
        """The last time that is known of this rebalance."""
        if self.assigned is not None:
            return self.assigned
        return self.began if self.joined is None else self.joined


def seconds_between(first: float | None, last: float | None) -> float | None:
    """Seconds between two times; None if one is unknown, or time ran backwards."""
    return None if first is None or last is None or last < first else last - first
