"""The wait of a group that was Empty before its first generation (KIP-134).

In: the configured delay and the rebalance timeout. Out: how long to wait now, and whether to wait
again. Must not know: timers, members.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class InitialDelay:
    """One wait, and the time that is left for more waits.

    Attributes:
        delay_ms: length of this wait.
        remaining_ms: how much longer new members may extend the wait after this one.
        new_member_added: a member joined during this wait, beyond the first one.
    """

    delay_ms: int
    remaining_ms: int
    new_member_added: bool = False

    @classmethod
    def first(cls, delay_ms: int, rebalance_timeout_ms: int) -> InitialDelay:
        """The first wait. The KIP limits it by the rebalance timeout; Kafka's code does not."""
        return cls(delay_ms, max(rebalance_timeout_ms - delay_ms, 0))

    def next(self, delay_ms: int) -> InitialDelay | None:
        """The wait after this one; None if no member joined, or no time is left."""
        if not self.new_member_added or not self.remaining_ms:
            return None
        return InitialDelay(
            min(delay_ms, self.remaining_ms), max(self.remaining_ms - self.delay_ms, 0)
        )
