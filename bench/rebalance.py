"""Measures rounds of rebalances: the rows of ``bench.coordinator --only rebalance``.

In: servers and a number of members. Out: a row for each server and for the floor. All members join
again at once; the time runs from the first written JoinGroup to the last answered SyncGroup.
"""

from __future__ import annotations

import contextlib
import resource
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from bench.members import Members, NeverSettles, Round, fresh
from bench.peers import Peer, floor_server
from bench.results import goal_of
from bench.warming import warm

REBALANCE_GOALS_S = {1_000: None, 5_000: 0.25, 10_000: 0.5, 20_000: 1.2}
"""Members -> seconds; None: the time of a warm Kafka in the same run."""

SPARE_FILES = 700
"""Open files that connections of members do not use: the broker keeps 556 for 50 logs."""


class Measured(NamedTuple):
    """The rounds of one server, and the rounds of its warm-up."""

    warm_up_rounds: int
    rounds: list[Round]

    def median(self, of: Callable[[Round], float]) -> float:
        """The median of a value of the rounds."""
        return statistics.median(map(of, self.rounds))


def rebalances(
    peers: list[Peer], count: int, rounds: int
) -> tuple[list[dict[str, object]], list[Peer]]:
    """One row for each server and for the floor, and the servers that settled.

    If this process may open enough files for the members of all servers, the servers take turns.
    Otherwise one is measured after the other.
    """
    rows: list[dict[str, object]] = []
    measured: dict[Peer, Measured] = {}
    with floor_server(count) as floor:
        everybody = [floor, *peers]
        files = count * len(everybody) + SPARE_FILES
        fit = files < resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        for some in [everybody] if fit else [[peer] for peer in everybody]:
            measured |= in_turns(some, count, rounds, rows)
    for peer, done in measured.items():
        took, cpu = done.median(lambda one: one.took_s), done.median(lambda one: one.cpu_s)
        row = {
            "server": peer.name,
            "members": count,
            "median_s": round(took, 4),
            "best_s": round(min(one.took_s for one in done.rounds), 4),
            "server_cpu_s": round(cpu, 3),
            "server_cpu_us_per_member": round(cpu / count * 1e6, 1),
            "load_cpu_us_per_member": round(
                done.median(lambda one: one.load_cpu_s) / count * 1e6, 1
            ),
            "warm_up_rounds": done.warm_up_rounds,
            "in_turns": fit,
        }
        if peer.name == "kohort":
            times = {
                other.name: measured[other].median(lambda one: one.took_s)
                for other in measured
                if other is not peer
            }
            goal = REBALANCE_GOALS_S.get(count) or times.get("kafka")
            row |= goal_of(took, goal, "goal_s") if goal else {}
            row |= {f"times_{name}": round(took / other, 2) for name, other in times.items()}
        rows.append(row)
    return rows, [peer for peer in peers if peer in measured]


def in_turns(
    peers: Sequence[Peer], count: int, rounds: int, rows: list[dict[str, object]]
) -> dict[Peer, Measured]:
    """The rounds of some servers, which take turns; ``rows`` gets those that do not settle."""
    groups: dict[Peer, Members] = {}
    warm_ups: dict[Peer, int] = {}
    with contextlib.ExitStack() as stack:
        for peer in peers:
            try:
                members = Members(stack, peer, fresh("rebalance"), count)
                warm_ups[peer] = warm(partial(rebalance_seconds, members))
                groups[peer] = members
            except NeverSettles as error:
                told = {"settled": False, "told": str(error)}
                rows.append({"server": peer.name, "members": count} | told)
        done = [
            {peer: members.rebalance() for peer, members in groups.items()} for _ in range(rounds)
        ]
    return {peer: Measured(warm_ups[peer], [one[peer] for one in done]) for peer in groups}


def rebalance_seconds(members: Members) -> float:
    """The seconds of one round."""
    return members.rebalance().took_s
