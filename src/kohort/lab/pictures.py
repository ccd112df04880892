"""Draws the ownership of partitions over time as an SVG document.

In: the measurements of one run and a title. Out: the text of a complete picture, and its parts for
pictures that show several runs. Each partition is a row in the colour of the process that serves
the partition. Rows are grouped by their first owner. Red with stripes means that no process serves
the partition; white stripes mean that the owner is still restoring. Must not know: worlds,
scenarios, files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias
from xml.sax.saxutils import escape, quoteattr

from kohort.history.cost_values import Mark, Measured, OwnershipInterval
from kohort.model.ids import TopicPartition
from kohort.model.instants import MICROS_PER_SECOND, Instant

WIDTH: Final = 1200
LEFT: Final = 84
_RIGHT: Final = 20
_PLOT: Final = WIDTH - LEFT - _RIGHT
_HEAD: Final = 76
_LANE: Final = 15
_LANES: Final = 6
_LOAD: Final = 54
_LEGEND: Final = 12
"""Entries in one line of the legend."""
_LEGEND_LINE: Final = 16
_CHARACTER: Final = 6.2
"""The approximate width of one character."""
_LEAST_HEIGHT: Final = 160
_MOST_HEIGHT: Final = 720
_ROW: Final = 4
_BEFORE: Final = 3 * MICROS_PER_SECOND
_AFTER: Final = 8 * MICROS_PER_SECOND
STOPPED: Final = "#d7301f"
INK: Final = "#22272e"
FAINT: Final = "#8a929c"
HUES: Final = (
    "#4477aa", "#66ccee", "#228833", "#ccbb44", "#aa7fc4", "#8c7a5b", "#44aa99", "#7a93c9",
    "#a6d96a", "#c7a0b5", "#3f6f7f", "#b8b8a0", "#5f8f3f", "#8f9fd0", "#d9c58a", "#4f9fbf",
)  # fmt: skip

Piece: TypeAlias = tuple[int, float, float, str, str]
"""Row, left, right, fill, and the text under the mouse pointer."""


@dataclass(slots=True)
class Canvas:
    """The positions of instants and partitions in one plot."""

    begin: int
    end: int
    rows: dict[TopicPartition, int]
    row: float
    top: float

    def x(self, at: int) -> float:
        """The position of an instant, at the edge if it is outside of the shown time."""
        share = (min(max(at, self.begin), self.end) - self.begin) / (self.end - self.begin)
        return round(LEFT + share * _PLOT, 2)

    def y(self, row: int) -> float:
        """The upper edge of a row."""
        return round(self.top + row * self.row, 2)

    @property
    def height(self) -> float:
        """The height of all rows."""
        return len(self.rows) * self.row


def ownership_svg(measured: Measured, *, title: str) -> str:
    """A picture of a run: an SVG document of its own, readable without anything else."""
    span = span_of(measured)
    marks = list(placed_marks([m for m in measured.marks if m.kind != "generation"], span))
    top = _HEAD + (max((lane or 0 for _, lane, _ in marks), default=-1) + 1) * _LANE + 6
    rows = rows_of(measured)
    height = min(max(len(rows) * _ROW, _LEAST_HEIGHT), _MOST_HEIGHT)
    canvas = Canvas(*span, rows, height / max(len(rows), 1), top)
    colours = colours_of(measured)
    owners = {t.owner for t in measured.ownership}
    owned = {pod: colour for pod, colour in colours.items() if pod in owners}
    total = round(top + height + _LOAD + 74 + _LEGEND_LINE * ((len(owners) + 1) // _LEGEND))
    return document(
        total,
        title,
        [
            text(LEFT, 43, _summary(measured), anchor="start"),
            text(LEFT, 60, _guide(len(rows)), anchor="start", fill=FAINT),
            text(LEFT - 8, top - 6, "first owner", anchor="end", fill=FAINT),
            *plot(measured, canvas, colours),
            *owner_names(measured, canvas),
            *mark_lines(marks, canvas, _HEAD),
            *_generations(measured, canvas),
            *_load(measured, canvas),
            *axis(measured, canvas, canvas.top + canvas.height + 24 + _LOAD),
            *legend(owned, top + height + _LOAD + 58),
        ],
    )


def document(height: int, title: str, body: Iterable[str]) -> str:
    """An SVG document on a white card, which is readable on light and on dark pages."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
            f' viewBox="0 0 {WIDTH} {height}" role="img" font-family="Helvetica, Arial,'
            f' sans-serif" font-size="11" fill="{INK}">',
            f"<title>{escape(title)}</title>",
            f"<defs>{_stripes('restoring', '#fff', 0.75)}{_stripes('not-served', '#7f0f0a', 0.9)}",
            '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8"'
            f' markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker>'
            "</defs>",
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#fff"/>',
            text(LEFT, 24, title, anchor="start", size=16, bold=True),
            *body,
            "</svg>",
            "",
        ]
    )


def _stripes(name: str, colour: str, opacity: float) -> str:
    return (
        f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse"'
        f' patternTransform="rotate(45)"><rect width="2.5" height="6" fill="{colour}"'
        f' fill-opacity="{opacity}"/></pattern>'
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
        "red and striped while no process does. Ticks below the rows: a new generation."
    )


def span_of(measured: Measured) -> tuple[int, int]:
    """The shown time: from a little before the window until a little after its last change."""
    stable = measured.metrics.stable_after_ms
    last = measured.end if stable is None else measured.begin + stable * 1_000
    last = max([last, *(mark.at for mark in measured.marks)])
    return max(0, measured.begin - _BEFORE), min(measured.end, last + _AFTER)


def colours_of(measured: Measured) -> dict[str, str]:
    """A colour for each process, the same in each picture of the same processes."""
    names = {t.owner for t in measured.ownership} | {m.source for m in measured.marks if m.source}
    order = sorted(names, key=lambda name: (len(name), name))
    return {pod: HUES[n % len(HUES)] for n, pod in enumerate(order)}


def _first_owners(measured: Measured) -> dict[TopicPartition, str]:
    first: dict[TopicPartition, OwnershipInterval] = {}
    for tenure in measured.ownership:
        known = first.get(tenure.partition)
        if known is None or tenure.begin < known.begin:
            first[tenure.partition] = tenure
    return {tp: tenure.owner for tp, tenure in first.items()}


def rows_of(measured: Measured) -> dict[TopicPartition, int]:
    """The row of each partition: grouped by first owner, then by number."""
    owners = _first_owners(measured)
    known = {*owners, *(stop.partition for stop in measured.dead_times)}
    order = sorted(known, key=lambda tp: (len(owners.get(tp, "")), owners.get(tp, ""), tp))
    return {tp: row for row, tp in enumerate(order)}


def plot(measured: Measured, canvas: Canvas, colours: dict[str, str]) -> Iterator[str]:
    """The pieces of ownership, restoring and dead time."""
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
        (canvas.rows[s.partition], canvas.x(s.begin), canvas.x(s.end), STOPPED, "not served")
        for s in measured.dead_times
    ]
    yield '<g shape-rendering="crispEdges">'
    yield from _rectangles(served, canvas)
    yield from _rectangles(stopped, canvas)
    yield "</g>"
    yield from _rectangles([(*p[:3], "url(#not-served)", "stripes") for p in stopped], canvas)
    yield from _rectangles(restoring, canvas)
    yield from _rectangles([(*p[:3], "url(#restoring)", p[4]) for p in restoring], canvas)


def _rectangles(pieces: list[Piece], canvas: Canvas) -> Iterator[str]:
    """Rectangles; neighbouring rows with equal pieces share one."""
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


def owner_names(measured: Measured, canvas: Canvas) -> Iterator[str]:
    """The names of the first owners, at the left of their rows."""
    owners = _first_owners(measured)
    mine: dict[str, list[int]] = {}
    for tp, row in canvas.rows.items():
        mine.setdefault(owners.get(tp, ""), []).append(row)
    last = float("-inf")
    for pod, rows in mine.items():
        middle = canvas.y(min(rows)) + len(rows) * canvas.row / 2 + 4
        if middle - last >= 11:
            yield text(LEFT - 8, middle, pod, anchor="end")
            last = middle


def placed_marks(
    marks: list[Mark], span: tuple[int, int]
) -> Iterator[tuple[Mark, int | None, bool]]:
    """Each mark with a lane for its text, if one is free, and whether the text ends at the mark."""
    ends = [float("-inf")] * _LANES
    ruler = Canvas(*span, {}, 1, 0)
    for mark in marks:
        x, width = ruler.x(mark.at), len(_words(mark)) * _CHARACTER + 10
        leftwards = x + width > WIDTH
        left, right = (x - width, x) if leftwards else (x, x + width)
        lane = next((n for n, end in enumerate(ends) if end <= left), None)
        if lane is not None:
            ends[lane] = right
        yield mark, lane, leftwards


def _words(mark: Mark) -> str:
    return f"{mark.source} {mark.kind}".strip()


def mark_lines(
    marks: list[tuple[Mark, int | None, bool]], canvas: Canvas, head: float
) -> Iterator[str]:
    """A dotted line for each mark, with its text in its lane below ``head``."""
    for mark, lane, leftwards in marks:
        x = canvas.x(mark.at)
        y = canvas.top + 5 if lane is None else head + lane * _LANE + 10
        yield line(x, y - 9, x, canvas.top + canvas.height, INK, dash="2 3")
        if lane is None:
            continue
        anchor = "end" if leftwards else "start"
        yield text(x - 4 if leftwards else x + 4, y, _words(mark), anchor=anchor)


def _generations(measured: Measured, canvas: Canvas) -> Iterator[str]:
    """Ticks under the plot for new generations, with their numbers if there is space."""
    bottom = canvas.top + canvas.height
    last = float("-inf")
    for mark in measured.marks:
        if mark.kind != "generation":
            continue
        x = canvas.x(mark.at)
        yield line(x, bottom, x, bottom + 6, INK)
        if x - last >= 24:
            yield text(x, bottom + 17, f"generation {mark.text}" if last < 0 else mark.text)
            last = x + (30 if last < 0 else 0)


def _load(measured: Measured, canvas: Canvas) -> Iterator[str]:
    """The number of partitions that no process serves, as an area under the plot."""
    base, full = canvas.top + canvas.height + 24 + _LOAD, _LOAD - 10
    edges: dict[Instant, int] = {}
    for stop in measured.dead_times:
        edges[stop.begin] = edges.get(stop.begin, 0) + 1
        edges[stop.end] = edges.get(stop.end, 0) - 1
    count = 0
    points = [f"{LEFT},{base}"]
    for at in sorted(edges):
        x = canvas.x(at)
        points.append(f"{x},{round(base - full * count / max(len(canvas.rows), 1), 2)}")
        count += edges[at]
        points.append(f"{x},{round(base - full * count / max(len(canvas.rows), 1), 2)}")
    right = canvas.x(canvas.end)
    points += [points[-1].replace(points[-1].split(",")[0], str(right), 1), f"{right},{base}"]
    yield f'<polygon points="{" ".join(points)}" fill="{STOPPED}" fill-opacity="0.85"/>'
    yield line(LEFT, base - full, right, base - full, FAINT, dash="1 4")
    yield text(LEFT - 8, base - full + 4, f"all {len(canvas.rows)}", anchor="end", fill=FAINT)
    yield text(LEFT - 8, base - full / 2 + 4, "not served", anchor="end")
    yield text(LEFT - 8, base, "0", anchor="end", fill=FAINT)


def axis(measured: Measured, canvas: Canvas, base: float) -> Iterator[str]:
    """The seconds since the first disturbance, on a line at ``base``."""
    yield line(LEFT, base, LEFT + _PLOT, base, INK)
    step = _step((canvas.end - canvas.begin) / MICROS_PER_SECOND)
    second = 0
    while measured.begin + second * MICROS_PER_SECOND <= canvas.end:
        x = canvas.x(measured.begin + second * MICROS_PER_SECOND)
        yield line(x, base, x, base + 4, INK)
        yield text(x, base + 16, f"{second} s")
        second += step


def _step(seconds: float) -> int:
    """A round number of seconds that gives about a dozen ticks."""
    choices = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800)
    return next((step for step in choices if seconds / step <= 14), 3_600)


def legend(colours: dict[str, str], y: float) -> Iterator[str]:
    """A box with its name for each process and for both kinds of stripes."""
    entries = [(pod, colour, "") for pod, colour in colours.items()]
    entries += [("restoring", FAINT, "restoring"), ("not served", STOPPED, "not-served")]
    width = _PLOT / _LEGEND
    for n, (name, colour, stripes) in enumerate(entries):
        x = round(LEFT + n % _LEGEND * width, 2)
        row = round(y + n // _LEGEND * _LEGEND_LINE, 2)
        for fill in (colour, f"url(#{stripes})") if stripes else (colour,):
            yield f'<rect x="{x}" y="{row - 9}" width="10" height="10" fill="{fill}"/>'
        yield text(x + 14, row, name, anchor="start")


def text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "middle",
    fill: str = INK,
    size: float = 11,
    bold: bool = False,
) -> str:
    """A line of text with its baseline at ``y``."""
    style = f' font-size="{size}"' if size != 11 else ""
    style += ' font-weight="bold"' if bold else ""
    where = f'x="{round(x, 2)}" y="{round(y, 2)}" text-anchor="{anchor}"'
    return f'<text {where} fill="{fill}"{style}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str, *, dash: str = "") -> str:
    """A thin line, dashed if ``dash`` has lengths."""
    style = f' stroke-dasharray="{dash}"' if dash else ""
    where = f'x1="{x1}" y1="{round(y1, 2)}" x2="{x2}" y2="{round(y2, 2)}"'
    return f'<line {where} stroke="{colour}" stroke-width="0.8"{style}/>'
