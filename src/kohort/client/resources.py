"""Groups that share resources of the application: shards, tenants, connectors, a leadership.

In: a list of names, callbacks. Out: the names that this process works on. Must not know: the kind
of the resources.

Two threads: the membership's thread joins and sends heartbeats, a second one runs the callbacks. So
a slow callback delays no heartbeat. The second thread also tells the membership that the process
is alive; a callback that lasts longer than ``max.poll.interval.ms`` ends the membership.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias

from kohort.client import arguments
from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.errors import Closed
from kohort.client.identity import member_identity
from kohort.client.membership import Membership
from kohort.consumer import ownership
from kohort.consumer.ownership import Discard, GiveUp, LoseAll, Prepare, Take
from kohort.engine.resource_protocol import EVERY, resource_protocol
from kohort.model.errors import ConfigError
from kohort.policies.resource_groups import Policy, ResourceAssigner

LOG: Final = logging.getLogger(__name__)

NamesCallback: TypeAlias = Callable[[frozenset[str]], object]
Change: TypeAlias = GiveUp[str] | Take[str] | LoseAll[str]


def _nothing(_names: frozenset[str]) -> None:
    pass


class ResourceGroup(Membership[str]):
    """A member of a group that shares named resources; a context manager.

    Args:
        settings: a ``ClientSettings``, or names and values as ``parse_client_settings`` takes them.
        resources: the names of all resources; called on the membership's thread if this member
            leads, so it must return at once.
        on_acquired: called with names that this member works on from now on.
        on_revoked: called with names that another member shall get; they move when it returns.
        on_lost: called with names that other members may work on already.
        policy: shares the resources out, see `Policy`; None balances their number, and moves as
            few as possible.
        more: further settings; ``bootstrap_servers`` and ``group_id`` are needed.

    The callbacks run one after the other on a thread of their own. An exception in a callback is
    logged, and changes nothing.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(
        self,
        settings: ClientSettings | Mapping[str, object] | None = None,
        /,
        *,
        resources: Callable[[], Iterable[str]],
        on_acquired: NamesCallback = _nothing,
        on_revoked: NamesCallback = _nothing,
        on_lost: NamesCallback = _nothing,
        policy: Policy | None = None,
        **more: object,
    ) -> None:
        for name, callback in (
            ("resources", resources),
            ("on_acquired", on_acquired),
            ("on_revoked", on_revoked),
            ("on_lost", on_lost),
        ):
            arguments.function(callback, name)
        settings = parse_client_settings(settings, **more)
        if settings.stateful_topics:
            raise ConfigError("kohort.stateful.topics is for consumers: resources are no topics")
        say = partial(LOG.warning, "group %s: %s", settings.group_id)
        protocol = resource_protocol(
            ResourceAssigner(
                resources,
                policy,
                settings.resolution,
                say,
                settings.kohort_max_group_record_bytes,
            ),
            member_identity(settings.kohort_member_identity),
        )
        super().__init__([EVERY], settings, protocol, self._queue)
        self._callbacks = {Take: on_acquired, GiveUp: on_revoked, LoseAll: on_lost}
        self._changes: queue.SimpleQueue[Change | None] = queue.SimpleQueue()
        self._touch_s = settings.heartbeat_interval_ms / 1_000
        self._worker = threading.Thread(
            target=self._work, name=f"kohort-resources-{settings.group_id}", daemon=True
        )

    def join(self) -> None:
        """Begin to join, in the background. A second call changes nothing.

        Raises:
            Closed: the member left the group before.
        """
        super().join()
        if self._worker.ident is None:
            self._worker.start()

    def owned(self) -> frozenset[str]:
        """The names that this member works on now.

        Raises:
            ClientError: as ``snapshot``.
        """
        seen = self.snapshot()
        return seen.owned - seen.revoking

    def resources_changed(self) -> None:
        """The list of resources is another one now: the leader shares it out again.

        Raises:
            Closed: the member left the group.
        """
        self.request_rejoin("the resources changed")

    def leave(self, timeout_s: float = 30.0) -> None:
        """Revoke everything that is owned, leave the group, and end both threads."""
        if self._worker.is_alive() and threading.current_thread() is not self._worker:
            self._changes.put(None)
            self._worker.join(timeout_s)
            if self._worker.is_alive():
                LOG.warning("%s: a callback still works; leaving without its end", self._story())
            elif self._error is None and (left := self._snapshot.owned):
                self._call(GiveUp(resources=left))
        super().leave(timeout_s)

    def _story(self) -> str:
        return f"group {self._group_id}, member {self._snapshot.member or 'that never joined'}"

    # -- the thread of the callbacks --------------------------------------------------------------

    def _queue(self, change: ownership.Change[str]) -> None:
        if not isinstance(change, Prepare | Discard):  # no resource is stateful
            self._changes.put(change)

    def _work(self) -> None:
        while True:
            try:
                change = self._changes.get(timeout=self._touch_s)
            except queue.Empty:
                self.touch()
                continue
            if change is None:
                return
            if change.resources:
                self._call(change)
            if isinstance(change, GiveUp):
                try:
                    self.release(change.resources)
                except Closed:
                    return
            self.touch()

    def _tell(self, change: Change) -> None:
        self._callbacks[type(change)](change.resources)

    def _call(self, change: Change) -> None:
        try:
            self._tell(change)
        except Exception:
            names = ", ".join(sorted(change.resources))
            LOG.exception("%s: a callback raised for %s", self._story(), names)
