"""Scenarios over the wire: SyncGroup."""

from __future__ import annotations

import asyncio

from tests.conformance.members import Member, forms, rejoin, stable
from tests.conformance.registry import scenario
from tests.conformance.talk import Talk

BRIEF_ROUND_MS = 2_500


@scenario(116)
async def a_sync_in_an_unknown_group_gets_UNKNOWN_MEMBER_ID(t: Talk) -> None:
    assert (await Member(t, "a").sync(generation=1, member_id="x")).error == "UNKNOWN_MEMBER_ID"


@scenario(117)
async def a_sync_with_an_unknown_member_id_gets_UNKNOWN_MEMBER_ID(t: Talk) -> None:
    await forms(Member(t, "a"))
    assert (await Member(t, "b").sync(generation=1, member_id="x")).error == "UNKNOWN_MEMBER_ID"


@scenario(118)
async def a_sync_of_another_generation_is_illegal(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await forms(a, b)
    assert (await b.sync(generation=1)).error == "ILLEGAL_GENERATION"
    assert (await b.sync(generation=3)).error == "ILLEGAL_GENERATION"


@scenario(119)
async def a_sync_that_names_another_protocol_is_inconsistent(t: Talk) -> None:
    a = Member(t, "a")
    await forms(a)
    assert (await a.sync(protocol_type="connect")).error == "INCONSISTENT_GROUP_PROTOCOL"
    assert (await a.sync(protocol="other")).error == "INCONSISTENT_GROUP_PROTOCOL"


@scenario(120)
async def a_sync_of_version_5_that_names_no_protocol_is_inconsistent(t: Talk) -> None:
    a = Member(t, "a")
    await forms(a)
    assert (await a.sync(protocol_type=None)).error == "INCONSISTENT_GROUP_PROTOCOL"
    assert (await a.sync(protocol=None)).error == "INCONSISTENT_GROUP_PROTOCOL"


@scenario(121)
async def a_sync_while_members_join_is_sent_back(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    a.joins()
    await b.hears("REBALANCE_IN_PROGRESS")
    assert (await b.sync()).error == "REBALANCE_IN_PROGRESS"


@scenario(122)
async def a_sync_in_an_empty_group_gets_UNKNOWN_MEMBER_ID(t: Talk) -> None:
    a = Member(t, "a")
    await stable(a)
    assert await a.leave() == "NONE"
    assert (await a.sync()).error == "UNKNOWN_MEMBER_ID"


@scenario(123)
async def followers_wait_for_the_leader_and_each_gets_its_bytes(t: Talk) -> None:
    a, b, c = (Member(t, name) for name in "abc")
    await forms(a, b, c)
    parked = [b.syncs(), c.syncs()]
    await t.waits(*parked)
    assert (await a.sync({a: b"1", b: b"2", c: b"3"})).assignment == b"1"
    assert [(await t.within(task)).assignment for task in parked] == [b"2", b"3"]
    assert await t.state() == "Stable"


@scenario(124)
async def a_follower_that_syncs_after_the_leader_is_answered_at_once(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await forms(a, b)
    assert (await a.sync({a: b"1", b: b"2"})).error == "NONE"
    assert (await b.sync()).assignment == b"2"


@scenario(125)
async def a_member_left_out_of_the_plan_gets_empty_bytes(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await forms(a, b)
    assert (await a.sync({a: b"1"})).error == "NONE"
    synced = await b.sync()
    assert (synced.error, synced.assignment) == ("NONE", b"")


@scenario(126)
async def a_stranger_in_the_plan_is_ignored(t: Talk) -> None:
    a = Member(t, "a")
    await forms(a)
    assert (await a.sync({a.id: b"1", "stranger": b"2"})).assignment == b"1"
    assert len((await t.described()).members) == 1


@scenario(128)
async def a_plan_larger_than_a_message_may_be_fails_everybodys_sync(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await forms(a, b)
    parked = b.syncs()
    await t.waits(parked)
    errors = [(await t.within(a.syncs({a: bytes(1_200_000)}))).error]
    errors.append((await t.within(parked)).error)
    t.differs(
        "large-assignment",
        errors,
        kafka=["UNKNOWN_SERVER_ERROR", "UNKNOWN_SERVER_ERROR"],
        kohort=["NONE", "NONE"],
    )


@scenario(129)
async def if_the_leaders_session_ends_before_its_sync_a_follower_gets_REBALANCE_IN_PROGRESS(
    t: Talk,
) -> None:
    a, b = Member(t, "a", session=t.profile.brief_ms), Member(t, "b")
    await forms(a, b)
    assert (await t.within(b.syncs())).error == "REBALANCE_IN_PROGRESS"
    assert await a.beat() == "UNKNOWN_MEMBER_ID"


@scenario(130)
async def when_nobody_syncs_within_the_rebalance_timeout_all_are_removed(t: Talk) -> None:
    a, b = (Member(t, name, rebalance=BRIEF_ROUND_MS) for name in "ab")
    await forms(a, b)
    await t.until_state("Empty")
    assert await a.beat() == await b.beat() == "UNKNOWN_MEMBER_ID"


@scenario(131)
async def a_follower_that_does_not_sync_is_removed_though_the_group_is_stable(t: Talk) -> None:
    a, b = (Member(t, name, rebalance=BRIEF_ROUND_MS) for name in "ab")
    await forms(a, b)
    assert (await a.sync({a: b"1", b: b"2"})).error == "NONE"
    assert await t.state() == "Stable"
    await a.hears("REBALANCE_IN_PROGRESS")
    assert await b.beat() == "UNKNOWN_MEMBER_ID"


@scenario(132)
async def a_leader_that_does_not_sync_is_removed_and_followers_are_sent_back(t: Talk) -> None:
    a, b = (Member(t, name, rebalance=BRIEF_ROUND_MS) for name in "ab")
    await forms(a, b)
    assert (await t.within(b.syncs())).error == "REBALANCE_IN_PROGRESS"
    assert await a.beat() == "UNKNOWN_MEMBER_ID"
    assert await b.beat() == "REBALANCE_IN_PROGRESS"


@scenario(133)
async def when_all_have_synced_the_rebalance_timeout_ends_nothing(t: Talk) -> None:
    a, b = (Member(t, name, rebalance=BRIEF_ROUND_MS) for name in "ab")
    await stable(a, b)
    await asyncio.sleep(BRIEF_ROUND_MS / 1_000 + 1)
    assert await a.beat() == await b.beat() == "NONE"


@scenario(134)
async def a_member_that_joins_while_the_plan_is_awaited_sends_syncs_back(t: Talk) -> None:
    a, b, c = (Member(t, name) for name in "abc")
    await forms(a, b)
    parked = b.syncs()
    await t.waits(parked)
    await c.knocks()
    joining = c.joins()
    assert (await t.within(parked)).error == "REBALANCE_IN_PROGRESS"
    late = await a.sync({a: b"1", b: b"2"})
    assert late.error in {"REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION"}
    await rejoin(a, b)
    assert (await t.within(joining)).generation == 3


@scenario(135)
async def a_repeated_sync_gives_the_same_bytes(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    assert (await b.sync()).assignment == b"b"
    assert (await a.sync({a: b"another", b: b"another"})).assignment == b"a"
    assert (await b.sync()).assignment == b"b"


@scenario(136)
async def a_sync_of_version_5_is_told_the_protocol_and_a_refused_one_is_not(t: Talk) -> None:
    a = Member(t, "a")
    await stable(a)
    synced = await a.sync()
    assert (synced.protocol_type, synced.protocol) == ("consumer", "range")
    refused = await a.sync(generation=9)
    assert refused.error == "ILLEGAL_GENERATION"
    assert (refused.protocol_type, refused.protocol, refused.assignment) == (None, None, b"")


@scenario(137)
async def a_sync_of_an_instance_under_anothers_id_is_fenced(t: Talk) -> None:
    a, b = (Member(t, name, instance=f"i-{name}") for name in "ab")
    await forms(a, b)
    assert (await b.sync(member_id=a.id)).error == "FENCED_INSTANCE_ID"
