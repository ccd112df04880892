"""Scenarios over the wire: members that join again, and ids that were only handed out."""

from __future__ import annotations

import asyncio
import time

from tests.conformance.members import TOPIC, Member, forms, rejoin, settles, stable, subscription
from tests.conformance.registry import scenario
from tests.conformance.talk import Talk

BRIEF_ROUND_MS = 2_500


@scenario(65)
async def a_leader_that_repeats_its_join_while_completing_gets_the_same_answer(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await forms(a, b)
    again = await a.join()
    assert (again.error, again.generation, again.leader) == ("NONE", 2, a.id)
    assert set(again.members) == {a.id, b.id}
    assert await t.state() == "CompletingRebalance"


@scenario(66)
async def a_follower_that_repeats_its_join_while_completing_gets_an_empty_list(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await forms(a, b)
    again = await b.join()
    assert (again.error, again.generation, again.leader) == ("NONE", 2, a.id)
    assert again.members == {}
    assert await t.state() == "CompletingRebalance"


@scenario(67)
async def changed_metadata_while_completing_starts_over(t: Talk) -> None:
    a, b, c = (Member(t, name) for name in "abc")
    await forms(a, b, c)
    parked = c.syncs()
    await t.waits(parked)
    b.protocols = {"range": subscription(TOPIC) + b"changed"}
    changed = b.joins()
    assert (await t.within(parked)).error == "REBALANCE_IN_PROGRESS"
    await rejoin(a, c)
    assert (await t.within(changed)).generation == 3


@scenario(68)
async def a_stable_leader_that_rejoins_unchanged_starts_a_round(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    waiting = a.joins()
    await b.hears("REBALANCE_IN_PROGRESS")
    assert await t.state() == "PreparingRebalance"
    await t.waits(waiting)


@scenario(69)
async def a_stable_follower_that_rejoins_unchanged_is_told_the_present_generation(
    t: Talk,
) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    joined = await b.join()
    assert (joined.error, joined.generation, joined.leader) == ("NONE", 2, a.id)
    assert joined.members == {}
    assert await t.state() == "Stable"
    assert await a.beat() == "NONE"


@scenario(70)
async def a_stable_follower_with_changed_metadata_starts_a_round(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    b.protocols = {"range": subscription(TOPIC) + b"changed"}
    waiting = b.joins()
    await a.hears("REBALANCE_IN_PROGRESS")
    await t.waits(waiting)


@scenario(71)
async def a_stable_follower_that_reorders_its_protocols_starts_a_round(t: Talk) -> None:
    a, b = (Member(t, name, protocols="range rr") for name in "ab")
    await stable(a, b)
    b.protocols = "rr range"
    waiting = b.joins()
    await a.hears("REBALANCE_IN_PROGRESS")
    await t.waits(waiting)


@scenario(72)
async def the_round_closes_when_the_last_member_is_back(t: Talk) -> None:
    a, b, c = (Member(t, name) for name in "abc")
    await stable(a, b, c)
    waiting = [a.joins()]
    await b.hears("REBALANCE_IN_PROGRESS")
    waiting.append(b.joins())
    await t.waits(*waiting)
    assert (await t.within(c.joins(), 20)).generation == 3
    for task in waiting:
        assert (await t.within(task)).generation == 3


@scenario(73)
async def a_dynamic_member_that_does_not_rejoin_is_dropped_at_the_rebalance_timeout(
    t: Talk,
) -> None:
    a, b = (Member(t, name, rebalance=BRIEF_ROUND_MS) for name in "ab")
    await stable(a, b)
    joined = await t.within(a.joins())
    assert set(joined.members) == {a.id}
    assert await b.beat() == "UNKNOWN_MEMBER_ID"


@scenario(74)
async def a_leader_that_does_not_rejoin_is_followed_by_one_that_did(t: Talk) -> None:
    a, b, c = (Member(t, name, rebalance=BRIEF_ROUND_MS) for name in "abc")
    await stable(a, b, c)
    b.protocols = {"range": subscription(TOPIC) + b"changed"}
    waiting = b.joins()
    await c.hears("REBALANCE_IN_PROGRESS")
    joined = [await t.within(c.joins()), await t.within(waiting)]
    (leader,) = {each.leader for each in joined}
    assert leader in {b.id, c.id}
    lists = {each.me: set(each.members) for each in joined}
    assert lists[leader] == {b.id, c.id}


@scenario(75)
async def the_window_is_the_longest_rebalance_timeout_of_the_members(t: Talk) -> None:
    a, b = Member(t, "a", rebalance=2_000), Member(t, "b", rebalance=5_000)
    await stable(a, b)
    start = time.monotonic()
    assert set((await t.within(a.joins())).members) == {a.id}
    assert time.monotonic() - start > 4.5


@scenario(76)
async def when_nobody_rejoins_the_group_falls_empty_with_a_generation(t: Talk) -> None:
    a, b = (Member(t, name, rebalance=BRIEF_ROUND_MS) for name in "ab")
    await stable(a, b)
    assert await b.leave() == "NONE"
    assert await t.state() == "PreparingRebalance"
    await t.until_state("Empty")
    assert (await t.within(await Member(t, "c").enters())).generation == 4


@scenario(77)
async def when_nobody_rejoins_static_members_get_another_window(t: Talk) -> None:
    a, b = (Member(t, n, instance=f"i-{n}", rebalance=BRIEF_ROUND_MS) for n in "ab")
    c = Member(t, "c", rebalance=BRIEF_ROUND_MS)
    await stable(a, b, c)
    assert await c.leave() == "NONE"
    await asyncio.sleep(1.4 * BRIEF_ROUND_MS / 1_000)
    assert await t.state() == "PreparingRebalance"
    await rejoin(a, b)
    assert a.generation == b.generation == 3


@scenario(78)
async def a_former_id_is_unknown_to_a_group_that_fell_empty(t: Talk) -> None:
    a = Member(t, "a")
    await stable(a)
    assert await a.leave() == "NONE"
    assert await t.state() == "Empty"
    assert (await a.join()).error == "UNKNOWN_MEMBER_ID"


@scenario(79)
async def every_round_raises_the_generation_by_one(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    for generation in range(3, 8):
        await rejoin(a, b)
        assert a.generation == b.generation == generation
        await settles(a, b)


@scenario(80)
async def of_two_joins_of_one_member_that_wait_the_latest_is_answered(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    first = a.joins()
    await t.waits(first)
    second = a.joins()
    done, _ = await asyncio.wait([first], timeout=2)
    told = first.result().error if done else "never answered"
    t.differs("superseded-join", told, kafka="never answered", kohort="REBALANCE_IN_PROGRESS")
    assert (await t.within(b.joins())).generation == 3
    assert (await t.within(second)).generation == 3
    assert first in done or not first.done()


# -- ids that were only handed out -------------------------------------------------------------


@scenario(55)
async def an_id_that_was_only_handed_out_may_neither_beat_nor_sync_nor_commit(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a)
    await b.knocks()
    assert await b.beat(1) == "UNKNOWN_MEMBER_ID"
    assert (await b.sync(generation=1)).error == "UNKNOWN_MEMBER_ID"
    assert await b.commit(generation=1) == "UNKNOWN_MEMBER_ID"


@scenario(56)
async def a_round_that_all_have_joined_waits_for_an_outstanding_id(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a)
    await b.knocks()
    waiting = a.joins()
    await t.waits(waiting)
    done, _ = await asyncio.wait([waiting], timeout=4)
    t.differs("outstanding-id", bool(done), kafka=False, kohort=True)


@scenario(57)
async def it_closes_when_the_outstanding_id_joins(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a)
    await b.knocks()
    waiting, joining = a.joins(), b.joins()
    assert set((await t.within(waiting, 20)).members) == {a.id, b.id}
    assert (await t.within(joining)).generation == 2


@scenario(58)
async def it_closes_without_the_outstanding_id_when_its_session_ends(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b", session=t.profile.brief_ms)
    await stable(a)
    await b.knocks()
    assert set((await t.within(a.joins(), 20)).members) == {a.id}


@scenario(59)
async def it_closes_without_the_outstanding_id_when_that_leaves(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a)
    await b.knocks()
    waiting = a.joins()
    assert await b.leave() == "NONE"
    assert set((await t.within(waiting, 20)).members) == {a.id}


@scenario(60)
async def a_handed_out_id_with_an_instance_id_is_an_error(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a)
    await b.knocks()
    b.instance = "i-b"
    assert (await b.join()).error == "UNKNOWN_SERVER_ERROR"


@scenario(61)
async def an_expired_id_is_unknown(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b", session=t.profile.brief_ms)
    await stable(a)
    await b.knocks()
    await asyncio.sleep(t.profile.brief_ms / 1_000 + 1)
    assert (await b.join()).error == "UNKNOWN_MEMBER_ID"


@scenario(62)
async def an_id_that_expires_in_a_stable_group_starts_no_round(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b", session=t.profile.brief_ms)
    await stable(a)
    await b.knocks()
    await asyncio.sleep(t.profile.brief_ms / 1_000 + 1)
    assert await t.state() == "Stable"
    assert await a.beat(1) == "NONE"


@scenario(63)
async def an_id_outstanding_when_the_round_closes_starts_another_when_it_joins(t: Talk) -> None:
    a, b = Member(t, "a", rebalance=BRIEF_ROUND_MS), Member(t, "b")
    await stable(a)
    await b.knocks()
    assert set((await t.within(a.joins())).members) == {a.id}
    await settles(a)
    waiting = b.joins()
    await a.hears("REBALANCE_IN_PROGRESS")
    await rejoin(a)
    assert (await t.within(waiting)).generation == 3


@scenario(64)
async def two_ids_of_one_client_differ(t: Talk) -> None:
    one, other = Member(t, "a"), Member(t, "a")
    await one.knocks()
    await other.knocks()
    assert one.id != other.id
