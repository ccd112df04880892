"""One sentence about a group.

In: an explained group. Out: text. Must not know: terminals, pages.
"""

from __future__ import annotations

from collections.abc import Callable

from kohort.explain.events import Side
from kohort.explain.explaining import Explained
from kohort.explain.findings import span_text


def headline(explained: Explained, group: str, stamp: Callable[[float | None, bool], str]) -> str:
    """One sentence with the number of rebalances, their time and their main cause.

    Args:
        explained: the group.
        group: its name, as it is shown.
        stamp: writes a time; its second argument tells whether the source has dates.
    """
    story = explained.story
    name = f"Group {group}" if group else "A group that the log does not name"
    count = (
        "no rebalance seen"
        if not story.total
        else f"{story.total:,} rebalance" + "s" * (story.total > 1)
    )
    span = ""
    if story.first is not None:
        moment = stamp(story.first, story.dated)
        span = f" at {moment}" if story.total else f" from {moment} on"
        if story.last is not None and story.last > story.first:
            span = f" in the {span_text(story.last - story.first)} from {moment} on"
    told = [(cause, n) for cause, n in story.causes.most_common() if "does not tell" not in cause]
    why = ""
    if told:
        cause, times = told[0]
        share = "" if times == story.total else "mostly " if 2 * times > story.total else "partly "
        why = f", {share}because {cause.value}"
    worst = f" Look first at: {explained.findings[0].name}." if explained.findings else ""
    programs = ", ".join(m for m in explained.makers.split(", ") if m not in {"", Side.OFFSETS})
    makers = f" Written by {programs}." if programs else ""
    read = " Read from the offsets topic." if story.makers[Side.OFFSETS] else ""
    return f"{name}: {count}{span}{why}.{worst}{makers}{read}"
