"""Windows by event time: counts, sums and extremes of each key and window, or of sessions.

In: rows with a time, and the state of their partition. Out: one row for each window that closed;
late records as dead letters. Must not know: Spark, files.

The *clock* of a partition is the greatest event time of its records so far. A window closes at the
first record that brings the clock to the end of the window plus the grace. So the result depends on
the records and their order alone, not on how batches cut them: a replay gives the same rows.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from kohort.model.errors import ConfigError
from kohort.spark.state.stage import State
from kohort.spark.tables.layout import DEAD_LETTER, PLACE

BEGIN: Final = "window_begin"
END: Final = "window_end"

_OFFSET: Final = PLACE[2]
_TIME: Final = pa.timestamp("us", "UTC")
_CLOCK: Final = b"clock"
_OPEN: Final = b"open/"
_DUE: Final = b"due/"
_NUMBER_BYTES: Final = 8
_SHIFT: Final = 1 << 63
"""Numbers are stored so that the order of their bytes is the order of the numbers."""


@dataclass(frozen=True, slots=True)
class Fold:
    """A value of a window that grows with each record: see ``count``, ``total`` and the others."""

    column: str | None
    how: str


def count() -> Fold:
    """The number of records."""
    return Fold(None, "count")


def total(column: str) -> Fold:
    """The sum of a column of numbers; NULL if all values are NULL."""
    return Fold(column, "total")


def least(column: str) -> Fold:
    """The smallest value of a column; NULL if all values are NULL."""
    return Fold(column, "least")


def greatest(column: str) -> Fold:
    """The largest value of a column; NULL if all values are NULL."""
    return Fold(column, "greatest")


Folding = Callable[[Any, Any], Any]
_FOLDED: Final[Mapping[str, Folding]] = {
    "count": lambda old, _: old + 1,
    "total": lambda old, new: new if old is None else old if new is None else old + new,
    "least": lambda old, new: new if old is None else old if new is None else min(old, new),
    "greatest": lambda old, new: new if old is None else old if new is None else max(old, new),
}
_MERGED: Final[Mapping[str, Folding]] = {**_FOLDED, "count": lambda one, other: one + other}


@dataclass(slots=True)
class _Window:
    """An open window; times are microseconds since 1970."""

    begin: int
    end: int
    values: list[Any]


class Windows:
    """A stage that groups records by key and by window, for ``kohort pipeline --state``.

    A row has the columns of ``keys``, ``window_begin``, ``window_end`` (exclusive) and ``values``,
    and the offset of the record that closed the window.

    Args:
        time: the column with the event time, a timestamp.
        keys: columns of numbers, strings or booleans.
        values: the values of a window, by the name of their column.
        size: windows of this length, from 1970 on; or
        gap: sessions: records of one key that are less than ``gap`` apart. A session ends ``gap``
            after its last record.
        grace: how far records may come behind the clock of their partition. A record of a closed
            window is late, and becomes a dead letter.

    Raises:
        ConfigError: not exactly one of ``size`` and ``gap`` is given, or a length is not positive.
    """

    def __init__(
        self,
        *,
        time: str,
        keys: Sequence[str],
        values: Mapping[str, Fold],
        size: timedelta | None = None,
        gap: timedelta | None = None,
        grace: timedelta = timedelta(0),
    ) -> None:
        length = size if gap is None else gap
        if (size is None) == (gap is None) or length is None or length <= timedelta(0):
            raise ConfigError("Windows needs a positive size or a positive gap, and not both")
        if grace < timedelta(0):
            raise ConfigError(f"Windows needs a grace of at least 0, found {grace}")
        self._time = time
        self._keys = list(keys)
        self._folds = dict(values)
        self._length = _micros(length)
        self._sessions = gap is not None
        self._grace = _micros(grace)

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """See ``Stage.schema``."""
        needed = [self._time, *self._keys, *(f.column for f in self._folds.values() if f.column)]
        for name in needed:
            if name not in rows.names:
                raise ConfigError(
                    f"Windows needs a column {name}, the SQL makes {', '.join(rows.names[1:])}: "
                    "add it to the SQL"
                )
            if not _is_plain(rows.field(name).type):
                raise ConfigError(
                    f"Windows cannot use the column {name} of type {rows.field(name).type}: cast "
                    "it in the SQL to a number, a string, a boolean or a timestamp"
                )
        if not pa.types.is_timestamp(rows.field(self._time).type):
            raise ConfigError(
                f"Windows needs a timestamp in the column {self._time}, found "
                f"{rows.field(self._time).type}: cast it in the SQL"
            )
        fields = [rows.field(name) for name in self._keys]
        fields += [pa.field(BEGIN, _TIME), pa.field(END, _TIME)]
        for name, fold in self._folds.items():
            fields.append(pa.field(name, _type_of(fold, rows)))
        return pa.schema(fields)

    def process(self, rows: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        """See ``Stage.process``."""
        turn = _Turn(self._length, self._grace, self._sessions, self._folds, state)
        nothing = [None] * rows.num_rows
        folded = [
            nothing if fold.column is None else _plain(rows.column(fold.column))
            for fold in self._folds.values()
        ]
        keys = list(zip(*(_plain(rows.column(name)) for name in self._keys), strict=True))
        keys = keys or [()] * rows.num_rows
        texts = {key: json.dumps(key).encode() for key in set(keys)}
        turn.run(
            rows.column(_OFFSET).to_pylist(),
            _plain(rows.column(self._time)),
            [texts[key] for key in keys],
            list(zip(*folded, strict=True)) if folded else nothing,
        )
        return self._made(turn, self.schema(rows.schema))

    def _made(self, turn: _Turn, schema: pa.Schema) -> pa.RecordBatch | None:
        if not turn.closed and not turn.refused:
            return None
        late = [None] * len(turn.refused)
        keys = [json.loads(key.decode()) for _, key, _ in turn.closed]
        windows = [window for _, _, window in turn.closed]
        columns = [[key[n] for key in keys] for n in range(len(self._keys))]
        columns += [[window.begin for window in windows], [window.end for window in windows]]
        columns += [[window.values[n] for window in windows] for n in range(len(self._folds))]
        arrays = {
            field.name: _array(values + late, field.type)
            for field, values in zip(schema, columns, strict=True)
        }
        offsets = [offset for offset, *_ in (*turn.closed, *turn.refused)]
        reasons = [None] * len(windows) + [reason for _, reason in turn.refused]
        return pa.RecordBatch.from_pydict(
            {
                _OFFSET: pa.array(offsets, pa.int64()),
                **arrays,
                DEAD_LETTER: pa.array(reasons, pa.string()),
            }
        )


class _Turn:
    """One call of ``Windows.process``; windows stay in memory until its end.

    The state has the clock, the open windows of each key, and for each window a key with the time
    at which it closes. So the windows that close are found in order, without a look at the others.
    """

    def __init__(
        self, length: int, grace: int, sessions: bool, folds: Mapping[str, Fold], state: State
    ) -> None:
        self._length = length
        self._grace = grace
        self._sessions = sessions
        self._hows = [fold.how for fold in folds.values()]
        self._folds = [_FOLDED[how] for how in self._hows]
        self._first = [0 if how == "count" else None for how in self._hows]
        self._state = state
        self._open: dict[bytes, list[_Window]] = {}
        self._stored: dict[bytes, set[int]] = {}
        """When the stored windows of a key close."""
        self._due: list[tuple[int, bytes]] = []
        """A heap; an entry counts only if a window of the key still closes then."""
        self.closed: list[tuple[int, bytes, _Window]] = []
        self.refused: list[tuple[int, str]] = []

    def run(
        self, offsets: list[int], times: list[int | None], keys: list[bytes], values: list[Any]
    ) -> None:
        """Go through records; the results are in ``closed`` and ``refused``."""
        stored = self._state.get(_CLOCK)
        clock = None if stored is None else int(stored)
        latest = max((at for at in times if at is not None), default=None)
        if latest is not None:
            self._due = [_key_due(each) for each in self._state.between(_DUE, _due_key(latest + 1))]
        for offset, at, key, new in zip(offsets, times, keys, values, strict=True):
            if at is None:
                self.refused.append((offset, "the event time is NULL"))
            elif not self._take(key, at, new, clock):
                self.refused.append((offset, "late: its window is closed"))
            elif clock is None or at > clock:
                clock = at
                self._close(offset, clock)
        self._save(clock)

    def _take(self, key: bytes, at: int, new: Sequence[Any], clock: int | None) -> bool:
        """Add a record to its window; False if that window is closed."""
        begin = at if self._sessions else at - at % self._length
        end = begin + self._length
        windows = self._windows(key)
        near = [one for one in windows if one.begin < end and begin < one.end]
        if not near and clock is not None and end + self._grace <= clock:
            return False
        if near:
            window, *others = near
            before = window.end
        else:
            window, others, before = _Window(begin, end, list(self._first)), [], None
            windows.append(window)
        for one in others:
            windows.remove(one)
            window.begin, window.end = min(window.begin, one.begin), max(window.end, one.end)
            merged = zip(self._hows, window.values, one.values, strict=True)
            window.values = [_MERGED[how](old, other) for how, old, other in merged]
        window.begin = min(window.begin, begin)
        window.end = max(window.end, end)
        for n, fold in enumerate(self._folds):
            window.values[n] = fold(window.values[n], new[n])
        if window.end != before:
            heapq.heappush(self._due, (window.end + self._grace, key))
        return True

    def _close(self, offset: int, clock: int) -> None:
        while self._due and self._due[0][0] <= clock:
            due, key = heapq.heappop(self._due)
            windows = self._windows(key)
            for window in [one for one in windows if one.end + self._grace == due]:
                windows.remove(window)
                self.closed.append((offset, key, window))

    def _windows(self, key: bytes) -> list[_Window]:
        known = self._open.get(key)
        if known is None:
            text = self._state.get(_OPEN + key)
            known = [] if text is None else [_Window(*each) for each in json.loads(text.decode())]
            self._open[key] = known
            self._stored[key] = {one.end + self._grace for one in known}
        return known

    def _save(self, clock: int | None) -> None:
        for key, windows in self._open.items():
            dues = {one.end + self._grace for one in windows}
            for due in self._stored[key] - dues:
                del self._state[_due_key(due) + key]
            for due in dues - self._stored[key]:
                self._state[_due_key(due) + key] = b""
            if windows:
                text = json.dumps([[one.begin, one.end, one.values] for one in windows])
                self._state[_OPEN + key] = text.encode()
            elif self._stored[key]:
                del self._state[_OPEN + key]
        if clock is not None:
            self._state[_CLOCK] = b"%d" % clock


def _due_key(due: int) -> bytes:
    return _DUE + (due + _SHIFT).to_bytes(_NUMBER_BYTES, "big")


def _key_due(name: bytes) -> tuple[int, bytes]:
    """The time and the key in the name of an entry."""
    split = len(_DUE) + _NUMBER_BYTES
    return int.from_bytes(name[len(_DUE) : split], "big") - _SHIFT, name[split:]


def _micros(length: timedelta) -> int:
    return length // timedelta(microseconds=1)


def _is_plain(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean,
        pa.types.is_string, pa.types.is_timestamp,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def _type_of(fold: Fold, rows: pa.Schema) -> pa.DataType:
    if fold.column is None:
        return pa.int64()
    kind = rows.field(fold.column).type
    if fold.how != "total":
        return kind
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise ConfigError(f"Windows cannot sum the column {fold.column} of type {kind}")
    return pa.int64() if pa.types.is_integer(kind) else pa.float64()


def _plain(column: pa.Array) -> list[Any]:
    """The values as Python's; timestamps as microseconds since 1970."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(_TIME).cast(pa.int64())
    return list(column.to_pylist())


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(_TIME).cast(kind)
    return pa.array(values, kind)
