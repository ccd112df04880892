"""The ``connect`` embedded protocol: the bytes inside JoinGroup and SyncGroup of Connect's workers.

In: values (a worker's state, an assignment of connectors and tasks). Out: Kafka Connect's bytes,
and back. Must not know: groups, policies, the application that runs the tasks.

Version 0 is the eager protocol (its name is ``default``), 1 the incremental one (``compatible``).
Version 2 (``sessioned``) has the bytes of version 1; the name says that workers sign the requests
that they send to each other. A reader fills fields that are missing at the end with defaults and
treats a higher version like version 2, as Connect does.

Workers of kohort write bytes of their own after the incremental ones: a subscription or assignment
of the consumer protocol, with task n of a connector as partition n + 1. Connect ignores them.

Source: ConnectProtocol, IncrementalCooperativeConnectProtocol and ExtendedAssignment of Kafka's
connect-runtime.
"""

from __future__ import annotations

import struct as binary
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from kohort.model.errors import ProtocolError
from kohort.model.ids import ProtocolName
from kohort.model.instants import Millis
from kohort.schema import BYTES, INT16, INT32, INT64, STRING, array, decode, encode, field, struct

EAGER: Final = 0
COMPATIBLE: Final = 1
SESSIONED: Final = 2
NAMES: Final = {
    SESSIONED: ProtocolName("sessioned"),
    COMPATIBLE: ProtocolName("compatible"),
    EAGER: ProtocolName("default"),
}
"""The names that a worker offers, best first."""

NO_CONFIGURATION: Final = -1
"""The configuration offset of an assignment that no leader has made."""

NO_ERROR: Final = 0
CONFIG_MISMATCH: Final = 1
"""The leader is behind a member in the configuration; all read to its end and join again."""

_CONNECTOR_ITSELF: Final = -1
_VERSION = binary.Struct(">h")
_MARK: Final = b"kh\x01"
"""In front of the bytes that only workers of kohort read."""

_T = TypeVar("_T")


@struct()
class ConnectorTasks:
    """Tasks of one connector; task -1 is the connector itself."""

    connector: str = field(STRING)
    tasks: list[int] = field(array(INT32))


@struct(versions="0-2")
class WorkerStateHead:
    """A worker's state after the version number, up to the allocation."""

    url: str = field(STRING)
    config_offset: int = field(INT64)


@struct(versions="0-2")
class Allocation:
    """The end of a worker's state: the worker's present assignment, with its own version."""

    allocation: bytes | None = field(BYTES, nullable="0+", default=None)


@struct(versions="0-2")
class AssignmentHead:
    """An assignment after the version number, up to the assigned tasks."""

    error: int = field(INT16)
    leader: str = field(STRING)
    leader_url: str = field(STRING)
    config_offset: int = field(INT64)


@struct(versions="0-2")
class TaskLists:
    """The assigned tasks of an assignment, and the revoked tasks after them."""

    connectors: list[ConnectorTasks] | None = field(
        array(ConnectorTasks), nullable="0+", default=None
    )


@struct(versions="0-2")
class Delay:
    """The end of an assignment: the milliseconds until the members join again."""

    delay_ms: int = field(INT32, default=0)


class ConnectorTask(NamedTuple):
    """A task of a connector, or the connector itself; a connector sorts before its tasks."""

    connector: str
    task: int = _CONNECTOR_ITSELF

    @property
    def is_connector(self) -> bool:
        """Whether this is the connector itself."""
        return self.task == _CONNECTOR_ITSELF

    def __str__(self) -> str:
        return self.connector if self.is_connector else f"{self.connector}-{self.task}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectAssignment:
    """The connectors and tasks of one worker, and the leader's message to all workers."""

    leader: str = ""
    leader_url: str = ""
    config_offset: int = NO_CONFIGURATION
    """The configuration that the leader used; a worker reads at least so far before it starts."""
    assigned: Set[ConnectorTask] = frozenset()
    revoked: Set[ConnectorTask] = frozenset()
    """Version 1 and higher: the worker stops these and joins again."""
    delay_ms: Millis = Millis(0)
    """Version 1 and higher: the time until the worker joins again."""
    error: int = NO_ERROR
    detail: bytes | None = None
    """Version 1 and higher: an assignment of the consumer protocol, from a leader of kohort."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """A worker's bytes in JoinGroup."""

    url: str
    config_offset: int
    allocation: ConnectAssignment | None = None
    """Version 1 and higher: the assignment that the worker has; None before the first."""
    detail: bytes | None = None
    """Version 1 and higher: a subscription of the consumer protocol, from a worker of kohort."""


def encode_worker_state(value: WorkerState, version: int = SESSIONED) -> bytes:
    """Bytes of a worker's state. The eager protocol does not carry the allocation.

    Raises:
        ProtocolError: a value does not fit its field.
    """
    head = WorkerStateHead(url=value.url, config_offset=value.config_offset)
    data = _VERSION.pack(version) + encode(head, version)
    if version == EAGER:
        return data
    mine = value.allocation
    allocation = None if mine is None else encode_worker_assignment(mine, version)
    return data + encode(Allocation(allocation=allocation), version) + _marked(value.detail)


def decode_worker_state(data: bytes) -> WorkerState:
    """Read a worker's state of any version.

    Raises:
        ProtocolError: a negative version, or bytes that are no worker's state.
    """
    version = _version(data, "state")
    head, end = decode(WorkerStateHead, version, data, _VERSION.size)
    tail, end = _decode_if_any(Allocation, version, data, end)
    mine = None if tail is None else tail.allocation
    return WorkerState(
        url=head.url,
        config_offset=head.config_offset,
        allocation=None if mine is None else decode_worker_assignment(mine),
        detail=_detail(data, end),
    )


def encode_worker_assignment(value: ConnectAssignment, version: int = SESSIONED) -> bytes:
    """Bytes of an assignment: sorted, so that equal values give equal bytes.

    Raises:
        ProtocolError: a value does not fit its field, or the eager protocol shall revoke or delay.
    """
    head = AssignmentHead(
        error=value.error,
        leader=value.leader,
        leader_url=value.leader_url,
        config_offset=value.config_offset,
    )
    data = _VERSION.pack(version) + encode(head, version) + _encode_tasks(value.assigned, version)
    if version == EAGER:
        if value.revoked or value.delay_ms:
            raise ProtocolError("Connect's eager protocol carries no revoked tasks and no delay")
        return data
    delay = encode(Delay(delay_ms=value.delay_ms), version)
    return data + _encode_tasks(value.revoked, version) + delay + _marked(value.detail)


def decode_worker_assignment(data: bytes) -> ConnectAssignment:
    """Read an assignment of any version; no bytes mean an empty assignment.

    Raises:
        ProtocolError: a negative version, a negative delay or task, or bytes that are no
            assignment.
    """
    if not data:
        return ConnectAssignment()
    version = _version(data, "assignment")
    head, end = decode(AssignmentHead, version, data, _VERSION.size)
    assigned, end = _decode_if_any(TaskLists, version, data, end)
    revoked, end = _decode_if_any(TaskLists, version, data, end)
    tail, end = _decode_if_any(Delay, version, data, end)
    delay_ms = 0 if tail is None else tail.delay_ms
    if delay_ms < 0:
        raise ProtocolError(f"a worker's assignment has a delay of {delay_ms} ms")
    return ConnectAssignment(
        leader=head.leader,
        leader_url=head.leader_url,
        config_offset=head.config_offset,
        assigned=_tasks_in(assigned),
        revoked=_tasks_in(revoked),
        delay_ms=Millis(delay_ms),
        error=head.error,
        detail=_detail(data, end),
    )


def _marked(detail: bytes | None) -> bytes:
    return b"" if detail is None else _MARK + detail


def _detail(data: bytes, end: int) -> bytes | None:
    return data[end + len(_MARK) :] if data.startswith(_MARK, end) else None


def _encode_tasks(tasks: Iterable[ConnectorTask], version: int) -> bytes:
    by_connector: dict[str, list[int]] = {}
    for each in sorted(tasks):
        by_connector.setdefault(each.connector, []).append(each.task)
    # As Connect does, connectors that are assigned themselves precede those with tasks only.
    order = sorted(by_connector, key=lambda name: by_connector[name][0] != _CONNECTOR_ITSELF)
    lists = [ConnectorTasks(connector=name, tasks=by_connector[name]) for name in order]
    return encode(TaskLists(connectors=lists), version)


def _tasks_in(lists: TaskLists | None) -> frozenset[ConnectorTask]:
    entries = (lists and lists.connectors) or []
    found = frozenset(ConnectorTask(entry.connector, n) for entry in entries for n in entry.tasks)
    lowest = min((each.task for each in found), default=0)
    if lowest < _CONNECTOR_ITSELF:
        raise ProtocolError(f"a worker's assignment names task {lowest} of a connector")
    return found


def _decode_if_any(cls: type[_T], version: int, data: bytes, start: int) -> tuple[_T | None, int]:
    """Read a structure unless the bytes end before it."""
    return decode(cls, version, data, start) if start < len(data) else (None, start)


def _version(data: bytes, what: str) -> int:
    if len(data) < _VERSION.size:
        raise ProtocolError(f"a worker's {what} begins with a version of 2 bytes, not {len(data)}")
    version: int = _VERSION.unpack_from(data)[0]
    if version < EAGER:
        raise ProtocolError(f"a worker's {what} has version {version}; versions start at 0")
    return min(version, SESSIONED)
