"""Leader elections on the embedded broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.client.candidates import Candidates, a_rolling_bounce_moves_leadership_twice_at_most

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.election import LeaderElection, youngest
from kohort.policies.resource_groups import Sharer


@pytest.fixture
def candidates(kohort_broker: EmbeddedBroker) -> Iterator[Candidates]:
    with ExitStack() as stack:
        yield Candidates(kohort_broker.bootstrap_servers, stack)


def test_one_candidate_leads_and_another_one_follows_with_a_higher_token(
    candidates: Candidates,
) -> None:
    first = candidates.join()
    assert first.wait(20)
    token = first.token
    assert token is not None
    second = candidates.join()
    candidates.in_one_generation()
    assert not second.wait(0)
    candidates.leave(first)
    assert second.wait(20)
    assert second.token is not None
    assert second.token > token
    assert candidates.told == [("elected", token), ("ended", 0), ("elected", second.token)]


def test_a_leader_that_drains_gives_leadership_up(candidates: Candidates) -> None:
    first = candidates.join()
    assert first.wait(20)
    second = candidates.join()
    candidates.in_one_generation()
    first.drain()
    assert second.wait(20)
    assert first.drained
    assert first.token is None


@pytest.mark.parametrize("leader", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 6))])
def test_a_rolling_bounce_moves_leadership_twice_at_most(
    candidates: Candidates, leader: int
) -> None:
    a_rolling_bounce_moves_leadership_twice_at_most(candidates, leader)


def test_nobody_waits_for_a_leadership_without_members() -> None:
    election = LeaderElection(bootstrap_servers="127.0.0.1:1", group_id=str(uuid.uuid4()))
    assert not election.wait(0.01)
    assert election.token is None
    election.leave()


def test_the_policy_prefers_the_member_that_joined_last() -> None:
    def sharer(since: int, *owned: str) -> Sharer:
        return Sharer(owned=frozenset(owned), since=since)

    assert youngest({"a": sharer(3), "b": sharer(7), "c": sharer(5)}, ["x"]) == {"b": ["x"]}
    assert youngest({"a": sharer(3), "b": sharer(-1)}, ["x"]) == {"b": ["x"]}
    assert youngest({"a": sharer(3, "x"), "b": sharer(-1)}, ["x"]) == {"a": ["x"]}
