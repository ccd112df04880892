"""Requests about offsets on one connection are served one after another, as Kafka serves all."""

from __future__ import annotations

from tests.engine.coordinator_bench import Bench, Client, commit_request, stable

from kohort.model.errors import ErrorCode
from kohort.model.ids import Ticket
from kohort.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.messages.k42_delete_groups import DeleteGroupsRequest
from kohort.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

NO_OFFSET = -1


def commit(client: Client, offset: int) -> bytes:
    request = commit_request()
    request.topics[0].partitions[0].committed_offset = offset
    return client.frame("OffsetCommit", request)


def fetch(client: Client) -> bytes:
    topic = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    return client.frame("OffsetFetch", OffsetFetchRequest(group_id="g", topics=[topic]))


def fetched(client: Client) -> list[int]:
    return [
        answer.topics[0].partitions[0].committed_offset
        for answer in client.answers
        if type(answer).__name__ == "OffsetFetchResponse"
    ]


def committed() -> tuple[Bench, Client]:
    """A client, and a group without members that has offset 5."""
    bench = Bench()
    client = bench.client("c", OffsetFetch=7, OffsetCommit=9)
    client.push(commit(client, 5))
    bench.written()
    return bench, client


def test_a_fetch_behind_an_unanswered_commit_of_its_connection_reads_its_offsets() -> None:
    bench, client = committed()
    client.push(commit(client, 6) + fetch(client))
    assert fetched(client) == []
    bench.written()
    assert fetched(client) == [6]


def test_each_fetch_reads_the_commits_before_it_and_none_behind_it() -> None:
    bench, client = committed()
    client.push(commit(client, 6) + fetch(client))
    client.push(commit(client, 7))
    client.push(fetch(client) + commit(client, 8))
    bench.written()
    assert fetched(client) == [6, 7]
    assert len(client.answers) == 6


def test_a_fetch_of_another_connection_does_not_wait() -> None:
    bench, client = committed()
    client.push(commit(client, 6))
    other = bench.client("d", OffsetFetch=7)
    other.push(fetch(other))
    assert fetched(other) == [5]


def test_a_fetch_behind_a_refused_commit_is_served() -> None:
    bench, client = committed()
    client.push(commit(client, 6) + fetch(client))
    write = bench.writes.pop()
    failed = bench.engine.append_failed(
        Ticket(write.ticket), ErrorCode.KAFKA_STORAGE_ERROR, bench.now
    )
    bench.carry_out(failed)
    assert fetched(client) == [5]


def test_a_fetch_behind_a_deletion_reads_no_offset() -> None:
    bench, client = committed()
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=partitions)]
    deleted = OffsetDeleteRequest(group_id="g", topics=topics)
    client.push(client.frame("OffsetDelete", deleted) + fetch(client))
    bench.written()
    client.push(commit(client, 6))
    bench.written()
    deleted_group = DeleteGroupsRequest(groups_names=["g"])
    client.push(fetch(client) + client.frame("DeleteGroups", deleted_group) + fetch(client))
    bench.written()
    assert fetched(client) == [NO_OFFSET, 6, NO_OFFSET]


def test_a_connection_that_is_lost_forgets_what_waited() -> None:
    bench, client = committed()
    client.push(commit(client, 6) + fetch(client) + commit(client, 7))
    bench.carry_out(bench.engine.lost(client.conn, bench.now))
    bench.written()
    other = bench.client("d", OffsetFetch=7)
    other.push(fetch(other))
    assert fetched(other) == [6]


def test_heartbeats_count_while_a_fetch_waits_or_a_join_is_parked() -> None:
    bench = Bench()
    client, member_id = stable(bench, OffsetFetch=7, OffsetCommit=9)
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    client.push(commit(client, 6) + fetch(client))
    for _ in range(3):
        bench.wait(6_000)
        client.send("Heartbeat", beat)
    assert "MemberExpired" not in bench.facts
