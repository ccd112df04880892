"""Scenarios over the wire: checks before the group's own, and every version of JoinGroup."""

from __future__ import annotations

from tests.conformance.members import TOPIC, Member
from tests.conformance.registry import raw_frame, scenario
from tests.conformance.talk import Link, Talk, error_of

from kohort.wire.codec import decode_response
from kohort.wire.messages.k03_metadata import MetadataRequest
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.messages.k16_list_groups import ListGroupsRequest
from kohort.wire.messages.k18_api_versions import ApiVersionsResponse


@scenario(2)
async def a_join_with_an_empty_group_id_is_invalid(t: Talk) -> None:
    assert (await Member(t, "a", group="").join()).error == "INVALID_GROUP_ID"


@scenario(3)
async def sync_heartbeat_and_leave_with_an_empty_group_id_are_invalid(t: Talk) -> None:
    a = Member(t, "a", group="")
    assert (await a.sync(member_id="made-up", generation=1)).error == "INVALID_GROUP_ID"
    assert await a.beat(1, "made-up") == "INVALID_GROUP_ID"
    answer = await t.leaves_answer(("made-up", None), group="")
    assert error_of(answer.error_code) == "INVALID_GROUP_ID"


@scenario(4, "one node")
async def a_commit_to_the_empty_group_id_is_stored(t: Talk) -> None:
    t.other_groups.append("")
    assert await t.commit({f"{TOPIC}-0": 41}, group="") == "NONE"
    assert await t.fetched(f"{TOPIC}-0", group="") == {f"{TOPIC}-0": 41}


@scenario(5)
async def a_session_below_the_least_is_refused_and_leaves_no_group(t: Talk) -> None:
    a = Member(t, "a", session=t.profile.least_session_ms - 1)
    assert (await a.join()).error == "INVALID_SESSION_TIMEOUT"
    assert await t.state() == "Dead"


@scenario(6)
async def a_session_above_the_greatest_is_refused_with_the_id_echoed(t: Talk) -> None:
    a = Member(t, "a", session=t.profile.greatest_session_ms + 1)
    joined = await a.join("made-up")
    assert (joined.error, joined.me) == ("INVALID_SESSION_TIMEOUT", "made-up")


@scenario(7)
async def sessions_at_both_ends_are_accepted(t: Talk) -> None:
    for session in (t.profile.least_session_ms, t.profile.greatest_session_ms):
        await Member(t, "a", session=session).knocks()


async def elsewhere(t: Talk) -> Link:
    """A connection to a node that does not coordinate the group."""
    metadata = await t.ask("Metadata", MetadataRequest(topics=[]))
    others = [f"{b.host}:{b.port}" for b in metadata.brokers]
    return await Link.to(next(address for address in others if address != t.address))


@scenario(8, "nodes")
async def another_node_is_not_the_coordinator(t: Talk) -> None:
    link = await elsewhere(t)
    request = HeartbeatRequest(group_id=t.group, generation_id=1, member_id="a")
    answer = await link.ask("Heartbeat", request, 4, "a")
    link.close()
    assert error_of(answer.error_code) == "NOT_COORDINATOR"


@scenario(13, "nodes")
async def a_node_lists_the_groups_that_it_coordinates_and_no_others(t: Talk) -> None:
    assert await t.commit({f"{TOPIC}-0": 1}) == "NONE"
    assert t.group in await t.listed()
    link = await elsewhere(t)
    answer = await link.ask("ListGroups", ListGroupsRequest(), 5, "a")
    link.close()
    assert answer.error_code == 0
    assert t.group not in {group.group_id for group in answer.groups}


@scenario(14)
async def an_api_versions_request_of_an_unknown_version_is_answered_in_version_0(t: Talk) -> None:
    api_versions, unknown, serial = 18, 99, 7
    head = api_versions.to_bytes(2, "big") + unknown.to_bytes(2, "big") + serial.to_bytes(4, "big")
    body = head + b"\x00\x01a" + b"\x00" + b"\x02x" + b"\x02y" + b"\x00"
    answer = await raw_frame(t.address, len(body).to_bytes(4, "big") + body)
    correlation, versions = decode_response(ApiVersionsResponse, 0, answer)
    assert correlation == serial
    assert error_of(versions.error_code) == "UNSUPPORTED_VERSION"
    ranges = {api.api_key: (api.min_version, api.max_version) for api in versions.api_keys}
    assert ranges[api_versions][0] == 0
    assert ranges[api_versions][1] >= 3


@scenario(15)
async def every_version_of_join_group_joins_by_its_own_rules(t: Talk) -> None:
    for version in range(10):
        a = Member(t, "a")
        joined = await a.join(version=version)
        if version >= 4:
            assert joined.error == "MEMBER_ID_REQUIRED"
            joined = await t.within(a.joins(version=version))
        assert joined.error == "NONE"
        # Each leaver makes a generation of its own: 1 and 2, 3 and 4, …
        assert joined.generation == 2 * version + 1
        assert await a.leave() == "NONE"
