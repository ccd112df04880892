"""Scenarios over the wire: static members that restart, are fenced and replaced."""

from __future__ import annotations

import asyncio
from typing import Unpack

from tests.conformance.members import (
    TOPIC,
    Joined,
    Member,
    MemberSettings,
    forms,
    rejoin,
    stable,
    subscription,
)
from tests.conformance.registry import scenario
from tests.conformance.talk import Talk

CHANGED = {"range": subscription(TOPIC) + b"changed"}


def static_members(t: Talk, *names: str, **how: Unpack[MemberSettings]) -> list[Member]:
    return [Member(t, name, instance=f"i-{name}", **how) for name in names]


def twin_of(member: Member) -> Member:
    """Another process under the same instance id, that knows no member id."""
    twin = Member(
        member.talk,
        member.name,
        instance=member.instance,
        protocols=member.protocols,
        session=member.session,
        rebalance=member.rebalance,
    )
    twin.generation, twin.protocol = member.generation, member.protocol
    return twin


async def _restarted(member: Member, *, version: int = 9) -> tuple[Member, Joined]:
    """The same instance once more, without its id; it must be answered at once."""
    twin = twin_of(member)
    joined = await member.talk.within(twin.joins("", version=version))
    assert joined.error == "NONE"
    assert joined.me != member.id
    return twin, joined


@scenario(88)
async def a_static_member_is_known_by_its_instance_id_in_the_leaders_list(t: Talk) -> None:
    (a,) = static_members(t, "a")
    joined = await t.within(a.joins(""))
    assert joined.instances == {a.id: "i-a"}


@scenario(89)
async def a_static_follower_that_restarts_gets_a_new_id_and_nobody_notices(t: Talk) -> None:
    a, b = static_members(t, "a", "b")
    await stable(a, b)
    _, joined = await _restarted(b)
    assert (joined.generation, joined.leader, joined.members) == (2, a.id, {})
    assert not joined.skips
    assert await a.beat() == "NONE"
    assert await t.state() == "Stable"


@scenario(90)
async def a_static_leader_that_restarts_leads_and_is_told_to_skip_the_assignment(
    t: Talk,
) -> None:
    a, b = static_members(t, "a", "b")
    await stable(a, b)
    twin, joined = await _restarted(a)
    assert (joined.generation, joined.leader, joined.skips) == (2, twin.id, True)
    assert set(joined.members) == {twin.id, b.id}
    assert await b.beat() == "NONE"


@scenario(91)
async def an_older_static_leader_that_restarts_gets_its_former_id_as_the_leader(
    t: Talk,
) -> None:
    a, b = static_members(t, "a", "b")
    await stable(a, b)
    _, joined = await _restarted(a, version=8)
    assert (joined.leader, joined.members) == (a.id, {})


@scenario(92)
async def the_new_id_syncs_the_assignment_that_was_there(t: Talk) -> None:
    a, b = static_members(t, "a", "b")
    await stable(a, b)
    for member in (b, a):
        twin, _ = await _restarted(member)
        synced = await twin.sync({twin: b"ignored"})
        assert (synced.error, synced.assignment) == ("NONE", member.name.encode())


async def _asks_everything(former: Member) -> set[str]:
    return {
        (await former.join()).error,
        (await former.sync()).error,
        await former.beat(),
        await former.commit(),
        await former.leave(),
    }


@scenario(93)
async def the_former_id_with_its_instance_id_is_fenced(t: Talk) -> None:
    a, b = static_members(t, "a", "b")
    await stable(a, b)
    await _restarted(b)
    assert await _asks_everything(b) == {"FENCED_INSTANCE_ID"}


@scenario(94)
async def the_former_id_without_its_instance_id_is_unknown(t: Talk) -> None:
    a, b = static_members(t, "a", "b")
    await stable(a, b)
    await _restarted(b)
    b.instance = None
    assert await _asks_everything(b) == {"UNKNOWN_MEMBER_ID"}


@scenario(95)
async def a_restart_that_changes_the_vote_is_a_round(t: Talk) -> None:
    a, b = static_members(t, "a", "b", protocols="range rr")
    await stable(a, b)
    twin = twin_of(b)
    twin.protocols = "rr"
    waiting = twin.joins("")
    await a.hears("REBALANCE_IN_PROGRESS")
    assert (await t.within(a.joins())).protocol == "rr"
    assert (await t.within(waiting)).generation == 3


@scenario(96)
async def a_restart_with_other_metadata_and_the_same_vote_is_no_round(t: Talk) -> None:
    a, b = static_members(t, "a", "b")
    await stable(a, b)
    b.protocols = CHANGED
    twin, joined = await _restarted(b)
    assert joined.generation == 2
    assert await a.beat() == "NONE"
    stored = {m.member_id: m.member_metadata for m in (await t.described()).members}
    assert stored[twin.id] == CHANGED["range"]


@scenario(97)
async def a_restart_while_the_assignment_is_awaited_is_a_new_round(t: Talk) -> None:
    a, b, c = static_members(t, "a", "b", "c")
    await forms(a, b, c)
    parked = c.syncs()
    await t.waits(parked)
    waiting = twin_of(b).joins("")
    assert (await t.within(parked)).error == "REBALANCE_IN_PROGRESS"
    await rejoin(a, c)
    assert (await t.within(waiting)).generation == 3


@scenario(98)
async def a_join_that_waits_is_fenced_when_its_instance_joins_again(t: Talk) -> None:
    a, b = static_members(t, "a", "b")
    await stable(a, b)
    first = a.joins()
    await t.waits(first)
    second = twin_of(a).joins("")
    assert (await t.within(first)).error == "FENCED_INSTANCE_ID"
    await t.waits(second)
    await rejoin(b)
    assert (await t.within(second)).generation == 3


@scenario(99)
async def a_sync_that_waits_is_fenced_when_its_instance_joins_again(t: Talk) -> None:
    a, b = static_members(t, "a", "b")
    await forms(a, b)
    parked = b.syncs()
    await t.waits(parked)
    twin_of(b).joins("")
    assert (await t.within(parked)).error == "FENCED_INSTANCE_ID"


@scenario(100)
async def an_unknown_instance_id_with_a_member_id_is_unknown(t: Talk) -> None:
    a, b = static_members(t, "a", "b")
    await stable(a, b)
    b.instance = "nobody"
    assert (await b.join()).error == "UNKNOWN_MEMBER_ID"


@scenario(101)
async def a_known_instance_id_with_anothers_member_id_is_fenced(t: Talk) -> None:
    a, b = static_members(t, "a", "b")
    await stable(a, b)
    assert (await b.join(a.id)).error == "FENCED_INSTANCE_ID"


@scenario(102)
async def a_heartbeat_of_an_instance_never_seen_is_unknown(t: Talk) -> None:
    a, b = static_members(t, "a", "b")
    await stable(a, b)
    b.instance = "nobody"
    assert await b.beat() == "UNKNOWN_MEMBER_ID"


@scenario(103)
async def a_static_leader_that_rejoins_with_its_id_starts_a_round_and_a_follower_none(
    t: Talk,
) -> None:
    a, b = static_members(t, "a", "b")
    await stable(a, b)
    assert (await b.join()).generation == 2
    assert await a.beat() == "NONE"
    waiting = a.joins()
    await b.hears("REBALANCE_IN_PROGRESS")
    await t.waits(waiting)


@scenario(104)
async def five_restarts_are_five_ids_and_one_member(t: Talk) -> None:
    a, b = static_members(t, "a", "b")
    await stable(a, b)
    ids = {b.id}
    for _ in range(5):
        twin, _ = await _restarted(b)
        ids.add(twin.id)
    assert len(ids) == 6
    described = await t.described()
    assert {m.group_instance_id for m in described.members} == {"i-a", "i-b"}
    assert len(described.members) == 2


@scenario(106)
async def a_static_member_absent_at_the_close_is_in_the_leaders_list(t: Talk) -> None:
    a, b = Member(t, "a", rebalance=1_500), *static_members(t, "b", rebalance=1_500)
    await stable(a, b)
    joined = await t.within(a.joins())
    assert set(joined.members) == {a.id, b.id}
    assert joined.generation == 3


@scenario(107)
async def a_static_member_that_stays_away_is_removed_in_a_round(t: Talk) -> None:
    a = Member(t, "a", rebalance=2_000)
    (b,) = static_members(t, "b", rebalance=2_000, session=t.profile.brief_ms + 3_000)
    await stable(a, b)
    assert set((await t.within(a.joins())).members) == {a.id, b.id}
    assert (await a.sync({a: b"a", b: b"b"})).error == "NONE"
    await a.hears("REBALANCE_IN_PROGRESS")
    assert set((await t.within(a.joins())).members) == {a.id}
    assert await b.beat() == "UNKNOWN_MEMBER_ID"


@scenario(108)
async def a_static_member_that_missed_a_round_rejoins_with_its_id(t: Talk) -> None:
    a = Member(t, "a", rebalance=2_000)
    (b,) = static_members(t, "b", rebalance=2_000)
    await stable(a, b)
    assert (await t.within(a.joins())).generation == 3
    assert await b.beat(2) == "ILLEGAL_GENERATION"
    assert (await t.within(b.joins())).generation == 3
    assert (await a.sync({a: b"a", b: b"b"})).error == "NONE"
    assert (await b.sync()).assignment == b"b"


@scenario(109)
async def of_two_processes_with_one_instance_id_the_earlier_is_fenced(t: Talk) -> None:
    a, b = static_members(t, "a", "b")
    await stable(a, b)
    twin, _ = await _restarted(b)
    assert await b.beat() == "FENCED_INSTANCE_ID"
    assert await twin.beat() == "NONE"


@scenario(110)
async def of_every_instance_that_is_started_twice_at_once_one_survives(t: Talk) -> None:
    members = static_members(t, "a", "b", "c")
    await stable(*members)
    pairs = [[twin_of(member), twin_of(member)] for member in members]
    await asyncio.gather(*(t.within(twin.joins("")) for pair in pairs for twin in pair))
    for pair in pairs:
        beats = [await twin.beat() if twin.id else "FENCED_INSTANCE_ID" for twin in pair]
        assert sorted(beats) == ["FENCED_INSTANCE_ID", "NONE"]


@scenario(111)
async def a_rolling_restart_of_static_members_is_no_round(t: Talk) -> None:
    members = static_members(t, "a", "b", "c")
    await stable(*members)
    for member in members:
        twin, joined = await _restarted(member)
        assert joined.generation == 2
        assert (await twin.sync()).assignment == member.name.encode()
    assert await t.state() == "Stable"


@scenario(113)
async def a_static_leader_that_skipped_the_assignment_starts_a_round_when_it_sees_cause(
    t: Talk,
) -> None:
    a, b = static_members(t, "a", "b")
    await stable(a, b)
    twin, joined = await _restarted(a)
    assert joined.skips
    waiting = twin.joins()
    await b.hears("REBALANCE_IN_PROGRESS")
    await rejoin(b)
    joined = await t.within(waiting)
    assert (joined.leader, joined.skips) == (twin.id, False)
    assert set(joined.members) == {twin.id, b.id}


@scenario(114)
async def a_static_member_that_never_rejoins_holds_a_round_for_its_session_at_most(
    t: Talk,
) -> None:
    (a,) = static_members(t, "a", session=t.profile.brief_ms)
    b = Member(t, "b")
    await stable(a, b)
    b.protocols = CHANGED
    assert set((await t.within(b.joins(), 30)).members) == {b.id}
