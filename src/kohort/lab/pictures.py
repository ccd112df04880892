"""Ownership over time as an SVG: who served each partition when, and when nobody did.

In: measurements of one run and a title; out: the text of a picture that stands alone. Partitions
are rows, grouped by their owner at the beginning; time runs to the right; red is what nobody
served, hatched is what an owner was still restoring. Must not know: worlds, scenarios, files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias
from xml.sax.saxutils import escape, quoteattr

from kohort.history.cost_values import Mark, Measured, OwnershipInterval
from kohort.model.ids import TopicPartition
from kohort.model.instants import MICROS_PER_SECOND, Instant

_WIDTH: Final = 1200
_LEFT: Final = 84
_RIGHT: Final = 20
_PLOT: Final = _WIDTH - _LEFT - _RIGHT
_HEAD: Final = 76
_LANE: Final = 15
_LANES: Final = 6
_LOAD: Final = 54
_LEGEND: Final = 12
"""Entries in a line of it."""
_LEGEND_LINE: Final = 16
_CHARACTER: Final = 6.2
"""Width of one character of a mark, about."""
_LEAST_HEIGHT: Final = 160
_MOST_HEIGHT: Final = 720
_ROW: Final = 4
_BEFORE: Final = 3 * MICROS_PER_SECOND
_AFTER: Final = 8 * MICROS_PER_SECOND
_STOPPED: Final = "#d7301f"
_INK: Final = "#22272e"
_FAINT: Final = "#8a929c"
_HUES: Final = (
    "#4477aa", "#66ccee", "#228833", "#ccbb44", "#aa7fc4", "#8c7a5b", "#44aa99", "#7a93c9",
    "#a6d96a", "#c7a0b5", "#3f6f7f", "#b8b8a0", "#5f8f3f", "#8f9fd0", "#d9c58a", "#4f9fbf",
)  # fmt: skip

Piece: TypeAlias = tuple[int, float, float, str, str]
"""Row, left, right, fill, what a pointer is told."""


@dataclass(slots=True)
class _Canvas:
    """Where instants and partitions lie."""

    begin: int
    end: int
    rows: dict[TopicPartition, int]
    row: float
    top: float

    def x(self, at: int) -> float:
        share = (min(max(at, self.begin), self.end) - self.begin) / (self.end - self.begin)
        return round(_LEFT + share * _PLOT, 2)

    def y(self, row: int) -> float:
        return round(self.top + row * self.row, 2)

    @property
    def height(self) -> float:
        return len(self.rows) * self.row


def ownership_svg(measured: Measured, *, title: str) -> str:
    """A picture of a run: an SVG document of its own, readable without anything else."""
    span = _span(measured)
    marks = list(_placed([m for m in measured.marks if m.kind != "generation"], span))
    top = _HEAD + (max((lane or 0 for _, lane, _ in marks), default=-1) + 1) * _LANE + 6
    rows = _rows(measured)
    height = min(max(len(rows) * _ROW, _LEAST_HEIGHT), _MOST_HEIGHT)
    canvas = _Canvas(*span, rows, height / max(len(rows), 1), top)
    colours = {pod: _HUES[n % len(_HUES)] for n, pod in enumerate(_pods(measured))}
    owners = {t.owner for t in measured.ownership}
    legend = {pod: colour for pod, colour in colours.items() if pod in owners}
    total = round(top + height + _LOAD + 74 + _LEGEND_LINE * ((len(owners) + 1) // _LEGEND))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{total}"'
            f' viewBox="0 0 {_WIDTH} {total}" role="img" font-family="Helvetica, Arial,'
            f' sans-serif" font-size="11" fill="{_INK}">',
            f"<title>{escape(title)}</title>",
            '<defs><pattern id="restoring" width="6" height="6" patternUnits="userSpaceOnUse"'
            ' patternTransform="rotate(45)"><rect width="3" height="6" fill="#fff"'
            ' fill-opacity="0.75"/></pattern></defs>',
            f'<rect width="{_WIDTH}" height="{total}" fill="#fff"/>',
            f'<text x="{_LEFT}" y="24" font-size="16" font-weight="bold">{escape(title)}</text>',
            _text(_LEFT, 43, _summary(measured), anchor="start"),
            _text(_LEFT, 60, _guide(len(rows)), anchor="start", fill=_FAINT),
            _text(_LEFT - 8, top - 6, "first with", anchor="end", fill=_FAINT),
            *_plot(measured, canvas, colours),
            *_owners(measured, canvas),
            *_marks(marks, canvas),
            *_generations(measured, canvas),
            *_load(measured, canvas),
            *_axis(measured, canvas),
            *_legend(legend, top + height + _LOAD + 58),
            "</svg>",
            "",
        ]
    )


def _summary(measured: Measured) -> str:
    m = measured.metrics
    regret = "" if m.regret is None else f", {m.regret:.1f} times what a clairvoyant would lose"
    return (
        f"{m.unavailable_ms / 1000:.0f} partition-seconds not served{regret}; longest stop "
        f"{m.longest_stop_ms / 1000:.1f} s; at most {m.peak_share:.0%} down; {m.generations} "
        f"generations; {m.moves} moves; {m.cold_restores} cold restores"
    )


def _guide(partitions: int) -> str:
    return (
        f"Each of {partitions} rows is a partition, in the colour of the process that serves it; "
        "red while none does. Dotted lines: what happened. Ticks below: a generation was told."
    )


def _span(measured: Measured) -> tuple[int, int]:
    """What is shown: the window until nothing changed any more, and a little around it."""
    stable = measured.metrics.stable_after_ms
    last = measured.end if stable is None else measured.begin + stable * 1_000
    last = max([last, *(mark.at for mark in measured.marks)])
    return max(0, measured.begin - _BEFORE), min(measured.end, last + _AFTER)


def _pods(measured: Measured) -> list[str]:
    names = {t.owner for t in measured.ownership} | {m.source for m in measured.marks if m.source}
    return sorted(names, key=lambda name: (len(name), name))


def _first_owners(measured: Measured) -> dict[TopicPartition, str]:
    first: dict[TopicPartition, OwnershipInterval] = {}
    for tenure in measured.ownership:
        known = first.get(tenure.partition)
        if known is None or tenure.begin < known.begin:
            first[tenure.partition] = tenure
    return {tp: tenure.owner for tp, tenure in first.items()}


def _rows(measured: Measured) -> dict[TopicPartition, int]:
    owners = _first_owners(measured)
    known = {*owners, *(stop.partition for stop in measured.dead_times)}
    order = sorted(known, key=lambda tp: (len(owners.get(tp, "")), owners.get(tp, ""), tp))
    return {tp: row for row, tp in enumerate(order)}


def _plot(measured: Measured, canvas: _Canvas, colours: dict[str, str]) -> Iterator[str]:
    served: list[Piece] = []
    restoring: list[Piece] = []
    for t in measured.ownership:
        if t.end <= canvas.begin or t.begin >= canvas.end:
            continue
        row, fill = canvas.rows[t.partition], colours[t.owner]
        served.append((row, canvas.x(t.begin), canvas.x(t.end), fill, t.owner))
        if t.ready > t.begin and t.ready > canvas.begin:
            kind = "restoring from nothing" if t.cold else "restoring"
            piece = (row, canvas.x(t.begin), canvas.x(t.ready), fill, f"{t.owner} {kind}")
            restoring.append(piece)
    stopped: list[Piece] = [
        (canvas.rows[s.partition], canvas.x(s.begin), canvas.x(s.end), _STOPPED, "not served")
        for s in measured.dead_times
    ]
    yield '<g shape-rendering="crispEdges">'
    yield from _rectangles(served, canvas)
    yield from _rectangles(stopped, canvas)
    yield "</g>"
    yield from _rectangles(restoring, canvas)
    yield from _rectangles([(*p[:3], "url(#restoring)", p[4]) for p in restoring], canvas)


def _rectangles(pieces: list[Piece], canvas: _Canvas) -> Iterator[str]:
    """Rectangles, one for all neighbouring rows that are alike."""
    alike: dict[tuple[float, float, str, str], list[int]] = {}
    for row, left, right, fill, told in pieces:
        alike.setdefault((left, right, fill, told), []).append(row)
    for (left, right, fill, told), rows in alike.items():
        for first, count in _neighbours(sorted(set(rows))):
            yield (
                f'<rect x="{left}" y="{canvas.y(first)}" width="{round(right - left, 2)}"'
                f' height="{round(count * canvas.row, 2)}" fill={quoteattr(fill)}>'
                f"<title>{escape(told)}</title></rect>"
            )


def _neighbours(rows: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = -2
    for row in rows:
        if row != last + 1:
            if last >= 0:
                yield first, last - first + 1
            first = row
        last = row
    if last >= 0:
        yield first, last - first + 1


def _owners(measured: Measured, canvas: _Canvas) -> Iterator[str]:
    """Names at the left, of who has which rows at the beginning."""
    owners = _first_owners(measured)
    mine: dict[str, list[int]] = {}
    for tp, row in canvas.rows.items():
        mine.setdefault(owners.get(tp, ""), []).append(row)
    last = float("-inf")
    for pod, rows in mine.items():
        middle = canvas.y(min(rows)) + len(rows) * canvas.row / 2 + 4
        if middle - last >= 11:
            yield _text(_LEFT - 8, middle, pod, anchor="end")
            last = middle


def _placed(marks: list[Mark], span: tuple[int, int]) -> Iterator[tuple[Mark, int | None, bool]]:
    """Each mark; a lane in which its text meets no other, if any; whether it reads leftwards."""
    ends = [float("-inf")] * _LANES
    ruler = _Canvas(*span, {}, 1, 0)
    for mark in marks:
        x, width = ruler.x(mark.at), len(_words(mark)) * _CHARACTER + 10
        leftwards = x + width > _WIDTH
        left, right = (x - width, x) if leftwards else (x, x + width)
        lane = next((n for n, end in enumerate(ends) if end <= left), None)
        if lane is not None:
            ends[lane] = right
        yield mark, lane, leftwards


def _words(mark: Mark) -> str:
    return f"{mark.source} {mark.kind}".strip()


def _marks(marks: list[tuple[Mark, int | None, bool]], canvas: _Canvas) -> Iterator[str]:
    for mark, lane, leftwards in marks:
        x = canvas.x(mark.at)
        y = canvas.top + 5 if lane is None else _HEAD + lane * _LANE + 10
        yield _line(x, y - 9, x, canvas.top + canvas.height, _INK, dash="2 3")
        if lane is None:
            continue
        anchor = "end" if leftwards else "start"
        yield _text(x - 4 if leftwards else x + 4, y, _words(mark), anchor=anchor)


def _generations(measured: Measured, canvas: _Canvas) -> Iterator[str]:
    """Ticks under the plot where a generation was told, with its number where there is room."""
    bottom = canvas.top + canvas.height
    last = float("-inf")
    for mark in measured.marks:
        if mark.kind != "generation":
            continue
        x = canvas.x(mark.at)
        yield _line(x, bottom, x, bottom + 6, _INK)
        if x - last >= 24:
            yield _text(x, bottom + 17, f"generation {mark.text}" if last < 0 else mark.text)
            last = x + (30 if last < 0 else 0)


def _load(measured: Measured, canvas: _Canvas) -> Iterator[str]:
    """How many partitions were not served, as an area under the plot."""
    base, full = canvas.top + canvas.height + 24 + _LOAD, _LOAD - 10
    edges: dict[Instant, int] = {}
    for stop in measured.dead_times:
        edges[stop.begin] = edges.get(stop.begin, 0) + 1
        edges[stop.end] = edges.get(stop.end, 0) - 1
    count = 0
    points = [f"{_LEFT},{base}"]
    for at in sorted(edges):
        x = canvas.x(at)
        points.append(f"{x},{round(base - full * count / max(len(canvas.rows), 1), 2)}")
        count += edges[at]
        points.append(f"{x},{round(base - full * count / max(len(canvas.rows), 1), 2)}")
    right = canvas.x(canvas.end)
    points += [points[-1].replace(points[-1].split(",")[0], str(right), 1), f"{right},{base}"]
    yield f'<polygon points="{" ".join(points)}" fill="{_STOPPED}" fill-opacity="0.85"/>'
    yield _line(_LEFT, base - full, right, base - full, _FAINT, dash="1 4")
    yield _text(_LEFT - 8, base - full + 4, f"all {len(canvas.rows)}", anchor="end", fill=_FAINT)
    yield _text(_LEFT - 8, base - full / 2 + 4, "not served", anchor="end")
    yield _text(_LEFT - 8, base, "0", anchor="end", fill=_FAINT)


def _axis(measured: Measured, canvas: _Canvas) -> Iterator[str]:
    base = canvas.top + canvas.height + 24 + _LOAD
    yield _line(_LEFT, base, _LEFT + _PLOT, base, _INK)
    step = _step((canvas.end - canvas.begin) / MICROS_PER_SECOND)
    second = 0
    while measured.begin + second * MICROS_PER_SECOND <= canvas.end:
        x = canvas.x(measured.begin + second * MICROS_PER_SECOND)
        yield _line(x, base, x, base + 4, _INK)
        yield _text(x, base + 16, f"{second} s")
        second += step


def _step(seconds: float) -> int:
    """A round number of seconds, so that about a dozen fit."""
    choices = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800)
    return next((step for step in choices if seconds / step <= 14), 3_600)


def _legend(colours: dict[str, str], y: float) -> Iterator[str]:
    entries = [(pod, colour, False) for pod, colour in colours.items()]
    entries += [("restoring", _FAINT, True), ("not served", _STOPPED, False)]
    width = _PLOT / _LEGEND
    for n, (name, colour, hatched) in enumerate(entries):
        x = round(_LEFT + n % _LEGEND * width, 2)
        row = round(y + n // _LEGEND * _LEGEND_LINE, 2)
        for fill in (colour, "url(#restoring)") if hatched else (colour,):
            yield f'<rect x="{x}" y="{row - 9}" width="10" height="10" fill="{fill}"/>'
        yield _text(x + 14, row, name, anchor="start")


def _text(x: float, y: float, words: str, *, anchor: str = "middle", fill: str = _INK) -> str:
    place = f'x="{round(x, 2)}" y="{round(y, 2)}" text-anchor="{anchor}"'
    return f'<text {place} fill="{fill}">{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, dash: str = "") -> str:
    style = f' stroke-dasharray="{dash}"' if dash else ""
    where = f'x1="{x1}" y1="{round(y1, 2)}" x2="{x2}" y2="{round(y2, 2)}"'
    return f'<line {where} stroke="{colour}" stroke-width="0.8"{style}/>'
