"""The protocol of groups of Connect's workers: connectors and tasks as resources.

In: the worker's URL, a reader of the configuration. Out: a ``GroupProtocol`` for a membership. Must
not know: callbacks, how tasks are started and stopped.

An assignment names only what a worker starts and stops, so the reader here adds the work that the
worker offered in its last join. A worker with unreadable bytes owns nothing in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kohort.consumer.embedded_protocol import EmbeddedProtocol, Offer
from kohort.embedded.connect import (
    COMPATIBLE,
    CONFIG_MISMATCH,
    NAMES,
    ConnectAssignment,
    ConnectorTask,
    WorkerState,
    decode_worker_assignment,
    decode_worker_state,
    encode_worker_assignment,
    encode_worker_state,
)
from kohort.embedded.consumer import LeadersNote
from kohort.embedded.deferral import NOTHING, Pending
from kohort.engine.consumer_driver import GroupProtocol
from kohort.model.errors import ProtocolError
from kohort.model.ids import MemberId, ProtocolName, ProtocolType
from kohort.model.instants import Millis
from kohort.model.join import JoinedMember, JoinProtocol
from kohort.policies.connect import Configuration, incremental_assignments
from kohort.policies.losses import Moment
from kohort.policies.record_size import BROKERS_RECORD_LIMIT, check_record
from kohort.policies.spec import AssignAgain, EncodedPlan

PROTOCOL_TYPE: Final = ProtocolType("connect")
ALL: Final = "all"
"""The name under which a worker wants each connector; it does not travel."""

_BEHIND = AssignAgain(
    after_ms=Millis(1_000), reason="the leader had read less of the configuration than a worker"
)


_NOTHING_READ = Configuration(offset=-1, tasks={})


def connect_protocol(
    url: str,
    configuration: Callable[[], Configuration],
    say: Callable[[str], object] = lambda _sentence: None,
    *,
    told: Callable[[ConnectAssignment], object] = lambda _assignment: None,
    most_record_bytes: int = BROKERS_RECORD_LIMIT,
) -> GroupProtocol[ConnectorTask]:
    """The incremental protocol (``compatible``) of one worker, a dynamic member.

    A static member would get only the last changes back after a restart, not all of its work.

    Args:
        url: the worker's address, for the other workers.
        configuration: returns the configuration as read so far; runs on the membership's thread. If
            it raises, the last configuration counts.
        say: takes a sentence for the log of the worker's process.
        told: takes each assignment of this worker, on the membership's thread.
        most_record_bytes: the broker's limit for the group's record; 0 for no check.
    """
    configuration = _LastRead(configuration, say).read
    worker = _Worker(url, configuration, told)
    return GroupProtocol(
        type=PROTOCOL_TYPE,
        embedded=EmbeddedProtocol(
            offer=worker.offer,
            read_assignment=worker.read,
            is_cooperative=lambda name: name == NAMES[COMPATIBLE],
            name_of=lambda _task: ALL,
        ),
        assigner=ConnectAssigner(configuration, say, most_record_bytes),
    )


class _LastRead:
    """Keeps the last configuration, because an application that raises must not end a member."""

    def __init__(
        self, configuration: Callable[[], Configuration], say: Callable[[str], object]
    ) -> None:
        self._configuration = configuration
        self._say = say
        self._last = _NOTHING_READ

    def read(self) -> Configuration:
        try:
            self._last = self._configuration()
        except Exception as error:
            self._say(f"the configuration cannot be read ({error!r}); the last one counts")
        return self._last


class _Worker:
    """Writes the offers of one worker, and completes its assignments."""

    def __init__(
        self,
        url: str,
        configuration: Callable[[], Configuration],
        tell: Callable[[ConnectAssignment], object],
    ) -> None:
        self._url = url
        self._configuration = configuration
        self._tell = tell
        self._has = frozenset[ConnectorTask]()
        self._told = ConnectAssignment()

    def offer(self, value: Offer[ConnectorTask]) -> tuple[JoinProtocol, ...]:
        self._has = value.owned
        mine = replace(self._told, assigned=self._has, revoked=frozenset(), delay_ms=Millis(0))
        state = WorkerState(
            url=self._url, config_offset=self._configuration().offset, allocation=mine
        )
        return (JoinProtocol(NAMES[COMPATIBLE], encode_worker_state(state, COMPATIBLE)),)

    def read(self, assignment: bytes) -> tuple[frozenset[ConnectorTask], None]:
        self._told = decode_worker_assignment(assignment)
        self._tell(self._told)
        return (self._has - self._told.revoked) | self._told.assigned, None


class ConnectAssigner:
    """Decides for groups of workers; see `engine.leader_duties.GroupAssigner`."""

    def __init__(
        self,
        configuration: Callable[[], Configuration],
        say: Callable[[str], object] = lambda _sentence: None,
        most_record_bytes: int = BROKERS_RECORD_LIMIT,
    ) -> None:
        self._configuration = configuration
        self._say = say
        self._most_record_bytes = most_record_bytes

    def topics(self, protocol_name: ProtocolName, metadata: Sequence[bytes]) -> frozenset[str]:
        """None: connectors need no metadata of a broker."""
        del protocol_name, metadata
        return frozenset()

    def assign(
        self,
        protocol_name: ProtocolName,
        members: Sequence[JoinedMember],
        partitions: Mapping[str, int],
        moment: Moment,
    ) -> EncodedPlan:
        """An assignment for every worker; another one follows if the leader is behind.

        Raises:
            ConfigError: the group's record would be too large.
        """
        del protocol_name, partitions
        workers = {member.member_id: _state(member.metadata) for member in members}
        plan = incremental_assignments(moment.leader_id, workers, self._configuration())
        behind = any(told.error == CONFIG_MISMATCH for told in plan.values())
        assignments = {i: encode_worker_assignment(told, COMPATIBLE) for i, told in plan.items()}
        limit = self._most_record_bytes
        check_record(members, assignments, limit, "Use fewer connectors or tasks", self._say)
        return EncodedPlan(assignments, _BEHIND if behind else None)

    def pending(self, assignment: bytes) -> Pending:
        """Nothing: no connector waits."""
        del assignment
        return NOTHING

    def withheld(
        self,
        protocol_name: ProtocolName,
        members: Sequence[JoinedMember],
        plan: Mapping[MemberId, bytes],
        partitions: Mapping[str, int],
    ) -> dict[MemberId, int]:
        """None: the assignment itself names revoked work."""
        del protocol_name, members, plan, partitions
        return {}

    def noted(self, assignment: bytes, note: LeadersNote) -> bytes:
        """The assignment: Connect's bytes have no place for a note."""
        del note
        return assignment

    def note(self, assignment: bytes) -> LeadersNote | None:
        """None, see ``noted``."""
        del assignment
        return None


def _state(metadata: bytes) -> WorkerState:
    try:
        return decode_worker_state(metadata)
    except ProtocolError:
        return WorkerState(url="", config_offset=-1)
