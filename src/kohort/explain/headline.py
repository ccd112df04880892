"""One sentence about a group, and times as people read them.

In: an explained group. Out: text. Must not know: terminals, pages.
"""

from __future__ import annotations

from datetime import UTC, datetime

from kohort.explain.explaining import Explained
from kohort.explain.findings import span_text


def headline(explained: Explained, group: str) -> str:
    """One sentence with the number of rebalances, their time and their main cause.

    Args:
        explained: the group.
        group: its name, as it is shown.
    """
    story = explained.story
    name = f"Group {group}" if group else "A group that the log does not name"
    count = (
        "no rebalance seen"
        if not story.total
        else f"{story.total:,} rebalance" + "s" * (story.total > 1)
    )
    span = ""
    if story.first is not None and story.last is not None and story.last > story.first:
        span = f" in {span_text(story.last - story.first)}"
    told = [(cause, n) for cause, n in story.causes.most_common() if "does not tell" not in cause]
    why = ""
    if told:
        cause, times = told[0]
        share = "" if times == story.total else "mostly " if 2 * times > story.total else "partly "
        why = f", {share}because {cause.value}"
    worst = f"; first of all: {explained.findings[0].name}" if explained.findings else ""
    when = f" (from {time_text(story.first, story.dated)})" if story.first is not None else ""
    makers = f" Written by {explained.makers}." if explained.makers else ""
    return f"{name}: {count}{span}{why}{worst}{when}.{makers}"


def time_text(at: float | None, dated: bool) -> str:
    """A time in UTC; without its day if the source tells no days, ``-`` if it is not known."""
    if at is None:
        return "-"
    moment = datetime.fromtimestamp(at, UTC)
    return (
        moment.strftime("%Y-%m-%d %H:%M:%S" if dated else "%H:%M:%S")
        + f".{moment.microsecond // 1000:03}"
    )
