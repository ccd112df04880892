"""Reads the lines of one log: finds what they tell about groups, and counts all others.

In: lines of text with their numbers. Out: events in the order of the lines, and counts. Must not
know: files, other logs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from kohort.explain.broker_wordings import versions_of
from kohort.explain.events import Event, Kind, Place, Side
from kohort.explain.frames import Framed, framed
from kohort.explain.tables import TableReader
from kohort.explain.templates import Wording
from kohort.explain.wordings import understood

_MAYBE: Final = (
    *("roup", "oordinator", "eartbeat", "ember", "ebalanc", "ommit", "MAXPOLL", "poll"),
    *("ssign", "eneration", "__consumer_offsets"),
)
"""A line without any of these tells nothing about a group: most lines of a broker's log. Looking
for plain texts takes a quarter of the time of a regular expression."""
_CERTAIN: Final = re.compile(
    r"GroupCoordinator|GroupMetadata|AbstractCoordinator|ConsumerCoordinator|"
    r"kafka\.coordinator\.group|"
    r"WorkerCoordinator|\|(?:CGRP|JOIN|LEAVE|REBALANCE|HEARTBEAT|SESSTMOUT|GRP)[A-Z]*\|"
)
"""A line with one of these is about a group, whatever it says."""

_TABLES: Final = ("GROUP ", "TOPIC ")
_PARTITION: Final = re.compile(r"\[GroupCoordinator id=\d+ topic=\S+ partition=(\d+)\]")
_CONTEXT: Final = re.compile(
    r"\[(?:Consumer|Worker|Producer|Streams) (?:instanceId=([^,\]]*), )?clientId=([^,\]]*), "
    r"groupId=([^\]]*)\]"
)
_RDKAFKA: Final = re.compile(r"\b(rdkafka#consumer-\d+)\b|\|([^|\s]*#consumer-\d+)\|")
_NOTHING: Final = frozenset({"None", "null", "none"})
_SOME: Final = re.compile(r"^Some\((.*)\)$")
_RANDOM: Final = re.compile(
    r"^(.*?)-?(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{32})$"
)
_NUMBERS: Final = ("generation", "members", "static", "partition")
_TEXTS: Final = ("group", "member", "instance", "client", "state", "reason")
_DAY_S: Final = 86_400.0
_MOST_TEXT: Final = 600
_MOST_EXAMPLES: Final = 5
_MOST_HELD: Final = 1_000


@dataclass(slots=True)
class Counts:
    """The numbers of lines of a log, by kind."""

    lines: int = 0
    understood: int = 0
    unknown: int = 0
    """Lines about groups in words that no known version uses."""
    others: int = 0
    """Lines that tell nothing about groups."""
    cut: int = 0
    """Lines that were longer than the limit of the reader; only their beginning was read."""
    backwards: int = 0
    """Times that are more than a second before the time of an earlier line."""
    examples: list[tuple[Place, str]] = field(default_factory=list)
    """The first unknown lines."""


class LogReader:
    """Reads one log from its beginning.

    Args:
        file: the name of the log, for places.
    """

    def __init__(self, file: str) -> None:
        self.counts = Counts()
        self._file = file
        self._tables = TableReader(file)
        self._groups: dict[str, str] = {}
        """The last group that a source named, for lines without one."""
        self._latest: dict[str, float] = {}
        self._held: list[Event] = []
        """Events of clients before the first line that names a group."""

    def read(self, number: int, line: str, *, cut: bool = False) -> list[Event]:
        """The events that are complete with this line: mostly none or one, in order.

        An event of a client without a group's name waits for the first line that names one.

        Args:
            number: of the line, from 1.
            line: without its end.
            cut: the line was longer than this text.
        """
        counts = self.counts
        counts.lines += 1
        counts.cut += cut
        if self._tables.active or line.startswith(_TABLES):
            row = self._tables.read(number, line)
            if row is not None:
                counts.understood += 1
                return [] if row is True else [row]
        if not _may_be(line):
            counts.others += 1
            return []
        frame = framed(line)
        place = Place(self._file, number)
        known = counts.understood
        events = self._read(frame, place)
        if counts.understood > known:
            return events
        if _CERTAIN.search(line) is None:
            counts.others += 1
            return []
        counts.unknown += 1
        if len(counts.examples) < _MOST_EXAMPLES:
            counts.examples.append((place, frame.text[:_MOST_TEXT]))
        return []

    def told(self, frame: Framed, place: Place) -> list[Event]:
        """The events of a text that is no line of a file, as of `read`."""
        self.counts.lines += 1
        known = self.counts.understood
        events = self._read(frame, place)
        self.counts.others += self.counts.understood == known
        return events

    def _read(self, frame: Framed, place: Place) -> list[Event]:
        found = understood(frame.text) or _in_pairs(frame) if frame.text else None
        if found is None:
            return []
        wording, values = found
        self.counts.understood += 1
        if wording.kind is Kind.HOUSEKEEPING:
            return []
        return self._complete(self._event(wording, values, frame, place))

    def rest(self) -> list[Event]:
        """The events that still wait at the end of the log: no line named a group."""
        held, self._held = self._held, []
        return held

    def _complete(self, event: Event) -> list[Event]:
        if event.group:
            return [*(replace(each, group=event.group) for each in self.rest()), event]
        if event.side is Side.BROKER:
            return [event]
        self._held.append(event)
        return self.rest() if len(self._held) > _MOST_HELD else []

    def _event(
        self, wording: Wording, values: dict[str, str], frame: Framed, place: Place
    ) -> Event:
        texts: dict[str, Any] = {
            name: _plain(values.pop(name)) if name in values else "" for name in _TEXTS
        }
        numbers: dict[str, Any] = {n: int(values.pop(n)) for n in _NUMBERS if n in values}
        self._add_context(texts, numbers, frame, wording)
        texts["client"] = texts["client"] or client_of(texts["member"])
        key = frame.source or texts["client"]
        if texts["group"]:
            self._groups[key] = self._groups[""] = texts["group"]
        else:
            texts["group"] = self._groups.get(key) or self._groups.get("", "")
        at = self._on_its_day(key, frame)
        if at is not None:
            self.counts.backwards += at < self._latest.get(key, at) - 1
            self._latest[key] = at
        return Event(
            kind=wording.kind,
            side=wording.side,
            place=place,
            text=frame.text[:_MOST_TEXT],
            at=at,
            dated=frame.dated,
            source=frame.source,
            maker=wording.maker,
            versions=(
                versions_of(wording.versions, frame.text) if wording.side is Side.BROKER else None
            ),
            details=values,
            **texts,
            **numbers,
        )

    def _on_its_day(self, key: str, frame: Framed) -> float | None:
        """The time of a line; behind midnight a log without dates goes on with the next day."""
        latest = self._latest.get(key)
        if frame.at is None or frame.dated or latest is None:
            return frame.at
        days = round((latest - frame.at) / _DAY_S)
        return frame.at + max(0, days) * _DAY_S

    def _add_context(
        self, texts: dict[str, str], numbers: dict[str, int], frame: Framed, wording: Wording
    ) -> None:
        """Values that stand in front of the message, or beside the message in a JSON line."""
        text = frame.text
        if wording.side is Side.BROKER:
            if found := _PARTITION.search(text):
                numbers.setdefault("partition", int(found[1]))
            return
        if found := _CONTEXT.search(text):
            instance, client, group = (_plain(part or "") for part in found.groups())
            texts["instance"] = texts["instance"] or instance
            texts["client"], texts["group"] = client, texts["group"] or group
        elif found := _RDKAFKA.search(text):
            texts["client"] = found[1] or found[2]
        for name, key in (("group", "groupId"), ("member", "memberId"), ("client", "clientId")):
            texts[name] = texts[name] or str(frame.fields.get(key) or "")


def _may_be(line: str) -> bool:
    for word in _MAYBE:  # noqa: SIM110 - a quarter faster than any(): most lines come here only
        if word in line:
            return True
    return False


def _in_pairs(frame: Framed) -> tuple[Wording, dict[str, str]] | None:
    """A message of franz-go; the logger wrote its values as separate fields."""
    names = list(frame.fields)
    if "group" not in names:
        return None
    pairs = [f"{name}: {frame.fields[name]}" for name in names[names.index("group") :]]
    return understood(f"{frame.text}; {', '.join(pairs)}") or understood(
        f"{frame.text}; {pairs[0]}"
    )


@lru_cache(maxsize=4_096)
def client_of(member: str) -> str:
    """The client id in a member id: a broker appends a random UUID to it."""
    found = _RANDOM.match(member)
    return found[1] if found else ""


def is_benign(event: Event) -> bool:
    """Whether a line looks like a failure and is a normal first join (KIP-394)."""
    return event.kind in {Kind.REQUESTED, Kind.JOIN_FAILED} and (
        "MemberIdRequired" in event.reason
        or "need to re-join with the given member-id" in event.reason
    )


def _plain(text: str) -> str:
    """``Some(x)`` as ``x``; empty for ``None`` and ``null``."""
    if text.startswith("Some(") and (found := _SOME.match(text)):
        return found[1]
    return "" if text in _NOTHING else text.strip()
