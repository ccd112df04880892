"""A group of live members that share twelve resources, on any broker."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from tests.client.stage import until

from kohort.client.resources import ResourceGroup
from kohort.policies.resource_groups import Policy


class Crew:
    """Members in the order in which they came, and the calls of their callbacks.

    Args:
        address: the broker.
        stack: ends the members.
        policy: of the application.
        settings: further settings of the members.
    """

    def __init__(
        self, address: str, stack: ExitStack, policy: Policy | None = None, **settings: object
    ) -> None:
        self.names: list[Any] = [f"r{number}" for number in range(12)]
        self.members: list[ResourceGroup] = []
        self.collisions: list[str] = []
        """Resources that a member acquired while another one still worked on them."""
        self._held: dict[str, object] = {}
        self._lock = threading.Lock()
        self._stack = stack
        self._policy = policy
        self.settings: dict[str, Any] = {
            "bootstrap.servers": address,
            "group.id": f"crew-{uuid.uuid4()}",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 50,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }

    def join(self, **callbacks: Callable[[frozenset[str]], object]) -> ResourceGroup:
        owner = object()

        def acquired(names: frozenset[str]) -> None:
            with self._lock:
                self.collisions += [
                    n for n in names if self._held.setdefault(n, owner) is not owner
                ]
            callbacks.get("on_acquired", len)(names)

        def revoked(names: frozenset[str]) -> None:
            with self._lock:
                for name in names:
                    self._held.pop(name, None)
            callbacks.get("on_revoked", len)(names)

        member = ResourceGroup(
            self.settings,
            resources=lambda: self.names,
            policy=self._policy,
            on_acquired=acquired,
            on_revoked=revoked,
            on_lost=revoked,
        )
        self._stack.callback(member.leave)
        member.join()
        self.members.append(member)
        return member

    def leave(self, member: ResourceGroup) -> None:
        self.members.remove(member)
        member.leave()

    def until(self, condition: Callable[[], object], what: str) -> None:
        until(condition, what)

    def settled(self, *shares: int) -> bool:
        """Wait until the members have so many resources in one generation, each with one owner."""

        def there() -> bool:
            # One snapshot for each member: its generation is that of its resources.
            seen = [member.snapshot() for member in self.members]
            owned = [each.owned - each.revoking for each in seen]
            return (
                sorted(map(len, owned)) == sorted(shares)
                and len(frozenset[str]().union(*owned)) == sum(shares)
                and len({each.generation for each in seen}) == 1
            )

        until(there, f"shares of {shares}")
        return True


def a_member_returns(crew: Crew) -> None:
    """The group waits, and the second of three members gets its resources again."""
    for shares in ([12], [6, 6], [4, 4, 4]):
        crew.join()
        crew.settled(*shares)
    gone = crew.members[1]
    before = [member.owned() for member in crew.members]
    crew.leave(gone)
    crew.settled(4, 4)
    crew.join()
    crew.settled(4, 4, 4)
    assert [member.owned() for member in crew.members] == [before[0], before[2], before[1]]
