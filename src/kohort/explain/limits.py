"""A limit of the number of things that the stories of all groups keep together.

In: requests to keep one more thing. Out: whether it may be kept. Must not know: the things.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Limit:
    """The limit of a number of things, and the number of things that are kept."""

    most: int
    used: int = 0
    refused: int = 0
    """Requests after the limit was reached."""

    def take(self) -> bool:
        """Whether one more thing may be kept; the request is counted if not."""
        if self.used < self.most:
            self.used += 1
            return True
        self.refused += 1
        return False
