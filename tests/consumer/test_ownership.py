"""Ownership: partitions that are given up, taken and lost, and the events for the member."""

from __future__ import annotations

from dataclasses import replace

from tests.consumer.world import (
    COOPERATIVE,
    EAGER,
    EMBEDDED,
    joined,
    lost,
    of,
    only,
    prepare,
    prepared,
    told,
    tp,
    tps,
)

from kohort.consumer.embedded_protocol import Announced, Offer
from kohort.consumer.ownership import Ownership
from kohort.consumer.ownership_effects import (
    Complain,
    Discard,
    GiveUp,
    LoseAll,
    Prepare,
    Take,
)
from kohort.member.effects import Joined
from kohort.member.events import RequestRejoin, SubscriptionChanged
from kohort.model.ids import GenerationId, ProtocolName, TopicPartition
from kohort.model.join import JoinProtocol


def made(*topics: str) -> Ownership[TopicPartition]:
    ownership = Ownership(EMBEDDED)
    ownership.subscribe(frozenset(topics or ("t",)))
    return ownership


def owning(
    numbers: tuple[int, ...], protocol: ProtocolName = COOPERATIVE
) -> Ownership[TopicPartition]:
    ownership = made("t", "u")
    ownership.prepare_join(prepare(1))
    ownership.joined(joined(1, tps(*numbers), protocol))
    return ownership


def test_the_first_join_is_answered_at_once_with_nothing_owned() -> None:
    assert prepared(made().prepare_join(prepare(1))) == [(1, "['t'] [] -1")]


def test_an_assignment_is_taken_with_the_generation_that_brought_it() -> None:
    ownership = made()
    ownership.prepare_join(prepare(1))
    effects = ownership.joined(joined(7, tps(0, 1)))
    assert effects == [Take(resources=tps(0, 1), generation_id=GenerationId(7))]
    assert ownership.owned == {tp(0): 7, tp(1): 7}


def test_cooperative_join_waits_for_nothing_and_claims_owned_partitions() -> None:
    ownership = owning((0, 1))
    effects = ownership.prepare_join(prepare(2, 1, COOPERATIVE))
    assert prepared(effects) == [(2, "['t', 'u'] ['t-0', 't-1'] 1")]
    assert not of(GiveUp, effects)


def test_cooperative_member_gives_up_only_withheld_partitions_and_then_rejoins() -> None:
    ownership = owning((0, 1, 2, 3))
    ownership.prepare_join(prepare(2, 1, COOPERATIVE))
    effects = ownership.joined(joined(2, tps(0, 1)))
    assert effects == [
        GiveUp(resources=tps(2, 3)),
        Take(resources=frozenset(), generation_id=GenerationId(2)),
    ]
    assert ownership.workable == tps(0, 1)
    assert ownership.released(tps(2)) == []
    after = ownership.released(tps(3))
    assert [type(event) for event in told(after)] == [SubscriptionChanged]
    again = ownership.prepare_join(prepare(3, 2, COOPERATIVE))
    assert prepared(again) == [(3, "['t', 'u'] ['t-0', 't-1'] 2")]


def test_received_userdata_is_in_the_next_offer_until_the_membership_is_lost() -> None:
    offers: list[bytes | None] = []

    def offer(value: Offer[TopicPartition]) -> tuple[JoinProtocol, ...]:
        offers.append(value.user_data)
        return ()

    ownership = Ownership(replace(EMBEDDED, offer=offer))
    ownership.prepare_join(prepare(1))
    ownership.joined(replace(joined(1, tps(0)), assignment=b"t-0|wait 1"))
    ownership.prepare_join(prepare(2, 1, COOPERATIVE))
    ownership.joined(joined(2, tps(0)))
    ownership.prepare_join(prepare(3, 2, COOPERATIVE))
    ownership.joined(replace(joined(3, tps(0)), assignment=b"t-0|wait 3"))
    ownership.lost(lost(3))
    ownership.let_go()
    ownership.prepare_join(prepare(4))
    assert offers == [None, b"wait 1", None, None]


def test_kept_partitions_keep_the_generation_that_brought_them() -> None:
    ownership = owning((0,))
    ownership.prepare_join(prepare(2, 1, COOPERATIVE))
    ownership.joined(joined(2, tps(0, 1)))
    assert ownership.owned == {tp(0): 1, tp(1): 2}


def test_join_during_a_revocation_claims_the_partitions_that_are_not_given_up_yet() -> None:
    ownership = owning((0, 1))
    ownership.prepare_join(prepare(2, 1, COOPERATIVE))
    ownership.joined(joined(2, tps(0)))
    overtaken = ownership.prepare_join(prepare(3, 2, COOPERATIVE))
    assert prepared(overtaken) == [(3, "['t', 'u'] ['t-0', 't-1'] 2")]
    # That join is on its way with t-1 claimed, so it must not absorb the wish for another.
    assert [type(event) for event in told(ownership.released(tps(1)))] == [SubscriptionChanged]


def test_partition_that_is_assigned_again_during_its_revocation_comes_back_after_its_release() -> (
    None
):
    ownership = owning((0, 1))
    ownership.prepare_join(prepare(2, 1, COOPERATIVE))
    ownership.joined(joined(2, tps(0)))
    ownership.prepare_join(prepare(3, 2, COOPERATIVE))
    assert ownership.joined(joined(3, tps(0, 1))) == [
        Take(resources=frozenset(), generation_id=GenerationId(3))
    ]
    effects = ownership.released(tps(1))
    assert effects == [Take(resources=tps(1), generation_id=GenerationId(3))]
    assert ownership.owned == {tp(0): 1, tp(1): 3}


def test_partition_that_is_assigned_again_before_its_release_may_be_kept() -> None:
    ownership = owning((0, 1, 2))
    ownership.prepare_join(prepare(2, 1, COOPERATIVE))
    ownership.joined(joined(2, tps(0)))
    assert ownership.returning == frozenset()
    ownership.prepare_join(prepare(3, 2, COOPERATIVE))
    ownership.joined(joined(3, tps(0, 1)))
    assert ownership.returning == tps(1)
    assert ownership.kept(tps(1)) == [], "t-2 is still to be given up"
    assert ownership.workable == tps(0, 1)
    assert ownership.owned == {tp(0): 1, tp(1): 1, tp(2): 1}
    after = ownership.released(tps(2))
    assert [type(event) for event in told(after)] == [SubscriptionChanged]


def test_partition_of_a_topic_that_is_subscribed_again_may_be_kept_before_a_rejoin() -> None:
    ownership = owning((0,))
    assert ownership.subscribe(frozenset({"u"})) == [GiveUp(resources=tps(0))]
    assert ownership.returning == frozenset()
    assert ownership.subscribe(frozenset({"t"})) == []
    assert ownership.returning == tps(0)
    assert [type(event) for event in told(ownership.kept(tps(0)))] == [SubscriptionChanged]
    assert ownership.workable == tps(0)


def test_subscription_that_the_group_knows_already_needs_no_rejoin() -> None:
    ownership = owning((0,))
    ownership.subscribe(frozenset({"u"}))
    ownership.subscribe(frozenset({"t", "u"}))
    assert ownership.kept(tps(0)) == []
    overtaken = owning((0,))
    overtaken.subscribe(frozenset({"u"}))
    overtaken.prepare_join(prepare(2, 1, COOPERATIVE))
    overtaken.subscribe(frozenset({"t", "u"}))
    assert [type(event) for event in told(overtaken.kept(tps(0)))] == [SubscriptionChanged]


def test_partition_of_an_older_subscription_may_be_kept_if_that_subscription_returns() -> None:
    ownership = owning((0,))
    ownership.prepare_join(prepare(2, 1, COOPERATIVE))
    ownership.subscribe(frozenset({"u"}))
    effects = ownership.joined(joined(2, tps(0)))
    assert [type(event) for event in told(effects)] == [RequestRejoin]
    assert ownership.returning == frozenset()
    ownership.subscribe(frozenset({"t", "u"}))
    assert ownership.returning == tps(0)


def test_no_partition_is_kept_while_an_eager_join_waits() -> None:
    ownership = owning((0,), EAGER)
    ownership.subscribe(frozenset({"u"}))
    ownership.subscribe(frozenset({"t", "u"}))
    assert ownership.returning == tps(0)
    ownership.prepare_join(prepare(2, 1, EAGER))
    assert ownership.returning == frozenset()


def test_eager_gives_up_everything_before_the_join_is_answered() -> None:
    ownership = owning((0, 1), EAGER)
    effects = ownership.prepare_join(prepare(2, 1, EAGER))
    assert effects == [GiveUp(resources=tps(0, 1))]
    assert ownership.released(tps(0)) == []
    assert prepared(ownership.released(tps(1))) == [(2, "['t', 'u'] [] 1")]


def test_eager_assignment_is_taken_whole_and_needs_no_second_round() -> None:
    ownership = owning((0, 1), EAGER)
    ownership.prepare_join(prepare(2, 1, EAGER))
    ownership.released(tps(0, 1))
    effects = ownership.joined(joined(2, tps(1, 2), EAGER))
    assert effects == [Take(resources=tps(1, 2), generation_id=GenerationId(2))]


def test_newer_attempt_replaces_an_attempt_that_waits() -> None:
    ownership = owning((0,), EAGER)
    ownership.prepare_join(prepare(2, 1, EAGER))
    assert ownership.prepare_join(prepare(3, 1, EAGER)) == []
    assert prepared(ownership.released(tps(0))) == [(3, "['t', 'u'] [] 1")]


def test_an_eager_plan_that_finds_owned_partitions_needs_no_second_round() -> None:
    """Only a broker that chooses a protocol without an offer brings this: others own the rest."""
    ownership = owning((0, 1))
    ownership.prepare_join(prepare(2, 1, COOPERATIVE))
    effects = ownership.joined(joined(2, tps(1, 2), EAGER))
    assert effects == [
        GiveUp(resources=tps(0)),
        Take(resources=tps(2), generation_id=GenerationId(2)),
    ]
    assert ownership.released(tps(0)) == []


def test_lost_membership_takes_everything_and_a_late_release_changes_nothing() -> None:
    ownership = owning((0, 1))
    ownership.prepare_join(prepare(2, 1, COOPERATIVE))
    ownership.joined(joined(2, tps(0)))
    effects = ownership.lost(lost(2))
    assert effects == [LoseAll(resources=tps(0, 1), reason="UNKNOWN_MEMBER_ID")]
    assert ownership.owned == {}
    assert ownership.released(tps(1)) == []
    ownership.let_go()
    assert prepared(ownership.prepare_join(prepare(3, -1, COOPERATIVE))) == [
        (3, "['t', 'u'] [] -1")
    ]


def test_join_waits_until_the_owner_let_lost_partitions_go() -> None:
    ownership = owning((0, 1))
    ownership.lost(lost(1))
    assert ownership.prepare_join(prepare(2, -1, COOPERATIVE)) == []
    ownership.check()
    assert ownership.lost(lost(1)) == []
    assert ownership.prepare_join(prepare(3, -1, COOPERATIVE)) == []
    assert prepared(ownership.let_go()) == [(3, "['t', 'u'] [] -1")]
    assert ownership.let_go() == []


def test_loss_while_an_eager_join_waits_ends_the_waiting() -> None:
    ownership = owning((0,), EAGER)
    ownership.prepare_join(prepare(2, 1, EAGER))
    ownership.lost(lost(1))
    assert prepared(ownership.let_go()) == []
    assert prepared(ownership.prepare_join(prepare(3, -1, EAGER))) == [(3, "['t', 'u'] [] -1")]


def test_a_changed_subscription_gives_up_what_it_excludes_before_the_rejoin() -> None:
    ownership = made("t", "u")
    ownership.prepare_join(prepare(1))
    ownership.joined(joined(1, tps(0) | tps(0, topic="u")))
    assert ownership.subscribe(frozenset({"t"})) == [GiveUp(resources=tps(0, topic="u"))]
    after = ownership.released(tps(0, topic="u"))
    assert [type(event) for event in told(after)] == [SubscriptionChanged]
    assert prepared(ownership.prepare_join(prepare(2, 1, COOPERATIVE))) == [(2, "['t'] ['t-0'] 1")]


def test_a_wider_subscription_rejoins_at_once_and_an_equal_one_does_nothing() -> None:
    ownership = owning((0,))
    wider = ownership.subscribe(frozenset({"t", "u", "v"}))
    assert [type(event) for event in told(wider)] == [SubscriptionChanged]
    assert ownership.subscribe(frozenset({"t", "u", "v"})) == []


def test_a_subscription_changed_during_the_first_join_is_not_forgotten() -> None:
    ownership = made("t")
    ownership.prepare_join(prepare(1))
    changed = ownership.subscribe(frozenset({"u"}))
    assert [type(event) for event in told(changed)] == [SubscriptionChanged]


def test_topics_assigned_for_an_older_subscription_are_not_taken() -> None:
    ownership = made("t")
    ownership.prepare_join(prepare(1))
    effects = ownership.joined(joined(1, tps(0) | tps(5, topic="old")))
    assert only(Take, effects).resources == tps(0)
    assert [type(event) for event in told(effects)] == [RequestRejoin]


def test_unreadable_assignment_changes_nothing_and_is_reported() -> None:
    ownership = owning((0, 1))
    ownership.prepare_join(prepare(2, 1, COOPERATIVE))
    effects = ownership.joined(replace(joined(2, ()), assignment=b"garbage"))
    assert "cannot be read" in only(Complain, effects).message
    assert ownership.workable == tps(0, 1)


def test_assignment_without_bytes_is_empty() -> None:
    ownership = owning((0,))
    ownership.prepare_join(prepare(2, 1, COOPERATIVE))
    effects = ownership.joined(replace(joined(2, ()), assignment=b""))
    assert only(GiveUp, effects).resources == tps(0)


def test_giving_up_everything_before_leaving_brings_nothing_back() -> None:
    ownership = owning((0, 1))
    assert ownership.give_up_everything() == [GiveUp(resources=tps(0, 1))]
    effects = ownership.released(tps(0, 1))
    assert not of(Take, effects)
    ownership.left()
    assert ownership.owned == {}
    assert prepared(ownership.prepare_join(prepare(2))) == [(2, "['t', 'u'] [] -1")]


MIXED = replace(EMBEDDED, offers_eager=True)


def test_a_member_that_offers_an_eager_protocol_gives_up_everything_before_each_join() -> None:
    """Java's rule: the vote may fall on the eager protocol, and other members apply its plan."""
    ownership = Ownership(MIXED)
    ownership.subscribe(frozenset({"t"}))
    ownership.prepare_join(prepare(1))
    ownership.joined(joined(1, tps(0, 1), COOPERATIVE))
    assert ownership.prepare_join(prepare(2, 1, COOPERATIVE)) == [GiveUp(resources=tps(0, 1))]
    assert prepared(ownership.released(tps(0, 1))) == [(2, "['t'] [] 1")]
    effects = ownership.joined(joined(2, tps(1, 2), EAGER))
    assert effects == [Take(resources=tps(1, 2), generation_id=GenerationId(2))]


def test_standbys_are_prepared_and_their_report_starts_no_rebalance() -> None:
    announced = {
        b"one": Announced(standbys=tps(5)),
        b"moves": Announced(prepare=tps(5)),
    }
    embedded = replace(EMBEDDED, announced=lambda data: announced.get(data or b"", Announced()))
    ownership = Ownership(embedded)
    ownership.subscribe(frozenset({"t"}))

    def announcing(generation: int, word: str) -> Joined:
        return replace(joined(generation, ()), assignment=f"t-0|{word}".encode())

    ownership.prepare_join(prepare(1))
    assert only(Prepare, ownership.joined(announcing(1, "one"))).resources == tps(5)
    assert not ownership.report_warm(tps(5)), "the leader makes no move for this"
    ownership.prepare_join(prepare(2, 1))
    assert not of(Prepare, ownership.joined(announcing(2, "moves")))
    assert only(Discard, ownership.joined(joined(3, tps(0)))).resources == tps(5)
    ownership.prepare_join(prepare(3, 3))
    ownership.joined(announcing(4, "moves"))
    (told_,) = told(ownership.report_warm(tps(5)))
    assert isinstance(told_, SubscriptionChanged), "the former report was forgotten"
