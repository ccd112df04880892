"""Templates of log messages: text with ``<names>``, compiled to regular expressions.

In: ``Stabilized group <group> generation <generation>``. Out: the values by name. Must not know:
which messages there are.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from kohort.explain.events import Kind, Side

NUMBERS: Final = frozenset({"generation", "members", "static", "partition", "ms", "count"})
"""Names of whole numbers."""
_NAME: Final = re.compile(r"<(\w+)>")
NEWEST: Final = 99.0
"""The last version of a message that the newest Kafka writes, too."""
LONGEST: Final = 20_000
"""No message is read behind so many characters."""
_SHORT: Final = 1_000
"""Up to so many characters, a value may hold a part of the message, as names of groups do. In a
longer text each value ends where the message may go on for the first time: otherwise a hostile
line costs minutes."""


class Wording(NamedTuple):
    """One message of one program."""

    kind: Kind
    side: Side
    maker: str
    versions: tuple[float, float] | None
    template: str
    mark: str
    """A literal part of the message, by which a line is found quickly."""
    pattern: re.Pattern[str]
    quick: re.Pattern[str]
    """The same for long texts: its time grows with the square of their length at most."""

    def match(self, text: str) -> dict[str, str] | None:
        """The values by name; None for another message."""
        if self.mark not in text:
            return None
        pattern = self.pattern if len(text) <= _SHORT else self.quick
        found = pattern.search(text, 0, LONGEST)
        return None if found is None else {k: v for k, v in found.groupdict().items() if v}


def wording(
    kind: Kind, side: Side, maker: str, template: str, versions: str | None = None
) -> Wording:
    """Compile a template. It ends where the message ends, unless it ends in ``…``.

    Args:
        kind: the event that the message tells.
        side: broker or client.
        maker: the program.
        template: the message. The value of a name may be empty.
        versions: ``2.1-3.8``: the versions of Kafka with this message.
    """
    open_end = template.endswith("…")
    parts = _NAME.split(template.removesuffix("…"))
    literals = [re.escape(literal) for literal in parts[::2]]
    if not open_end:
        # A full stop more or less; a line that was cut lacks its closing bracket.
        last = literals[-1]
        literals[-1] = last.removesuffix(r"\)") + (r"\)?" if last.endswith(r"\)") else "")
        literals[-1] += r"\.?\s*$"
    steps = []
    for name, literal in zip(parts[1::2], literals[1:], strict=True):
        values = r"\d+" if name in NUMBERS else ".*?"
        steps.append(f"(?P<{name}>{values}){literal}")
    low, _, high = (versions or "").partition("-")
    return Wording(
        kind=kind,
        side=side,
        maker=maker,
        versions=None if versions is None else (number(low), number(high) if high else NEWEST),
        template=template,
        mark=max(parts[::2], key=len),
        pattern=re.compile(literals[0] + "".join(steps), re.DOTALL),
        quick=re.compile(literals[0] + "".join(f"(?>{step})" for step in steps), re.DOTALL),
    )


def number(version: str) -> float:
    """``2.3`` as 2.03, so that versions compare as numbers."""
    major, _, minor = version.partition(".")
    return int(major) + int(minor or 0) / 100


def version_text(version: float) -> str:
    """The inverse of `number`."""
    return f"{int(version)}.{round(version % 1 * 100)}"
