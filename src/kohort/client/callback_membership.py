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
from kohort.client.errors import ClientError
from kohort.client.membership import Membership
from kohort.consumer import ownership
from kohort.consumer.embedded_protocol import R
from kohort.consumer.ownership import GiveUp, LoseAll, Take
from kohort.engine.consumer_driver import GroupProtocol

LOG: Final = logging.getLogger(__name__)

Change: TypeAlias = GiveUp[R] | Take[R] | LoseAll[R]


class CallbackMembership(Membership[R]):
    """The base of members with callbacks; a context manager.

    Args:
        topics: the subscription.
        settings: ``bootstrap_servers``, ``group_id``, timeouts.
        protocol: the kind of the group.

    An exception in a callback is logged, and changes nothing.
    """

    def __init__(
        self, topics: Iterable[str], settings: ClientSettings, protocol: GroupProtocol[R]
    ) -> None:
        super().__init__(topics, settings, protocol, self._queue)
        self._calls: queue.SimpleQueue[Change[R] | Callable[[], None] | None] = queue.SimpleQueue()
        """Changes, other calls for the thread of the callbacks, and None at the end."""
        self._touch_s = settings.heartbeat_interval_ms / 1_000
        self._worker = threading.Thread(
            target=self._run, name=f"kohort-callbacks-{settings.group_id}", daemon=True
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

    def _queue(self, change: ownership.Change[R]) -> None:
        if isinstance(change, GiveUp | Take | LoseAll):  # no resource is stateful
            self._calls.put(change)

    def _run(self) -> None:
        while True:
            try:
                item = self._calls.get(timeout=self._touch_s)
            except queue.Empty:
                item = self._idle
            if item is None:
                return
            try:
                if callable(item):
                    item()
                else:
                    self._carry_out(item)
                self.touch()
            except ClientError:
                return  # the membership is over

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
