"""A worker of a group that shares connectors and tasks, as the workers of Kafka Connect do.

In: the configuration, callbacks. Out: the connectors and tasks that this process runs, and their
states. Must not know: the kind of the work.

The bytes in the group protocol are those of Connect. Under the incremental protocol, which is named
``compatible``, work moves in two steps, and little of it. Waits, limits of moves, identities and
static members work as in groups of consumers. Sources: KIP-415, ADR 0047.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final, TypeAlias

from kohort.client import arguments
from kohort.client.callback_membership import CallbackMembership, resolution_of
from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.errors import WrongUse
from kohort.client.identity import member_identity
from kohort.consumer.ownership_effects import Change, Discard, GiveUp, Prepare, Take
from kohort.embedded.connect import (
    COMPATIBLE,
    EAGER,
    NAMES,
    NO_ERROR,
    ConnectAssignment,
    ConnectorTask,
)
from kohort.engine.connect_protocol import connect_protocol
from kohort.model.errors import ConfigError
from kohort.policies.connect import Configuration
from kohort.policies.connect_groups import ALL

__all__ = ["Configuration", "ConnectorTask", "WorkState", "WorkStatus", "Worker"]

LOG: Final = logging.getLogger(__name__)

WorkCallback: TypeAlias = Callable[[ConnectorTask], object]
CopiesCallback: TypeAlias = Callable[[frozenset[ConnectorTask]], object]


class WorkState(Enum):
    """The state of a connector or task at its worker."""

    WAITING = "waiting"
    """The worker has not read the configuration yet from which the leader assigned the work."""
    RUNNING = "running"
    FAILED = "failed"
    """``on_start`` raised, or the application reported a failure. The work stays with this worker
    until ``restart`` or a rebalance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkStatus:
    """The state of a connector or task, and the error that ended it."""

    state: WorkState
    error: Exception | None = None


class Worker(CallbackMembership[ConnectorTask]):
    """A worker; a context manager.

    Args:
        settings: a ``ClientSettings``, or names and values as ``parse_client_settings`` takes them.
        configuration: returns the connectors, the number of their tasks, and the offset up to which
            this process has read them. It must return at once, and is called on two threads.
        on_start: called with each connector or task that this process runs from now on.
        on_stop: called with each one that another worker will run; the work moves when all calls
            of a rebalance have returned.
        on_lost: called with each one that another worker may run already; default: ``on_stop``.
        on_stopping: called with each one that will be stopped, before the first ``on_stop`` or
            ``on_lost`` of a rebalance. It tells the work to end and returns at once; ``on_stop``
            then waits for the end. So all work ends at a time, as in Connect. None: one after the
            other.
        on_prepare: called with work that other workers run now; make copies of its state, and call
            ``report_warm``. Then the work comes to this worker, or this worker keeps the copies as
            a standby. None: work moves without preparation.
        on_discard: called with work of which the group wants no copies here any more.
        url: the address of this process, for the other workers.
        protocols: Connect's names, best first. ``compatible`` keeps work running during a
            rebalance, ``default`` (eager) stops all work before. A group changes from one to the
            other by two rolling restarts: first all workers offer both. A worker that offers
            ``default`` stops all work in each rebalance.
        more: further settings; ``bootstrap_servers`` and ``group_id`` are needed.

    The callbacks run one after the other on a thread of their own.

    Raises:
        ConfigError: a setting is wrong, or has no effect in a group of workers.
    """

    def __init__(
        self,
        settings: ClientSettings | Mapping[str, object] | None = None,
        /,
        *,
        configuration: Callable[[], Configuration],
        on_start: WorkCallback,
        on_stop: WorkCallback,
        on_lost: WorkCallback | None = None,
        on_stopping: WorkCallback | None = None,
        on_prepare: CopiesCallback | None = None,
        on_discard: CopiesCallback | None = None,
        url: str = "",
        protocols: Sequence[str] = (NAMES[COMPATIBLE],),
        **more: object,
    ) -> None:
        for name, callback in (
            ("configuration", configuration),
            ("on_start", on_start),
            ("on_stop", on_stop),
            ("on_lost", on_lost),
            ("on_stopping", on_stopping),
            ("on_prepare", on_prepare),
            ("on_discard", on_discard),
        ):
            arguments.function(callback, name)
        settings = parse_client_settings(settings, **more)
        versions = _versions(protocols)
        prepares = on_prepare is not None
        self._configuration = configuration
        protocol = connect_protocol(
            url,
            self._link.method("_configuration"),
            say=partial(LOG.info, "group %s: %s", settings.group_id),
            warn=partial(LOG.warning, "group %s: %s", settings.group_id),
            told=self._link.method("_assigned"),
            versions=versions,
            resolution=resolution_of(settings, ALL, prepares=prepares),
            identity=member_identity(settings.kohort_member_identity),
            prepares=prepares,
            most_record_bytes=settings.kohort_max_group_record_bytes,
        )
        super().__init__([ALL], settings, protocol)
        self._on_start, self._on_stop, self._on_lost = on_start, on_stop, on_lost or on_stop
        self._on_stopping = on_stopping
        self._on_copies = {Prepare: on_prepare, Discard: on_discard}
        self._work: dict[ConnectorTask, WorkStatus] = {}
        """Written on the thread of the callbacks only."""
        self._is_new = settings.group_instance_id is not None and EAGER not in versions
        """Whether an assignment may be one that an earlier process of this static worker got."""
        self._needs_offset = -1
        """The offset of the configuration from which the last assignment was made."""

    def work(self) -> dict[ConnectorTask, WorkStatus]:
        """The state of each connector and task of this worker."""
        return dict(self._work)

    def restart(self, work: ConnectorTask) -> None:
        """Stop a connector or task, if it runs, and start it again, in the background.

        Raises:
            WrongUse: this worker does not run the work.
            Closed: the member left the group.
        """
        self._later(self._restart, work)

    def report_failed(self, work: ConnectorTask, error: Exception) -> None:
        """Report that running work ended with an error: it is ``FAILED``, and stays here.

        ``on_stop`` is not called for it any more; ``restart`` starts it again. Raises as
        ``restart``.
        """
        self._later(partial(self._failed, error), work)

    def _later(self, call: Callable[[ConnectorTask], None], work: ConnectorTask) -> None:
        self._check_joined()
        if work not in self._work:
            raise WrongUse(f"{work} is not with this worker; it has {_names(self._work)}")
        self._calls.put(partial(call, work))

    def configuration_changed(self) -> None:
        """The connectors are others now: the leader shares them out again.

        Raises:
            Closed: the member left the group.
        """
        self._share_again("the configuration changed")

    def _assigned(self, told: ConnectAssignment) -> None:
        """Note the offset, on the membership's thread, before the change comes."""
        if told.error == NO_ERROR:
            self._needs_offset = told.config_offset
        if self._is_new and told.detail is None:
            # A leader of Connect names only changes; the earlier process knew the rest.
            reason = "this static worker does not know all of its work"
            self._calls.put(partial(self.request_rejoin, reason))
        self._is_new = False

    # -- the thread of the callbacks --------------------------------------------------------------

    def _tell(self, change: Change[ConnectorTask]) -> None:
        if isinstance(change, Take):
            self._work |= dict.fromkeys(change.resources, WorkStatus(state=WorkState.WAITING))
            self._idle()
            return
        if isinstance(change, Prepare | Discard):
            if told := self._on_copies[type(change)]:
                told(change.resources)
            return
        gone = {work: self._work.pop(work, None) for work in change.resources}
        running = [w for w, status in gone.items() if status and status.state is WorkState.RUNNING]
        self._stop(running, self._on_stop if isinstance(change, GiveUp) else self._on_lost)

    def _stop(self, running: Iterable[ConnectorTask], callback: WorkCallback) -> None:
        order = sorted(running, reverse=True)  # tasks before their connector
        for call in filter(None, (self._on_stopping, callback)):
            for work in order:
                self._guarded(call, work)

    def _idle(self) -> None:
        """Start the work that waits, as soon as the configuration is read."""
        waiting = sorted(w for w, s in self._work.items() if s.state is WorkState.WAITING)
        if waiting and self._read_enough():
            for work in waiting:
                self._start(work)

    def _read_enough(self) -> bool:
        try:
            return self._configuration().offset >= self._needs_offset
        except Exception as error:
            LOG.warning("%s: the configuration cannot be read: %r", self._story(), error)
            return False

    def _start(self, work: ConnectorTask) -> None:
        error = self._guarded(self._on_start, work)
        state = WorkState.RUNNING if error is None else WorkState.FAILED
        self._work[work] = WorkStatus(state=state, error=error)

    def _failed(self, error: Exception, work: ConnectorTask) -> None:
        status = self._work.get(work)
        if status is not None and status.state is WorkState.RUNNING:
            LOG.error("%s: %s failed: %r", self._story(), work, error)
            self._work[work] = WorkStatus(state=WorkState.FAILED, error=error)

    def _restart(self, work: ConnectorTask) -> None:
        status = self._work.get(work)
        if status is None or status.state is WorkState.WAITING:
            return  # the work moved meanwhile, or starts soon
        if status.state is WorkState.RUNNING:
            self._stop([work], self._on_stop)
        self._start(work)

    def _guarded(self, callback: WorkCallback, work: ConnectorTask) -> Exception | None:
        """The exception of a callback; the work of others goes on."""
        try:
            callback(work)
        except Exception as error:
            LOG.exception("%s: a callback raised for %s", self._story(), work)
            return error
        return None


def _versions(protocols: Sequence[str]) -> tuple[int, ...]:
    known = {str(NAMES[version]): version for version in (COMPATIBLE, EAGER)}
    once = len(set(protocols)) == len(protocols) > 0
    if isinstance(protocols, str) or not once or not known.keys() >= set(protocols):
        raise ConfigError(
            f"expected protocols out of {', '.join(known)}, each once, got {protocols!r}"
        )
    return tuple(known[name] for name in protocols)


def _names(work: Iterable[ConnectorTask]) -> str:
    return ", ".join(map(str, sorted(work))) or "nothing"
