"""Joins and syncs of the usual case need no event, and have the same effects as their events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.coordinator.world import World, subscription

from kohort.coordinator.interface import Event, JoinGroup, Respond, SyncAnswer, SyncGroup
from kohort.model.instants import Instant

OTHER = subscription("t")[:-4] + b"\0\0\0\1"
"""As ``subscription("t")``, but not equal to it."""


class ShortWorld(World):
    """Serves each join and sync without its event if the coordinator can do that."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.coordinator._registry.details = lambda: False
        self.short = 0

    def feed(self, event: Event) -> list[str]:
        core = self.coordinator
        if isinstance(event, JoinGroup) and event.group_instance_id is None:
            metadata = [protocol.metadata for protocol in event.protocols]
            if core.join_again(event, event.token, event.member_id, metadata, self.now):
                self.short += 1
                return self._after([])
        if isinstance(event, SyncGroup) and not (event.assignments or event.group_instance_id):
            who = event.token, event.generation_id, event.member_id
            assignment = core.sync_again(event, *who, self.now)
            if assignment is not None:
                self.short += 1
                answer = SyncAnswer(
                    protocol_type=event.protocol_type,
                    protocol_name=event.protocol_name,
                    assignment=assignment,
                )
                return self._after([Respond(event.token, answer)] if assignment else [])
        return super().feed(event)


class LongWorld(ShortWorld):
    """Serves each join and sync by its event."""

    def feed(self, event: Event) -> list[str]:
        return World.feed(self, event)


Ask = Callable[[World], list[str]]
PLAN = {"a-1": b"A", "b-1": b"B", "c-1": b"C"}


def rebalancing(world: World) -> None:
    """A group of three with the join of its leader."""
    world.stable("a", "b", "c")
    world.join("a", protocols={"range": OTHER})


def syncing(world: World) -> None:
    """A group of three in the sync phase."""
    world.joined("a", "b", "c")


def is_short(prepare: Callable[[World], None], ask: Ask) -> bool:
    """Whether a request needs no event; both ways have the same effects, also later ones."""
    worlds = ShortWorld(), LongWorld()
    for world in worlds:
        prepare(world)
    before = worlds[0].short
    assert ask(worlds[0]) == ask(worlds[1])
    served = worlds[0].short > before
    assert rest_of(worlds[0]) == rest_of(worlds[1])
    return served


def rest_of(world: World) -> list[str]:
    lines = world.join("b") + world.join("c") + world.wait(20_000)
    lines += world.sync("a", 1, PLAN) + world.sync("a", 2, PLAN) + world.written()
    return lines + world.sync("c", 1) + world.sync("c", 2) + world.wait(70_000)


@pytest.mark.parametrize("metadata", [subscription("t"), OTHER])
def test_a_member_that_joins_again_needs_no_event(metadata: bytes) -> None:
    assert is_short(rebalancing, lambda world: world.join("b", protocols={"range": metadata}))


@pytest.mark.parametrize(
    "fields",
    [
        {"session": 11_000},
        {"rebalance": 61_000},
        {"protocols": "range roundrobin"},
        {"protocols": "roundrobin"},
        {"protocols": {"range": OTHER + b"longer"}},
        {"protocols": {"range": subscription("u")}},
        {"protocols": {"range": b"\0\0\0\0\0\7" + OTHER[6:]}},
        {"protocol_type": "connect"},
        {"member_id": "d-1"},
        {"client": "a"},
        {"group": "other"},
    ],
)
def test_an_unusual_join_is_decided_by_its_event(fields: dict[str, Any]) -> None:
    assert not is_short(rebalancing, lambda world: world.join(**{"client": "b"} | fields))


def test_the_first_and_the_last_join_of_a_join_phase_are_decided_by_their_events() -> None:
    assert not is_short(
        lambda world: world.stable("a", "b"), lambda world: world.join("a", reason="first")
    )

    def but_one(world: World) -> None:
        rebalancing(world)
        world.join("b")

    assert not is_short(but_one, lambda world: world.join("c"))


@pytest.mark.parametrize(
    "limit",
    [
        {"min_session_timeout_ms": 10_001},
        {"max_session_timeout_ms": 9_999},
        {"max_metadata_bytes": 17},
        {"max_size": 1},
        {"max_group_bytes": 2_000},
    ],
)
def test_a_join_beyond_a_limit_that_was_lowered_is_decided_by_its_event(
    limit: dict[str, int],
) -> None:
    def lowered(world: World) -> None:
        rebalancing(world)
        registry = world.coordinator._registry
        registry.config = replace(world.config, **limit)
        registry.join_bound = registry.config.join_bound

    assert not is_short(lowered, lambda world: world.join("b"))


def test_a_group_of_another_protocol_joins_again_without_events() -> None:
    def connect(world: World) -> None:
        world.stable("a", "b", "c", protocol_type="connect")
        world.join("a", protocol_type="connect")

    assert is_short(connect, lambda world: world.join("b", protocol_type="connect"))


@pytest.mark.parametrize(("state", "ask"), [(rebalancing, "join"), (syncing, "sync")])
def test_a_request_is_decided_by_its_event_if_somebody_wants_its_fact(
    state: Callable[[World], None], ask: str
) -> None:
    def heard(world: World) -> None:
        state(world)
        world.coordinator._registry.details = lambda: True

    def asked(world: World) -> list[str]:
        return world.join("b") if ask == "join" else world.sync("b", 1)

    assert not is_short(heard, asked)


@pytest.mark.parametrize(("state", "ask"), [(rebalancing, "join"), (syncing, "sync")])
def test_a_request_is_decided_by_its_event_while_a_deadline_is_due(
    state: Callable[[World], None], ask: str
) -> None:
    def late(world: World) -> None:
        state(world)
        world.now = Instant(world.now + 3_600_000_000)

    def asked(world: World) -> list[str]:
        return world.join("b") if ask == "join" else world.sync("b", 1)

    assert not is_short(late, asked)


def test_a_follower_that_waits_for_its_assignment_needs_no_event() -> None:
    assert is_short(syncing, lambda world: world.sync("b", 1))
    unnamed: dict[str, Any] = {
        "protocol_type": None,
        "protocol_name": None,
        "names_protocol": False,
    }
    assert is_short(syncing, lambda world: world.sync("b", 1, **unnamed))


def test_a_follower_that_comes_after_the_leader_needs_no_event() -> None:
    def led(world: World) -> None:
        syncing(world)
        world.sync("a", 1, PLAN)
        world.written()

    assert is_short(led, lambda world: world.sync("b", 1))


@pytest.mark.parametrize(
    "fields",
    [
        {"client": "a"},
        {"client": "d"},
        {"generation": 0},
        {"generation": 2},
        {"group": "other"},
        {"protocol_type": "connect"},
        {"protocol_name": "roundrobin"},
        {"protocol_name": None},
        {"protocol_type": None},
    ],
)
def test_an_unusual_sync_is_decided_by_its_event(fields: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"client": "b", "generation": 1}
    assert not is_short(syncing, lambda world: world.sync(**usual | fields))


def test_a_second_sync_of_a_member_is_decided_by_its_event() -> None:
    def synced(world: World) -> None:
        syncing(world)
        world.sync("b", 1)

    assert not is_short(synced, lambda world: world.sync("b", 1))


def test_a_sync_in_a_join_phase_is_decided_by_its_event() -> None:
    assert not is_short(rebalancing, lambda world: world.sync("b", 1))


def test_a_sync_without_assignment_is_decided_by_its_event_because_it_is_a_fact() -> None:
    def led(world: World) -> None:
        syncing(world)
        world.sync("a", 1, {"a-1": b"A"})
        world.written()

    assert not is_short(led, lambda world: world.sync("b", 1))
