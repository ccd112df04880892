"""The picture of a sweep: for each deployment a bar for each setting, the best one on top.

In: rated settings. Out: an SVG document with the look of the lab's timelines. Must not know: runs,
files.

A bar is the cost of a setting; its colours are the parts of the scenarios.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

from kohort.lab.pictures import FAINT, HUES, INK, LEFT, WIDTH, document, line, text
from kohort.lab.scenarios.registry import scenario
from kohort.lab.sweep import CRITERIA, Deployment, Rated
from kohort.lab.table import number

MOST_BARS: Final = 24
"""Settings of a deployment that are drawn; the worst one is always the last."""
_NAMES: Final = 300
_VALUES: Final = 110
_BARS: Final = WIDTH - LEFT - _NAMES - _VALUES
_ROW: Final = 20
_BAR: Final = 13
_LEGEND_ROW: Final = 18
_PER_LINE: Final = 4


def sweep_svg(rated: Mapping[Deployment, Sequence[Rated]], *, by: str = "down") -> str:
    """The picture: an SVG document of its own, readable without anything else."""
    names = list(next(iter(rated.values()))[0].parts)
    colours = {name: HUES[n % len(HUES)] for n, name in enumerate(names)}
    body = [
        text(LEFT, 44, f"Bars: {CRITERIA[by]}, summed over all events.", anchor="start"),
        *_legend(colours, 66),
    ]
    y = 66.0 + _LEGEND_ROW * (1 + (len(names) - 1) // _PER_LINE) + 14
    for deployment, settings in rated.items():
        shown = _shown(settings)
        body += _panel(str(deployment), shown, len(settings), colours, y)
        y += 30 + _ROW * len(shown) + 22
    return document(round(y), "Settings by their cost in the lab", body)


def _shown(settings: Sequence[Rated]) -> Sequence[Rated]:
    if len(settings) <= MOST_BARS:
        return settings
    return [*settings[: MOST_BARS - 1], settings[-1]]


def _panel(
    title: str, shown: Sequence[Rated], total: int, colours: Mapping[str, str], top: float
) -> Iterator[str]:
    left = LEFT + _NAMES
    yield text(LEFT, top + 8, title, anchor="start", size=13, bold=True)
    if total > len(shown):
        words = f"the best {len(shown) - 1} and the worst of {total} settings"
        yield text(WIDTH - 20, top + 8, words, anchor="end", fill=FAINT)
    largest = max((each.cost for each in shown), default=0.0) or 1.0
    y = top + 30
    for each in shown:
        yield text(left - 8, y, str(each.setting), anchor="end", bold=each.as_good)
        x = float(left)
        for name, part in each.parts.items():
            width = part / largest * _BARS
            yield (
                f'<rect x="{round(x, 2)}" y="{round(y - 10, 2)}" width="{round(width, 2)}"'
                f' height="{_BAR}" fill="{colours[name]}"><title>'
                f"{escape(f'{scenario(name).title}: {number(part)}')}</title></rect>"
            )
            x += width
        yield text(x + 6, y, number(each.cost), anchor="start", fill=INK)
        y += _ROW
    yield line(left, top + 18, left, y - _ROW + 8, INK)


def _legend(colours: Mapping[str, str], y: float) -> Iterator[str]:
    width = (WIDTH - LEFT - 20) / _PER_LINE
    for n, (name, colour) in enumerate(colours.items()):
        x = round(LEFT + n % _PER_LINE * width, 2)
        row = round(y + n // _PER_LINE * _LEGEND_ROW, 2)
        yield f'<rect x="{x}" y="{row - 9}" width="10" height="10" fill="{colour}"/>'
        yield text(x + 14, row, scenario(name).title, anchor="start")
    words = "Bold: as good as the best one, by two standard errors of the differences."
    yield text(WIDTH - 20, 44, words, anchor="end", fill=FAINT)
