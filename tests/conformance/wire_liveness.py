"""Scenarios over the wire: heartbeats and sessions, members that leave."""

from __future__ import annotations

import asyncio
import time

from tests.conformance.members import Member, forms, rejoin, settles, stable
from tests.conformance.registry import scenario
from tests.conformance.talk import Talk, error_of

BRIEF_ROUND_MS = 2_500


@scenario(138)
async def a_heartbeat_in_an_unknown_or_empty_group_gets_UNKNOWN_MEMBER_ID(t: Talk) -> None:
    a = Member(t, "a")
    assert await a.beat(1, "made-up") == "UNKNOWN_MEMBER_ID"
    await stable(a)
    assert await a.leave() == "NONE"
    assert await a.beat() == "UNKNOWN_MEMBER_ID"


@scenario(139)
async def a_beat_is_refused_for_its_generation_its_member_or_its_instance(t: Talk) -> None:
    a, b = (Member(t, name, instance=f"i-{name}") for name in "ab")
    await stable(a, b)
    assert await a.beat(1) == "ILLEGAL_GENERATION"
    assert await a.beat(9) == "ILLEGAL_GENERATION"
    assert await Member(t, "c").beat(2, "made-up") == "UNKNOWN_MEMBER_ID"
    assert await b.beat(2, a.id) == "FENCED_INSTANCE_ID"


@scenario(140)
async def heartbeats_report_a_rebalance_in_the_join_phase_and_not_afterwards(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await forms(a, b)
    assert await t.state() == "CompletingRebalance"
    assert await b.beat() == "NONE"
    await settles(a, b)
    assert await b.beat() == "NONE"
    a.joins()
    await b.hears("REBALANCE_IN_PROGRESS")


@scenario(141)
async def a_member_that_beats_stays(t: Talk) -> None:
    a = Member(t, "a", session=t.profile.brief_ms)
    await stable(a)
    end = time.monotonic() + 3 * t.profile.brief_ms / 1_000
    while time.monotonic() < end:
        assert await a.beat() == "NONE"
        await asyncio.sleep(t.profile.brief_ms / 5_000)


@scenario(142)
async def a_member_that_does_not_beat_is_gone_when_its_session_ends(t: Talk) -> None:
    a, b = Member(t, "a", session=t.profile.brief_ms), Member(t, "b")
    await stable(b, a)
    await t.until_members(1)
    assert await a.beat() == "UNKNOWN_MEMBER_ID"


@scenario(143)
async def when_a_silent_member_is_removed_the_other_members_rebalance(t: Talk) -> None:
    a, b = Member(t, "a", session=t.profile.brief_ms), Member(t, "b")
    await stable(b, a)
    await b.hears("REBALANCE_IN_PROGRESS")
    assert set((await t.within(b.joins())).members) == {b.id}


@scenario(144)
async def commits_are_signs_of_life(t: Talk) -> None:
    a = Member(t, "a", session=t.profile.brief_ms)
    await stable(a)
    end = time.monotonic() + 3 * t.profile.brief_ms / 1_000
    while time.monotonic() < end:
        assert await a.commit() == "NONE"
        await asyncio.sleep(t.profile.brief_ms / 5_000)


@scenario(145)
async def a_join_that_waits_outlives_its_session(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b", session=t.profile.brief_ms)
    await stable(b, a)
    waiting = b.joins()
    await a.hears("REBALANCE_IN_PROGRESS")
    await t.waits(waiting, seconds=t.profile.brief_ms / 1_000 + 1)
    assert (await t.within(a.joins())).generation == 3
    assert (await t.within(waiting)).error == "NONE"


@scenario(146)
async def a_sync_that_waits_outlives_its_session_and_is_given_a_whole_one(t: Talk) -> None:
    brief = t.profile.brief_ms / 1_000
    a, b = Member(t, "a"), Member(t, "b", session=t.profile.brief_ms)
    await forms(a, b)
    parked = b.syncs()
    await t.waits(parked, seconds=brief + 1)
    assert (await a.sync({a: b"a", b: b"b"})).error == "NONE"
    assert (await t.within(parked)).assignment == b"b"
    await asyncio.sleep(brief / 2)
    assert await b.beat() == "NONE"


@scenario(149)
async def beats_keep_a_member_that_does_not_rejoin_until_the_rebalance_timeout(t: Talk) -> None:
    brief = t.profile.brief_ms
    a = Member(t, "a", rebalance=brief + 2_000)
    b = Member(t, "b", rebalance=brief + 2_000, session=brief)
    await stable(a, b)
    waiting = a.joins()
    end = time.monotonic() + brief / 1_000 + 1
    await b.hears("REBALANCE_IN_PROGRESS")
    while time.monotonic() < end:
        assert await b.beat() == "REBALANCE_IN_PROGRESS"
        await asyncio.sleep(0.2)
    await b.hears("UNKNOWN_MEMBER_ID")
    assert set((await t.within(waiting)).members) == {a.id}


@scenario(150)
async def a_member_dropped_from_a_round_may_neither_sync_nor_commit(t: Talk) -> None:
    a, b = (Member(t, name, rebalance=BRIEF_ROUND_MS) for name in "ab")
    await stable(a, b)
    assert (await t.within(a.joins())).generation == 3
    assert (await b.sync()).error == "UNKNOWN_MEMBER_ID"
    assert await b.commit() == "UNKNOWN_MEMBER_ID"


@scenario(151)
async def a_session_timeout_changed_on_a_rejoin_counts(t: Talk) -> None:
    a = Member(t, "a", session=t.profile.brief_ms)
    await stable(a)
    a.session = 30_000
    await rejoin(a)
    await settles(a)
    await asyncio.sleep(t.profile.brief_ms / 1_000 + 1)
    assert await a.beat() == "NONE"


@scenario(152)
async def when_the_leaders_session_ends_another_leads(t: Talk) -> None:
    a, b = Member(t, "a", session=t.profile.brief_ms), Member(t, "b")
    await stable(a, b)
    await b.hears("REBALANCE_IN_PROGRESS")
    joined = await t.within(b.joins())
    assert (joined.generation, joined.leader) == (3, b.id)


@scenario(153)
async def when_all_sessions_end_the_group_falls_empty_with_a_generation(t: Talk) -> None:
    a = Member(t, "a", session=t.profile.brief_ms)
    await stable(a)
    await t.until_state("Empty")
    assert (await t.within(await Member(t, "b").enters())).generation == 3


# -- leaving -----------------------------------------------------------------------------------


@scenario(154)
async def leaving_an_unknown_group_is_an_error_of_each_entry_and_of_old_requests(
    t: Talk,
) -> None:
    answer = await t.leaves_answer(("made-up", None))
    assert error_of(answer.error_code) == "NONE"
    assert [error_of(m.error_code) for m in answer.members] == ["UNKNOWN_MEMBER_ID"]
    a = Member(t, "a")
    a.id = "made-up"
    for version in (0, 1, 2):
        assert await a.leaves_alone(version) == "UNKNOWN_MEMBER_ID"


@scenario(155)
async def a_stranger_cannot_leave(t: Talk) -> None:
    await stable(Member(t, "a"))
    assert await t.leave(("made-up", None)) == ["UNKNOWN_MEMBER_ID"]


@scenario(156)
async def the_last_member_leaves_an_empty_group_behind(t: Talk) -> None:
    a = Member(t, "a")
    await stable(a)
    assert await a.leaves_alone(1) == "NONE"
    assert await t.state() == "Empty"


@scenario(157)
async def when_one_of_three_members_leaves_the_others_get_REBALANCE_IN_PROGRESS(t: Talk) -> None:
    a, b, c = (Member(t, name) for name in "abc")
    await stable(a, b, c)
    assert await c.leave() == "NONE"
    assert await a.beat() == await b.beat() == "REBALANCE_IN_PROGRESS"


@scenario(158)
async def two_that_leave_in_a_batch_are_one_round(t: Talk) -> None:
    a, b, c = (Member(t, name) for name in "abc")
    await stable(a, b, c)
    assert await t.leave((b.id, None), (c.id, None)) == ["NONE", "NONE"]
    joined = await t.within(a.joins())
    assert (joined.generation, set(joined.members)) == (3, {a.id})


@scenario(159)
async def a_batch_of_one_member_and_one_stranger_is_a_round(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    assert await t.leave((b.id, None), ("made-up", None)) == ["NONE", "UNKNOWN_MEMBER_ID"]
    assert await a.beat() == "REBALANCE_IN_PROGRESS"


@scenario(160)
async def a_batch_of_strangers_is_no_round(t: Talk) -> None:
    a = Member(t, "a")
    await stable(a)
    errors = await t.leave(("made-up", None), ("another", "i-x"))
    assert errors == ["UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"]
    assert await a.beat() == "NONE"


@scenario(161)
async def an_instance_id_alone_removes_its_member(t: Talk) -> None:
    a, b = (Member(t, name, instance=f"i-{name}") for name in "ab")
    await stable(a, b)
    assert await t.leave(("", "i-b")) == ["NONE"]
    assert await b.beat() == "UNKNOWN_MEMBER_ID"
    assert await a.beat() == "REBALANCE_IN_PROGRESS"


@scenario(162)
async def leaving_under_anothers_instance_id_is_fenced(t: Talk) -> None:
    a, b = (Member(t, name, instance=f"i-{name}") for name in "ab")
    await stable(a, b)
    assert await t.leave((a.id, "i-b")) == ["FENCED_INSTANCE_ID"]
    assert await a.beat() == await b.beat() == "NONE"


@scenario(163)
async def leaving_under_an_instance_id_that_nobody_has_is_unknown(t: Talk) -> None:
    (a,) = (Member(t, name, instance=f"i-{name}") for name in "a")
    await stable(a)
    errors = await t.leave((a.id, "nobody"), ("", "nobody"))
    assert errors == ["UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"]
    assert await a.beat() == "NONE"


@scenario(164)
async def leaving_without_any_id_is_unknown(t: Talk) -> None:
    await stable(Member(t, "a"))
    assert await t.leave(("", None)) == ["UNKNOWN_MEMBER_ID"]


@scenario(165)
async def a_handed_out_id_may_leave_and_is_unknown_after(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a)
    await b.knocks()
    assert await b.leave() == "NONE"
    t.differs("outstanding-id-leaves", await a.beat(), kafka="REBALANCE_IN_PROGRESS", kohort="NONE")
    assert (await b.join()).error == "UNKNOWN_MEMBER_ID"


@scenario(166)
async def a_leavers_join_that_waits_is_answered(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    waiting = a.joins()
    await b.hears("REBALANCE_IN_PROGRESS")
    assert await t.leave((a.id, None)) == ["NONE"]
    joined = await t.within(waiting)
    assert (joined.error, joined.me) == ("UNKNOWN_MEMBER_ID", "")


@scenario(167)
async def when_the_only_absent_member_leaves_the_round_closes(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    waiting = a.joins()
    await b.hears("REBALANCE_IN_PROGRESS")
    assert await b.leave() == "NONE"
    assert set((await t.within(waiting, 20)).members) == {a.id}


@scenario(168)
async def a_reason_to_leave_changes_nothing(t: Talk) -> None:
    for reason in (None, "", "x" * 255):
        a = Member(t, "a")
        await stable(a)
        assert await t.leave((a.id, None), reason=reason) == ["NONE"]
        assert await t.state() == "Empty"


@scenario(169)
async def a_leader_that_leaves_before_it_syncs_sends_followers_back(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await forms(a, b)
    parked = b.syncs()
    await t.waits(parked)
    assert await a.leave() == "NONE"
    assert (await t.within(parked)).error == "REBALANCE_IN_PROGRESS"


@scenario(170)
async def the_entries_of_a_batch_are_answered_in_its_order_with_their_ids(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b", instance="i-b")
    await stable(a, b)
    answer = await t.leaves_answer(("made-up", None), (b.id, "i-b"), ("", "i-x"), (a.id, None))
    told = [(m.member_id, m.group_instance_id, error_of(m.error_code)) for m in answer.members]
    assert told == [
        ("made-up", None, "UNKNOWN_MEMBER_ID"),
        (b.id, "i-b", "NONE"),
        ("", "i-x", "UNKNOWN_MEMBER_ID"),
        (a.id, None, "NONE"),
    ]


@scenario(171)
async def an_administrator_removes_everybody_and_deletes_the_group(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b", instance="i-b")
    await stable(a, b)
    assert await t.delete() == ["NON_EMPTY_GROUP"]
    members = (await t.described()).members
    assert await t.leave(*((m.member_id, None) for m in members)) == ["NONE", "NONE"]
    assert await t.state() == "Empty"
    assert await t.delete() == ["NONE"]
