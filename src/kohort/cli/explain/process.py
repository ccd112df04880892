"""Reads large logs in a process of its own, so that reading and explaining use two cores.

In: paths. Out: events, records and commits in order; remarks and counts at the end. Must not know:
the meaning of lines. The process waits while its pipe is full, so memory does not grow.

One process reads all files, since a line without a group belongs to the group before. Events cross
the pipe as columns of plain values: a column is made and read without a line of Python for each
event.
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
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, TypeAlias

from kohort.cli.explain.files import HistoryFile, LogFile, open_file
from kohort.cli.explain.segments import SegmentFile
from kohort.explain.events import Event, Kind, Place, Side
from kohort.explain.told import Told
from kohort.model.errors import KohortError

File: TypeAlias = LogFile | HistoryFile | SegmentFile
_LEAST_BYTES: Final = 20_000_000
"""Smaller logs are read before another process has started."""
_BATCH: Final = 1_000
_MILLISECOND_S: Final = 0.001
_KINDS: Final = tuple(Kind)
_SIDES: Final = tuple(Side)
_KIND_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS)}
_SIDE_NUMBERS: Final = {side: number for number, side in enumerate(_SIDES)}
_place: Final = partial(tuple.__new__, Place)
_event: Final = partial(tuple.__new__, Event)


def merged(files: Sequence[File], advance: Callable[[], None]) -> Iterator[Told]:
    """Events, records and commits of all files, in the order of the times.

    Args:
        files: opened.
        advance: called now and then.
    """
    beside_history = any(isinstance(file, HistoryFile) for file in files)
    every = [
        _late(file.events(advance))
        if beside_history and isinstance(file, LogFile)
        else file.events(advance)
        for file in files
    ]
    events = every[0] if len(every) == 1 else heapq.merge(*every, key=lambda timed: timed[0])
    return (told for _, told in events)


def _late(lines: Iterable[tuple[float, Told]]) -> Iterator[tuple[float, Told]]:
    """Lines, each at the end of the millisecond that the log wrote.

    A history has microseconds. So the line about a fact comes after the fact.
    """
    return ((at + _MILLISECOND_S, told) for at, told in lines)


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
        while True:
            try:
                batch, self.position, rest = marshal.loads(self._pipe.recv_bytes())
            except EOFError as error:
                raise KohortError(
                    "the process that reads the files has ended early; is there enough memory?"
                ) from error
            yield from _unpacked(batch)
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


def _read(paths: tuple[Path, ...], pipe: Connection) -> None:
    """Read files and send what they tell; runs in the other process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends this one
    gc.disable()  # events have no cycles; looking for some takes 7 % of the time
    with suppress(BrokenPipeError), ExitStack() as stack:
        files = [open_file(path, stack) for path in paths]
        told = merged(files, lambda: None)
        while batch := list(islice(told, _BATCH)):
            pipe.send_bytes(marshal.dumps((_packed(batch), position_of(files), None)))
        rest = [(f.name, list(f.remarks()), pickle.dumps(f.as_json())) for f in files]
        pipe.send_bytes(marshal.dumps(([], position_of(files), rest)))


def _packed(batch: list[Told]) -> list[Any] | bytes:
    """The columns of events; other things are pickled, with the events among them."""
    if set(map(type, batch)) != {Event}:
        return pickle.dumps(batch)
    kinds, sides, places, *others, details = zip(*batch, strict=True)
    files, numbers = zip(*places, strict=True)
    return [
        list(map(_KIND_NUMBERS.__getitem__, kinds)),
        list(map(_SIDE_NUMBERS.__getitem__, sides)),
        *(files, numbers, *others),
        [each if type(each) is dict else dict(each) for each in details],
    ]


def _unpacked(batch: list[Any] | bytes) -> Iterable[Told]:
    if isinstance(batch, bytes):
        packed: list[Told] = pickle.loads(batch)
        return packed
    if not batch:
        return ()
    kinds, sides, files, numbers, *others = batch
    places = map(_place, zip(files, numbers, strict=True))
    named = map(_KINDS.__getitem__, kinds), map(_SIDES.__getitem__, sides)
    return map(_event, zip(*named, places, *others, strict=True))
