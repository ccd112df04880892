"""Two groups under two policies that a page disturbs alike: the part that the page needs.

In and out: values. Must not know: processes, HTTP.
"""

from __future__ import annotations

from typing import Any, Protocol


class Play(Protocol):
    """Two live groups with members of the same names."""

    def state(self) -> dict[str, Any]:
        """The groups, their members and numbers, and the last lines about them."""

    def act(self, what: str, member: str) -> None:
        """Begin to disturb both groups.

        Raises:
            ConfigError: there is no such disturbance or member, or the member is disturbed already.
        """

    def as_test(self) -> str:
        """A file for pytest with the disturbances so far."""
