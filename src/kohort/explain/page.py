"""Draws explanations as one HTML page that needs nothing else: no script, no other file.

In: `Explained` values. Out: the text of the page. A strip shows the rebalances of a group over
time; rows of partitions show their owners, if the offsets topic was read. Each rebalance is a link
to its row in the table, so the keyboard reaches all of them. The policy of the page forbids
scripts: a log with hostile names is text. Must not know: files, clocks of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import Final

from kohort.explain.explaining import Explained
from kohort.explain.findings import costs_text, span_text
from kohort.explain.ownership import Owned
from kohort.explain.reading import client_of
from kohort.explain.stories import Rebalance, Story

_WIDTH: Final = 1_000
_STRIP: Final = 34
_MOST_ROWS: Final = 200
_ROW: Final = 14
_LEAST_PX: Final = 3.0
"""A rebalance is drawn at least so wide, so that the pointer finds it."""
_LETTER_PX: Final = 6.5
_WIDE: Final = frozenset({2, 3})
"""The columns with long texts."""
_NARROW: Final = ' class="narrow"'

Stamp = Callable[[float | None, bool], str]

_STYLE: Final = """
:root { --ink: #1f2328; --paper: #fff; --faint: #6b7280; --line: #d5dae1; --card: #f5f7fa;
  --join: #c2570c; --leader: #2563a8; --mark: #ffe8a3 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --paper: #14171c; --faint: #98a2b0;
  --line: #333a44; --card: #1d222a; --join: #f0883e; --leader: #6cb0f5; --mark: #5a4a12 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1060px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.5rem }
table { border-collapse: collapse; width: 100%; font-size: 13px }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top }
th, td.narrow { white-space: nowrap } td { overflow-wrap: anywhere }
tr:target { background: var(--mark) }
.finding { background: var(--card); border-left: 4px solid var(--join); padding: .6rem .9rem;
  margin: .6rem 0; border-radius: 4px }
.known { color: var(--faint); font-size: 12px } .proof { color: var(--faint); font-size: 12px }
svg { width: 100%; height: auto; display: block; margin: .8rem 0 }
svg text { font: 11px system-ui, sans-serif; fill: var(--ink) } svg .faint { fill: var(--faint) }
svg .join { fill: var(--join) } svg .leader { fill: var(--leader) }
svg .base { stroke: var(--line) } svg a:focus rect, svg a:hover rect { stroke: var(--ink);
  stroke-width: 2 } svg .name { fill: #111; pointer-events: none }
svg .gap { fill: url(#gap) } .scroll { overflow-x: auto }
"""


def page(explained: Iterable[Explained], headlines: Iterable[str], stamp: Stamp) -> str:
    """The page.

    Args:
        explained: the groups.
        headlines: one sentence for each group.
        stamp: writes a time; its second argument tells whether the log has dates.
    """
    body = [
        part
        for number, (each, headline) in enumerate(zip(explained, headlines, strict=True))
        for part in _group(each, headline, number, stamp)
    ]
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta http-equiv="Content-Security-Policy"'
            " content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            '<meta name="viewport" content="width=device-width">',
            f"<title>Rebalances explained</title><style>{_STYLE}</style></head><body>",
            "<h1>Rebalances explained</h1>",
            *body,
            "</body></html>\n",
        ]
    )


def _group(each: Explained, headline: str, number: int, stamp: Stamp) -> Iterator[str]:
    story = each.story
    yield f"<h2>{escape(story.group) or 'A group without a name'}</h2><p>{escape(headline)}</p>"
    yield from _findings(each)
    rows = list(story.rebalances)
    if rows:
        yield from _picture(story, rows, number, stamp)
        yield from _table(story, rows, number, stamp)


def _findings(each: Explained) -> Iterator[str]:
    for finding in each.findings:
        proof = ", ".join(f"{place.file}:{place.line}" for place in finding.evidence)
        advice = f"<br>{escape(finding.advice)}" if finding.advice else ""
        advice += f"<br>Tried: {escape(finding.effect)}" if finding.effect else ""
        yield (
            f'<div class="finding"><b>{escape(finding.name)}</b> <span class="known">'
            f"{finding.known.value}</span><br>{escape(finding.says)}{advice}"
            f'<div class="proof">{escape(proof)}</div></div>'
        )


def _table(story: Story, rows: list[Rebalance], number: int, stamp: Stamp) -> Iterator[str]:
    heads = (
        *("When", "Generation", "Because", "Member", "Join", "Leader", "Members"),
        *("Moved", "Needless", "Stopped", "Cost", "Again"),
    )
    yield '<div class="scroll"><table><tr>' + "".join(f"<th>{h}</th>" for h in heads) + "</tr>"
    for row, r in enumerate(rows):
        because = r.cause.value + (f": {r.client_reason}" if r.client_reason else "")
        cells = (
            stamp(r.began if r.began is not None else r.ended, story.dated),
            r.generation,
            because,
            r.instance or r.member,
            _span(r.join_s),
            _span(r.leader_s),
            r.members,
            r.moved,
            r.needless,
            *costs_text(r),
        )
        told = "".join(
            f"<td{'' if column in _WIDE else _NARROW}>{'' if c is None else escape(str(c))}</td>"
            for column, c in enumerate(cells)
        )
        yield f'<tr id="g{number}r{row}">{told}</tr>'
    yield "</table></div>"


# -- the picture ----------------------------------------------------------------------------------


def _picture(story: Story, rows: list[Rebalance], number: int, stamp: Stamp) -> Iterator[str]:
    if story.first is None or story.last is None or story.last <= story.first:
        return
    left = 90.0
    scale = (_WIDTH - left - 10) / (story.last - story.first)
    begin = story.first

    def x(at: float) -> float:
        return round(left + (min(max(at, begin), story.last or at) - begin) * scale, 1)

    partitions = sorted({owned.partition for owned in story.owned}, key=_natural)[:_MOST_ROWS]
    height = _STRIP + 42 + len(partitions) * _ROW
    yield (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="rebalances over time"><defs>'
        '<pattern id="gap" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform='
        '"rotate(45)"><rect width="2" height="6" fill="#d7301f"/></pattern></defs>'
    )
    yield f'<text x="{left - 8}" y="20" text-anchor="end">rebalances</text>'
    yield f'<line class="base" x1="{left}" x2="{_WIDTH - 10}" y1="{_STRIP}" y2="{_STRIP}"/>'
    yield from _strip(rows, number, x)
    yield from _rows(story.owned, partitions, x, left)
    for at, where, anchor in ((story.first, left, "start"), (story.last, _WIDTH - 10, "end")):
        place = f'x="{where}" y="{height - 6}" text-anchor="{anchor}"'
        yield f'<text class="faint" {place}>{escape(stamp(at, story.dated))}</text>'
    yield "</svg>"


def _strip(rows: list[Rebalance], number: int, x: Callable[[float], float]) -> Iterator[str]:
    """A box for each rebalance: the wait for members, then the wait for the leader."""
    free = 0.0
    for row, r in enumerate(rows):
        times = [at for at in (r.began, r.joined, r.assigned) if at is not None]
        if not times:
            continue
        left, middle, right = x(times[0]), x(r.joined or times[-1]), x(times[-1])
        told = f"generation {r.generation}: {r.cause.value}; join {_span(r.join_s) or 'unknown'}"
        yield f'<a href="#g{number}r{row}"><title>{escape(told)}</title>'
        yield (
            f'<rect class="join" x="{left}" y="8" width="{max(_LEAST_PX, middle - left):.1f}" '
            'height="18"/>'
        )
        if right > middle:
            yield (
                f'<rect class="leader" x="{middle}" y="8" width="{right - middle:.1f}" '
                'height="18"/>'
            )
        yield "</a>"
        label = str(r.generation or "")
        if label and left >= free:
            yield f'<text class="faint" x="{left}" y="{_STRIP + 12}">{label}</text>'
            free = left + len(label) * _LETTER_PX + 8


def _rows(
    owned: list[Owned], partitions: list[str], x: Callable[[float], float], left: float
) -> Iterator[str]:
    """A row for each partition, in the colour of its owner; striped while there is none."""
    places = {p: _STRIP + 20 + n * _ROW for n, p in enumerate(partitions)}
    names = sorted({o.owner for o in owned})
    colours = {name: f"hsl({n * 137 % 360} 45% 62%)" for n, name in enumerate(names)}
    for partition, y in places.items():
        width = _WIDTH - left - 10
        yield f'<rect class="gap" x="{left}" y="{y}" width="{width}" height="{_ROW - 2}"/>'
        name = escape(partition[-14:])
        yield f'<text x="{left - 8}" y="{y + 10}" text-anchor="end">{name}</text>'
    for o in owned:
        if o.partition not in places:
            continue
        begin, width = x(o.begin), max(0.5, x(o.end) - x(o.begin))
        yield (
            f'<rect x="{begin}" y="{places[o.partition]}" width="{width:.1f}" height="{_ROW - 2}" '
            f'fill="{colours[o.owner]}"><title>{escape(f"{o.partition}: {o.owner}")}</title></rect>'
        )
        name = _short(o.owner)
        shown = name[: int(width / _LETTER_PX)]
        if len(shown) >= min(4, len(name)):
            y = places[o.partition] + 10
            yield f'<text class="name" x="{begin + 3}" y="{y}">{escape(shown)}</text>'


def _short(owner: str) -> str:
    """The client id and the beginning of the random part of a member id."""
    client = client_of(owner)
    return f"{client} {owner[len(client) + 1 :][:4]}" if client else owner


def _natural(partition: str) -> tuple[str, int]:
    topic, _, number = partition.rpartition("-")
    return topic, int(number)


def _span(seconds: float | None) -> str:
    return "" if seconds is None else span_text(seconds)
