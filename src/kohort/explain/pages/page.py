"""Explanations as one HTML page that needs nothing else: no other file, nothing from a network.

In: `Explained` values; the script that draws, and the style. Out: the text of the page. A canvas
shows the owners of the partitions of a group and its rebalances over time; each rebalance leads to
its row in the table. The policy of the page allows only this script, by its hash: hostile names in
a log stay text. Must not know: files, clocks of this machine.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import Any, Final

from kohort.explain.explaining import Explained
from kohort.explain.findings import REBALANCE_COLUMNS, rebalance_cells
from kohort.explain.pages.number_row import numbers_of
from kohort.explain.pages.picture import Cursor, picture_of
from kohort.explain.rebalances import Rebalance
from kohort.explain.stories import Story

_WIDE: Final = frozenset({"Because", "Member", "Waited for"})
"""The columns with long texts."""
_LONG: Final = 20
"""A table with more rows scrolls."""
_NARROW: Final = ' class="narrow"'
_LAG: Final = (
    "Lag: records behind the commits. The end of a log at a time is that of its records that are "
    "older by their timestamps [bounded]. Dashed: the longest time since the last commit of a "
    "partition that has a lag."
)
_BEGIN: Final = r"""
const timelines = new Map();
for (const host of document.querySelectorAll(".timeline")) {
  const message = JSON.parse(host.nextElementSibling.textContent);
  const shown = (place) => markRow(document.getElementById(`${host.id}r${place}`));
  timelines.set(host.id, new Timeline(host, message, shown));
}
function follow() {
  const [, id, place] = /^#(g\d+)r(\d+)$/.exec(location.hash) ?? [];
  const timeline = timelines.get(id);
  if (!timeline) return;
  timeline.choose(Number(place));
  timeline.detail.root.scrollIntoView({ block: "center" });
}
addEventListener("hashchange", follow);
follow();
"""

Stamp = Callable[[float | None, bool], str]


def page(
    explained: Iterable[Explained],
    headlines: Iterable[str],
    stamp: Stamp,
    *,
    script: str,
    style: str,
) -> str:
    """The page.

    Args:
        explained: the groups.
        headlines: one sentence for each group.
        stamp: writes a time; its second argument tells whether the log has dates.
        script: draws a picture (`kohort.explain.pages.picture`) into an element.
        style: of the page.
    """
    body = [
        part
        for number, (each, headline) in enumerate(zip(explained, headlines, strict=True))
        for part in _group(each, headline, number, stamp)
    ]
    head = "<h1>Rebalances explained</h1>"
    return whole_page(
        "Rebalances explained", [head, *body], script=f"{script}{_BEGIN}", style=style
    )


def whole_page(title: str, body: Iterable[str], *, script: str, style: str) -> str:
    """A page that needs nothing else, and permits its own script and style only.

    Args:
        title: of the page.
        body: parts of HTML.
        script: the one script, at the end of the page.
        style: of the page.
    """
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            f'style-src {_source(style)}; script-src {_source(script)}">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{escape(title)}</title><style>{style}</style></head><body>",
            *body,
            f"<script>{script}</script></body></html>\n",
        ]
    )


def _source(text: str) -> str:
    """The name of an inline script or style in a policy: its hash."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def data_text(value: Any) -> str:
    """JSON that may stand in a script element: no text in it ends the element."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _group(each: Explained, headline: str, number: int, stamp: Stamp) -> Iterator[str]:
    story = each.story
    yield f"<h2>{escape(story.group) or 'A group without a name'}</h2><p>{escape(headline)}</p>"
    rows = list(story.rebalances)
    if rows:
        yield from _numbers(story)
        yield from _picture(story, number)
        yield from _table(story, rows, number, stamp)
    yield from _findings(each)


def _numbers(story: Story) -> Iterator[str]:
    """The row of numbers of a group."""
    yield '<dl class="numbers">'
    for each in numbers_of(story):
        yield (
            f"<div><dt>{escape(each.name)}</dt><dd>{escape(each.text)} "
            f'<span class="known">{each.known.value}</span></dd></div>'
        )
    yield "</dl>"


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
    """The table of rebalances, without the columns that are empty in each row."""
    table = [
        (stamp(r.began if r.began is not None else r.ended, story.dated), *rebalance_cells(r))
        for r in rows
    ]
    heads = ("When", *REBALANCE_COLUMNS)
    shown = [c for c in range(len(heads)) if not c or any(cells[c] for cells in table)]
    long = " long" if len(rows) > _LONG else ""
    yield f'<div class="scroll{long}"><table><tr>'
    yield "".join(f"<th>{heads[column]}</th>" for column in shown) + "</tr>"
    for row, cells in enumerate(table):
        told = "".join(
            f"<td{'' if heads[column] in _WIDE else _NARROW}>{escape(cells[column])}</td>"
            for column in shown[1:]
        )
        link = f'<a href="#g{number}r{row}">{escape(cells[0])}</a>'
        yield f'<tr id="g{number}r{row}"><td{_NARROW}>{link}</td>{told}</tr>'
    yield "</table></div>"


def _picture(story: Story, number: int) -> Iterator[str]:
    """The place of a picture, and the values of the picture."""
    if story.first is None or story.last is None or story.last <= story.first:
        return
    message, _ = picture_of(story).message(Cursor())
    yield f'<div class="timeline" id="g{number}"></div>'
    yield f'<script type="application/json">{data_text(message)}</script>'
    if story.lags:
        yield f'<p class="known">{_LAG}</p>'
