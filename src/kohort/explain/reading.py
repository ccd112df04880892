"""Reads the lines of one log: finds what they tell about groups, and counts all others.

In: lines of text with their numbers. Out: events in the order of the lines, and counts. Must not
know: files, other logs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from kohort.explain.events import Event, Kind, Place, Side
from kohort.explain.line_events import MOST_TEXT, LineEvents
from kohort.explain.lines.fields import in_fields
from kohort.explain.lines.frames import (
    LINES_OF_A_RECORD,
    Framed,
    framed,
    kafka_frame,
    same_source_time,
)
from kohort.explain.lines.line_counts import LineCounts
from kohort.explain.lines.marks import CERTAIN, HEAD, is_open, is_table, may_be
from kohort.explain.lines.paired_lines import PairedLines, paired
from kohort.explain.lines.torn_lines import TornLine, may_be_torn
from kohort.explain.tables import TableReader
from kohort.explain.wordings.matching import understood

_BLANK: Final = tuple("GT \t>|")
"""A heading of a table begins with one of these."""
_WHOLE: Final = ("}", '"')
"""The ends of lines of JSON."""
_BEGINNING: Final = "] INFO ["
_MOST_EXAMPLES: Final = 5
_OF_CONSUMER: Final = "[Consumer "
_MOST_HELD: Final = 1_000
_MOST_AROUND: Final = 3
"""Enclosing objects that are searched: exports put a log's objects into others. The lines are read
once more for each of them."""
_TIMELESS: Final = 100
"""After this many lines without a time, the log counts as one without times."""
_HOUSEKEEPING: Final = Kind.HOUSEKEEPING
"""Python 3.11 finds a member by its class three times as slowly as a name of the module."""
_new: Final = tuple.__new__
_OWN_WORK: Final = Event(_HOUSEKEEPING, Side.BROKER, Place("", 0), "")


class LogReader:
    """Reads one log from its beginning.

    Args:
        file: the name of the log, for places.
    """

    def __init__(self, file: str) -> None:
        self.counts = LineCounts()
        self._file = file
        self._events = LineEvents(file, self.counts)
        self._tables = TableReader(file)
        self._held: list[Event] = []
        """Events of clients before the first line that names a group."""
        self._before: deque[str] = deque(maxlen=LINES_OF_A_RECORD)
        """The lines before the present one."""
        self._timeless = 0
        """Lines about groups for which no time was found, since the last line with a time."""
        self._torn: TornLine | PairedLines | None = None
        """A line that the next lines may continue: a terminal broke it, or pairs follow."""
        self._around = 0
        """The number of objects that enclose the lines that are read once more."""

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
                    frame = kafka_frame(line)
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
        if of_consumer and (again := self._events.again(frame, number)) is not None:
            return again
        message = understood(text)
        if message is None:
            return None
        if message.wording.kind is _HOUSEKEEPING:
            return _OWN_WORK
        event = self._events.event(message, frame, _new(Place, (self._file, number)))
        if of_consumer and f"groupId={event.group}]" in text:
            self._events.keep(text, event)
        return event

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
                return [] if row is True else [self._events.of_group(row)]
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
        """The events of a line that may tell something; ``last``: no other line continues it."""
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
            # The message is known, but its end is absent: the next line may have the end.
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
            counts.examples.append((place, frame.text[:MOST_TEXT]))
        return []

    def _object(self, number: int, line: str) -> PairedLines | None:
        """The object that a line begins; None without an object, or within too many others."""
        return paired(number, line, self._around) if self._around < _MOST_AROUND else None

    def _has_pairs(self, number: int, line: str, text: str) -> bool:
        """Whether the pairs of pino may follow a line of KafkaJS; then the line waits for them."""
        record = paired(number, line)
        found = None if record is None else understood(text)
        if found is None or found.wording.maker != "KafkaJS":
            return False
        self._torn = record
        return True

    def told(self, frame: Framed, place: Place) -> list[Event]:
        """The events of a text that is not a line of a file; see `read`."""
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
        return self._complete(self._events.event(found, frame, place))

    def rest(self) -> list[Event]:
        """The events that still wait at the end of the log for a line that names a group."""
        events: list[Event] = []
        while self._torn is not None:
            events += self._mended()
        return [*events, *self._released()]

    def _released(self) -> list[Event]:
        """Return the events that waited for a line with a group, and keep none."""
        held, self._held = self._held, []
        return held

    def _complete(self, event: Event) -> list[Event]:
        if event.group:
            if not self._held:
                return [event]
            return [*(each._replace(group=event.group) for each in self._released()), event]
        if event.side is Side.BROKER and event.kind is not Kind.FENCED:
            return [event]
        self._held.append(event)
        return self._released() if len(self._held) > _MOST_HELD else []


def _is_whole(frame: Framed) -> bool:
    """Whether a line that was put together is a known message."""
    if understood(frame.text) is not None:
        return not is_open(frame.text)
    return bool(frame.fields) and in_fields(frame) is not None
