"""A group of live members that share twelve resources, on any broker."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from tests.waiting import until

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
        self.names: Any = [f"r{number}" for number in range(12)]
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
            **{k: v for k, v in callbacks.items() if k in ("on_prepare", "on_discard")},
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
        """Wait until the members have these numbers of resources in one generation."""

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


def copies_move_resources(crew: Crew) -> None:
    """Resources move when their next member has warm copies; a lost member's go to its standbys."""
    asked: list[frozenset[str]] = []
    copies: dict[ResourceGroup, frozenset[str]] = {}

    def join() -> ResourceGroup:
        member = crew.join(on_prepare=asked.append)
        copies[member] = frozenset()
        return member

    def report(*shares: int) -> None:
        """Report what is asked for as warm until the members have these shares."""

        def there() -> bool:
            for member in crew.members:
                if told := member.snapshot().preparing:
                    copies[member] |= told
                    member.report_warm(told)
            return sorted(len(member.owned()) for member in crew.members) == sorted(shares)

        crew.until(there, f"shares of {shares}")
        crew.settled(*shares)

    first = join()
    crew.settled(12)
    second = join()
    crew.until(lambda: len(second.snapshot().preparing) == 12, "six that come, six standbys")
    (waits,) = [text for text in second.status().waiting_for if "resources move" in text]
    assert waits.startswith("6 resources move to this member when it has warm copies, or in ")
    assert waits.split(": ")[1].startswith("r")
    assert (first.owned(), second.owned()) == (frozenset(crew.names), frozenset())
    report(6, 6)
    third = join()
    report(4, 4, 4)
    generation = first.snapshot().generation
    first.request_rejoin("the leader learns of the newest copies")
    crew.until(lambda: first.snapshot().generation > generation, "another round")
    report(4, 4, 4)
    before = {member: member.owned() for member in (first, second)}
    lost = third.owned()
    crew.leave(third)
    crew.settled(6, 6)
    for member, mine in before.items():
        came = member.owned() - mine
        assert mine < member.owned()
        assert came <= lost & copies[member], "only a member with a copy takes over"
    assert crew.collisions == []
    assert asked
