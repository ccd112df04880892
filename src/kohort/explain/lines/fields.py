"""Finds the message of a JSON line in its pairs, or deep in its objects.

In: the frame of a line. Out: the message, and the frame with the text of the message. Must not
know: groups, places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kohort.explain.lines.frames import Framed, framed, time_of
from kohort.explain.wordings.matching import Found, understood

_FRANZ_GO_VALUES: Final = (
    *("group", "member_id", "instance_id", "prior_member_id", "prior_generation"),
    *("new_member_id", "new_generation", "generation", "protocol_type", "protocol"),
    *("now_assigned", "assigned", "revoking", "added", "lost", "stage", "instance"),
    *("err", "why", "is848", "id", "interests", "plan"),
)
"""The names of values in the messages of franz-go, in their order there."""
_DEEPEST: Final = 4
_SHORTEST: Final = 12
_LONGEST: Final = 2_000
_MOST_TEXTS: Final = 30


def in_fields(frame: Framed) -> tuple[Found, Framed] | None:
    """The message that the fields of a line tell; None if they tell none."""
    if not frame.fields:
        return None
    if frame.text and (found := _in_pairs(frame)) is not None:
        return found, frame
    for number, (text, beside) in enumerate(_texts(frame.fields, _DEEPEST)):
        if number == _MOST_TEXTS:
            break
        inner = framed(text)
        found = understood(inner.text)
        if found is not None:
            own = (inner.at, inner.dated) if inner.dated else (frame.at, frame.dated)
            own = time_of(beside) if own[0] is None else own
            return found, frame._replace(text=inner.text, at=own[0], dated=own[1])
    return None


def _texts(fields: Mapping[str, Any], deep: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The texts that are long enough for a message, each with the object that has the text."""
    for value in fields.values():
        if isinstance(value, str):
            if _SHORTEST <= len(value) <= _LONGEST and " " in value:
                yield value, fields
        elif isinstance(value, dict) and deep:
            yield from _texts(value, deep - 1)


def _in_pairs(frame: Framed) -> Found | None:
    """A message of franz-go; the logger wrote its values as separate fields."""
    # Loggers sort the names, and add names of their own.
    pairs = [f"{name}: {frame.fields[name]}" for name in _FRANZ_GO_VALUES if name in frame.fields]
    if not pairs:
        return None
    whole = f"{frame.text}; {', '.join(pairs)}"
    for text in (whole, f"{whole}, …", f"{frame.text}; {pairs[0]}"):
        found = understood(text)
        if found is not None and found.fields[0] == str(frame.fields.get("group", "")):
            return found
    return None
