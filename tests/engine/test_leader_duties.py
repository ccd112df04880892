"""A leader's duties: its assignor's timer, alone and inside the member engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from tests.engine.pair import Client, World

from kohort.embedded.consumer import (
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from kohort.embedded.deferral import Pending, Wait, encode_pending
from kohort.engine import coordinator_outputs as broker
from kohort.engine.leader_duties import LeaderDuties
from kohort.member.effects import PerformAssignment
from kohort.member.events import AssignmentPerformed
from kohort.model.facts import RebalanceStarted
from kohort.model.ids import GenerationId, MemberId, ProtocolName, TopicPartition
from kohort.model.instants import Instant, Millis, after
from kohort.model.join import JoinedMember
from kohort.policies.consumer_groups import ConsumerAssigner
from kohort.policies.losses import Moment
from kohort.policies.spec import AssignAgain, EncodedPlan
from kohort.wire.messages.k03_metadata import MetadataRequest

COOPERATIVE = ProtocolName("cooperative-sticky")
REASON = "the wait for lost partitions is over"
TOPICS = frozenset({"t"})
SOON = AssignAgain(after_ms=Millis(7_000), reason=REASON)
MAX_AGE = Millis(300_000)


class Again(ConsumerAssigner):
    """The real assignor's plans; the n-th plan carries the n-th wish, later plans carry none."""

    def __init__(self, *wanted: AssignAgain | None) -> None:
        super().__init__()
        self.wanted = list(wanted)

    def assign(
        self,
        protocol_name: ProtocolName,
        members: Sequence[JoinedMember],
        partitions: Mapping[str, int],
        moment: Moment | None = None,
    ) -> EncodedPlan:
        plan = super().assign(protocol_name, members, partitions, moment)
        return EncodedPlan(plan.assignments, self.wanted.pop(0) if self.wanted else None)


def perform(generation: int, **more: bool) -> PerformAssignment:
    metadata = encode_subscription(Subscription(topics=TOPICS))
    member = JoinedMember(member_id=MemberId("a"), group_instance_id=None, metadata=metadata)
    return PerformAssignment(
        generation_id=GenerationId(generation), protocol_name=COOPERATIVE, members=(member,), **more
    )


def leading(*wanted: AssignAgain | None) -> LeaderDuties:
    duties = LeaderDuties(Again(*wanted), max_age_ms=MAX_AGE, missing_refresh_ms=Millis(1_000))
    assign(duties, 1, at=0)
    return duties


def assign(duties: LeaderDuties, generation: int, at: int) -> None:
    assert duties.asked(perform(generation)) == TOPICS
    decided = duties.decide(GenerationId(generation), TOPICS, {"t": 1}, Instant(0))
    assert isinstance(decided, AssignmentPerformed)
    data = decided.assignments[MemberId("a")]
    duties.joined(is_leader=True, assignment=data, now=after(Instant(0), Millis(at)))


def at(millis: int) -> Instant:
    return after(Instant(0), Millis(millis))


def test_the_assignors_timer_ends_once_with_its_reason() -> None:
    duties = leading(SOON)
    assert duties.due == at(7_000)
    assert duties.assign_again_due(at(6_999)) is None
    assert duties.assign_again_due(at(7_000)) == REASON
    assert duties.assign_again_due(at(8_000)) is None
    assert duties.due == at(MAX_AGE), "only the metadata timer is left"


def test_the_assignors_timer_starts_when_the_leader_has_its_assignment() -> None:
    duties = leading(None, SOON)
    duties.asked(perform(2))
    duties.decide(GenerationId(2), TOPICS, {"t": 1}, Instant(0))
    assert duties.due is None
    duties.joined(is_leader=True, assignment=b"", now=at(500))
    assert duties.due == at(7_500)


def test_a_newer_plan_replaces_the_assignors_timer() -> None:
    duties = leading(SOON, AssignAgain(after_ms=Millis(20_000), reason="newer"), None)
    assign(duties, 2, at=5_000)
    assert duties.assign_again_due(at(24_999)) is None
    assert duties.assign_again_due(at(25_000)) == "newer"
    duties = leading(SOON, None)
    assign(duties, 2, at=5_000)
    assert duties.assign_again_due(at(60_000)) is None, "the newer plan asks for nothing"


def test_a_metadata_refresh_does_not_move_the_assignors_timer() -> None:
    duties = leading(SOON)
    duties.schedule(at(6_000))
    duties.look_again(at(6_500))
    assert duties.due == at(7_000)


def test_177_the_assignors_timer_ends_with_the_membership_or_with_another_leader() -> None:
    """Followers have no timer at all: their joins would start rounds (rule B2)."""
    duties = leading(SOON)
    duties.resigned()
    assert duties.due is None
    duties = leading(SOON)
    duties.joined(is_leader=False, assignment=b"", now=at(1_000))
    assert duties.due is None
    assert duties.assign_again_due(at(9_000)) is None


def test_an_assignment_of_an_earlier_life_has_no_assignors_timer() -> None:
    duties = leading(SOON)
    duties.inherited(perform(1, stands=True))
    duties.joined(is_leader=True, assignment=b"", now=at(1_000))
    assert duties.due == at(1_000), "the metadata refresh alone"
    assert duties.assign_again_due(at(9_000)) is None


def test_a_restarted_leader_assigns_again_at_once_if_its_earlier_life_left_work() -> None:
    """The old assignment gives the time that was left when it was made, so no timer can use it."""
    wait = Wait(
        wait_id=1,
        start_generation=GenerationId(1),
        remaining_ms=Millis(60_000),
        partitions=frozenset({TopicPartition("t", 0)}),
    )
    for pending in (Pending(waits=(wait,)), Pending(postponed=2)):
        assignment = Assignment(partitions=frozenset(), user_data=encode_pending(pending))
        duties = LeaderDuties(
            ConsumerAssigner(), max_age_ms=Millis(300_000), missing_refresh_ms=Millis(1_000)
        )
        duties.inherited(perform(1, stands=True))
        duties.joined(is_leader=True, assignment=encode_assignment(assignment), now=at(1_000))
        assert duties.assign_again_due(at(1_000)) is not None
        assert duties.assign_again_due(at(99_000)) is None


# -- inside the engine ----------------------------------------------------------------------------


def group(*wanted: AssignAgain | None) -> tuple[World, Client, Client]:
    """A leader with these wishes for its next plans, and a follower."""
    world = World()
    assigner = Again()
    leader = world.client("a", assigner=assigner, session_timeout_ms=6_000).join()
    world.run(4_000)
    follower = world.client("b", session_timeout_ms=6_000).join()
    world.until(lambda: world.settled(leader, follower), within_ms=20_000)
    assert leader.engine.core.is_leader
    assigner.wanted = list(wanted)
    return world, leader, follower


def rebalance(client: Client) -> int:
    """Make the group assign again; returns the new generation."""
    world, before = client.world, client.generations[-1]
    client.rejoin()
    world.until(lambda: all(c.generations[-1] > before for c in world.clients), within_ms=9_000)
    return client.generations[-1]


def test_the_engine_rebalances_when_its_assignor_asked_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, leader, follower = group(SOON)
    reasons: list[str | None] = []
    outputs = world.broker

    def watched(out: list[broker.Output]) -> None:
        facts = [o.fact for o in out if isinstance(o, broker.Observed)]
        reasons.extend(f.client_reason for f in facts if isinstance(f, RebalanceStarted))
        outputs(out)

    generation = rebalance(leader)
    monkeypatch.setattr(world, "broker", watched)
    due = leader.engine.next_deadline()
    assert due is not None
    assert due <= world.now + 7_000_000, "the engine announces the timer"
    world.run(6_500)
    assert leader.generations[-1] == generation
    world.until(lambda: follower.generations[-1] == generation + 1, within_ms=5_000)
    assert REASON in reasons
    world.run(60_000)
    assert leader.generations[-1] == generation + 1, "the second plan asked for nothing"


def test_a_timer_that_ends_during_a_rebalance_starts_no_other_one() -> None:
    world, leader, follower = group(SOON)
    generation = rebalance(leader)
    follower.revoke_ms = 8_000
    world.run(3_000)
    leader.rejoin()
    world.run(6_000)
    assert leader.generations[-1] == generation, "the follower holds the rebalance open"
    world.run(60_000)
    assert leader.generations[-1] == follower.generations[-1] == generation + 1


def test_a_leader_that_lost_its_membership_forgets_the_timer() -> None:
    world, leader, follower = group(AssignAgain(after_ms=Millis(30_000), reason=REASON))
    rebalance(leader)
    leader.leave()
    world.until(lambda: world.settled(follower), within_ms=20_000)
    generation = follower.generations[-1]
    leader.join()
    world.until(lambda: world.settled(leader, follower), within_ms=20_000)
    assert not leader.engine.core.is_leader
    settled = follower.generations[-1]
    assert settled > generation
    world.run(60_000)
    assert follower.generations[-1] == settled


# -- metadata that does not come ------------------------------------------------------------------


def grown_unseen(monkeypatch: pytest.MonkeyPatch, failures: int) -> tuple[World, Client, list[int]]:
    """A leader that rebalances after its topic grew; no answer to its next Metadata requests comes.

    Returns:
        The world, the leader, and the instants at which Metadata was requested.
    """
    world, leader, follower = group()
    requests: list[int] = []
    outputs = world.broker

    def unanswered_at_first(out: list[broker.Output]) -> None:
        for output in out:
            if isinstance(output, broker.Handle) and isinstance(output.request, MetadataRequest):
                requests.append(world.now)
                if len(requests) <= failures:
                    continue
            outputs([output])

    monkeypatch.setattr(world, "broker", unanswered_at_first)
    follower.leave()
    world.topics["t"] = 18
    return world, leader, requests


def test_a_leader_without_an_answer_to_metadata_asks_once_more_before_it_assigns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, leader, requests = grown_unseen(monkeypatch, failures=1)
    generation = leader.generations[-1]
    world.until(lambda: leader.generations[-1] > generation, within_ms=120_000)
    assert len(requests) == 2
    assert len(leader.owned) == 18


def test_a_leader_that_assigned_by_old_counts_asks_for_new_ones_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, leader, requests = grown_unseen(monkeypatch, failures=2)
    generation = leader.generations[-1]
    world.until(lambda: leader.generations[-1] > generation, within_ms=120_000)
    assert len(requests) == 2
    assert len(leader.owned) == 12, "the group does not wait for a third request"
    world.until(lambda: len(leader.owned) == 18, within_ms=19_000)  # the metadata's age is 20 s
    refreshed = requests[2]
    world.until(lambda: len(requests) > 4, within_ms=60_000)
    assert requests[4] - refreshed > 20_000_000, "afterwards the usual interval is in force"
