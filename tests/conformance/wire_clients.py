"""Scenarios over the wire: the behaviour of clients, as far as raw requests can show it."""

from __future__ import annotations

import asyncio

from tests.conformance.members import TOPIC, Member, rejoin, settles, stable
from tests.conformance.registry import scenario
from tests.conformance.talk import Talk

P0 = f"{TOPIC}-0"


@scenario(249)
async def one_member_is_assigned_alone_and_two_share(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a)
    assert set((await t.within(a.joins())).members) == {a.id}
    waiting = await b.enters()
    await t.until_members(2)
    assert set((await t.within(a.joins())).members) == {a.id, b.id}
    assert (await t.within(waiting)).error == "NONE"
    await settles(a, b)


@scenario(252)
async def survivors_have_a_round_of_their_own_when_a_member_was_killed(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b", session=t.profile.brief_ms)
    await stable(a, b)
    await a.hears("REBALANCE_IN_PROGRESS")
    assert set((await t.within(a.joins(), 20)).members) == {a.id}
    await settles(a)


@scenario(253)
async def survivors_have_a_round_of_their_own_as_soon_as_a_member_leaves(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    assert await b.leave() == "NONE"
    assert await a.beat() == "REBALANCE_IN_PROGRESS"
    assert set((await t.within(a.joins(), 20)).members) == {a.id}
    await settles(a)


@scenario(256)
async def a_group_that_comes_back_goes_on_at_its_offsets(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a)
    assert await a.commit(41) == "NONE"
    assert await a.leave() == "NONE"
    await stable_after_empty(b)
    assert await t.fetched(P0) == {P0: 41}


async def stable_after_empty(member: Member) -> None:
    """A member alone in a group that fell empty."""
    assert (await member.talk.within(await member.enters())).error == "NONE"
    await settles(member)


@scenario(257)
async def a_commit_before_the_rejoin_is_there_for_the_next_owner(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    waiting = a.joins()
    await b.hears("REBALANCE_IN_PROGRESS")
    assert await b.commit(41) == "NONE"
    assert (await t.within(b.joins())).error == "NONE"
    assert (await t.within(waiting)).error == "NONE"
    await settles(a, b)
    assert await t.fetched(P0) == {P0: 41}


@scenario(258)
async def a_commit_in_a_round_is_stored_or_refused_and_never_lost(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    told = []
    waiting = a.joins()
    await b.hears("REBALANCE_IN_PROGRESS")
    told.append(await b.commit(1))
    assert (await t.within(b.joins())).error == "NONE"
    assert (await t.within(waiting)).error == "NONE"
    told.append(await b.commit(2))
    await settles(a, b)
    told.append(await b.commit(3))
    assert told == ["NONE", "REBALANCE_IN_PROGRESS", "NONE"]
    assert await t.fetched(P0) == {P0: 3}


@scenario(261, "one node")
async def two_groups_on_one_topic_know_nothing_of_each_other(t: Talk) -> None:
    other = f"{t.group}-other"
    t.other_groups.append(other)
    a, b = Member(t, "a"), Member(t, "b", group=other)
    await stable(a)
    assert (await t.within(await b.enters())).generation == 1
    await settles(b)
    assert await b.commit(9) == "NONE"
    await rejoin(a)
    assert await b.beat() == "NONE"
    assert await t.fetched(P0) == {P0: -1}


@scenario(262)
async def a_consumer_without_membership_commits_while_the_group_is_empty(t: Talk) -> None:
    assert await t.commit({P0: 1}) == "NONE"
    a = Member(t, "a")
    await stable(a)
    assert await t.commit({P0: 2}) == "UNKNOWN_MEMBER_ID"
    assert await a.leave() == "NONE"
    assert await t.commit({P0: 3}) == "NONE"
    assert await t.fetched(P0) == {P0: 3}


@scenario(265, "a delay")
async def members_that_start_together_are_one_generation(t: Talk) -> None:
    crowd = [Member(t, f"m{n}") for n in range(min(100, t.profile.max_size))]
    tasks = await asyncio.gather(*(member.enters() for member in crowd))
    joined = [await t.within(task) for task in tasks]
    assert {(each.error, each.generation) for each in joined} == {("NONE", 1)}
    assert {len(each.members) for each in joined} == {0, len(crowd)}


@scenario(266, "no delay")
async def a_member_that_leaves_and_returns_fifty_times_leaves_no_ghost(t: Talk) -> None:
    for turn in range(1, 51):
        a = Member(t, "a")
        await stable(a)
        assert a.generation == 2 * turn - 1
        assert await a.leave() == "NONE"
    assert (await t.described()).members == []


@scenario(267)
async def a_member_that_was_cut_off_for_a_session_cannot_commit(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b", session=t.profile.brief_ms)
    await stable(a, b)
    await t.until_members(1)
    assert await b.commit() == "UNKNOWN_MEMBER_ID"
    assert (await t.within(a.joins())).generation == 3
