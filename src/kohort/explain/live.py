"""Groups as a live source tells them: their pictures, and each rebalance explained as it ends.

In: the records of ``__consumer_offsets``, in the order of the log. Out: a picture and a story for
each group, at any time. Must not know: the bytes of the log, pages, clocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from kohort.explain.amounts import Known, Stop
from kohort.explain.events import Event, Kind
from kohort.explain.explaining import MOST_GROUPS, Explained
from kohort.explain.offsets_topic.generations import Committed, Generations, Planner, Settled
from kohort.explain.offsets_topic.server_groups import Bumped, Reconciled, ServerGroup, ServerMember
from kohort.explain.pages.picture import Picture
from kohort.explain.patterns.rules import findings
from kohort.explain.rebalances import Rebalance
from kohort.explain.stories import Story
from kohort.explain.told import Told

MOST_MOVES: Final = 100
"""Changes of the coordinator that are kept for one group."""
MembersTell: TypeAlias = Callable[[Mapping[str, str]], dict[str, str]]
"""The owners in the records, by partition -> the owners as the members tell them."""


@dataclass(slots=True)
class LiveGroup:
    """One group so far."""

    name: str
    picture: Picture
    version: int = 0
    """Grows with each change."""
    _classic: Generations | None = None
    _server: ServerGroup | None = None
    _owners: dict[str, str] = field(default_factory=dict)
    _down: dict[str, float] = field(default_factory=dict)
    """Since when a partition of a group of KIP-848 has no owner."""
    members_tell: MembersTell | None = None
    """Returns the owners that members report. A record comes only at the end of a rebalance, but
    members report at once that they give partitions up."""
    _recorded: dict[str, str] = field(default_factory=dict)
    _moves: deque[Event] = field(default_factory=lambda: deque(maxlen=MOST_MOVES))
    """The last changes of the coordinator."""

    def explained(self) -> Explained:
        """The group's story so far, and the patterns in it."""
        story = Story(group=self.name, dated=self.picture.dated)
        for event in self._moves:
            story.feed(event)
        story.replace(self.picture.rebalances)
        return Explained(story=story, findings=tuple(findings(story)))

    def feed(self, item: Told, planner: Planner | None, topics: dict[str, str]) -> None:
        """Take a record of the group."""
        match item:
            case Event():
                self._moves.append(item)
                self.version += 1
            case Settled():
                followed = self._generations(planner)
                followed.settled(item)
                self._take(*followed.drain())
                self._own(followed.present(), item.at)
            case Committed():
                followed = self._generations(planner)
                followed.committed(item)
                self._take(*followed.drain())
            case Bumped() | ServerMember() | Reconciled():
                if self._server is None:
                    self._server = ServerGroup(planner, topics)
                self._server.feed(item)
                self._take(self._server.drain(), [])
                self._own(self._server.present(), item.at)
            case _:
                pass

    def _generations(self, planner: Planner | None) -> Generations:
        if self._classic is None:
            self._classic = Generations(planner)
        return self._classic

    def _take(self, rebalances: list[Rebalance], stops: Iterable[Stop]) -> None:
        """Add rebalances that ended. Stops that end later belong to the last rebalance."""
        if rebalances:
            self.picture.rebalanced(rebalances)
            self.version += 1
        told = tuple(stops)
        if told and self.picture.rebalances:
            last = self.picture.rebalances[-1]
            self.picture.rebalances[-1] = replace(last, stops=last.stops + told)
            self.version += 1

    def look(self, at: float) -> None:
        """Ask the members for the owners at this time."""
        self._own(self._recorded, at)

    def _own(self, recorded: dict[str, str], at: float) -> None:
        self._recorded = owners = recorded
        if self.members_tell is not None:
            owners = self.members_tell(recorded)
        if owners == self._owners:
            return
        if self._server is not None:
            stops = [
                Stop(partition, self._down.pop(partition), at, Known.ASSUMED)
                for partition in owners.keys() & self._down.keys()
            ]
            self._down |= dict.fromkeys(self._owners.keys() - owners.keys(), at)
            self._take([], sorted(stops, key=lambda stop: stop.partition))
        self._owners = owners
        self.picture.now_own(owners, at)
        self.version += 1


class LiveGroups:
    """Follows all groups; memory is bounded by their number, and for each by its picture.

    Args:
        planner: finds the fewest moves of a balanced assignment, as in `Generations`.
        tells: for each group with members that report the owners: the function that returns them.
    """

    def __init__(
        self, planner: Planner | None = None, tells: Mapping[str, MembersTell] | None = None
    ) -> None:
        self._planner = planner
        self._tells = tells or {}
        self._topics: dict[str, str] = {}
        self.groups: dict[str, LiveGroup] = {}

    def name_topics(self, names: Mapping[str, str]) -> None:
        """Learn names of topics by their ids, which stand in records of KIP-848."""
        self._topics.update(names)

    def feed(self, item: Told) -> None:
        """Take a record, or a change of a known group's coordinator.

        Other events, and groups after `MOST_GROUPS`, are left out.
        """
        if isinstance(item, Event):
            if item.kind is Kind.COORDINATOR_MOVED and item.group in self.groups:
                self.groups[item.group].feed(item, self._planner, self._topics)
            return
        if not isinstance(item, Settled | Committed | Bumped | ServerMember | Reconciled):
            return
        if isinstance(item, Committed) and item.topic_id:
            self._topics[item.topic_id] = item.partition.topic
        group = self.group(item.group, item.at)
        if group is not None:
            group.feed(item, self._planner, self._topics)

    def group(self, name: str, at: float) -> LiveGroup | None:
        """A group, known from now on; None if there are too many.

        Args:
            name: of the group.
            at: the time of the first thing that is known of the group, in seconds since 1970.
        """
        found = self.groups.get(name)
        if found is None and len(self.groups) < MOST_GROUPS:
            picture = Picture(base=at, live=True)
            found = LiveGroup(name, picture, members_tell=self._tells.get(name))
            self.groups[name] = found
        return found

    def forget(self, name: str) -> None:
        """Forget a group that was deleted."""
        self.groups.pop(name, None)
