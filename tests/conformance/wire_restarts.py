"""Scenarios over the wire: restarts of the broker. All scenarios share one restart."""

from __future__ import annotations

import time

from tests.conformance.members import TOPIC, Member, stable
from tests.conformance.registry import scenario
from tests.conformance.talk import Talk
from tests.conformance.wire_static import static_members, twin_of


@scenario(112, "a restart")
async def after_a_reload_the_new_id_of_a_static_member_is_the_known_one(t: Talk) -> None:
    (a,) = static_members(t, "a")
    await stable(a)
    twin = twin_of(a)
    assert (await t.within(twin.joins(""))).error == "NONE"
    await t.restarted()
    assert await twin.beat() == "NONE"
    assert await a.beat() == "FENCED_INSTANCE_ID"


@scenario(115, "a restart")
async def static_members_are_known_by_their_instances_right_after_loading(t: Talk) -> None:
    a, b = static_members(t, "a", "b")
    await stable(a, b)
    await t.restarted()
    twin = twin_of(b)
    joined = await t.within(twin.joins(""))
    assert (joined.error, joined.generation, joined.leader) == ("NONE", b.generation, a.id)
    assert joined.me != b.id
    assert await a.beat() == "NONE"


@scenario(235, "a restart")
async def a_stable_group_comes_back_from_a_restart_with_members_and_assignments(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    assert await a.commit(7) == "NONE"
    await t.restarted()
    described = await t.described()
    assert described.group_state == "Stable"
    assigned = {m.member_id: bytes(m.member_assignment) for m in described.members}
    assert assigned == {a.id: b"a", b.id: b"b"}
    assert [await a.beat(), await b.beat()] == ["NONE", "NONE"]
    assert (await b.sync()).assignment == b"b"
    assert await t.fetched(f"{TOPIC}-0") == {f"{TOPIC}-0": 7}


@scenario(236, "a restart")
async def members_that_do_not_come_back_expire_a_whole_session_after_the_restart(t: Talk) -> None:
    a = Member(t, "a", session=t.profile.brief_ms)
    await stable(a)
    stopped_at = await t.restarted()
    await t.until_state("Empty")
    assert time.monotonic() - stopped_at >= t.profile.brief_ms / 1_000


@scenario(237, "a restart")
async def a_restart_before_the_plan_was_written_brings_the_last_written_generation_back(
    t: Talk,
) -> None:
    a = Member(t, "a")
    await stable(a)
    assert (await t.within(a.joins())).generation == 2
    await t.restarted()
    assert await t.state() == "Stable"
    assert [await a.beat(1), await a.beat(2)] == ["NONE", "ILLEGAL_GENERATION"]


@scenario(238, "a restart")
async def ids_that_were_only_handed_out_are_unknown_after_a_restart(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a)
    await b.knocks()
    await t.restarted()
    assert (await t.within(b.joins())).error == "UNKNOWN_MEMBER_ID"
    assert await a.beat() == "NONE"


@scenario(242, "a restart")
async def a_group_with_a_tombstone_in_the_log_is_absent_after_a_restart(t: Talk) -> None:
    assert await t.commit({f"{TOPIC}-0": 5}) == "NONE"
    assert await t.delete() == ["NONE"]
    await t.restarted()
    assert await t.state() == "Dead"
    assert await t.fetched() == {}
