"""Scenarios over the wire: groups described, listed, found and deleted."""

from __future__ import annotations

from tests.conformance.members import TOPIC, Member, forms, stable, subscription
from tests.conformance.registry import scenario
from tests.conformance.talk import Talk, error_of

from kohort.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.k15_describe_groups import DescribeGroupsRequest
from kohort.wire.messages.k16_list_groups import ListGroupsRequest

NOT_ASKED = -(2**31)


@scenario(172)
async def an_absent_group_is_dead_to_old_clients_and_an_error_to_new_ones(t: Talk) -> None:
    old = await t.described(version=5)
    assert (old.group_state, error_of(old.error_code)) == ("Dead", "NONE")
    new = await t.described(version=6)
    assert (new.group_state, error_of(new.error_code)) == ("Dead", "GROUP_ID_NOT_FOUND")
    assert t.group in new.error_message


@scenario(173)
async def a_stable_group_shows_its_protocol_and_everybodys_bytes(t: Talk) -> None:
    bytes_of = {"a": subscription(TOPIC) + b"\x00tail", "b": subscription(TOPIC)}
    a, b = (Member(t, n, protocols={"range": m, "x": m + b"x"}) for n, m in bytes_of.items())
    await stable(a, b)
    described = await t.described()
    assert described.group_state == "Stable"
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    told = {m.member_id: (m.member_metadata, m.member_assignment) for m in described.members}
    assert told == {a.id: (bytes_of["a"], b"a"), b.id: (bytes_of["b"], b"b")}


@scenario(174)
async def a_group_in_a_round_shows_neither_protocol_nor_metadata(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    a.joins()
    await b.hears("REBALANCE_IN_PROGRESS")
    described = await t.described()
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert {m.member_metadata for m in described.members} == {b""}


@scenario(175)
async def a_members_host_begins_with_a_slash_and_its_client_id_is_as_sent(t: Talk) -> None:
    await stable(Member(t, "some client"))
    (member,) = (await t.described()).members
    assert member.client_host.startswith("/")
    assert member.client_id == "some client"


@scenario(176)
async def an_emptied_group_with_offsets_keeps_its_protocol_type(t: Talk) -> None:
    a = Member(t, "a")
    await stable(a)
    assert await a.commit() == "NONE"
    assert await a.leave() == "NONE"
    described = await t.described()
    assert (described.group_state, described.protocol_type) == ("Empty", "consumer")


@scenario(177, "one node")
async def every_group_asked_about_is_described_once(t: Talk) -> None:
    await stable(Member(t, "a"))
    names = [f"{t.group}-absent", t.group, f"{t.group}-also-absent"]
    answer = await t.ask("DescribeGroups", DescribeGroupsRequest(groups=names), 5)
    assert len(answer.groups) == len(names)
    states = {group.group_id: group.group_state for group in answer.groups}
    assert states == dict(zip(names, ["Dead", "Stable", "Dead"], strict=True))


@scenario(178)
async def a_group_of_offsets_alone_is_listed_without_a_protocol_type(t: Talk) -> None:
    assert await t.commit({f"{TOPIC}-0": 1}) == "NONE"
    assert (await t.listed())[t.group].protocol_type == ""


@scenario(179)
async def lists_are_filtered_by_state_whatever_the_case(t: Talk) -> None:
    a = Member(t, "a")
    await stable(a)
    for states, is_there in ((["Stable"], True), (["sTABLE"], True), (["Empty"], False)):
        assert (t.group in await t.listed(*states)) is is_there
    assert await a.leave() == "NONE"
    for states, is_there in ((["Stable"], False), (["Stable", "empty"], True)):
        assert (t.group in await t.listed(*states)) is is_there


@scenario(180)
async def an_unknown_state_lists_nothing(t: Talk) -> None:
    await stable(Member(t, "a"))
    assert await t.listed("Wobbly") == {}


@scenario(181)
async def lists_are_filtered_by_type_whatever_the_case(t: Talk) -> None:
    await stable(Member(t, "a"))
    assert (await t.listed(types=("classic",)))[t.group].group_type == "classic"
    assert t.group in await t.listed(types=("CLASSIC", "consumer"))
    assert t.group not in await t.listed(types=("consumer",))


@scenario(182)
async def version_3_of_the_list_tells_no_state(t: Talk) -> None:
    await stable(Member(t, "a"))
    answer = await t.ask("ListGroups", ListGroupsRequest(), 3)
    assert {g.group_state for g in answer.groups if g.group_id == t.group} == {""}
    assert (await t.listed())[t.group].group_state == "Stable"


@scenario(183)
async def every_version_of_find_coordinator_names_the_same_node(t: Talk) -> None:
    found = set()
    for version in range(4):
        one = await t.ask("FindCoordinator", FindCoordinatorRequest(key=t.group), version)
        assert one.error_code == 0
        found.add((one.node_id, one.host, one.port))
    keys = [t.group, f"{t.group}-another"]
    batch = await t.ask("FindCoordinator", FindCoordinatorRequest(coordinator_keys=keys), 4)
    assert [one.key for one in batch.coordinators] == keys
    assert {(one.node_id, one.host, one.port) for one in batch.coordinators[:1]} == found


@scenario(184)
async def an_unknown_type_of_coordinator_is_an_invalid_request(t: Talk) -> None:
    request = FindCoordinatorRequest(coordinator_keys=[t.group], key_type=9)
    answer = await t.ask("FindCoordinator", request)
    assert {error_of(one.error_code) for one in answer.coordinators} == {"INVALID_REQUEST"}


@scenario(185, "one node")
async def operations_that_nobody_asked_about_are_the_least_number(t: Talk) -> None:
    await forms(Member(t, "a"))
    assert (await t.described()).authorized_operations == NOT_ASKED
    request = DescribeGroupsRequest(
        groups=[t.group, f"{t.group}-absent"], include_authorized_operations=True
    )
    operations = {}
    for version in (3, 5, 6):
        answer = await t.ask("DescribeGroups", request, version)
        operations[version] = {
            g.group_id == t.group: g.authorized_operations for g in answer.groups
        }
    everything = 0b1101_0100_1000  # Alter and describe configs, describe, delete, read.
    assert operations[3] == operations[5] == {True: everything, False: everything}
    assert operations[6] == {True: everything, False: NOT_ASKED}


@scenario(221)
async def only_a_group_that_exists_and_is_empty_can_be_deleted(t: Talk) -> None:
    assert await t.delete() == ["GROUP_ID_NOT_FOUND"]
    a = Member(t, "a")
    await stable(a)
    assert await a.commit() == "NONE"
    assert await t.delete() == ["NON_EMPTY_GROUP"]
    assert await a.leave() == "NONE"
    assert await t.delete() == ["NONE"]
    assert t.group not in await t.listed()


@scenario(222, "one node")
async def of_groups_deleted_together_each_has_its_own_error(t: Talk) -> None:
    await stable(Member(t, "a"))
    simple = f"{t.group}-simple"
    t.other_groups.append(simple)
    assert await t.commit({f"{TOPIC}-0": 1}, group=simple) == "NONE"
    errors = await t.delete(f"{t.group}-absent", t.group, simple)
    assert errors == ["GROUP_ID_NOT_FOUND", "NON_EMPTY_GROUP", "NONE"]


@scenario(223)
async def a_deleted_group_has_no_offsets_and_starts_over(t: Talk) -> None:
    a = Member(t, "a")
    await stable(a)
    assert await a.commit() == "NONE"
    assert await a.leave() == "NONE"
    assert await t.delete() == ["NONE"]
    assert await t.fetched(f"{TOPIC}-0") == {f"{TOPIC}-0": -1}
    assert (await t.within(await Member(t, "b").enters())).generation == 1
