"""The groups that the dashboard shows: pictures, and the patterns in them. Shared by threads.

In: records of a live cluster and looks at its groups, or explained groups of files. Out: messages
for browsers: each reader gets all once, then only what changed. Must not know: how groups are read,
HTTP.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from kohort.dashboard.times import time_text
from kohort.explain.explaining import Explained
from kohort.explain.live import LiveGroup, LiveGroups, MembersTell
from kohort.explain.offsets_topic.generations import Committed, Planner
from kohort.explain.offsets_topic.lag import Lag
from kohort.explain.pages.headline import headline
from kohort.explain.pages.number_row import numbers_of
from kohort.explain.pages.picture import Cursor, Picture, picture_of
from kohort.explain.rebalances import Rebalance
from kohort.explain.told import Told
from kohort.model.ids import TopicPartition

_MINUTE_S: Final = 60.0
MINUTES: Final = 60
"""Minutes of the overview: the rebalances in each are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenMember:
    """A member at a look."""

    member: str
    instance: str
    client: str
    host: str
    partitions: int
    lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A group at a look."""

    group: str
    state: str
    protocol: str
    members: tuple[SeenMember, ...]
    lag: int | None
    behind: frozenset[TopicPartition] = frozenset()
    """The partitions with a lag."""


@dataclass(slots=True)
class _Group:
    """A group, and everything that its page shows."""

    picture: Picture
    live: LiveGroup | None = None
    told: Explained | None = None
    seen: Seen | None = None
    version: int = 0
    patterns: tuple[int, dict[str, Any]] = (-1, {})
    """One sentence, the numbers, the patterns, and the version of the group that has them."""


@dataclass(slots=True)
class Reader:
    """One browser: the group that it shows, and the values that it has."""

    group: str
    had: Cursor = field(default_factory=Cursor)
    version: int = -1
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    head: dict[str, Any] = field(default_factory=dict)


class Board:
    """The groups of one source.

    Args:
        source: its name, for people.
        planner: finds the fewest moves of a balanced assignment, as in `Generations`.
        only: shows these groups only; all if empty.
        tells: for groups of which the members tell the owners; see `LiveGroups`.
    """

    def __init__(
        self,
        source: str,
        planner: Planner | None = None,
        only: Sequence[str] = (),
        tells: Mapping[str, MembersTell] | None = None,
    ) -> None:
        self.source = source
        self.closed = False
        """Whether the streams of all readers shall end."""
        self._planner = planner
        self._only = frozenset(only)
        self._lock = threading.Lock()
        self._tells = tells or {}
        self._live = LiveGroups(planner, self._tells)
        self._groups: dict[str, _Group] = {}
        self._committed: dict[str, dict[TopicPartition, float]] = {}
        """The time of the last commit of each partition, by group."""
        self._remarks: dict[str, str] = {}
        self._now = 0.0

    # -- what sources tell ------------------------------------------------------------------------

    def feed(self, item: Told) -> None:
        """A record of the offsets topic."""
        group = getattr(item, "group", "")
        if self._only and group not in self._only:
            return
        with self._lock:
            if isinstance(item, Committed):
                self._committed.setdefault(group, {})[item.partition] = item.at
            self._live.feed(item)
            if group not in self._groups and (live := self._live.groups.get(group)) is not None:
                self._groups[group] = _Group(live.picture, live)

    def restart(self, topics: Mapping[str, str]) -> None:
        """Forget all records: the offsets topic is read from its start. `topics`: names by id."""
        with self._lock:
            self._live = LiveGroups(self._planner, self._tells)
            self._live.name_topics(topics)
            self._groups.clear()
            self._committed.clear()

    def looked(self, seen: Iterable[Seen], at: float) -> None:
        """The groups of a live cluster at a time; all other groups are gone."""
        with self._lock:
            self._now = at
            present = {each.group: each for each in seen}
            for name in self._groups.keys() - present.keys():
                del self._groups[name]
                self._committed.pop(name, None)
                self._live.forget(name)
            for name, each in present.items():
                group = self._groups.get(name)
                if group is None:
                    live = self._live.group(name, at)
                    if live is None:
                        continue
                    group = self._groups[name] = _Group(live.picture, live)
                group.seen = each
                group.version += 1
                group.picture.reach(at)
                if each.lag is not None:
                    group.picture.lagged(Lag(at, each.lag, self._age_s(each, at)))

    def _age_s(self, seen: Seen, at: float) -> float | None:
        """The longest time since the last commit of a partition with a lag."""
        commits = self._committed.get(seen.group, {})
        ages = [at - commits[each] for each in seen.behind if each in commits]
        return max(0.0, *ages) if ages else None

    def members_told(self, name: str, at: float) -> None:
        """The members of a group told a change of owners at this time, in seconds since 1970."""
        with self._lock:
            if (live := self._live.groups.get(name)) is not None:
                live.look(at)

    def show(self, explained: Iterable[Explained]) -> None:
        """The groups of files; they replace those before."""
        with self._lock:
            before, self._groups = self._groups, {}
            for each in explained:
                name = each.story.group
                if name in self._groups:  # two clusters have a group of this name
                    name = f"{name} ({each.story.partition})"
                if self._only and each.story.group not in self._only:
                    continue
                picture = picture_of(each.story)
                old = before.get(name)
                picture.edition = 0 if old is None else old.picture.edition + 1
                version = 0 if old is None else old.version + 1
                self._groups[name] = _Group(picture, told=each, version=version)
                self._now = max(self._now, each.story.last or 0.0)

    def remark(self, about: str, text: str) -> None:
        """A sentence about the source that people must know; an empty one ends it."""
        with self._lock:
            self._remarks[about] = text
            if not text:
                del self._remarks[about]

    # -- what readers get -------------------------------------------------------------------------

    def news(self, reader: Reader) -> list[tuple[str, dict[str, Any]]]:
        """The events that a reader lacks: name and values."""
        with self._lock:
            events = [*self._overview(reader)]
            if reader.group:
                events += self._of_group(reader)
            return events

    def _overview(self, reader: Reader) -> Iterable[tuple[str, dict[str, Any]]]:
        head = {"source": self.source, "remarks": [*self._remarks.values()]}
        rows = {name: _row(name, group, self._now) for name, group in self._groups.items()}
        changed = [row for name, row in rows.items() if reader.rows.get(name) != row]
        gone = [name for name in reader.rows if name not in rows]
        if head != reader.head or changed or gone:
            reader.head, reader.rows = head, rows
            yield "groups", {**head, "rows": changed, "gone": gone}

    def _of_group(self, reader: Reader) -> Iterable[tuple[str, dict[str, Any]]]:
        group = self._groups.get(reader.group)
        if group is None:
            if reader.version != -2:
                reader.version, reader.had = -2, Cursor()
                yield "missing", {"group": reader.group}
            return
        version = group.version + (0 if group.live is None else group.live.version)
        if reader.version == version and reader.had.edition == group.picture.edition:
            return
        reader.version = version
        message, reader.had = group.picture.message(reader.had)
        seen = group.seen
        members = [] if seen is None else [asdict(each) for each in seen.members]
        values = {"group": reader.group, "picture": message, "members": members}
        yield "group", {**values, **_patterns(group)}


def _explained(group: _Group) -> Explained:
    if group.told is not None:
        return group.told
    assert group.live is not None
    return group.live.explained()


def _patterns(group: _Group) -> dict[str, Any]:
    version = 0 if group.live is None else group.live.version
    if group.patterns[0] != version:
        explained = _explained(group)
        found = [
            {
                "name": each.name,
                "says": each.says,
                "advice": each.advice,
                "tried": each.effect,
                "known": each.known.value,
                "proof": ", ".join(f"{place.file}:{place.line}" for place in each.evidence),
            }
            for each in explained.findings
        ]
        told = headline(explained, explained.story.group, time_text)
        numbers = [[each.name, each.text, each.known.value] for each in numbers_of(explained.story)]
        group.patterns = version, {"headline": told, "findings": found, "numbers": numbers}
    return group.patterns[1]


def _row(name: str, group: _Group, now: float) -> dict[str, Any]:
    """The line of a group in the overview."""
    rebalances, seen = group.picture.rebalances, group.seen
    begin = now - MINUTES * _MINUTE_S
    minutes = [0] * MINUTES
    recent = 0
    costs = []
    for each in reversed(rebalances):
        if each.ended is None or each.ended < begin:
            break
        minutes[min(MINUTES - 1, int((each.ended - begin) / _MINUTE_S))] += 1
        recent += 1
        if each.cost is not None:
            costs.append(each.cost.value)
    last = rebalances[-1] if rebalances else None
    return {
        "group": name,
        "state": "" if seen is None else seen.state,
        "protocol": "" if seen is None else seen.protocol,
        "members": _members(last) if seen is None else len(seen.members),
        "lag": None if seen is None else seen.lag,
        "rebalances": recent,
        "minutes": minutes,
        "cost": round(sum(costs), 1) if costs or not recent else None,
        "last": None if last is None else last.ended,
        "cause": "" if last is None else last.cause.value,
    }


def _members(last: Rebalance | None) -> int | None:
    return None if last is None else last.members
