"""The protocol of groups of Connect's workers: connectors and tasks as resources.

In: the worker's URL, a reader of the configuration. Out: a ``GroupProtocol`` for a membership. Must
not know: callbacks, how tasks are started and stopped.

An assignment of Connect names only what a worker starts and stops, so the reader here adds the work
that the worker offered in its last join. A leader of kohort also names all work of the worker, so a
restarted static worker knows what it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from kohort.consumer.embedded_protocol import EmbeddedProtocol, Offer
from kohort.embedded.connect import (
    COMPATIBLE,
    EAGER,
    NAMES,
    NO_ERROR,
    ConnectAssignment,
    ConnectorTask,
    WorkerState,
    decode_worker_assignment,
    encode_worker_state,
)
from kohort.embedded.consumer import decode_assignment
from kohort.engine.consumer_driver import GroupProtocol
from kohort.engine.consumer_protocol import announced, echo_of, readable
from kohort.model.ids import ProtocolType
from kohort.model.instants import Millis
from kohort.model.join import JoinProtocol
from kohort.policies.connect import Configuration, as_partition, as_work
from kohort.policies.connect_groups import ALL, NOTHING_READ, WORDS, ConnectAssigner
from kohort.policies.consumer_groups import DESIGN_ONE, join_protocols
from kohort.policies.deferred import Resolution
from kohort.policies.record_size import BROKERS_RECORD_LIMIT
from kohort.policies.spec import Say, say_nothing
from kohort.policies.sticky import COOPERATIVE

PROTOCOL_TYPE: Final = ProtocolType("connect")


def connect_protocol(
    url: str,
    configuration: Callable[[], Configuration],
    *,
    say: Say = say_nothing,
    warn: Say = say_nothing,
    told: Callable[[ConnectAssignment], object] = lambda _assignment: None,
    versions: tuple[int, ...] = (COMPATIBLE,),
    resolution: Resolution = DESIGN_ONE,
    identity: int | None = None,
    prepares: bool = False,
    most_record_bytes: int = BROKERS_RECORD_LIMIT,
) -> GroupProtocol[ConnectorTask]:
    """The protocol of one worker.

    Args:
        url: the worker's address, for the other workers.
        configuration: returns the configuration as read so far; runs on the membership's thread. If
            it raises, the last configuration counts.
        say: takes a sentence about a wait or a move, for the log of the worker's process.
        warn: takes a sentence about a fault.
        told: takes each assignment of this worker, on the membership's thread.
        versions: the offers, best first: `COMPATIBLE`, `EAGER`, or both for an upgrade.
        resolution: waits and limits of moves, if this worker leads.
        identity: the number of a worker that is the same in its next process.
        prepares: whether the worker prepares work before it gets it.
        most_record_bytes: the broker's limit for the group's record; 0 for no check.
    """
    configuration = _LastRead(configuration, warn).read
    assigner = ConnectAssigner(
        configuration, resolution, say, warn, most_record_bytes=most_record_bytes
    )
    worker = _Worker(
        url,
        configuration,
        told,
        assigner.remember,
        versions=versions,
        identity=identity,
        prepares=prepares,
        warn=warn,
    )
    return GroupProtocol(
        type=PROTOCOL_TYPE,
        embedded=EmbeddedProtocol(
            offer=worker.offer,
            read_assignment=worker.read,
            is_cooperative=lambda name: name != NAMES[EAGER],
            offers_eager=EAGER in versions,
            name_of=lambda _task: ALL,
            announced=partial(announced, resource_of=as_work),
            words=WORDS,
        ),
        assigner=assigner,
    )


class _LastRead:
    """Keeps the last configuration, because an application that raises must not end a member."""

    def __init__(self, configuration: Callable[[], Configuration], warn: Say) -> None:
        self._configuration = configuration
        self._warn = warn
        self._last = NOTHING_READ

    def read(self) -> Configuration:
        try:
            self._last = self._configuration()
        except Exception as error:
            self._warn(f"the configuration cannot be read ({error!r}); the last one counts")
        return self._last


class _Worker:
    """Writes the offers of one worker, and completes its assignments."""

    def __init__(
        self,
        url: str,
        configuration: Callable[[], Configuration],
        tell: Callable[[ConnectAssignment], object],
        remember: Callable[[], object],
        *,
        versions: tuple[int, ...],
        identity: int | None,
        prepares: bool,
        warn: Say,
    ) -> None:
        self._url = url
        self._warn = warn
        self._configuration = configuration
        self._tell = tell
        self._versions = versions
        self._identity, self._prepares = identity, prepares
        self._remember = remember
        self._has = frozenset[ConnectorTask]()
        self._told = ConnectAssignment()
        self._user_data: bytes | None = None

    def offer(self, value: Offer[ConnectorTask]) -> tuple[JoinProtocol, ...]:
        self._has = value.owned
        mine = replace(
            self._told, assigned=self._has, revoked=frozenset(), delay_ms=Millis(0), detail=None
        )
        state = WorkerState(
            url=self._url,
            config_offset=self._configuration().offset,
            allocation=mine,
            detail=self._detail(value),
        )
        return tuple(
            JoinProtocol(NAMES[version], encode_worker_state(state, version))
            for version in self._versions
        )

    def _detail(self, value: Offer[ConnectorTask]) -> bytes:
        (offered,) = join_protocols(
            (COOPERATIVE,),
            (ALL,),
            owned=set(map(as_partition, value.owned)),
            generation_id=value.generation_id,
            echo=echo_of(value, self._identity, as_partition, prepares=self._prepares),
        )
        return offered.metadata

    def read(self, assignment: bytes) -> tuple[frozenset[ConnectorTask], bytes | None]:
        told = self._told = decode_worker_assignment(assignment)
        self._tell(told)
        if told.error == NO_ERROR:
            self._remember()
        if told.detail is not None:
            detail = decode_assignment(told.detail)
            self._user_data = readable(detail.user_data, self._warn)
            return frozenset(map(as_work, detail.partitions)), self._user_data
        if told.error == NO_ERROR:
            self._user_data = None  # a leader of Connect knows no waits
        return (self._has - told.revoked) | told.assigned, self._user_data
