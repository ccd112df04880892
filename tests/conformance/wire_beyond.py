"""Scenarios over the wire for promises that Kafka does not make."""

from __future__ import annotations

import asyncio

from tests.conformance.members import TOPIC, Member, Synced, forms, stable
from tests.conformance.registry import scenario
from tests.conformance.talk import Talk

DAMAGED = bytes.fromhex("00000000000100ff74")
"""A subscription with one topic, which announces 255 bytes and has one."""

BRIEF_ROUND_MS = 2_500

P0 = f"{TOPIC}-0"


async def _told(task: asyncio.Task[Synced], seconds: float = 2) -> str:
    """The error that a request was answered with, if it was within some time."""
    done, _ = await asyncio.wait([task], timeout=seconds)
    return str(task.result().error) if done else "never answered"


@scenario(301)
async def of_two_syncs_of_one_member_that_wait_both_are_answered(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await forms(a, b)
    first = b.syncs()
    await t.waits(first)
    second = b.syncs()
    told = await _told(first)
    t.differs("superseded-sync", told, kafka="never answered", kohort="REBALANCE_IN_PROGRESS")
    assert (await a.sync({a: b"1", b: b"2"})).error == "NONE"
    assert (await t.within(second)).assignment == b"2"


@scenario(302)
async def a_leavers_sync_that_waits_is_answered(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await forms(a, b)
    parked = b.syncs()
    await t.waits(parked)
    assert await b.leave() == "NONE"
    told = await _told(parked)
    t.differs("leavers-sync", told, kafka="never answered", kohort="UNKNOWN_MEMBER_ID")


@scenario(303)
async def metadata_that_claims_more_than_it_holds_stops_nobody(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b", protocols={"range": DAMAGED}, session=2_500)
    b.session = max(b.session, t.profile.brief_ms)
    await stable(a)
    damaged = b.joins(version=3)
    await asyncio.sleep(0.5)
    told = (await a.beat(), (await t.within(a.joins())).error)
    t.differs(
        "damaged-metadata",
        told,
        kafka=("REBALANCE_IN_PROGRESS", "UNKNOWN_SERVER_ERROR"),
        kohort=("NONE", "NONE"),
    )
    if t.differences["damaged-metadata"] == "kohort":
        assert (await t.within(damaged)).error == "INCONSISTENT_GROUP_PROTOCOL"


@scenario(304)
async def the_join_phase_does_not_wait_for_a_parked_member_that_lost_its_connection(
    t: Talk,
) -> None:
    brief = max(3_000, t.profile.brief_ms)
    a = Member(t, "a", rebalance=30_000)
    b = Member(t, "b", rebalance=30_000, session=brief)
    await stable(a)
    dying = await b.enters()
    await a.hears("REBALANCE_IN_PROGRESS")
    dying.cancel()
    await asyncio.sleep(1)
    joined = await t.within(a.joins())
    assert joined.generation == 2
    t.differs("dead-connection", len(joined.members), kafka=2, kohort=1)


@scenario(305)
async def a_static_member_that_missed_a_round_and_returns_in_time_costs_no_other(
    t: Talk,
) -> None:
    a, b = (Member(t, n, instance=f"i-{n}", rebalance=BRIEF_ROUND_MS) for n in "ab")
    await stable(a, b)
    assert (await t.within(a.joins())).generation == 3
    assert (await a.sync({a: b"1", b: b"2"})).error == "NONE"
    assert (await b.join("")).generation == 3
    assert (await b.sync()).error == "NONE"
    await asyncio.sleep(BRIEF_ROUND_MS / 1_000 + 0.5)
    t.differs("missed-round", await a.beat(), kafka="REBALANCE_IN_PROGRESS", kohort="NONE")


@scenario(306, "a size")
async def a_static_member_that_returns_to_a_full_group_takes_its_own_place(t: Talk) -> None:
    crowd = [Member(t, f"m{n}", instance=f"i-{n}") for n in range(t.profile.max_size)]
    await stable(*crowd)
    joined = await t.within(crowd[-1].joins(""))
    t.differs("static-in-a-full-group", joined.error, kafka="GROUP_MAX_SIZE_REACHED", kohort="NONE")


@scenario(307)
async def a_static_member_with_much_metadata_may_return(t: Talk) -> None:
    a, b = (Member(t, n, instance=f"i-{n}", protocol_type="own") for n in "ab")
    await stable(a, b)
    former = b.id
    b.protocols = {"range": bytes(1_100_000)}
    joined = await t.within(b.joins(""))
    t.differs(
        "large-metadata",
        joined.error,
        kafka="UNKNOWN_SERVER_ERROR",
        kohort="GROUP_MAX_SIZE_REACHED",
    )
    assert await b.beat(member_id=former) == "NONE"


@scenario(308)
async def a_member_that_lost_its_connection_in_a_parked_sync_is_removed_after_its_session(
    t: Talk,
) -> None:
    a, b = Member(t, "a"), Member(t, "b", session=t.profile.brief_ms)
    await forms(a, b)
    parked = b.syncs()
    await t.waits(parked)
    parked.cancel()
    await asyncio.sleep(t.profile.brief_ms / 1_000 + 2)
    t.differs("dead-sync", await a.beat(), kafka="NONE", kohort="REBALANCE_IN_PROGRESS")


@scenario(309)
async def a_commit_that_its_sender_has_overtaken_takes_nothing_back(t: Talk) -> None:
    a = Member(t, "a")
    await stable(a)
    former, present = await t.opens(), await t.opens()
    assert await a.commit(41, over=former) == "NONE"
    assert await a.commit(53, over=present) == "NONE"
    told = await a.commit(42, over=former)
    t.differs("overtaken-commit", told, kafka="NONE", kohort="REQUEST_TIMED_OUT")
    kept = 42 if t.differences["overtaken-commit"] == "kafka" else 53
    assert await t.fetched(P0) == {P0: kept}
    assert await a.commit(54, over=former) == "NONE"
    assert await a.commit(42, over=present) == "NONE"
    assert await t.fetched(P0) == {P0: 42}
