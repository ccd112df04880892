"""Reads the files that ``kohort explain`` gets: logs, plain or with gzip; histories of kohort.

In: paths; ``-`` is standard input. Out: events and records with their times; remarks for people.
Must not know: the meaning of lines (``kohort.explain``). Memory does not grow with the files.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

from kohort.cli.explain.segments import SegmentFile, is_segment
from kohort.explain.events import Event
from kohort.explain.facts import UNUSED, HistoryReader
from kohort.explain.lines.frames import framed
from kohort.explain.lines.line_counts import LineCounts
from kohort.explain.offsets_topic.topic_records import Recorded, dumped
from kohort.explain.reading import LogReader
from kohort.explain.told import Told
from kohort.host.group_log import line_for
from kohort.model.errors import ConfigError
from kohort.model.facts import Fact
from kohort.model.instants import MICROS_PER_SECOND
from kohort.storage.fact_files import Header, HistoryFileError, OpenHistory

_HISTORY: Final = (b'{"kohort_history"', b"PAR1")
LONGEST_LINE: Final = 65_536
"""Bytes of a line that are read; the rest is skipped."""
LONGEST_RECORD: Final = 1 << 24
"""Bytes of a record that a tool of Kafka printed: it holds a group with all its members."""
_RECORDS: Final = b'{"key":{"type"'
_DUMP: Final = b"Log starting offset: "
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_LOOKED_AT: Final = 4_096
_GZIP: Final = b"\x1f\x8b"
_Block: TypeAlias = tuple[int, list[str], bool]
"""The number of the first line, lines, and whether they were cut."""
_FIRST: Final = 50
"""The first lines that tell whether the newest line comes first."""
_MOST_TURNED: Final = 1 << 26
"""Characters of a log that is read from its end."""
_BLOCK: Final = 1 << 18
"""Bytes that are read at a time."""
_ODD_ENDS: Final = re.compile(r"\r+(?=\n|\Z)|^\0+(?:\n|\Z)?", re.MULTILINE)
"""Ends of Windows' lines; zero bytes of a log that was cut while its writer went on."""


def open_file(path: Path, stack: ExitStack) -> LogFile | HistoryFile | SegmentFile:
    """A file of any kind.

    Raises:
        ConfigError: it cannot be read.
    """
    if str(path) != "-" and path.is_file():
        with path.open("rb") as file:
            beginning = file.read(_LOOKED_AT)
        if beginning.startswith(_HISTORY):
            return HistoryFile(path)
        if is_segment(beginning):
            return SegmentFile(path, stack)
    return LogFile(path, stack)


class HistoryFile:
    """A history that kohort's broker, a consumer or the lab recorded."""

    bytes = 0

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        try:
            self._history = OpenHistory([path], UNUSED)
        except HistoryFileError as error:
            raise ConfigError(f"cannot read {path}: {error}") from error
        self._damage = ""
        header = self._history.header
        self._reader = HistoryReader(
            self.name,
            _words,
            wall_s=header.wall_micros / MICROS_PER_SECOND,
            dated=header.clock != Header().clock,
        )

    def events(self, advance: Callable[[], None]) -> Iterator[tuple[float, Told]]:
        """The events with their times."""
        try:
            for recorded in self._history:
                advance()
                yield from self._reader.read(recorded)
        except HistoryFileError as error:
            self._damage = str(error)
        self._reader.skipped(self._history.skipping.count)

    def position(self) -> int:
        """A history is no part of the progress bar."""
        return 0

    def remarks(self) -> Iterator[str]:
        """Sentences that a reader of the explanation must know about this history."""
        yield from self._history.remarks
        if self._damage:
            yield self._damage

    def as_json(self) -> dict[str, Any]:
        """Counts of facts and remarks, for programs."""
        counts = asdict(self._reader.log.counts)
        return {"file": self.name, **counts, "remarks": list(self.remarks())}


def _words(fact: Fact) -> str:
    line = line_for(fact)
    return line.text if line is not None else ""


class LogFile:
    """One log file, read once from its beginning to its end."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.name = "standard input" if str(path) == "-" else str(path)
        self._reader = LogReader(self.name)
        self._remark = ""
        self._blank = True
        """Whether all lines so far are blank."""
        try:
            piped = str(path) == "-"
            place = Path("/dev/stdin") if piped else path
            self._raw = stack.enter_context(place.open("rb"))
            self.bytes = 0 if piped else path.stat().st_size
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}; name a log file") from error

    def events(self, advance: Callable[[], None]) -> Iterator[tuple[float, Told]]:
        """The events with the time of the last line that had one."""
        at, number = float("-inf"), 0
        try:
            for number, lines, cut in self._in_time(_numbered(self._lines(advance))):
                for told in self._told(number, lines, cut=cut):
                    at = told.at if told.at is not None else at
                    yield at, told
                number += len(lines) - 1  # noqa: PLW2901 - the last line, if the next is damaged
        except (EOFError, OSError, zlib.error) as error:
            self._remark = f"{self.name} is damaged after line {number}: {error}"
        yield from ((at, event) for event in self._reader.rest())

    def _told(self, number: int, lines: list[str], *, cut: bool) -> Iterator[Recorded | Event]:
        """The things that lines tell; the first one has this number."""
        if self._blank:
            self._blank = not any(line and not line.isspace() for line in lines)
        if not cut and not _is_record("\n".join(lines)):
            yield from self._reader.read_lines(number, lines)
            return
        for place, line in enumerate(lines, number):
            if _is_record(line) and (records := dumped(line, self.name, place)):
                self._reader.counts.lines += 1
                self._reader.counts.understood += 1
                yield from records
            else:
                yield from self._reader.read(place, line, cut=cut)

    def _in_time(self, blocks: Iterator[_Block]) -> Iterator[_Block]:
        """The lines with their numbers; those of a log with the newest first, from its end."""
        first, count = list[_Block](), 0
        while count < _FIRST and (block := next(blocks, None)) is not None:
            first.append(block)
            count += len(block[1])
        if not _newest_first(list(chain.from_iterable(lines for _, lines, _ in first))[:_FIRST]):
            yield from first
            yield from blocks
            return
        room = _MOST_TURNED
        for block in blocks:
            first.append(block)
            room -= sum(map(len, block[1]))
            if room < 0:
                yield from first
                yield from blocks
                return
        self._remark = f"{self.name} has its newest line first: it was read from its end"
        for number, lines, cut in reversed(first):
            yield from (
                (place, [line], cut) for place, line in reversed([*enumerate(lines, number)])
            )

    def _lines(self, advance: Callable[[], None]) -> Iterator[tuple[list[str], bool]]:
        file: io.BufferedReader | gzip.GzipFile = self._raw
        beginning = self._raw.peek(_LOOKED_AT)[:_LOOKED_AT]
        if beginning.startswith(_GZIP):
            file = gzip.GzipFile(fileobj=self._raw)
            beginning = file.peek(_LOOKED_AT)[:_LOOKED_AT]
        if not beginning:
            self._remark = f"{self.name} is empty"
        if beginning.startswith(_UTF16):
            yield from _recoded(file, advance)
            return
        # A log that was cut while its writer went on (copytruncate) begins with zero bytes.
        if b"\0" in beginning.lstrip(b"\0"):
            self._remark = f"{self.name} is binary, no log: it was not read"
            return
        if beginning.startswith(_RECORDS):
            yield from _records(file, advance)
            return
        longest = LONGEST_RECORD if _DUMP in beginning else LONGEST_LINE
        yield from _split(file, longest, advance)

    def position(self) -> int:
        """Bytes that were read so far."""
        return self._raw.tell()

    @property
    def counts(self) -> LineCounts:
        """The numbers of lines."""
        return self._reader.counts

    def remarks(self) -> Iterator[str]:
        """Sentences that a reader of the explanation must know about this log."""
        counts = self.counts
        if self._remark:
            yield self._remark
        elif self._blank and counts.lines:
            lines = (
                "1 line, which is" if counts.lines == 1 else f"{counts.lines:,} lines, which are"
            )
            yield f"{self.name} has only {lines} blank: look whether the log was written elsewhere"
        if counts.cut:
            lines = "1 line is" if counts.cut == 1 else f"{counts.cut:,} lines are"
            yield (
                f"{self.name}: {lines} longer than {LONGEST_LINE:,} bytes; only the beginning was "
                "read"
            )
        if counts.mixed:
            lines = "1 line has" if counts.mixed == 1 else f"{counts.mixed:,} lines have"
            yield (
                f"{self.name}: {lines} the beginnings of several lines, so their times and members "
                "may be wrong: give each program its own file"
            )
        if counts.backwards:
            often = "once" if counts.backwards == 1 else f"{counts.backwards:,} times"
            yield (
                f"{self.name}: time runs backwards {often}, so lengths of time may be missing: "
                "sort the lines by their times, or give the log of each broker as its own file"
            )
        if counts.unknown:
            place, text = counts.examples[0]
            verb = "is" if counts.unknown == 1 else "are"
            yield (
                f"{self.name}: {counts.unknown:,} of {counts.lines:,} lines {verb} about groups in "
                f"words that are not known, first line {place.line}: {safe(text)[:160]}"
            )

    def as_json(self) -> dict[str, Any]:
        """Counts and remarks, for programs."""
        counts = asdict(self.counts)
        counts["examples"] = [(place._asdict(), text) for place, text in self.counts.examples]
        return {"file": self.name, **counts, "remarks": list(self.remarks())}


def _newest_first(lines: Iterable[str]) -> bool:
    """Whether the times of these lines fall, and never rise."""
    times = [at for line in lines if (at := framed(line).at) is not None]
    steps = [later - earlier for earlier, later in pairwise(times)]
    return all(step <= 0 for step in steps) and sum(step < 0 for step in steps) > 1


def _is_record(text: str) -> bool:
    """Whether a tool of Kafka may have printed a line here: a record of the offsets topic."""
    return '"type":' in text or "]::" in text or " payload: " in text


def _numbered(blocks: Iterable[tuple[list[str], bool]]) -> Iterator[_Block]:
    """The blocks with the numbers of their first lines."""
    number = 1
    for lines, cut in blocks:
        yield number, lines, cut
        number += len(lines)


def _split(
    file: io.BufferedReader | gzip.GzipFile, longest: int, advance: Callable[[], None]
) -> Iterator[tuple[list[str], bool]]:
    """The lines of a log in blocks; a line that is longer than ``longest`` comes alone, and cut.

    Whole blocks are decoded and split: a call for each line takes five times as long.
    """
    rest, cut = b"", False
    while block := file.read1(_BLOCK):
        advance()
        block = block if rest else block.lstrip(b"\0")
        end = block.rfind(b"\n")
        if end < 0:
            cut |= len(rest) + len(block) > longest
            rest += block[: max(0, longest - len(rest))]
            continue
        begin = block.find(b"\n") + 1 if cut else 0
        if cut:
            yield [rest.decode("utf-8", "replace")], True
            rest = b""
        if begin <= end:
            text = (rest + block[begin:end]).decode("utf-8", "replace")
            if "\r" in text or "\0" in text:
                text = _ODD_ENDS.sub("", text)
            yield from _uncut(text.split("\n"), longest)
        rest, cut = block[end + 1 : end + 1 + longest], len(block) - end - 1 > longest
    if rest:
        yield [rest.decode("utf-8", "replace").rstrip("\r")], cut


def _uncut(lines: list[str], longest: int) -> Iterator[tuple[list[str], bool]]:
    if max(map(len, lines)) <= longest:
        yield lines, False
    else:
        yield from (([line[:longest]], len(line) > longest) for line in lines)


def _recoded(
    file: io.BufferedReader | gzip.GzipFile, advance: Callable[[], None]
) -> Iterator[tuple[list[str], bool]]:
    """The lines of a log in UTF-16, as PowerShell writes the output of a command."""
    text = io.TextIOWrapper(file, encoding="utf-16", errors="replace")
    try:
        while line := text.readline(LONGEST_LINE):
            advance()
            yield [line.rstrip("\r\n")], False
    finally:
        text.detach()  # its owner closes the file


def _records(
    file: io.BufferedReader | gzip.GzipFile, advance: Callable[[], None]
) -> Iterator[tuple[list[str], bool]]:
    """The records of a formatter of ``kafka-console-consumer``, which writes no line ends."""
    rest = b""
    while data := file.read(LONGEST_LINE):
        *whole, rest = (rest + data).replace(b"}" + _RECORDS, b"}\n" + _RECORDS).split(b"\n")
        if len(rest) > LONGEST_RECORD:
            yield [rest[:LONGEST_LINE].decode("utf-8", "replace")], True
            rest = b""
        for each in whole:
            advance()
            yield [each.decode("utf-8", "replace")], False
    if rest:
        yield [rest.decode("utf-8", "replace")], False


def safe(text: str) -> str:
    """A text of a log without characters that a terminal would carry out."""
    return "".join(c if c.isprintable() else "?" for c in text)
