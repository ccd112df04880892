"""Shares connectors and tasks out between Connect's workers, eagerly or incrementally.

In: the workers' states, the leader's configuration. Out: an assignment for each worker. Must not
know: bytes, requests, timers, the work of a task.

The eager plan is that of Connect's EagerAssignor: connectors first, then tasks, in turns. Under an
incremental plan a worker keeps its work as far as balance permits, and stops revoked work before
another worker starts it. Connectors and tasks are balanced separately, by the policy of
``cooperative-sticky``: task n of a connector is partition n + 1 of a topic there.

As in Connect, a leader that has read less of the configuration than another worker assigns nothing:
it answers CONFIG_MISMATCH, and all workers read on and join again. The caller of these functions
reads the configuration to its end before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import cycle

from kohort.embedded.connect import (
    CONFIG_MISMATCH,
    ConnectAssignment,
    ConnectorTask,
    WorkerState,
)
from kohort.model.errors import ConfigError
from kohort.model.ids import MemberId, TopicPartition
from kohort.policies.spec import GroupAssignment, GroupSpec
from kohort.policies.sticky import sticky_plan
from kohort.policies.weighted import weighted_plan


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
    leader: MemberId,
    workers: Mapping[MemberId, WorkerState],
    configuration: Configuration,
    shares: Mapping[MemberId, Collection[ConnectorTask]],
) -> dict[MemberId, ConnectAssignment]:
    """The way to these shares, for the protocols ``compatible`` and ``sessioned``.

    An assignment names only the work that the worker starts and the work that it stops. A worker
    that stops something joins again, and the next plan assigns it.
    """
    plan = {}
    for member_id, state in workers.items():
        had, mine = allocation(state), frozenset(shares.get(member_id, ()))
        plan[member_id] = mine - had, had - mine
    return _told(leader, workers, configuration, plan)


def is_behind(configuration: Configuration, workers: Mapping[MemberId, WorkerState]) -> bool:
    """Whether another worker has read more of the configuration."""
    return configuration.offset < max(state.config_offset for state in workers.values())


def allocation(state: WorkerState) -> frozenset[ConnectorTask]:
    """The work of a worker."""
    return frozenset() if state.allocation is None else frozenset(state.allocation.assigned)


# -- work as partitions ---------------------------------------------------------------------------


def as_partition(work: ConnectorTask) -> TopicPartition:
    """A connector is partition 0 of a topic with its name, task n is partition n + 1."""
    return TopicPartition(work.connector, work.task + 1)


def as_work(partition: TopicPartition) -> ConnectorTask:
    """The reverse of `as_partition`."""
    return ConnectorTask(partition.topic, partition.partition - 1)


def balanced_work(spec: GroupSpec, weights: Mapping[ConnectorTask, int]) -> GroupAssignment:
    """A balanced plan with few moves, also for work that other members hold.

    Args:
        spec: the group, with work as partitions.
        weights: as in `Configuration`.
    """
    if weights:
        return weighted_plan(spec, {as_partition(work): weight for work, weight in weights.items()})
    connectors = sticky_plan(_kind(spec, first=0, counts=dict.fromkeys(spec.partitions, 1)))
    counts = {connector: number - 1 for connector, number in spec.partitions.items()}
    tasks = sticky_plan(_kind(spec, first=1, counts=counts))
    return {
        i: sorted([*mine, *(TopicPartition(t, n + 1) for t, n in tasks[i])])
        for i, mine in connectors.items()
    }


def _kind(spec: GroupSpec, first: int, counts: Mapping[str, int]) -> GroupSpec:
    """The group with the connectors alone, or with the tasks alone, numbered from 0."""
    members = {
        i: replace(
            member,
            owned=frozenset(
                TopicPartition(t, n - first)
                for t, n in member.owned
                if 0 <= n - first < counts.get(t, 0)
            ),
        )
        for i, member in spec.members.items()
    }
    return replace(spec, members=members, partitions=counts)


def _told(
    leader: MemberId,
    workers: Mapping[MemberId, WorkerState],
    configuration: Configuration,
    plan: Mapping[MemberId, tuple[frozenset[ConnectorTask], frozenset[ConnectorTask]]],
) -> dict[MemberId, ConnectAssignment]:
    """The plan with the leader's message; or the mismatch, if another worker has read further."""
    url = workers[leader].url
    if is_behind(configuration, workers):
        newest = max(state.config_offset for state in workers.values())
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
