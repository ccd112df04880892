"""Reads large logs in a process of its own, so that reading and explaining use two cores.

In: paths. Out: events, records and commits in order; remarks and counts at the end. Must not know:
the meaning of lines. The process waits while its pipe is full, so memory does not grow.

One process reads all files, since a line without a group belongs to the group before. An event
crosses the pipe as a plain tuple: that takes half of the time of pickling an `Event`.
"""

from __future__ import annotations

import gc
import heapq
import marshal
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, TypeAlias

from kohort.cli.explain_files import HistoryFile, LogFile, open_file
from kohort.cli.explain_segments import SegmentFile
from kohort.explain.events import Event, Kind, Place, Side
from kohort.explain.told import Told
from kohort.model.errors import KohortError

File: TypeAlias = LogFile | HistoryFile | SegmentFile
_LEAST_BYTES: Final = 20_000_000
"""Smaller logs are read before another process has started."""
_BATCH: Final = 1_000
_Line: TypeAlias = tuple[Kind, Side, str, str, tuple[float, float] | None]
"""Kind, side, file, maker and versions of an event: lines share them."""


def merged(files: Sequence[File], advance: Callable[[], None]) -> Iterator[Told]:
    """Events, records and commits of all files, in the order of the times.

    Args:
        files: opened.
        advance: called now and then.
    """
    every = [file.events(advance) for file in files]
    events = every[0] if len(every) == 1 else heapq.merge(*every, key=lambda timed: timed[0])
    return (told for _, told in events)


def position_of(files: Sequence[File]) -> int:
    """Bytes that were read so far, of files with a size."""
    return sum(file.position() for file in files if file.bytes)


def worth_a_process(files: Sequence[File]) -> bool:
    """Whether another process is worth its start: large logs, and two cores."""
    large = sum(file.bytes for file in files) >= _LEAST_BYTES
    plain = all(isinstance(file, LogFile) and file.bytes for file in files)
    return large and plain and (os.cpu_count() or 1) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """A file that another process has read."""

    name: str
    told: tuple[str, ...]
    counts: dict[str, Any]

    def remarks(self) -> Iterator[str]:
        """Sentences that a reader of the explanation must know about this file."""
        yield from self.told

    def as_json(self) -> dict[str, Any]:
        """Counts and remarks, for programs."""
        return self.counts


class ReadingProcess:
    """A process that reads files in order.

    Args:
        paths: log files.
        stack: ends the process.
    """

    def __init__(self, paths: Sequence[Path], stack: ExitStack) -> None:
        # A fork would copy threads of the program, such as that of a progress bar.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_read, args=(tuple(paths), theirs), daemon=True)
        self._process.start()
        theirs.close()
        stack.callback(self._end)
        self.position = 0
        """Bytes that were read so far."""
        self.files: tuple[ReadFile, ...] = ()
        """Known when everything was read."""

    def told(self, advance: Callable[[], None]) -> Iterator[Told]:
        """Events, records and commits of the files, in the order of the times.

        Args:
            advance: called now and then.

        Raises:
            KohortError: the process has ended early.
        """
        lines: list[_Line] = []
        while True:
            try:
                batch, new, self.position, rest = marshal.loads(self._pipe.recv_bytes())
            except EOFError as error:
                raise KohortError(
                    "the process that reads the files has ended early; is there enough memory?"
                ) from error
            lines += [(Kind(kind), Side(side), *others) for kind, side, *others in new]
            yield from _unpacked(batch, lines)
            advance()
            if rest is not None:
                self.files = tuple(
                    ReadFile(name=name, told=tuple(told), counts=pickle.loads(counts))
                    for name, told, counts in rest
                )
                return

    def _end(self) -> None:
        self._pipe.close()
        self._process.terminate()
        self._process.join()


def _unpacked(batch: Iterable[Any], lines: Sequence[_Line]) -> Iterator[Told]:
    make = tuple.__new__
    for packed in batch:
        if type(packed) is bytes:
            yield pickle.loads(packed)
        else:
            line, number, *others = packed
            kind, side, file, maker, versions = lines[line]
            text, at, dated, source, *named = others
            place = Place(file, number)
            known = (kind, side, place, text, at, dated, source, maker, versions)
            yield make(Event, (*known, *named))


def _read(paths: tuple[Path, ...], pipe: Connection) -> None:
    """Read files and send what they tell; runs in the other process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends this one
    gc.disable()  # events have no cycles; looking for some takes 7 % of the time
    lines: dict[_Line, int] = {}
    with suppress(BrokenPipeError), ExitStack() as stack:
        files = [open_file(path, stack) for path in paths]
        batch: list[Any] = []
        sent = 0

        def send(rest: list[Any] | None) -> None:
            nonlocal sent
            new = [
                (str.__str__(kind), str.__str__(side), *others)
                for kind, side, *others in islice(lines, sent, None)
            ]
            sent = len(lines)
            pipe.send_bytes(marshal.dumps((batch, new, position_of(files), rest)))
            batch.clear()

        for told in merged(files, lambda: None):
            batch.append(_packed(told, lines) if type(told) is Event else pickle.dumps(told))
            if len(batch) >= _BATCH:
                send(None)
        send([(f.name, list(f.remarks()), pickle.dumps(f.as_json())) for f in files])


def _packed(event: Event, lines: dict[_Line, int]) -> tuple[Any, ...]:
    """An event of plain values only."""
    kind, side, place, text, at, dated, source, maker, versions, *named, details = event
    line = (kind, side, place.file, maker, versions)
    number = lines.get(line)
    if number is None:
        number = lines[line] = len(lines)
    if type(details) is not dict:
        details = dict(details)
    return (number, place.line, text, at, dated, source, *named, details)
