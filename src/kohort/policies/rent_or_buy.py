"""How long to wait for a lost member: the rule of rent or buy.

In: the members that a leader saw go and come, the cost of a move. Out: the length of the next wait.
Must not know: partitions, plans.

A wait costs the time in which nobody reads the partition (rent). A new owner costs the time until
the owner reads the partition, with restored state or a filled cache (buy). A leader without
experience waits as long as a move costs: no wait costs more than twice the best decision. A leader
with experience takes the wait that would have cost least for the absences that it saw, at most
twice the cost of a move.

Source: ski rental with two options, Levi and Patt-Shamir, TCS 584 (2015).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kohort.model.instants import Instant, Millis, after, millis_between

ENOUGH: Final = 3
"""This many absences are experience."""

_REMEMBERED: Final = 50
_RESERVE: Final = 1.25
"""The next restart may take somewhat longer than the last one."""
_NEVER_MS: Final = Millis(600_000)
"""A member that is away for so long counts as one that never returns."""
_UNKNOWN_MS: Final = Millis(60_000)
"""The longest wait without experience."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absences:
    """The absences of members that a leader saw.

    Attributes:
        begun: when each member left that has not returned yet, oldest first.
        ended: the lengths of the last absences; None for a member that did not return.
    """

    begun: tuple[Instant, ...] = ()
    ended: tuple[Millis | None, ...] = ()

    def after(self, *, gone: int, came: int, now: Instant) -> Absences:
        """The absences after a generation without ``gone`` members and with ``came`` new ones.

        A member that comes ends the latest absence, because most restarts are quick. A member that
        comes in the generation in which another one is missing was never away.
        """
        replaced = min(gone, came)
        gone, came = gone - replaced, came - replaced
        begun = [*self.begun, *[now] * gone]
        ended = list(self.ended)
        ended += [millis_between(begun.pop(), now) for _ in range(min(came, len(begun)))]
        away = [at for at in begun if after(at, _NEVER_MS) > now]
        ended += [None] * (len(begun) - len(away))
        return Absences(begun=tuple(away), ended=tuple(ended[-_REMEMBERED:]))

    def interrupted(self) -> Absences:
        """The absences after another leader's plan: which members came meanwhile is not known."""
        return Absences(ended=self.ended)

    def wait_ms(self, move_cost_ms: Millis) -> Millis:
        """The wait for the next lost member.

        Args:
            move_cost_ms: the time until a new owner of a partition reads it.
        """
        if len(self.ended) < ENOUGH:
            return min(move_cost_ms, _UNKNOWN_MS)
        longest = most_wait_ms(move_cost_ms)
        choices = {0, *(away for away in self.ended if away is not None and away <= longest)}
        best = min(choices, key=lambda wait: (self._cost(wait, move_cost_ms), wait))
        return Millis(min(longest, int(best * _RESERVE)))

    def _cost(self, wait_ms: int, move_cost_ms: Millis) -> int:
        """The sum of all costs, if the leader had waited so long each time."""
        return sum(
            away if away is not None and away <= wait_ms else wait_ms + move_cost_ms
            for away in self.ended
        )


def most_wait_ms(move_cost_ms: Millis) -> Millis:
    """The longest wait that `Absences.wait_ms` chooses."""
    return Millis(2 * move_cost_ms)


NO_ABSENCES: Final = Absences()
