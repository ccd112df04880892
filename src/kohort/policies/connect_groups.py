"""Decides for groups of Connect's workers, with waits, limits of moves, identities and drains.

In: the configuration, the states of the workers in Connect's bytes. Out: assignments in Connect's
bytes. Must not know: requests, timers, the work of a task.

Work is planned as partitions, see `policies/connect.py`. Behind Connect's bytes each worker of
kohort has a subscription of the consumer protocol, and each assignment of a kohort leader has an
assignment of that protocol. So waits and postponed moves travel as in groups of consumers. Workers
of Connect ignore these bytes; the plan knows their work from Connect's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kohort.embedded.connect import (
    COMPATIBLE,
    EAGER,
    NAMES,
    ConnectAssignment,
    WorkerState,
    decode_worker_assignment,
    decode_worker_state,
    encode_worker_assignment,
)
from kohort.embedded.consumer import (
    LeadersNote,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_subscription,
)
from kohort.embedded.deferral import NOTHING, Pending, Words
from kohort.model.errors import ProtocolError
from kohort.model.ids import NO_GENERATION, GenerationId, MemberId, ProtocolName
from kohort.model.instants import Millis
from kohort.model.join import JoinedMember
from kohort.model.partition_set import PartitionSet
from kohort.policies.claims import without_claimed
from kohort.policies.connect import (
    Configuration,
    allocation,
    as_partition,
    as_work,
    balanced_work,
    eager_assignments,
    incremental_assignments,
    is_behind,
)
from kohort.policies.consumer_groups import DESIGN_ONE
from kohort.policies.deferred import Resolution
from kohort.policies.losses import Moment
from kohort.policies.record_size import BROKERS_RECORD_LIMIT, check_record
from kohort.policies.resource_groups import OpenAssigner
from kohort.policies.spec import (
    AssignAgain,
    EncodedPlan,
    GroupAssignment,
    GroupSpec,
    Plan,
    Say,
    say_nothing,
)
from kohort.policies.sticky import COOPERATIVE

ALL: Final = "all"
"""The name under which a worker wants each connector."""
WORDS: Final = Words("connectors and tasks", as_work)

_BEHIND = AssignAgain(
    after_ms=Millis(1_000), reason="the leader had read less of the configuration than a worker"
)
NOTHING_READ: Final = Configuration(offset=-1, tasks={})
_UNREADABLE = WorkerState(url="", config_offset=-1)
_SMALLER_GROUP = "Use fewer connectors or tasks"


class ConnectAssigner(OpenAssigner):
    """Decides for groups of workers.

    Args:
        configuration: the connectors, as this process has read them; it must not raise.

    The other arguments are those of `ConsumerAssigner`.
    """

    words = WORDS

    def __init__(
        self,
        configuration: Callable[[], Configuration],
        resolution: Resolution = DESIGN_ONE,
        say: Say = say_nothing,
        warn: Say = say_nothing,
        *,
        most_record_bytes: int = BROKERS_RECORD_LIMIT,
    ) -> None:
        super().__init__(resolution, say, warn, most_record_bytes=0)
        self._configuration = configuration
        self._read = NOTHING_READ
        """The configuration of the plan that is being made."""
        self._known: dict[str, int] = {}
        self._limit = most_record_bytes

    def remember(self) -> None:
        """An assignment came: the present configuration is known to be shared out.

        A worker that leads later tells work of a lost worker from new work by this.
        """
        self._known = _counts(self._configuration())

    def balanced(self, spec: GroupSpec) -> GroupAssignment:
        """Connectors and tasks balanced separately, or by weights."""
        return balanced_work(spec, self._read.weights)

    def plan_at_once(self, protocol_name: ProtocolName, spec: GroupSpec) -> Plan:
        """The same, without work that another worker has."""
        del protocol_name
        return Plan(without_claimed(self.balanced(spec), spec))

    def assign(
        self,
        protocol_name: ProtocolName,
        members: Sequence[JoinedMember],
        partitions: Mapping[str, int],
        moment: Moment | None = None,
    ) -> EncodedPlan:
        """An assignment for every worker; another one follows soon if the leader is behind.

        Raises:
            ConfigError: the group's record would be too large.
        """
        del partitions
        assert moment is not None
        read = self._read = self._configuration()
        states = {member.member_id: _state(member, self._warn) for member in members}
        version = EAGER if protocol_name == NAMES[EAGER] else COMPATIBLE
        if version == EAGER:
            told = eager_assignments(moment.leader_id, states, read)
            plan = EncodedPlan({}, _BEHIND if is_behind(read, states) else None)
        elif is_behind(read, states):
            told = incremental_assignments(moment.leader_id, states, read, {})
            plan = EncodedPlan({}, _BEHIND, moment.memory)
        else:
            plan = super().assign(
                COOPERATIVE.name,
                _as_consumers(members, states),
                _counts(read),
                replace(moment, known=self._known),
            )
            shares = {
                i: list(map(as_work, decode_assignment(data).partitions))
                for i, data in plan.assignments.items()
            }
            told = incremental_assignments(moment.leader_id, states, read, shares)
        assignments = {
            i: encode_worker_assignment(replace(each, detail=plan.assignments.get(i)), version)
            for i, each in told.items()
        }
        check_record(members, assignments, self._limit, _SMALLER_GROUP, self._warn)
        return replace(plan, assignments=assignments)

    def pending(self, assignment: bytes) -> Pending:
        """The pending work in an assignment; `NOTHING` if no leader of kohort made it."""
        detail = _told(assignment).detail
        return NOTHING if detail is None else super().pending(detail)

    def withheld(
        self,
        protocol_name: ProtocolName,
        members: Sequence[JoinedMember],
        plan: Mapping[MemberId, bytes],
        partitions: Mapping[str, int],
    ) -> dict[MemberId, int]:
        """For each worker, the number of connectors and tasks that it must stop, if any."""
        del protocol_name, partitions
        found = {m.member_id: len(_told(plan[m.member_id]).revoked) for m in members}
        return {member_id: number for member_id, number in found.items() if number}

    def noted(self, assignment: bytes, note: LeadersNote) -> bytes:
        """A static worker's assignment with a note from its leader."""
        told = _told(assignment)
        if told.detail is None:
            return assignment
        detail = super().noted(told.detail, note)
        return encode_worker_assignment(replace(told, detail=detail), COMPATIBLE)

    def note(self, assignment: bytes) -> LeadersNote | None:
        """The note in an assignment; None if there is none."""
        detail = _told(assignment).detail
        return None if detail is None else super().note(detail)


def _counts(configuration: Configuration) -> dict[str, int]:
    return {connector: tasks + 1 for connector, tasks in configuration.tasks.items()}


def _as_consumers(
    members: Sequence[JoinedMember], states: Mapping[MemberId, WorkerState]
) -> list[JoinedMember]:
    """The members with subscriptions; workers of Connect get one from their allocation."""
    details = {i: state.detail for i, state in states.items() if state.detail is not None}
    newest = max(map(_generation, details.values()), default=GenerationId(0))
    subscriptions = {
        i: details.get(i) or _as_subscription(state, newest) for i, state in states.items()
    }
    return [replace(m, metadata=subscriptions[m.member_id]) for m in members]


def _generation(detail: bytes) -> GenerationId:
    try:
        return decode_subscription(detail).generation_id
    except ProtocolError:
        return NO_GENERATION


def _as_subscription(state: WorkerState, newest: GenerationId) -> bytes:
    if state is _UNREADABLE:
        return encode_subscription(Subscription(topics=frozenset()))
    work = allocation(state)
    return encode_subscription(
        Subscription(
            topics=frozenset({ALL}),
            owned=PartitionSet.of(map(as_partition, work)),
            generation_id=newest if work else NO_GENERATION,
        )
    )


def _state(worker: JoinedMember, warn: Say) -> WorkerState:
    """A worker's state; a worker with unreadable bytes gets no work."""
    try:
        return decode_worker_state(worker.metadata)
    except ProtocolError as error:
        warn(f"member {worker.member_id} gets no work: its bytes cannot be read: {error}")
        return _UNREADABLE


def _told(assignment: bytes) -> ConnectAssignment:
    try:
        return decode_worker_assignment(assignment)
    except ProtocolError:
        return ConnectAssignment()
