"""Scenarios over the wire: offsets committed, fetched, deleted, expired."""

from __future__ import annotations

from tests.conformance.members import (
    OTHER_TOPIC,
    TOPIC,
    Member,
    forms,
    rejoin,
    settles,
    stable,
    subscription,
)
from tests.conformance.registry import scenario
from tests.conformance.talk import Talk, commit_of, error_of, frame_of, told
from tests.conformance.wire_checks import elsewhere

from kohort.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kohort.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.k20_delete_topics import DeleteTopicsRequest

P0, P1, Q0 = f"{TOPIC}-0", f"{TOPIC}-1", f"{OTHER_TOPIC}-0"
ABSENT = "kohort-conformance-absent-0"


@scenario(186)
async def a_commit_without_membership_makes_a_simple_group(t: Talk) -> None:
    assert await t.commit({P0: 41}) == "NONE"
    assert await t.fetched(P0) == {P0: 41}
    listed = (await t.listed())[t.group]
    assert (listed.protocol_type, listed.group_state) == ("", "Empty")


@scenario(187)
async def a_members_commit_to_an_absent_group_gets_an_error_that_its_client_knows(
    t: Talk,
) -> None:
    for version, error in ((9, "GROUP_ID_NOT_FOUND"), (8, "ILLEGAL_GENERATION")):
        told = await t.commit({P0: 1}, member_id="made-up", generation=5, version=version)
        assert told == error


@scenario(188)
async def a_stable_members_commit_is_stored(t: Talk) -> None:
    a = Member(t, "a")
    await stable(a)
    assert await a.commit(41) == "NONE"
    assert await t.fetched(P0) == {P0: 41}


@scenario(189)
async def a_commit_of_another_generation_is_illegal(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    assert await a.commit(generation=1) == "ILLEGAL_GENERATION"
    assert await a.commit(generation=3) == "ILLEGAL_GENERATION"


@scenario(190)
async def a_commit_of_a_stranger_is_refused(t: Talk) -> None:
    await stable(Member(t, "a"))
    assert await t.commit({P0: 1}, member_id="made-up", generation=1) == "UNKNOWN_MEMBER_ID"


@scenario(191)
async def a_commit_without_membership_to_a_live_group_is_refused(t: Talk) -> None:
    await stable(Member(t, "a"))
    assert await t.commit({P0: 1}) == "UNKNOWN_MEMBER_ID"


@scenario(192)
async def a_commit_while_the_plan_is_awaited_has_to_wait(t: Talk) -> None:
    a = Member(t, "a")
    await forms(a)
    assert await a.commit() == "REBALANCE_IN_PROGRESS"


@scenario(193)
async def a_commit_while_members_join_is_stored(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    a.joins()
    await b.hears("REBALANCE_IN_PROGRESS")
    assert await b.commit(41) == "NONE"
    assert await a.commit(42) == "NONE"
    assert await t.fetched(P0) == {P0: 42}


@scenario(194)
async def a_commit_without_membership_to_an_emptied_group_is_stored(t: Talk) -> None:
    a = Member(t, "a")
    await stable(a)
    assert await a.leave() == "NONE"
    assert await t.commit({P0: 41}) == "NONE"


@scenario(195)
async def a_commit_with_a_generation_to_an_emptied_group_is_refused(t: Talk) -> None:
    a = Member(t, "a")
    await stable(a)
    assert await a.leave() == "NONE"
    assert await a.commit() == "UNKNOWN_MEMBER_ID"


@scenario(196)
async def a_commit_of_a_fenced_instance_is_refused(t: Talk) -> None:
    a, b = (Member(t, name, instance=f"i-{name}") for name in "ab")
    await stable(a, b)
    former = b.id
    assert (await b.join("")).error == "NONE"
    assert await b.commit(member_id=former) == "FENCED_INSTANCE_ID"
    assert await b.commit() == "NONE"


@scenario(197)
async def metadata_may_have_4096_bytes_and_the_rest_is_stored(t: Talk) -> None:
    assert await t.commit({P0: 1}, metadata="m" * 4_096) == "NONE"
    assert (await t.fetched_whole(P0))[P0].metadata == "m" * 4_096
    assert await t.commit({P0: 2}, metadata="m" * 4_097) == "OFFSET_METADATA_TOO_LARGE"
    assert await t.fetched(P0) == {P0: 1}


@scenario(198)
async def null_metadata_is_read_back_as_empty(t: Talk) -> None:
    assert await t.commit({P0: 1}, metadata=None) == "NONE"
    assert (await t.fetched_whole(P0))[P0].metadata == ""


@scenario(199)
async def an_unknown_topic_is_refused_and_the_others_are_stored(t: Talk) -> None:
    told = await t.commit({P0: 1, ABSENT: 2, Q0: 3})
    assert sorted(told.split()) == ["NONE", "NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert await t.fetched() == {P0: 1, Q0: 3}


@scenario(200)
async def a_leader_epoch_comes_back(t: Talk) -> None:
    assert await t.commit({P0: 1}, epoch=5) == "NONE"
    assert await t.commit({P1: 1}) == "NONE"
    told = await t.fetched_whole(P0, P1)
    assert [told[p].committed_leader_epoch for p in (P0, P1)] == [5, -1]


@scenario(201)
async def a_lower_offset_is_stored_too(t: Talk) -> None:
    for offset in (50, 20):
        assert await t.commit({P0: offset}) == "NONE"
    assert await t.fetched(P0) == {P0: 20}


@scenario(203, "sweeps")
async def a_retention_time_of_an_old_commit_ends_its_offset(t: Talk) -> None:
    assert await t.commit({P0: 1}, retention=1_000, version=4) == "NONE"
    assert await t.fetched(P0) == {P0: 1}

    async def is_gone() -> bool:
        return await t.fetched(P0) == {P0: -1}

    await t.until("the offset's end", is_gone)


@scenario(204, "one node")
async def groups_do_not_share_offsets(t: Talk) -> None:
    other = f"{t.group}-other"
    t.other_groups.append(other)
    assert await t.commit({P0: 1}) == "NONE"
    assert await t.commit({P0: 2}, group=other) == "NONE"
    assert (await t.fetched(P0), await t.fetched(P0, group=other)) == ({P0: 1}, {P0: 2})


@scenario(207)
async def every_partition_of_a_large_commit_is_stored_or_refused(t: Talk) -> None:
    offsets = {f"{topic}-{n}": n for topic in (TOPIC, OTHER_TOPIC) for n in range(8)}
    known = {name: n for name, n in offsets.items() if n < 4}
    told = (await t.commit(offsets)).split()
    assert told.count("NONE") == len(known)
    assert told.count("UNKNOWN_TOPIC_OR_PARTITION") == len(offsets) - len(known)
    assert await t.fetched() == known


@scenario(208)
async def an_unknown_group_has_nothing_and_that_is_no_error(t: Talk) -> None:
    assert await t.fetched(P0, P1) == {P0: -1, P1: -1}
    assert await t.fetched() == {}


@scenario(209)
async def without_topics_everything_is_fetched_once(t: Talk) -> None:
    assert await t.commit({P0: 1, P1: 2, Q0: 3}) == "NONE"
    assert await t.fetched() == {P0: 1, P1: 2, Q0: 3}


@scenario(210)
async def a_partition_never_committed_has_neither_offset_nor_epoch_nor_metadata(
    t: Talk,
) -> None:
    assert await t.commit({P0: 1}) == "NONE"
    never = (await t.fetched_whole(P1))[P1]
    told = (never.committed_offset, never.committed_leader_epoch, never.metadata)
    assert told == (-1, -1, "")


@scenario(211, "one node")
async def two_groups_are_fetched_in_one_request(t: Talk) -> None:
    assert await t.commit({P0: 1}) == "NONE"
    asked = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
    names = [t.group, f"{t.group}-absent"]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=asked) for name in names]
    )
    answer = await t.ask("OffsetFetch", request, 8)
    assert [group.error_code for group in answer.groups] == [0, 0]
    told = {g.group_id: g.topics[0].partitions[0].committed_offset for g in answer.groups}
    assert told == {names[0]: 1, names[1]: -1}


@scenario(214)
async def offsets_are_served_during_a_round(t: Talk) -> None:
    a, b = Member(t, "a"), Member(t, "b")
    await stable(a, b)
    assert await a.commit(41) == "NONE"
    a.joins()
    await b.hears("REBALANCE_IN_PROGRESS")
    assert await t.fetched(P0) == {P0: 41}


@scenario(215)
async def a_deleted_group_has_no_offsets(t: Talk) -> None:
    assert await t.commit({P0: 41}) == "NONE"
    assert await t.delete() == ["NONE"]
    assert await t.fetched(P0) == {P0: -1}


# -- deleting ----------------------------------------------------------------------------------


async def _deleted(t: Talk, *partitions: str) -> list[str]:
    answer = await t.delete_offsets(*partitions)
    assert answer.error_code == 0
    return [error_of(p.error_code) for topic in answer.topics for p in topic.partitions]


@scenario(216)
async def offsets_of_an_empty_group_can_be_deleted(t: Talk) -> None:
    assert await t.commit({P0: 1, P1: 2}) == "NONE"
    assert await _deleted(t, P0) == ["NONE"]
    assert await t.fetched(P0, P1) == {P0: -1, P1: 2}


@scenario(217)
async def offsets_of_a_topic_that_a_live_consumer_reads_stay(t: Talk) -> None:
    a = Member(t, "a")
    await stable(a)
    told = await t.commit({P0: 1, Q0: 2}, member_id=a.id, generation=a.generation)
    assert told == "NONE"
    assert await _deleted(t, P0) == ["GROUP_SUBSCRIBED_TO_TOPIC"]
    assert await _deleted(t, Q0) == ["NONE"]
    assert await t.fetched(P0, Q0) == {P0: 1, Q0: -1}


@scenario(218)
async def offsets_of_a_live_group_of_another_type_stay(t: Talk) -> None:
    await stable(Member(t, "a", protocol_type="connect"))
    answer = await t.delete_offsets(P0)
    assert error_of(answer.error_code) == "NON_EMPTY_GROUP"


@scenario(219)
async def offsets_of_absent_and_unnamed_groups_cannot_be_deleted(t: Talk) -> None:
    for group, error in ((t.group, "GROUP_ID_NOT_FOUND"), ("", "INVALID_GROUP_ID")):
        answer = await t.delete_offsets(P0, group=group)
        assert error_of(answer.error_code) == error


@scenario(220)
async def deleting_an_offset_that_is_not_there_is_no_error(t: Talk) -> None:
    assert await t.commit({P0: 1}) == "NONE"
    assert await _deleted(t, P1) == ["NONE"]


# -- what ends by itself -----------------------------------------------------------------------


@scenario(227, "sweeps")
async def offsets_of_topics_no_longer_read_end_and_the_group_stays(t: Talk) -> None:
    both = {"range": subscription(TOPIC, OTHER_TOPIC)}
    a = Member(t, "a", instance="i-a", protocols=both)
    await stable(a)
    told = await t.commit(
        {Q0: 1}, member_id=a.id, generation=a.generation, retention=1_000, version=4
    )
    assert told == "NONE"
    assert await a.commit(2) == "NONE"
    a.protocols = {"range": subscription(TOPIC)}
    await rejoin(a)
    await settles(a)

    async def is_gone() -> bool:
        return await t.fetched(P0, Q0) == {P0: 2, Q0: -1}

    await t.until("the offset's end", is_gone)
    assert await a.beat() == "NONE"


@scenario(231, "sweeps")
async def an_explicit_end_stands_over_the_retention_of_the_group(t: Talk) -> None:
    assert await t.commit({P0: 1}, retention=1_000, version=4) == "NONE"
    assert await t.commit({P1: 2}) == "NONE"

    async def is_gone() -> bool:
        return await t.fetched(P0, P1) == {P0: -1, P1: 2}

    await t.until("the offset's end", is_gone)


@scenario(233, "sweeps")
async def a_group_without_members_and_offsets_goes_at_the_next_sweep(t: Talk) -> None:
    a = Member(t, "a", instance="i-a")
    await stable(a)
    assert await a.leave() == "NONE"

    async def is_gone() -> bool:
        return t.group not in await t.listed()

    await t.until("the group's end", is_gone)
    assert await t.state() == "Dead"


@scenario(234)
async def offsets_of_a_deleted_topic_go(t: Talk) -> None:
    doomed = f"{t.group}-topic"
    topics = [CreatableTopic(name=doomed, num_partitions=1, replication_factor=-1)]
    await t.ask("CreateTopics", CreateTopicsRequest(topics=topics, timeout_ms=30_000))

    async def is_stored() -> bool:
        return await t.commit({f"{doomed}-0": 1, P0: 2}) == "NONE"

    await t.until("the topic", is_stored)
    await t.ask("DeleteTopics", DeleteTopicsRequest(topic_names=[doomed], timeout_ms=30_000))

    async def is_gone() -> bool:
        return await t.fetched() == {P0: 2}

    await t.until("the offset's end", is_gone)


@scenario(212, "nodes")
async def an_error_of_a_group_is_told_as_the_version_can(t: Talk) -> None:
    link = await elsewhere(t)
    topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
    request = OffsetFetchRequest(group_id=t.group, topics=[topic])
    old = await link.ask("OffsetFetch", request, 1, "a")
    assert error_of(old.topics[0].partitions[0].error_code) == "NOT_COORDINATOR"
    new = await link.ask("OffsetFetch", request, 2, "a")
    assert error_of(new.error_code) == "NOT_COORDINATOR"
    link.close()


@scenario(310)
async def a_fetch_sent_behind_a_commit_without_waiting_reads_what_it_wrote(t: Talk) -> None:
    assert await t.commit({P0: 1}) == "NONE"
    link = await t.opens()
    wanted = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
    for offset in (41, 42):
        link.send(
            frame_of("OffsetCommit", commit_of(t.group, {P0: offset}))
            + frame_of("OffsetFetch", OffsetFetchRequest(group_id=t.group, topics=wanted))
        )
    read = []
    for _ in range(2):
        told(await link.frame(), "OffsetCommit")
        answer = told(await link.frame(), "OffsetFetch")
        read.append(answer.topics[0].partitions[0].committed_offset)
    assert read == [41, 42]
