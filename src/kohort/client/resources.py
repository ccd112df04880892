"""Groups that share resources of the application: shards, tenants, connectors, a leadership.

In: a list of names, callbacks. Out: the names that this process works on. Must not know: the kind
of the resources.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

from kohort.client import arguments
from kohort.client.callback_membership import CallbackMembership, resolution_of
from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.identity import member_identity
from kohort.consumer.ownership_effects import Change, Discard, GiveUp, LoseAll, Prepare, Take
from kohort.engine.resource_protocol import EVERY, resource_protocol
from kohort.model.errors import ConfigError
from kohort.policies.consumer_groups import DESIGN_ONE
from kohort.policies.resource_groups import Policy, ResourceAssigner, Resources

LOG: Final = logging.getLogger(__name__)

NamesCallback: TypeAlias = Callable[[frozenset[str]], object]


def _nothing(_names: frozenset[str]) -> None:
    pass


class ResourceGroup(CallbackMembership[str]):
    """A member of a group that shares named resources; a context manager.

    Args:
        settings: a ``ClientSettings``, or names and values as ``parse_client_settings`` takes them.
        resources: the names of all resources, or a mapping with their weights: then the load is
            balanced, and not the number. Called on the membership's thread with each assignment, so
            it must return at once.
        on_acquired: called with names that this member works on from now on.
        on_revoked: called with names that another member will get; the names move when the
            function returns.
        on_lost: called with names that other members may work on already.
        on_prepare: called with names that other members work on now; make copies of their state,
            and call ``report_warm``. Then the names come to this member, or this member keeps the
            copies as a standby. None: resources move without preparation.
        on_discard: called with names of which the group wants no copies of this member any more.
        policy: shares the resources out, see `Policy`; None balances their number, and moves as
            few as possible. It has no waits, no limits and no preparation.
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
        resources: Callable[[], Resources],
        on_acquired: NamesCallback = _nothing,
        on_revoked: NamesCallback = _nothing,
        on_lost: NamesCallback = _nothing,
        on_prepare: NamesCallback | None = None,
        on_discard: NamesCallback = _nothing,
        policy: Policy | None = None,
        **more: object,
    ) -> None:
        for name, callback in (
            ("resources", resources),
            ("on_acquired", on_acquired),
            ("on_revoked", on_revoked),
            ("on_lost", on_lost),
            ("on_prepare", on_prepare),
            ("on_discard", on_discard),
        ):
            arguments.function(callback, name)
        settings = parse_client_settings(settings, **more)
        prepares = on_prepare is not None
        if prepares and policy is not None:
            raise ConfigError("on_prepare has no effect with a policy of the application")
        resolution = resolution_of(settings, EVERY, prepares=prepares)
        if policy is not None and resolution != DESIGN_ONE:
            raise ConfigError(
                "waits and limits of moves have no effect with a policy of the application: leave "
                "out scheduled.rebalance.max.delay.ms and kohort.max.moves.per.round"
            )
        say, warn = (
            partial(log, "group %s: %s", settings.group_id) for log in (LOG.info, LOG.warning)
        )
        # The membership's thread has these through the member, so that it keeps no dropped
        # application alive.
        self._resources, self._policy = resources, policy
        protocol = resource_protocol(
            ResourceAssigner(
                self._link.method("_resources"),
                policy and self._link.method("_policy"),
                resolution,
                say,
                warn,
                most_record_bytes=settings.kohort_max_group_record_bytes,
            ),
            member_identity(settings.kohort_member_identity),
            prepares=prepares,
            warn=warn,
        )
        super().__init__([EVERY], settings, protocol)
        self._callbacks = {
            Take: on_acquired,
            GiveUp: on_revoked,
            LoseAll: on_lost,
            Prepare: on_prepare or _nothing,
            Discard: on_discard,
        }

    def resources_changed(self) -> None:
        """The list of resources is another one now: the leader shares it out again.

        Raises:
            Closed: the member left the group.
        """
        self._share_again("the resources changed")

    def _tell(self, change: Change[str]) -> None:
        self._callbacks[type(change)](change.resources)
