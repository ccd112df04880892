"""Times as people read them, on pages and terminals.

In: seconds since 1970. Out: text. Must not know: groups.
"""

from __future__ import annotations

from datetime import UTC, datetime


def time_text(at: float | None, dated: bool) -> str:
    """A time in UTC; without its day if the source tells no days, ``-`` if it is not known."""
    if at is None:
        return "-"
    moment = datetime.fromtimestamp(at, UTC)
    return (
        moment.strftime("%Y-%m-%d %H:%M:%S" if dated else "%H:%M:%S")
        + f".{moment.microsecond // 1000:03}"
    )
