"""Shares connectors and tasks out between Connect's workers, eagerly or incrementally.

In: the workers' states, the leader's configuration. Out: an assignment for each worker. Must not
know: bytes, requests, timers, the work of a task.

The eager plan is that of Connect's EagerAssignor: connectors first, then tasks, in turns. The
incremental plan is Design I: a worker keeps its allocation as far as balance permits, and stops
revoked work before another worker starts it. Connectors and tasks are balanced separately, by the
policy of ``cooperative-sticky``: task n of a connector is partition n of a topic there.

As in Connect, a leader that has read less of the configuration than another worker assigns nothing:
it answers CONFIG_MISMATCH, and all workers read on and join again. The caller of these functions
reads the configuration to its end before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import cycle

from kohort.embedded.connect import (
    CONFIG_MISMATCH,
    ConnectAssignment,
    ConnectorTask,
    WorkerState,
)
from kohort.model.errors import ConfigError
from kohort.model.ids import MemberId, TopicPartition
from kohort.policies.cooperative import CooperativeStickyAssignor
from kohort.policies.spec import GroupSpec, MemberSpec
from kohort.policies.weighted import weighted_shares

_Shares = dict[MemberId, frozenset[ConnectorTask]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The connectors that exist, as the leader has read them.

    Attributes:
        offset: the place in the configuration up to which the leader has read.
        tasks: the number of tasks of each connector.
        weights: for unequal work; a connector or task that is not named weighs 1. Empty: connectors
            and tasks are balanced separately, by their numbers.

    Raises:
        ConfigError: a connector has a negative number of tasks, or a weight is negative.
    """

    offset: int
    tasks: Mapping[str, int]
    weights: Mapping[ConnectorTask, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for connector, count in sorted(self.tasks.items()):
            if count < 0:
                raise ConfigError(f"expected 0 or more tasks of {connector}, got {count}")
        for work, weight in sorted(self.weights.items()):
            if weight < 0:
                raise ConfigError(f"expected a weight of 0 or more for {work}, got {weight}")

    def work(self) -> list[ConnectorTask]:
        """All connectors and tasks: connectors first."""
        names = sorted(self.tasks)
        return [*map(ConnectorTask, names)] + [
            ConnectorTask(name, n) for name in names for n in range(self.tasks[name])
        ]


def eager_assignments(
    leader: MemberId, workers: Mapping[MemberId, WorkerState], configuration: Configuration
) -> dict[MemberId, ConnectAssignment]:
    """Connect's plan under the protocol ``default``: each worker stops all of its work before."""
    shares: dict[MemberId, set[ConnectorTask]] = {member_id: set() for member_id in workers}
    for member_id, work in zip(cycle(sorted(workers)), configuration.work(), strict=False):
        shares[member_id].add(work)
    nothing = frozenset[ConnectorTask]()
    plan = {i: (frozenset(mine), nothing) for i, mine in shares.items()}
    return _told(leader, workers, configuration, plan)


def incremental_assignments(
    leader: MemberId, workers: Mapping[MemberId, WorkerState], configuration: Configuration
) -> dict[MemberId, ConnectAssignment]:
    """A balanced plan with few moves, for the protocols ``compatible`` and ``sessioned``.

    An assignment names only the work that the worker starts and the work that it stops. A worker
    that stops something joins again, and the next plan assigns it.
    """
    owned = {i: _allocation(state) for i, state in workers.items()}
    if configuration.weights:
        shares = _weighted(owned, configuration)
    else:
        connectors = _shares(owned, dict.fromkeys(configuration.tasks, 1), first=-1)
        tasks = _shares(owned, configuration.tasks, first=0)
        shares = {i: connectors[i] | tasks[i] for i in owned}
    plan = {i: (shares[i] - had, had - shares[i]) for i, had in owned.items()}
    return _told(leader, workers, configuration, plan)


def _allocation(state: WorkerState) -> frozenset[ConnectorTask]:
    return frozenset() if state.allocation is None else frozenset(state.allocation.assigned)


def _shares(
    owned: Mapping[MemberId, Iterable[ConnectorTask]], counts: Mapping[str, int], first: int
) -> _Shares:
    """The plan for numbers of tasks from ``first`` on; without work that another worker has."""
    topics = frozenset(counts)
    members = {
        i: MemberSpec(
            topics=topics,
            owned=frozenset(
                TopicPartition(each.connector, each.task - first)
                for each in mine
                if each.is_connector == (first < 0)
            ),
        )
        for i, mine in owned.items()
    }
    plan = CooperativeStickyAssignor().assign(GroupSpec(members=members, partitions=counts))
    return {
        i: frozenset(ConnectorTask(p.topic, p.partition + first) for p in mine)
        for i, mine in plan.partitions.items()
    }


def _weighted(
    owned: Mapping[MemberId, frozenset[ConnectorTask]], configuration: Configuration
) -> _Shares:
    """The plan by weights; without work that another worker has."""
    weights = {work: configuration.weights.get(work, 1) for work in configuration.work()}
    claimed = Counter(work for mine in owned.values() for work in mine)
    return {
        i: frozenset(work for work in mine if claimed[work] == (work in owned[i]))
        for i, mine in weighted_shares(owned, weights).items()
    }


def _told(
    leader: MemberId,
    workers: Mapping[MemberId, WorkerState],
    configuration: Configuration,
    plan: Mapping[MemberId, tuple[frozenset[ConnectorTask], frozenset[ConnectorTask]]],
) -> dict[MemberId, ConnectAssignment]:
    """The plan with the leader's message; or the mismatch, if another worker has read further."""
    newest = max(state.config_offset for state in workers.values())
    url = workers[leader].url
    if configuration.offset < newest:
        behind = ConnectAssignment(
            leader=leader, leader_url=url, config_offset=newest, error=CONFIG_MISMATCH
        )
        return dict.fromkeys(workers, behind)
    return {
        i: ConnectAssignment(
            leader=leader,
            leader_url=url,
            config_offset=configuration.offset,
            assigned=assigned,
            revoked=revoked,
        )
        for i, (assigned, revoked) in plan.items()
    }
