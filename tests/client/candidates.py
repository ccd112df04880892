"""Live candidates of one election, on any broker."""

from __future__ import annotations

import uuid
from contextlib import ExitStack

from tests.waiting import until

from kohort.client.election import LeaderElection


class Candidates:
    """Candidates in the order in which they came, and the calls of their callbacks."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        self._stack = stack
        self._settings = {
            "bootstrap.servers": address,
            "group.id": f"election-{uuid.uuid4()}",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 50,
        }
        self.members: list[LeaderElection] = []
        self.told: list[tuple[str, int]] = []

    def join(self) -> LeaderElection:
        member = LeaderElection(
            self._settings,
            on_elected=lambda token: self.told.append(("elected", token)),
            on_ended=lambda: self.told.append(("ended", 0)),
        )
        self._stack.callback(member.leave)
        member.join()
        self.members.append(member)
        return member

    def leave(self, member: LeaderElection) -> None:
        self.members.remove(member)
        member.leave()

    def in_one_generation(self) -> None:
        """Wait until all candidates are in one generation, and one of them leads."""
        until(
            lambda: (
                len({m.snapshot().generation for m in self.members}) == 1
                and [m.token is not None for m in self.members].count(True) == 1
            ),
            "one leader in one generation",
        )


def a_rolling_bounce_moves_leadership_twice_at_most(candidates: Candidates, leader: int) -> None:
    """Seven candidates restart one after the other; the leader is at any place among them."""
    first = candidates.join()
    assert first.wait(30)
    for _ in range(6):
        candidates.join()
        candidates.in_one_generation()
    order = [*candidates.members[1:], *[first]]
    order.insert(leader, order.pop())
    assert order[leader] is first
    for member in order:
        candidates.leave(member)
        candidates.in_one_generation()
        candidates.join()
        candidates.in_one_generation()
    tokens = [token for what, token in candidates.told if what == "elected"]
    assert tokens == sorted(set(tokens))
    assert len(tokens) - 1 <= 2, "the number of moves"
