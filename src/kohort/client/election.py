"""Elects one leader among the processes of a group.

In: callbacks. Out: whether this process leads, and a fencing token. Must not know: the work of the
leader.

Leadership is the only resource of a group. When the leader goes, the member that joined last gets
the leadership: in a rolling bounce that member has restarted, so leadership moves once or twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from kohort.client import arguments
from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.resources import ResourceGroup
from kohort.consumer.ownership_effects import Change, Take
from kohort.policies.resource_groups import Sharer

LEADERSHIP: Final = "leadership"

ElectedCallback: TypeAlias = Callable[[int], object]
EndedCallback: TypeAlias = Callable[[], object]


def youngest(members: Mapping[str, Sharer], names: Sequence[str]) -> dict[str, Sequence[str]]:
    """The resource stays with its owner; a free one goes to the member that joined last."""
    for member_id, sharer in members.items():
        if sharer.owned:
            return {member_id: names}
    return {max(members, key=lambda member_id: (_age(members[member_id]), member_id)): names}


def _age(sharer: Sharer) -> float:
    """A number that is higher for a younger member."""
    return float("inf") if sharer.since < 0 else sharer.since


class LeaderElection(ResourceGroup):
    """A candidate for the leadership of a group; a context manager.

    Args:
        settings: a ``ClientSettings``, or names and values as ``parse_client_settings`` takes them.
        on_elected: called with the fencing token when this process becomes the leader.
        on_ended: called when this process must stop leading. Another process leads when the
            function returns; after a lost membership another process may lead already.
        more: further settings; ``bootstrap_servers`` and ``group_id`` are needed.

    The token is the generation in which this process was elected. It grows with each election, as
    long as the group exists. Kafka deletes a group without members after some time; the generations
    of a new group of the same name begin at 1. So keep one candidate running, or let the protected
    store forget old tokens together with the group.

    The former leader may believe that it leads until its session times out: let the protected
    store refuse tokens below the highest one that it has seen.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(
        self,
        settings: ClientSettings | Mapping[str, object] | None = None,
        /,
        *,
        on_elected: ElectedCallback = lambda _token: None,
        on_ended: EndedCallback = lambda: None,
        **more: object,
    ) -> None:
        arguments.function(on_elected, "on_elected")
        arguments.function(on_ended, "on_ended")
        self._on_elected, self._on_ended = on_elected, on_ended
        self._token: int | None = None
        self._elected = threading.Event()
        super().__init__(
            parse_client_settings(settings, **more),
            resources=lambda: (LEADERSHIP,),
            policy=youngest,
        )

    @property
    def token(self) -> int | None:
        """The fencing token of this leadership; None if this process does not lead."""
        return self._token

    def wait(self, timeout_s: float) -> bool:
        """Wait until this process leads; False if the time is over before."""
        return self._elected.wait(arguments.seconds(timeout_s))

    def _tell(self, change: Change[str]) -> None:
        if isinstance(change, Take):
            self._token = int(change.generation_id)
            self._elected.set()
            self._on_elected(self._token)
        else:
            self._token = None
            self._elected.clear()
            self._on_ended()
