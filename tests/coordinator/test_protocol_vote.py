"""Which protocol a generation speaks (coordinator.md 5.7; live_kafka.md B8)."""

from __future__ import annotations

import pytest
from tests.coordinator.world import World


def chosen(world: World, *offers: str) -> str:
    for client, offer in zip("abc", offers, strict=False):
        world.enter(client, protocols=offer)
    world.wait(9_000)
    name: str = world.answers["a.join#2"].protocol_name
    return name


@pytest.mark.parametrize(
    ("offers", "expected"),
    [
        (("range rr", "range rr"), "range"),
        (("range rr", "rr range", "rr range"), "rr"),
        (("a b c", "b d"), "b"),
        (("b a", "a b"), "b"),
    ],
    ids=["unanimous", "majority", "only common one", "tie goes to the vote cast first"],
)
def test_most_first_votes_among_common_protocols_win(
    offers: tuple[str, ...], expected: str
) -> None:
    assert chosen(World(), *offers) == expected


def test_a_protocol_may_win_again_once_the_member_without_it_is_gone() -> None:
    world = World()
    assert chosen(world, "a b", "b") == "b"
    world.leave("b")
    world.join("a", protocols="a b")
    assert world.answers["a.join#3"].protocol_name == "a"


def test_a_rolling_change_of_protocol_works_at_every_step() -> None:
    world = World()
    world.stable("a", "b", protocols="old")
    for step, offer in enumerate(("new old", "new")):
        for client in "ab":
            world.leave_ids(f"{client}-{1 + step}")
            fresh = f"{client}-{2 + step}"
            world.join(client, "", protocols=offer)
            world.join(client, fresh, protocols=offer, name=f"{client}.{step}")
            other = {"a": "b", "b": "a"}[client]
            other_id = f"{other}-{1 + step}" if client == "a" else f"{other}-{2 + step}"
            offered = ("old", "new old", "new")[step if client == "a" else step + 1]
            world.join(other, other_id, protocols=offered)
            expected = "new" if (step, client) != (0, "a") else "old"
            assert world.answers[f"{client}.{step}"].protocol_name == expected


def test_a_member_that_drops_the_only_common_protocol_is_refused_and_stays() -> None:
    world = World()
    world.stable("a", "b")
    assert world.join("b", protocols="rr")[-1] == "b.join#3 <- INCONSISTENT_GROUP_PROTOCOL me=b-1"
    assert world.beat("b", 1) == "NONE"
