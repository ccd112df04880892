"""The versions of Kafka that write a message, narrowed by the phrases in it.

In: the versions of the message's wording, its text. Out: the first and the last version. Must not
know: other messages.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, TypeAlias

from kohort.explain.wordings.templates import NEWEST, number

Versions: TypeAlias = tuple[float, float]
"""The first and the last version, as `number` tells them."""

_PHRASES: Final[tuple[tuple[str, Versions], ...]] = (
    (" with group instanceid ", (number("2.3"), number("2.4"))),
    (" with group instance id ", (number("2.5"), NEWEST)),
    ("; client reason: ", (number("3.2"), NEWEST)),
    ("(reason: removing member ", (number("2.1"), number("2.8"))),
    ("(reason: Removing member ", (number("3.0"), number("3.8"))),
)
"""Parts of messages, with the versions that use them."""
_BITS: Final = tuple((1 << number, phrase) for number, (phrase, _) in enumerate(_PHRASES))


def versions_of(known: Versions | None, text: str) -> Versions | None:
    """The versions of Kafka that write a message with these phrases.

    Args:
        known: the versions that write the message.
        text: the message.
    """
    phrases = 0
    for bit, phrase in _BITS:
        if phrase in text:
            phrases |= bit
    return _narrowed(known, phrases) if phrases else known


@lru_cache(maxsize=1_024)
def _narrowed(known: Versions | None, phrases: int) -> Versions | None:
    low, high = known or (0.0, NEWEST)
    for (bit, _), (_, (first, last)) in zip(_BITS, _PHRASES, strict=True):
        if phrases & bit:
            low, high = max(low, first), min(high, last)
    return (low, high) if (low, high) != (0.0, NEWEST) and low <= high else known
