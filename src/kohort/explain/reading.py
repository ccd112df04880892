"""Reads the lines of one log: finds what they tell about groups, and counts all others.

In: lines of text with their numbers. Out: events in the order of the lines, and counts. Must not
know: files, other logs.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kohort.explain.events import Event, Kind, Place, Side
from kohort.explain.lines.fields import in_fields
from kohort.explain.lines.frames import Framed, framed, kafkas, same_source_time
from kohort.explain.lines.marks import CERTAIN, HEAD, is_open, is_table, may_be
from kohort.explain.lines.paired_lines import PairedLines, paired
from kohort.explain.lines.torn_lines import TornLine, may_be_torn
from kohort.explain.lines.values import (
    beside_kafkajs,
    client_of,
    in_context,
    kind_of,
    partition_in,
    plain,
    reason_in,
)
from kohort.explain.tables import TableReader
from kohort.explain.wordings.broker import versions_of
from kohort.explain.wordings.matching import Found, understood
from kohort.explain.wordings.python import EITHER

_BLANK: Final = tuple("GT \t>|")
"""A heading of a table begins with one of these."""
_ALIKE: Final = frozenset({"kafka-python", "aiokafka", EITHER, "Java"})
_OF_JAVA: Final = re.compile(r"\b(?:Abstract|Consumer|Worker)Coordinator\b|apache\.kafka|o\.a\.k\.")
_CLIENTLESS: Final = frozenset(
    {"kafka-python", "aiokafka", EITHER, "franz-go", "librdkafka", "kafka-go", "ruby-kafka"}
)
"""Programs with a member id in few of their lines: a client by it would be another one."""
_DAY_S: Final = 86_400.0
_WHOLE: Final = ("}", '"')
"""The ends of lines of JSON."""
_BEGINNING: Final = "] INFO ["
_MOST_TEXT: Final = 600
_MOST_EXAMPLES: Final = 5
_OF_CONSUMER: Final = "[Consumer "
_MOST_REPEATED: Final = 1_000
_MOST_HELD: Final = 1_000
_MOST_AROUND: Final = 3
"""Exports have objects around those of the log; each costs a second look at their lines."""
_MOST_SOURCES: Final = 10_000
_LINES_OF_A_RECORD: Final = 5
"""A line without a time has the time of the line before, up to this many lines before."""
_TIMELESS: Final = 100
"""After this many lines without a time, the log has none: nobody looks for it any more."""
_new: Final = tuple.__new__
_BROKER: Final = Side.BROKER
_TOOL: Final = Side.TOOL
_HOUSEKEEPING: Final = Kind.HOUSEKEEPING
_GROUP_CHOSEN: Final = Kind.GROUP_CHOSEN
"""Python 3.11 finds a member by its class three times as slowly as a name of the module."""
_OWN_WORK: Final = Event(_HOUSEKEEPING, _BROKER, Place("", 0), "")
_LOGGERS: Final = ("logger", "logger_name", "name", "file_name", "filename", "module")


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
    mixed: int = 0
    """Lines with the beginnings of several lines, as writers without a lock make them."""
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
        self._home = ("", -1)
        """The last group of which a line told the partition of the offsets topic."""
        self._at_home: dict[int, str] = {}
        """The last group in each partition of the offsets topic."""
        self._latest: dict[str, float] = {}
        self._repeated: dict[str, Event] = {}
        """The last events of consumers of Java, by the text of their lines."""
        self._held: list[Event] = []
        """Events of clients before the first line that names a group."""
        self._before: deque[str] = deque(maxlen=_LINES_OF_A_RECORD)
        """The lines before the present one."""
        self._timeless = 0
        """Lines about groups without a time since the last one with a time before it."""
        self._listed = ("", -_LINES_OF_A_RECORD)
        """The group that a line in front of a table names, and the number of that line."""
        self._torn: TornLine | PairedLines | None = None
        """A line that may go on with the next ones: a terminal broke it, or pairs follow."""
        self._around = 0
        """The objects around the lines that are read for the second time."""
        self._generation = ""
        """The generation that brod named last."""
        self._java = False
        """Whether a line was Java's."""
        self._aiokafka = False
        """Whether a line was certainly aiokafka's; it shares messages with kafka-python."""
        self._kafka_python = False
        """Whether the last line of such a program was kafka-python's, as far as is known."""

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
        if cut:
            counts.cut += 1
        self._before.append(line)
        return self._next(number, line)

    def _next(self, number: int, line: str) -> list[Event]:
        """The events that are complete with a line, which may go on with a torn line."""
        events: list[Event] = []
        while self._torn is not None:
            if self._torn.takes(line):
                return events
            events += self._mended()
        return [*events, *self._take(number, line)]

    def read_lines(self, number: int, lines: Sequence[str]) -> list[Event]:
        """The events that are complete with these lines, as `read` of each line finds them.

        Most lines of a log have the pattern of Kafka's loggers: here, they take the shortest way.

        Args:
            number: of the first line.
            lines: without their ends, in the order of the log.
        """
        counts, before, found = self.counts, self._before, list[Event]()
        for place, line in enumerate(lines, number):
            frame = None
            if self._torn is None and self._tables.kind is None and not line.startswith(_BLANK):
                if not may_be(line) and not line.endswith("{"):
                    counts.lines += 1
                    counts.others += 1
                    before.append(line)
                    continue
                if line.endswith(")"):
                    frame = kafkas(line)
            if frame is None:
                found += self.read(place, line)
                continue
            counts.lines += 1
            before.append(line)
            event = self._quick(frame, place)
            if event is None:
                found += self._message(place, line)
                continue
            counts.understood += 1
            if line.count(_BEGINNING) > 1:
                counts.mixed += 1
            if event is _OWN_WORK:
                continue
            if event.group and not self._held:
                found.append(event)
            else:
                found += self._complete(event)
        return found

    def _quick(self, frame: Framed, number: int) -> Event | None:
        """The event of a line; `_OWN_WORK` if the line tells none; None for an unknown message."""
        text = frame.text
        of_consumer = text.startswith(_OF_CONSUMER, 5)
        if of_consumer and (again := self._again(frame, number)) is not None:
            return again
        message = understood(text)
        if message is None:
            return None
        if message.wording.kind is _HOUSEKEEPING:
            return _OWN_WORK
        event = self._event(message, frame, _new(Place, (self._file, number)))
        if of_consumer and f"groupId={event.group}]" in text:
            self._keep(text, event)
        return event

    def _again(self, frame: Framed, number: int) -> Event | None:
        """The event of a consumer of Java that wrote the same text before; None for a new text.

        Its context names group and client, so all values but place and time are the same.
        """
        known = self._repeated.get(frame.text)
        if known is None or frame.at is None:
            return None
        self._of_whom(known.kind, known.group, known.client, known.partition)
        at = self._on_its_day(known.client, frame.at, dated=True)
        return _new(
            Event, (*known[:2], _new(Place, (self._file, number)), known[3], at, *known[5:])
        )

    def _keep(self, text: str, event: Event) -> None:
        """Keep an event for `_again`; its values come from its text alone."""
        if event.group and event.side is Side.CLIENT:
            if len(self._repeated) >= _MOST_REPEATED:
                self._repeated.clear()
            self._repeated[text] = event

    def _mended(self) -> list[Event]:
        """The events of a torn line and of the lines that it went on with.

        The lines of an object without a message may hold another object, which is then torn.
        """
        if self._torn is None:
            return []
        torn, self._torn = self._torn, None
        number, pieces, done = torn.number, torn.pieces, 1
        for text, count in torn.texts():
            frame = framed(text)
            if _is_whole(frame):
                if frame.at is None:
                    frame = same_source_time(frame, self._before)
                self.counts.understood += count
                events, done = self._read(frame, Place(self._file, number)) or [], count
                break
        else:
            events = self._message(number, pieces[0], last=True)
        around = self._around
        alone = self._whole
        if isinstance(torn, PairedLines):
            self._around, alone = torn.around + 1, self._next
        for place, piece in enumerate(pieces[done:], number + done):
            events += alone(place, piece)
        self._around = around
        return events

    def _whole(self, number: int, line: str) -> list[Event]:
        """The events of a line that no other line completes."""
        if may_be(line):
            return self._message(number, line, last=True)
        self.counts.others += 1
        return []

    def _take(self, number: int, line: str) -> list[Event]:
        """The events of a line that completes no other line."""
        counts = self.counts
        if self._tables.kind is not None or (line.startswith(_BLANK) and is_table(line)):
            row = self._tables.read(number, line.lstrip(" \t>|"))
            if row is not None:
                counts.understood += 1
                return [] if row is True else [self._of_group(row)]
        if line.endswith("{") and (record := self._object(number, line)) is not None:
            self._torn = record
            return []
        if not may_be(line):
            counts.others += 1
            return []
        if not line.endswith(")") and is_open(line) and may_be_torn(line):
            self._torn = TornLine(number, line)
            return []
        return self._message(number, line)

    def _message(self, number: int, line: str, *, last: bool = False) -> list[Event]:
        """The events of a line that may tell something; ``last``: it waits for no other line."""
        counts = self.counts
        frame = framed(line)
        timed = frame.at is not None
        if not timed and self._timeless < _TIMELESS:
            frame = same_source_time(frame, self._before)
            self._timeless = 0 if frame.at is not None else self._timeless + 1
        place = Place(self._file, number)
        ended = line.endswith(")" if line.startswith("[") else _WHOLE)
        cut = not (last or ended) and may_be_torn(line)
        if cut and line.startswith("[") and "[GroupCoordinator" in line:
            # A known message without its end: the next line may have the end.
            self._torn = TornLine(number, line)
            return []
        if not last and not frame.fields and self._has_pairs(number, line, frame.text):
            return []
        events = self._read(frame, place)
        if events is not None:
            counts.understood += 1
            counts.mixed += line.count(_BEGINNING) > 1
            return events
        certain = CERTAIN.search(line) is not None and HEAD.search(line) is None
        if not last and may_be_torn(line) and (certain or cut):
            self._torn = TornLine(number, line, certain=certain)
            return []
        if not certain:
            counts.others += 1
            return []
        counts.unknown += 1
        if len(counts.examples) < _MOST_EXAMPLES:
            counts.examples.append((place, frame.text[:_MOST_TEXT]))
        return []

    def _object(self, number: int, line: str) -> PairedLines | None:
        """The object that a line begins; None if it begins none, or too deep in others."""
        return paired(number, line, self._around) if self._around < _MOST_AROUND else None

    def _has_pairs(self, number: int, line: str, text: str) -> bool:
        """Whether pairs may follow a line of KafkaJS, as pino writes them; then the line waits."""
        record = paired(number, line)
        found = None if record is None else understood(text)
        if found is None or found.wording.maker != "KafkaJS":
            return False
        self._torn = record
        return True

    def told(self, frame: Framed, place: Place) -> list[Event]:
        """The events of a text that is no line of a file, as of `read`."""
        self.counts.lines += 1
        events = self._read(frame, place)
        self.counts.understood += events is not None
        self.counts.others += events is None
        return events or []

    def _read(self, frame: Framed, place: Place) -> list[Event] | None:
        """The events of a line; None for a message that is not known."""
        found = understood(frame.text) if frame.text else None
        if found is None:
            told = in_fields(frame)
            if told is None:
                return None
            found, frame = told
        if found.wording.kind is _HOUSEKEEPING:
            return []
        return self._complete(self._event(found, frame, place))

    def _of_group(self, row: Event) -> Event:
        """A row of a table without a column for groups is about the group of the line in front."""
        group, number = self._listed
        if row.group or row.place.line - number > _LINES_OF_A_RECORD:
            return row
        self._listed = group, row.place.line
        return row._replace(group=group)

    def rest(self) -> list[Event]:
        """The events that still wait at the end of the log: no line named a group."""
        events: list[Event] = []
        while self._torn is not None:
            events += self._mended()
        return [*events, *self._released()]

    def _released(self) -> list[Event]:
        """The events that waited for a line with a group; none waits any more."""
        held, self._held = self._held, []
        return held

    def _complete(self, event: Event) -> list[Event]:
        if event.group:
            if not self._held:
                return [event]
            return [*(each._replace(group=event.group) for each in self._released()), event]
        if event.side is _BROKER and event.kind is not Kind.FENCED:
            return [event]
        self._held.append(event)
        return self._released() if len(self._held) > _MOST_HELD else []

    def _event(self, found: Found, frame: Framed, place: Place) -> Event:
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
            generation = self._told_before(maker, kind, generation)
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
        group = self._of_whom(kind, group, source or client, home)
        if at is not None:
            at = self._on_its_day(source or client, at, dated=dated)
        # This takes half the time of a call with the names of the fields.
        return _new(
            Event,
            (
                *(kind, side, place, text[:_MOST_TEXT], at, dated, source, maker, versions),
                *(group, home, member, instance, client),
                int(generation) if generation else None,
                int(members) if members else None,
                int(static) if static else None,
                *(fields[8], fields[9] and reason_in(fields[9]), details),
            ),
        )

    def _told_before(self, maker: str, kind: Kind, generation: str) -> str:
        """The generation of a line; brod writes it in the line in front of the assignment."""
        self._java |= maker == "Java"
        if maker != "brod":
            return generation
        if kind is Kind.PROGRESS:
            self._generation = generation or self._generation
        return self._generation if kind is Kind.SYNCED else ""

    def _of_whom(self, kind: Kind, group: str, key: str, home: int | None) -> str:
        """The group of a line, which is noted for later lines without one."""
        if not group:
            # The next line that names a group is about the one that a user of Spark chose.
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
            self.counts.backwards += at < latest - 1
        elif len(self._latest) > _MOST_SOURCES:
            self._latest.clear()
        self._latest[key] = at
        return at


def _is_whole(frame: Framed) -> bool:
    """Whether a line that was put together is a known message."""
    if understood(frame.text) is not None:
        return not is_open(frame.text)
    return bool(frame.fields) and in_fields(frame) is not None
