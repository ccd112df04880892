"""Makes the event of an understood line, and adds what the line leaves out.

In: messages with their frames, in the order of one log. Out: events. Must not know: broken lines,
counts of lines, other logs.

A line may name neither its group nor its day, client or program. Earlier lines of the same source
tell these.
"""

from __future__ import annotations

import re
from typing import Final

from kohort.explain.events import Event, Kind, Place, Side
from kohort.explain.lines.frames import LINES_OF_A_RECORD, Framed
from kohort.explain.lines.line_counts import LineCounts
from kohort.explain.lines.values import (
    beside_kafkajs,
    client_of,
    in_context,
    kind_of,
    partition_in,
    plain,
    reason_in,
)
from kohort.explain.wordings.matching import Found
from kohort.explain.wordings.messages import EITHER
from kohort.explain.wordings.versions import versions_of

_ALIKE: Final = frozenset({"kafka-python", "aiokafka", EITHER, "Java"})
_OF_JAVA: Final = re.compile(r"\b(?:Abstract|Consumer|Worker)Coordinator\b|apache\.kafka|o\.a\.k\.")
_CLIENTLESS: Final = frozenset(
    {"kafka-python", "aiokafka", EITHER, "franz-go", "librdkafka", "kafka-go", "ruby-kafka"}
)
"""Programs that write the member id in few lines. A client that is named by a member id would count
as another client than the one in the other lines."""
_DAY_S: Final = 86_400.0
MOST_TEXT: Final = 600
_MOST_REPEATED: Final = 1_000
_MOST_SOURCES: Final = 10_000
_LOGGERS: Final = ("logger", "logger_name", "name", "file_name", "filename", "module")
_new: Final = tuple.__new__
_BROKER: Final = Side.BROKER
_TOOL: Final = Side.TOOL
_GROUP_CHOSEN: Final = Kind.GROUP_CHOSEN
"""Python 3.11 finds a member by its class three times as slowly as a name of the module."""


class LineEvents:
    """Makes the events of the lines of one log.

    Args:
        file: the name of the log, for places.
        counts: counts times that go backwards.
    """

    def __init__(self, file: str, counts: LineCounts) -> None:
        self._file = file
        self._counts = counts
        self._groups: dict[str, str] = {}
        """The last group that a source named, for lines without one."""
        self._home = ("", -1)
        """The group and the partition of the last line that named both."""
        self._at_home: dict[int, str] = {}
        """The last group in each partition of the offsets topic."""
        self._latest: dict[str, float] = {}
        self._repeated: dict[str, Event] = {}
        """The last events of consumers of Java, by the text of their lines."""
        self._listed = ("", -LINES_OF_A_RECORD)
        """The group that a line in front of a table names, and the number of that line."""
        self._generation = ""
        """The generation that brod named last."""
        self._java = False
        """Whether a line was Java's."""
        self._aiokafka = False
        """Whether a line was certainly aiokafka's. It shares some messages with kafka-python."""
        self._kafka_python = False
        """Whether the last line that both programs may write was likely kafka-python's."""

    def again(self, frame: Framed, number: int) -> Event | None:
        """The event of a consumer of Java that wrote the same text before; None for a new text.

        Its context names group and client, so all values but place and time are the same.
        """
        known = self._repeated.get(frame.text)
        if known is None or frame.at is None:
            return None
        self._note_group(known.kind, known.group, known.client, known.partition)
        at = self._on_its_day(known.client, frame.at, dated=True)
        return _new(
            Event, (*known[:2], _new(Place, (self._file, number)), known[3], at, *known[5:])
        )

    def keep(self, text: str, event: Event) -> None:
        """Keep an event for `again`; its values come from its text alone."""
        if event.group and event.side is Side.CLIENT:
            if len(self._repeated) >= _MOST_REPEATED:
                self._repeated.clear()
            self._repeated[text] = event

    def event(self, found: Found, frame: Framed, place: Place) -> Event:
        """The event of a message."""
        wording, fields, details = found
        group, member, instance, client, partition, generation, members, static, *_ = fields
        text, at, dated, source, _ = frame
        kind, side, maker, versions = wording[:4]
        instance = instance and plain(instance)
        if side is _BROKER:
            if not partition and "[GroupCoordinator id=" in text:
                partition = partition_in(text)
            versions = versions_of(versions, text) if wording.reasoned else versions
        else:
            kind = kind_of(found, frame.fields, java=self._java)
            generation = self._generation_of(maker, kind, generation)
            versions, alike = None, maker in _ALIKE
            if alike:
                maker = self._maker(maker, frame)
            told = group and plain(group), member and plain(member), instance, client
            group, member, instance, client = in_context(frame, *told)
            if maker == "kafka-go":
                group = group.strip('"')  # some programs print it in quotes
            if maker == "KafkaJS" and frame.fields:
                details = {**details, **beside_kafkajs(frame.fields)}
            if alike and ", " in group:
                group = group.partition(", ")[0]  # the log's format goes on after the message
        if member and not client and maker not in _CLIENTLESS:
            client = client_of(member)
        home = int(partition) if partition else None
        if side is _TOOL:
            self._listed = group, place.line
        group = self._note_group(kind, group, source or client, home)
        if at is not None:
            at = self._on_its_day(source or client, at, dated=dated)
        # This takes half the time of a call with the names of the fields.
        return _new(
            Event,
            (
                *(kind, side, place, text[:MOST_TEXT], at, dated, source, maker, versions),
                *(group, home, member, instance, client),
                int(generation) if generation else None,
                int(members) if members else None,
                int(static) if static else None,
                *(fields[8], fields[9] and reason_in(fields[9]), details),
            ),
        )

    def _generation_of(self, maker: str, kind: Kind, generation: str) -> str:
        """The generation of a line; brod writes the generation one line before the assignment."""
        self._java |= maker == "Java"
        if maker != "brod":
            return generation
        if kind is Kind.PROGRESS:
            self._generation = generation or self._generation
        return self._generation if kind is Kind.SYNCED else ""

    def _note_group(self, kind: Kind, group: str, key: str, home: int | None) -> str:
        """The group of a line. It is kept for later lines that name no group."""
        if not group:
            # A later line names the group that the user of Spark chose.
            return "" if kind is _GROUP_CHOSEN else self._group_of_line(key, home)
        groups = self._groups
        if len(groups) > _MOST_SOURCES or len(self._at_home) > _MOST_SOURCES:
            groups.clear()
            self._at_home.clear()
        groups[key] = groups[""] = group
        if home is not None:
            self._home, self._at_home[home] = (group, home), group
        return group

    def _maker(self, maker: str, frame: Framed) -> str:
        """The program of a message that kafka-python, aiokafka and Java may write."""
        text = frame.text
        if "[Consumer " in text or "[Worker " in text or _OF_JAVA.search(text) is not None:
            return "Java"
        if frame.fields:
            text += " ".join(str(frame.fields.get(name, "")) for name in _LOGGERS)
        if "member_id kafka-python-" in text:
            return "kafka-python"  # version 1.0 has a line of aiokafka
        if maker == "aiokafka" or "aiokafka" in text or "group_coordinator" in text:
            self._aiokafka = True
        elif maker == EITHER and not self._aiokafka:
            return "kafka-python" if self._kafka_python or "kafka.coordinator" in text else maker
        elif maker == "Java" and "Request_v" not in text:
            return "kafka-python" if "kafka.coordinator" in text else maker
        if maker == "Java":
            maker = "kafka-python"  # the names of requests end so in Python only
        self._kafka_python = not self._aiokafka
        return "aiokafka" if self._aiokafka else maker

    def _group_of_line(self, key: str, home: int | None) -> str:
        """The group of a line that names none: mostly the last one.

        A line about a partition of the offsets topic is not about a group of another partition.
        """
        last = self._groups.get(key) or self._groups.get("", "")
        if home is None or self._home == (last, home):
            return last
        return self._at_home.get(home, "" if self._home[0] == last else last)

    def _on_its_day(self, key: str, at: float, *, dated: bool) -> float:
        """The time of a line; after midnight a log without dates goes on with the next day."""
        latest = self._latest.get(key)
        if latest is not None:
            if not dated:
                at += max(0, round((latest - at) / _DAY_S)) * _DAY_S
            self._counts.backwards += at < latest - 1
        elif len(self._latest) > _MOST_SOURCES:
            self._latest.clear()
        self._latest[key] = at
        return at

    def of_group(self, row: Event) -> Event:
        """The row with its group: a table without a group column is about the line before it."""
        group, number = self._listed
        if row.group or row.place.line - number > LINES_OF_A_RECORD:
            return row
        self._listed = group, row.place.line
        return row._replace(group=group)
