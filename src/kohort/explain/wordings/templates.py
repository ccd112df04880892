"""Templates of log messages: text with ``<names>``, and the values of a text that fits one.

In: ``Stabilized group <group> generation <generation>``. Out: the values by name. Must not know:
which messages there are.

Three ways find the same values; the quickest way is tried first. In a quick expression, a value
ends at the first character of the literal part after the value. A walk goes from one literal part
of the template to the next. If the walk finds no values, the whole expression decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from kohort.explain.events import Kind, Side

NUMBERS: Final = frozenset({"generation", "members", "static", "partition", "ms", "count"})
"""Names of whole numbers."""
_NUMBER: Final = r"\d+"
_LISTS: Final = frozenset({"protocols", "list", "plan"})
"""Names of values that have brackets of their own."""
FIELDS: Final = (
    *("group", "member", "instance", "client", "partition", "generation"),
    *("members", "static", "state", "reason"),
)
"""Names of the values with a field of their own in an event. All other values are details."""
_NAME: Final = re.compile(r"<(\w+)>")
NEWEST: Final = 99.0
"""The last version of a message that the newest Kafka writes, too."""
LONGEST: Final = 20_000
"""Characters of a message that are read; the rest is ignored."""
_SHORT: Final = 1_000
"""Up to this many characters, a value may hold a part of the message, as names of groups do. In a
longer text each value ends where the message may go on for the first time: otherwise a hostile
line costs minutes."""
_END: Final = r"\.?[\"'`]*,?\s*$"
"""A full stop more or less; quotes of a spreadsheet or of source code around the line."""
AROUND: Final = "\"'`, \t\r\n"
"""Characters that may follow a message."""
_LOOSE: Final = (".", *AROUND)
_UNSURE: Final[dict[str, str]] = {"": ""}
"""The walk found no values; the regular expression may."""


class Wording(NamedTuple):
    """One message of one program."""

    kind: Kind
    side: Side
    maker: str
    versions: tuple[float, float] | None
    template: str
    mark: str
    """A literal part of the message, by which a line is found quickly."""
    first: str
    """The literal part before the first name."""
    last: str
    """The last literal part."""
    steps: tuple[tuple[str, str, bool], ...]
    """For each name: the name, the literal part behind the value, whether it is a whole number."""
    open_end: bool
    """Whether the message may go on behind the last literal part."""
    reasoned: bool
    """Whether the message has a reason. The words of a reason may tell the version of Kafka."""

    def match(self, text: str) -> dict[str, str] | None:
        """The values by name; None for another message."""
        if self.mark not in text:
            return None
        found = self._walk(text) if len(text) <= LONGEST else _UNSURE
        if found is not _UNSURE:
            return found
        by_expression = _pattern(self, len(text) > _SHORT).search(text, 0, LONGEST)
        if by_expression is None:
            return None
        return {name: value for name, value in by_expression.groupdict().items() if value}

    def _walk(self, text: str) -> dict[str, str] | None:
        """The values between the first places of the literal parts; None if a part is absent."""
        at = text.find(self.first)
        if at < 0:
            return None
        at += len(self.first)
        steps, stop = self.steps, -1
        if not self.open_end:
            text = text.rstrip(AROUND).removesuffix(".")
            if text.endswith(self.last):
                stop = len(text) - len(self.last)
            elif self.last.endswith(")") and text.endswith(self.last[:-1]):
                stop = len(text) - len(self.last) + 1  # a cut line lacks its closing bracket
            else:
                return _UNSURE if self.last.endswith(_LOOSE) else None
        values = {}
        left = len(steps)
        for name, literal, is_number in steps:
            left -= 1
            end = text.find(literal, at) if left or stop < 0 else stop
            if end < at:
                return None
            value = text[at:end]
            if is_number and not value.isdecimal():
                return _UNSURE
            if value:
                values[name] = value
            at = end + len(literal)
        return values


class Quick(NamedTuple):
    """The quick expression of a wording: it finds the values of most lines."""

    match: Callable[[str, int], re.Match[str] | None]
    """Takes a text and the place behind the first literal part. The text has lost the characters
    `AROUND` and one full stop at its end, unless the message may go on. None: ask `Wording`."""
    fields: tuple[int, ...]
    """The groups of the values in `FIELDS`. A field without a value has a group that is empty."""
    details: tuple[tuple[str, int], ...]
    """The names and the groups of the other values."""


@lru_cache(maxsize=4_096)
def quick(wording: Wording) -> Quick | None:
    """The quick expression of a wording; None if there is none that finds its values.

    A value before a literal part has no first character of that part, or is as short as possible.
    So the part that ends it is the first one in the text: the place where the walk of
    `Wording.match` ends the value, too.
    """
    parts, groups = [], {}
    for place, (name, literal, is_number) in enumerate(wording.steps, 1):
        last = place == len(wording.steps)
        if (not literal and not last) or literal[:1].isdecimal():
            return None
        value, end = f"[^{re.escape(literal[:1])}]*" if literal else "", re.escape(literal)
        if last and not wording.open_end:
            value, end = ".*", rf"{end}\Z"
        if name in _LISTS and not last:
            value = ".*?"
        parts.append(f"(?>({_NUMBER if is_number else value}){end})")
        groups[name] = place
    if not parts and not wording.open_end:
        parts = [r"\Z"]
    none = len(wording.steps) + 1
    return Quick(
        match=re.compile(f"{''.join(parts)}()", re.DOTALL).match,
        fields=tuple(groups.pop(name, none) for name in FIELDS),
        details=tuple(groups.items()),
    )


@lru_cache(maxsize=4_096)
def _pattern(wording: Wording, long: bool) -> re.Pattern[str]:
    """The regular expression of a wording.

    Args:
        wording: the message.
        long: for long texts: the time grows at most with the square of the length.
    """
    literals = [re.escape(part) for part in (wording.first, *(step[1] for step in wording.steps))]
    if not wording.open_end:
        # A line that was cut lacks its closing bracket.
        last = literals[-1]
        literals[-1] = last.removesuffix(r"\)") + (r"\)?" if last.endswith(r"\)") else "")
        literals[-1] += _END
    steps = []
    for (name, _, is_number), literal in zip(wording.steps, literals[1:], strict=True):
        values = _NUMBER if is_number else ".*?"
        step = f"(?P<{name}>{values}){literal}"
        steps.append(f"(?>{step})" if long else step)
    return re.compile(literals[0] + "".join(steps), re.DOTALL)


def wording(kind: Kind, side: Side, maker: str, template: str, versions: str = "-") -> Wording:
    """Take a template apart. It ends where the message ends, unless it ends in ``…``.

    Args:
        kind: the event that the message tells.
        side: broker or client.
        maker: the program.
        template: the message. The value of a name may be empty.
        versions: ``2.1-3.8``: the versions of Kafka with this message; ``-``: unknown.
    """
    parts = _NAME.split(template.removesuffix("…"))
    low, _, high = versions.partition("-")
    return Wording(
        kind=kind,
        side=side,
        maker=maker,
        versions=(number(low), number(high) if high else NEWEST) if low else None,
        template=template,
        mark=max(parts[::2], key=len),
        first=parts[0],
        last=parts[-1],
        steps=tuple(
            (name, literal, name in NUMBERS)
            for name, literal in zip(parts[1::2], parts[2::2], strict=True)
        ),
        open_end=template.endswith("…"),
        reasoned="reason" in parts[1::2],
    )


def number(version: str) -> float:
    """``2.3`` as 2.03, so that versions compare as numbers."""
    major, _, minor = version.partition(".")
    return int(major) + int(minor or 0) / 100


def version_text(version: float) -> str:
    """The inverse of `number`."""
    return f"{int(version)}.{round(version % 1 * 100)}"
