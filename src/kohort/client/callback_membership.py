"""A membership that tells its application of changes, on a thread of its own.

In: changes of the membership. Out: calls of the application, one after the other; releases. Must
not know: the kind of the resources.

Two threads: the membership's thread joins and sends heartbeats, a second one runs the callbacks. So
a slow callback delays no heartbeat. The second thread also tells the membership that the process
is alive; a callback that lasts longer than ``max.poll.interval.ms`` ends the membership.
"""

from __future__ import annotations

import logging
import queue
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from kohort.client.config import ClientSettings
from kohort.client.dropping import WeakLink
from kohort.client.errors import ClientError
from kohort.client.membership import Membership
from kohort.consumer.embedded_protocol import R
from kohort.consumer.ownership_effects import Change, GiveUp
from kohort.engine.consumer_driver import GroupProtocol
from kohort.member.events import SubscriptionChanged
from kohort.model.errors import ConfigError
from kohort.model.instants import Millis
from kohort.policies.deferred import Resolution

LOG: Final = logging.getLogger(__name__)

_Call: TypeAlias = Change[R] | Callable[[], None]
"""A change, or another call for the thread of the callbacks."""
_Calls: TypeAlias = queue.SimpleQueue[_Call[R] | None]
"""Calls in order; None is the end."""


def resolution_of(settings: ClientSettings, every: str, *, prepares: bool) -> Resolution:
    """The leader's waits and limits in a group in which all resources have state, or none has.

    Args:
        settings: the member's.
        every: the name under which a member wants each resource.
        prepares: whether the application has ``on_prepare``.

    Raises:
        ConfigError: a setting about state has no effect.
    """
    if settings.stateful_topics:
        raise ConfigError(
            "kohort.stateful.topics is for consumers; here on_prepare says that all resources have "
            "state"
        )
    if settings.kohort_standby_replicas and not prepares:
        raise ConfigError(
            f"kohort.standby.replicas is {settings.kohort_standby_replicas}, but there is no "
            "on_prepare: only resources with state have standbys"
        )
    return settings.resolution.with_state(
        frozenset({every} if prepares else ()),
        Millis(settings.kohort_handover_timeout_ms),
        settings.kohort_standby_replicas,
    )


class CallbackMembership(Membership[R]):
    """The base of members with callbacks; a context manager.

    An exception in a callback is logged, and changes nothing.
    """

    def __init__(
        self, topics: Iterable[str], settings: ClientSettings, protocol: GroupProtocol[R]
    ) -> None:
        self._calls: _Calls[R] = queue.SimpleQueue()
        super().__init__(topics, settings, protocol, self._calls.put)
        touch_s = settings.heartbeat_interval_ms / 1_000
        self._worker = threading.Thread(
            target=_run,
            args=(self._link, self._calls, touch_s),
            name=f"kohort-callbacks-{settings.group_id}",
            daemon=True,
        )

    def join(self) -> None:
        """Begin to join, in the background. A second call changes nothing.

        Raises:
            Closed: the member left the group before.
        """
        super().join()
        if self._worker.ident is None:
            self._worker.start()

    def owned(self) -> frozenset[R]:
        """The resources that this member works on now.

        Raises:
            ClientError: as ``snapshot``.
        """
        seen = self.snapshot()
        return seen.owned - seen.revoking

    def _share_again(self, reason: str) -> None:
        """Ask for a rebalance; another one follows if one runs, because its plan may be older."""
        self._check_joined()
        self._thread.handle(SubscriptionChanged(reason=reason))

    def leave(self, timeout_s: float = 30.0) -> None:
        """Revoke everything that is owned, leave the group, and end both threads."""
        if self._worker.is_alive() and threading.current_thread() is not self._worker:
            self._calls.put(None)
            self._worker.join(timeout_s)
            if self._worker.is_alive():
                LOG.warning("%s: a callback still works; leaving without its end", self._story())
            elif self._error is None and (left := self._snapshot.owned):
                self._call(GiveUp(resources=left))
        super().leave(timeout_s)

    def _story(self) -> str:
        return f"group {self._group_id}, member {self._snapshot.member or 'that never joined'}"

    # -- the thread of the callbacks --------------------------------------------------------------

    @abstractmethod
    def _tell(self, change: Change[R]) -> None:
        """Call the application."""

    def _idle(self) -> None:
        """Look after unfinished work; called between changes."""

    def _work_off(self, item: _Call[R] | None) -> bool:
        """Carry out a change or another call, or look around; False if the membership is over."""
        try:
            if item is None:
                self._idle()
            elif callable(item):
                item()
            else:
                self._carry_out(item)
            self.touch()
        except ClientError:
            return False
        return True

    def _carry_out(self, change: Change[R]) -> None:
        if change.resources:
            self._call(change)
        if isinstance(change, GiveUp):
            self.release(change.resources)

    def _call(self, change: Change[R]) -> None:
        try:
            self._tell(change)
        except Exception:
            names = ", ".join(map(str, sorted(change.resources)))
            LOG.exception("%s: a callback raised for %s", self._story(), names)


def _run(link: WeakLink[CallbackMembership[R]], calls: _Calls[R], touch_s: float) -> None:
    """The thread of the callbacks, until the end of the membership."""
    while _turn(link, calls, touch_s):
        pass


def _turn(link: WeakLink[CallbackMembership[R]], calls: _Calls[R], touch_s: float) -> bool:
    """Wait for a call, and then only refer to the member: a dropped member must not stay alive."""
    item: _Call[R] | None
    try:
        item = calls.get(timeout=touch_s)
        if item is None:
            return False
    except queue.Empty:
        item = None
    member = link()
    return member is not None and member._work_off(item)
