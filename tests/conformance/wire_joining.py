"""Scenarios over the wire: new members that join."""

from __future__ import annotations

from tests.conformance.members import OTHER_TOPIC, TOPIC, Member, forms, stable, subscription
from tests.conformance.registry import scenario
from tests.conformance.talk import Talk


@scenario(16)
async def a_stranger_is_given_an_id_of_its_clients_name_to_join_again_with(t: Talk) -> None:
    a = Member(t, "a")
    joined = await a.join()
    assert joined.error == "MEMBER_ID_REQUIRED"
    assert joined.me.startswith("a-")
    assert len(joined.me) > len("a-")
    assert joined.generation == -1
    assert await t.state() == "Empty"


@scenario(17)
async def the_id_that_was_handed_out_joins_and_leads_generation_1(t: Talk) -> None:
    a = Member(t, "a")
    await a.knocks()
    joined = await t.within(a.joins())
    assert joined.error == "NONE"
    assert joined.generation == 1
    assert joined.leader == joined.me == a.id
    assert joined.members == {a.id: subscription(TOPIC)}


@scenario(18)
async def a_stranger_with_version_3_joins_in_one_step(t: Talk) -> None:
    joined = await t.within(Member(t, "a").joins(version=3))
    assert (joined.error, joined.generation) == ("NONE", 1)
    assert joined.me.startswith("a-")


@scenario(19)
async def a_static_stranger_joins_in_one_step_under_its_instances_name(t: Talk) -> None:
    joined = await t.within(Member(t, "a", instance="i-a").joins(version=5))
    assert joined.error == "NONE"
    assert joined.me.startswith("i-a-")


@scenario(20)
async def a_made_up_id_is_unknown_and_makes_no_group(t: Talk) -> None:
    joined = await Member(t, "a").join("made-up")
    assert (joined.error, joined.me) == ("UNKNOWN_MEMBER_ID", "made-up")
    assert await t.state() == "Dead"


@scenario(21)
async def a_made_up_id_is_unknown_to_a_group_that_exists(t: Talk) -> None:
    await stable(Member(t, "a"))
    joined = await Member(t, "b").join("made-up")
    assert (joined.error, joined.me) == ("UNKNOWN_MEMBER_ID", "made-up")


@scenario(22)
async def a_first_join_without_a_protocol_type_is_inconsistent(t: Talk) -> None:
    joined = await Member(t, "a", protocol_type="").join()
    assert joined.error == "INCONSISTENT_GROUP_PROTOCOL"
    t.differs("refused-first-join", await t.state(), kafka="Empty", kohort="Dead")


@scenario(23)
async def a_first_join_without_protocols_is_inconsistent(t: Talk) -> None:
    joined = await Member(t, "a", protocols={}).join()
    assert joined.error == "INCONSISTENT_GROUP_PROTOCOL"
    t.differs("refused-first-join", await t.state(), kafka="Empty", kohort="Dead")


@scenario(24)
async def a_join_of_another_protocol_type_is_inconsistent(t: Talk) -> None:
    await stable(Member(t, "a"))
    joined = await Member(t, "b", protocol_type="connect").join()
    assert joined.error == "INCONSISTENT_GROUP_PROTOCOL"


@scenario(25)
async def a_join_that_shares_no_protocol_is_inconsistent(t: Talk) -> None:
    await stable(Member(t, "a"), Member(t, "b"))
    joined = await Member(t, "c", protocols="roundrobin").join()
    assert joined.error == "INCONSISTENT_GROUP_PROTOCOL"


@scenario(26)
async def a_protocol_that_only_some_members_support_is_not_enough(t: Talk) -> None:
    await stable(Member(t, "a"), Member(t, "b", protocols="range roundrobin"))
    joined = await Member(t, "c", protocols="roundrobin").join()
    assert joined.error == "INCONSISTENT_GROUP_PROTOCOL"


@scenario(27)
async def a_client_that_was_inconsistent_may_come_again_with_a_shared_protocol(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b", protocols="roundrobin")
    await stable(a)
    assert (await b.join()).error == "INCONSISTENT_GROUP_PROTOCOL"
    b.protocols = "roundrobin range"
    waiting = await b.enters()
    await a.hears("REBALANCE_IN_PROGRESS")
    assert (await t.within(a.joins())).error == "NONE"
    assert (await t.within(waiting)).error == "NONE"


@scenario(28)
async def a_refused_join_names_no_protocol_as_its_version_says_it(t: Talk) -> None:
    told = {}
    for version in (5, 6, 7, 9):
        joined = await Member(t, "a").join("made-up", version=version)
        assert joined.error == "UNKNOWN_MEMBER_ID"
        told[version] = (joined.protocol_type, joined.protocol)
    assert told == {5: (None, ""), 6: (None, ""), 7: (None, None), 9: (None, None)}


@scenario(30)
async def only_the_leader_is_told_the_members_with_their_metadata_for_the_protocol(
    t: Talk,
) -> None:
    mine = {"range": subscription(TOPIC), "roundrobin": subscription(OTHER_TOPIC)}
    a, b = Member(t, "a", protocols=mine), Member(t, "b", protocols={"range": subscription()})
    waiting = await a.enters()
    assert (await t.within(waiting)).protocol in {"range", "roundrobin"}
    other = await b.enters()
    await a.hears("REBALANCE_IN_PROGRESS")
    leader, follower = await t.within(a.joins()), await t.within(other)
    assert leader.protocol == follower.protocol == "range"
    assert leader.members == {a.id: subscription(TOPIC), b.id: subscription()}
    assert follower.members == {}
    assert leader.leader == follower.leader == a.id


@scenario(31)
async def a_stranger_at_a_stable_group_gets_an_id_and_nothing_else_happens(t: Talk) -> None:
    a = Member(t, "a")
    await stable(a)
    await Member(t, "b").knocks()
    assert await t.state() == "Stable"
    assert await a.beat() == "NONE"


@scenario(32)
async def the_second_join_of_a_new_member_starts_a_rebalance_that_heartbeats_report(
    t: Talk,
) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a)
    await b.knocks()
    waiting = b.joins()
    await a.hears("REBALANCE_IN_PROGRESS")
    assert await t.state() == "PreparingRebalance"
    await t.waits(waiting)


@scenario(33)
async def inconsistent_protocols_are_seen_before_an_unknown_id(t: Talk) -> None:
    await stable(Member(t, "a"))
    joined = await Member(t, "b", protocols="other").join("made-up")
    assert joined.error == "INCONSISTENT_GROUP_PROTOCOL"


@scenario(81)
async def a_protocol_that_all_prefer_is_chosen(t: Talk) -> None:
    assert await _chosen(t, "range rr", "range rr") == "range"


@scenario(82)
async def a_protocol_that_most_prefer_is_chosen(t: Talk) -> None:
    assert await _chosen(t, "range rr", "rr range", "rr range") == "rr"


@scenario(83)
async def on_a_tie_either_protocol_is_chosen(t: Talk) -> None:
    assert await _chosen(t, "a b", "b a") in {"a", "b"}


@scenario(84)
async def the_only_common_protocol_is_chosen(t: Talk) -> None:
    assert await _chosen(t, "a b c", "b d") == "b"


async def _chosen(t: Talk, *offers: str) -> str | None:
    members = [Member(t, f"m{n}", protocols=offer) for n, offer in enumerate(offers)]
    await forms(*members)
    assert len({member.protocol for member in members}) == 1
    return members[0].protocol


@scenario(85)
async def a_protocol_may_win_again_once_the_member_without_it_is_gone(t: Talk) -> None:
    a, b = Member(t, "a", protocols="x y"), Member(t, "b", protocols="y")
    await stable(a, b)
    assert a.protocol == "y"
    assert await b.leave() == "NONE"
    assert (await t.within(a.joins())).protocol == "x"


@scenario(86)
async def a_rolling_change_of_protocol_works_at_every_step(t: Talk) -> None:
    a, b = Member(t, "a", protocols="old"), Member(t, "b", protocols="old")
    await stable(a, b)
    for member, offer, chosen in (
        (a, "new old", "old"),
        (b, "new old", "new"),
        (a, "new", "new"),
        (b, "new", "new"),
    ):
        member.protocols = offer
        changed = member.joins()
        other = b if member is a else a
        await other.hears("REBALANCE_IN_PROGRESS")
        joined = await t.within(other.joins())
        assert (joined.error, joined.protocol) == ("NONE", chosen)
        assert (await t.within(changed)).protocol == chosen
        leader, follower = (a, b) if joined.leader == a.id else (b, a)
        waiting = follower.syncs()
        assert (await leader.sync({a: b"a", b: b"b"})).error == "NONE"
        assert (await t.within(waiting)).error == "NONE"


@scenario(87)
async def a_member_that_drops_the_only_common_protocol_is_inconsistent(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    b.protocols = "other"
    assert (await b.join()).error == "INCONSISTENT_GROUP_PROTOCOL"
    assert await b.beat() == "NONE"
    assert await a.beat() == "NONE"
