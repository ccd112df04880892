"""Explains groups: events of all logs in, a story and its findings for each group out.

In: events in the order of their times. Out: `Explained` values. Must not know: files, terminals.

The partition of ``__consumer_offsets`` depends on the group's name alone. So one name with two
partitions is two groups, of two clusters, and each has its own story.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kohort.explain.events import KOHORT, Event, Handed, Kind, Side, Timed
from kohort.explain.findings import Finding
from kohort.explain.joining import (
    joined,
    one_row_each,
    owned_until_gone,
    with_clients,
    without_rebalance,
)
from kohort.explain.limits import Limit
from kohort.explain.many_groups import expired_together
from kohort.explain.offsets_topic.generations import Committed, Generations, Planner, Settled
from kohort.explain.offsets_topic.lag import MOST_ASKED, MOST_KEPT, Commits, Ends
from kohort.explain.offsets_topic.server_groups import Bumped, Reconciled, ServerGroup, ServerMember
from kohort.explain.ownership import MOST_STEPS, Ownership
from kohort.explain.patterns.rules import findings
from kohort.explain.rebalances import Rebalance
from kohort.explain.skews import STEPS, Skew, Skews
from kohort.explain.stories import MOST_CLIENTS, MOST_REBALANCES, Story
from kohort.explain.told import Told
from kohort.explain.waits import Rounds, earlier
from kohort.explain.wordings.templates import NEWEST, version_text

MOST_GROUPS: Final = 10_000
MOST_ROWS: Final = 50_000
"""Rebalances from logs that all groups keep together. Above it, large groups keep fewer."""
LEAST_ROWS: Final = 20
"""Rebalances that each group keeps in any case: as many as its table has on a terminal."""
_HISTORY_S: Final = 86_400.0
"""A broker's line within this time of a history's last event comes from the same broker."""
_TROUBLES: Final = (Kind.REPLICAS_CHANGED, Kind.STORE_FAILED)
"""Troubles of a partition of the offsets topic concern all groups of the partition."""
_MOVES: Final = {Kind.COORDINATOR_MOVED, Kind.REPLICAS_CHANGED, Kind.STORE_FAILED}
"""Lines about a broker alone say nothing beside lines about groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A group's story and the patterns in it."""

    story: Story
    findings: tuple[Finding, ...]

    @property
    def makers(self) -> str:
        """The programs that wrote the lines, with Kafka's version by its words."""
        return ", ".join(
            f"Kafka {_versions(self.story)}" if maker == "Kafka" else maker
            for maker, _ in self.story.makers.most_common()
        )


class Explainer:
    """Sorts events by group; memory is bounded by the number of groups.

    Args:
        planner: finds the fewest moves of a balanced assignment if members want different
            topics.
        lags: whether to keep commits, which `add_lags` needs.
    """

    def __init__(self, planner: Planner | None = None, *, lags: bool = False) -> None:
        self._planner = planner
        self._commits: dict[tuple[str, int | None], Commits] | None = {} if lags else None
        self._stories: dict[tuple[str, int | None], Story] = {}
        self._latest: dict[str, Story] = {}
        self._generations: dict[tuple[str, int | None], Generations] = {}
        self._servers: dict[tuple[str, int | None], ServerGroup] = {}
        self._topics: dict[str, str] = {}
        """Names of topics by their ids."""
        self._skews = Skews()
        self.skews: list[Skew] = []
        """Clocks that are apart; known at the end."""
        self.refused = 0
        """Events of further groups after `MOST_GROUPS`."""
        self.told_twice = 0
        """Events of brokers' logs that a history of the broker tells, too."""
        self.most_rows = MOST_REBALANCES
        """Rebalances that each group keeps, the last ones."""
        self.dropped = 0
        """Rebalances that were counted and then dropped; known at the end."""
        self._rows = 0
        """Rebalances that all groups keep."""
        self.clients_limit = Limit(MOST_CLIENTS)
        self.steps_limit = Limit(MOST_STEPS)
        self.rounds = Rounds()

    def feed_all(self, items: Iterable[Told]) -> Explainer:
        """Take events, records and commits in the order of their times; returns this explainer."""
        for item in items:
            if type(item) is Event:  # as most items are
                self._take_event(item)
            else:
                self.feed(item)
        return self

    def feed(self, item: Told) -> None:
        """Take an event, a record of a group, or a commit."""
        match item:
            case Event():
                self._take_event(item)
            case Settled():
                self._settled(item)
            case Committed():
                self._committed(item)
            case Bumped() | ServerMember() | Reconciled():
                self._server(item)
            case Handed():
                self._handed(item)
            case Timed():
                self._timed(item.group, item.name, item.seconds)
                if item.partition and (latest := self._latest.get(item.group)) is not None:
                    latest.ownership.fetching(item.client, item.partition, item.at)

    def _settled(self, item: Settled) -> None:
        self._generations_of(item.group, item.home).settled(item)
        for member in item.members:
            if member.rebalance_s is not None:
                self._timed(item.group, "rebalance timeout", member.rebalance_s)

    def _committed(self, item: Committed) -> None:
        self._generations_of(item.group, item.home).committed(item)
        if self._commits is not None:
            self._keep_commit(item, self._commits)
        if item.topic_id:
            self._topics[item.topic_id] = item.partition.topic

    def _keep_commit(self, item: Committed, kept: dict[tuple[str, int | None], Commits]) -> None:
        key = item.group, item.home
        if key not in kept and len(kept) < MOST_KEPT:
            kept[key] = Commits()
        if key in kept:
            kept[key].feed(item)

    def add_lags(self, explained: Iterable[Explained], ends: Ends) -> None:
        """Add the lag to the stories of the groups with the most rebalances.

        Args:
            explained: the groups that `finish` returned.
            ends: returns the ends of logs.
        """
        found = self._commits or {}
        keys = [(each.story, (each.story.group, each.story.partition)) for each in explained]
        for story, key in [pair for pair in keys if pair[1] in found][:MOST_ASKED]:
            story.lags = found[key].lags(ends)

    def _server(self, item: Bumped | ServerMember | Reconciled) -> None:
        key = item.group, item.home
        if key not in self._servers and len(self._servers) < MOST_GROUPS:
            self._servers[key] = ServerGroup(self._planner, self._topics)
        if (server := self._servers.get(key)) is not None:
            server.feed(item)

    def _take_event(self, event: Event) -> None:
        if event.kind in STEPS:
            self._skews.feed(event)
        story = self._story(event)
        if story is None:
            self.refused += 1
            return
        if event.side is Side.BROKER and event.at is not None:
            if event.maker == KOHORT:
                story.history_at = event.at
            elif abs(event.at - story.history_at) < _HISTORY_S:
                self.told_twice += 1
                return
        kept = len(story.finished)
        story.feed(event)
        self._rows += len(story.finished) - kept
        if self._rows > MOST_ROWS:
            self._keep_fewer()

    def _keep_fewer(self) -> None:
        """Groups with many rebalances drop the oldest ones, until `MOST_ROWS` are kept."""
        while self._rows > MOST_ROWS and self.most_rows > LEAST_ROWS:
            self.most_rows = max(LEAST_ROWS, self.most_rows * 3 // 4)
            for story in self._stories.values():
                story.keep_last(self.most_rows)
            self._rows = sum(len(story.finished) for story in self._stories.values())

    def _timed(self, group: str, name: str, seconds: float) -> None:
        latest = self._latest.get(group)
        if latest is not None:
            latest.timed(name, seconds)

    def _handed(self, handed: Handed) -> None:
        latest = self._latest.get(handed.group)
        if latest is not None:
            place = (handed.client, handed.partition, handed.first, handed.last, handed.at)
            latest.ownership.handed(*place)

    def name_topics(self, names: Mapping[str, str]) -> None:
        """Learn names of topics by their ids, which stand in records of the new protocol."""
        self._topics.update(names)

    def _generations_of(self, group: str, home: int | None) -> Generations:
        found = self._generations.get((group, home))
        if found is None:
            found = Generations(self._planner)
            if len(self._generations) >= MOST_GROUPS:
                self.refused += 1
            else:
                self._generations[group, home] = found
        return found

    def finish(self) -> list[Explained]:
        """One value for each group; those with the most rebalances come first."""
        self.skews = self._skews.found()
        ahead = {skew.file: skew.seconds for skew in self.skews}
        for story in self._stories.values():
            story.finish()
            self.dropped += story.total - len(story.rebalances)
            if ahead:
                story.replace([_earlier(r, ahead.get(r.place.file, 0.0)) for r in story.rebalances])
        waiting = [story for story in self._stories.values() if story.under_way is not None]
        for story in waiting:
            story.logs_end = max(s.last or 0.0 for s in self._stories.values() if s.versions)
        for key in self._servers:
            self._generations_of(*key)
        for (group, partition), generations in self._generations.items():
            story = self._latest.get(group) or Story(group=group)
            if partition is not None and story.partition not in {None, partition}:
                story = Story(group=group)  # the logs come from another cluster
            self._stories.pop((group, story.partition), None)
            story.partition = partition if partition is not None else story.partition
            self._stories[group, story.partition] = story
            found, owned = generations.finish(), generations.owned
            story.count_clients(found)
            if (server := self._servers.get((group, partition))) is not None:
                rows, times = server.finish()
                found, owned = [*found, *rows], [*owned, *times]
            story.owned = owned_until_gone(owned, story.rebalances)
            story.replace(joined(story.rebalances, found))
            if story.makers[KOHORT] == 0:
                story.makers[Side.OFFSETS] += len(found)
        self._share_troubles()
        for story in self._stories.values():
            self._add_clients(story, ahead)
        together = expired_together(self._stories.values())
        explained = [
            Explained(story=story, findings=(*together.get(story.group, ()), *findings(story)))
            for story in self._stories.values()
            if story.group or len(self._stories) == 1 or not story.counts.keys() <= _MOVES
        ]
        return sorted(explained, key=lambda e: (not e.story.group, -e.story.total, e.story.group))

    def _share_troubles(self) -> None:
        """Add the troubles of a partition of the offsets topic to each group of the partition."""
        nameless = [s for (group, _), s in self._stories.items() if not group]
        for told in nameless:
            for story in self._stories.values():
                if story.group and story.partition == told.partition is not None:
                    story.take(told, _TROUBLES)

    def _add_clients(self, story: Story, ahead: Mapping[str, float]) -> None:
        """Join the rows of several clients, and add the stops of their partitions."""
        if not story.clients:
            return
        story.ownership.finish(
            {client: ahead.get(file, 0.0) for client, file in story.clients.items()}
        )
        rows = one_row_each(story.rebalances)
        clients = len(story.ownership.tellers)
        story.returns = without_rebalance(rows, story.ownership, clients)
        story.replace(with_clients(rows, story.ownership, clients))
        story.owned = story.ownership.owned or story.owned

    def _story(self, event: Event) -> Story | None:
        latest = self._latest.get(event.group)
        if latest is not None and (event.partition is None or event.partition == latest.partition):
            return latest
        if latest is not None and latest.partition is None:
            del self._stories[latest.group, None]
            latest.partition = event.partition
            self._stories[latest.group, latest.partition] = latest
            return latest
        story = self._stories.get((event.group, event.partition))
        if story is None:
            if len(self._stories) >= MOST_GROUPS:
                return None
            story = Story(
                group=event.group,
                partition=event.partition,
                finished=deque(maxlen=self.most_rows),
                clients_limit=self.clients_limit,
                rounds=self.rounds,
                ownership=Ownership(limit=self.steps_limit),
            )
            self._stories[event.group, event.partition] = story
        self._latest[event.group] = story
        return story

    @property
    def doubles(self) -> list[str]:
        """Names that belong to two groups, of two clusters."""
        names = [group for group, _ in self._stories if group]
        return sorted({name for name in names if names.count(name) > 1})


def _earlier(row: Rebalance, seconds: float) -> Rebalance:
    """The row with times of the reference clock; its log's clock is ahead by ``seconds``."""
    if not seconds:
        return row
    return replace(
        row,
        began=None if row.began is None else row.began - seconds,
        joined=None if row.joined is None else row.joined - seconds,
        assigned=None if row.assigned is None else row.assigned - seconds,
        asked=None if row.asked is None else row.asked - seconds,
        joins=tuple(earlier(join, seconds) for join in row.joins),
    )


def _versions(story: Story) -> str:
    if story.versions is None:
        return "of an unknown version"
    low, high = story.versions
    if low > high:
        return "of several versions"
    if high == NEWEST:
        return f"{version_text(low)} or newer"
    return version_text(low) if low == high else f"{version_text(low)} to {version_text(high)}"
