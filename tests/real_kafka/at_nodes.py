"""The answers of each of three nodes, as leader, follower, neither, and as coordinator or not.

Plain values by question, so that two clusters can be compared.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.profile import Profile
from tests.conformance.talk import VERSIONS, Link, Talk, error_of

from kohort.storage.records import Record, build_batch
from kohort.wire.messages import k00_produce as k00
from kohort.wire.messages import k01_fetch as k01
from kohort.wire.messages import k02_list_offsets as k02
from kohort.wire.messages import k03_metadata as k03
from kohort.wire.messages import k08_offset_commit as k08
from kohort.wire.messages import k09_offset_fetch as k09
from kohort.wire.messages import k10_find_coordinator as k10
from kohort.wire.messages import k11_join_group as k11
from kohort.wire.messages import k12_heartbeat as k12
from kohort.wire.messages import k13_leave_group as k13
from kohort.wire.messages import k14_sync_group as k14
from kohort.wire.messages import k15_describe_groups as k15
from kohort.wire.messages import k16_list_groups as k16
from kohort.wire.messages import k19_create_topics as k19
from kohort.wire.messages import k21_delete_records as k21
from kohort.wire.messages import k23_offset_for_leader_epoch as k23
from kohort.wire.messages import k32_describe_configs as k32
from kohort.wire.messages import k37_create_partitions as k37
from kohort.wire.messages import k42_delete_groups as k42
from kohort.wire.messages import k47_offset_delete as k47

TOPIC = "at-nodes"
CHOSEN = "at-nodes-chosen"
WRONG_EPOCH = 99
BROKER = 4
TIME = 1_700_000_000_000

Told = dict[str, Any]


class Cluster:
    """One connection to each node."""

    def __init__(self, links: dict[int, Link]) -> None:
        self.links = links
        self.until = Talk(Profile("every node"), "none").until

    @classmethod
    async def reach(cls, bootstrap: str) -> Cluster:
        link = await Link.to(bootstrap.partition(",")[0])
        metadata = await link.ask("Metadata", k03.MetadataRequest(topics=[]), 9, "tool")
        link.close()
        return cls({b.node_id: await Link.to(f"{b.host}:{b.port}") for b in metadata.brokers})

    async def ask(self, node: int, api: str, request: object, version: int | None = None) -> Any:
        chosen = VERSIONS[api] if version is None else version
        return await self.links[node].ask(api, request, chosen, "tool")

    def close(self) -> None:
        for link in self.links.values():
            link.close()


async def told_by_nodes(bootstrap: str) -> Told:
    """Every answer, by question."""
    cluster = await Cluster.reach(bootstrap)
    try:
        told = await _topics(cluster)
        told |= await _records(cluster)
        return told | await _groups(cluster)
    finally:
        cluster.close()


# -- topics --------------------------------------------------------------------------------------


async def _topics(cluster: Cluster) -> Told:
    def by_hand(name: str, *rows: tuple[int, list[int]]) -> k19.CreatableTopic:
        assignments = [
            k19.CreatableReplicaAssignment(partition_index=n, broker_ids=ids) for n, ids in rows
        ]
        return k19.CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments
        )

    wanted = [
        k19.CreatableTopic(name=TOPIC, num_partitions=3, replication_factor=2),
        k19.CreatableTopic(name="four", num_partitions=1, replication_factor=4),
        k19.CreatableTopic(name="zero", num_partitions=1, replication_factor=0),
        by_hand(CHOSEN, (0, [2, 3]), (1, [1, 2])),
        by_hand("uneven", (0, [2, 3]), (1, [1])),
        by_hand("stranger", (0, [2, 9])),
        by_hand("doubled", (0, [2, 2])),
        by_hand("nobody", (0, [])),
        by_hand("gap", (0, [1]), (2, [1])),
    ]
    made = await cluster.ask(3, "CreateTopics", k19.CreateTopicsRequest(topics=wanted))
    told: Told = {
        f"create {t.name}": (error_of(t.error_code), t.num_partitions, t.replication_factor)
        for t in made.topics
    }
    for label, count, nodes in (
        ("one replica too few", 3, [1]),
        ("a stranger", 3, [1, 9]),
        ("chosen", 3, [3, 1]),
        ("not chosen", 4, None),
    ):
        rows = [k37.CreatePartitionsAssignment(broker_ids=nodes)] if nodes else None
        wish = k37.CreatePartitionsTopic(name=CHOSEN, count=count, assignments=rows)
        request = k37.CreatePartitionsRequest(topics=[wish], timeout_ms=30_000)
        answer = await cluster.links[2].ask("CreatePartitions", request, 2, "tool")
        told[f"grow {label}"] = error_of(answer.results[0].error_code)
    await cluster.until("all partitions", lambda: _has(cluster, CHOSEN, 4))
    placed = await _placed(cluster, CHOSEN)
    told["placed by hand"] = [replicas for _, replicas in placed[:3]]
    told["placed by itself"] = len(placed[3][1])
    return told


async def _metadata(cluster: Cluster, topic: str, node: int = 1) -> Any:
    asked = [k03.MetadataRequestTopic(name=topic)]
    request = k03.MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    return (await cluster.ask(node, "Metadata", request, 12)).topics[0]


async def _has(cluster: Cluster, topic: str, partitions: int) -> bool:
    """Whether every node knows this many partitions."""
    rows = [(await _metadata(cluster, topic, node)).partitions for node in cluster.links]
    return all(len(row) == partitions for row in rows)


async def _placed(cluster: Cluster, topic: str) -> list[tuple[int, list[int]]]:
    """Leader and replicas of each partition."""
    rows = (await _metadata(cluster, topic)).partitions
    rows.sort(key=lambda row: row.partition_index)
    return [(row.leader_id, list(row.replica_nodes)) for row in rows]


# -- records -------------------------------------------------------------------------------------


async def _records(cluster: Cluster) -> Told:
    await cluster.until("the topic", lambda: _has(cluster, TOPIC, 3))
    topic_id = (await _metadata(cluster, TOPIC)).topic_id
    leader, replicas = (await _placed(cluster, TOPIC))[0]
    follower = next(node for node in replicas if node != leader)
    roles = {
        "leader": leader,
        "follower": follower,
        "neither": next(node for node in cluster.links if node not in replicas),
    }
    told: Told = {}
    for role, node in roles.items():
        told[f"produce at {role}"] = await _produced(cluster, node, -1)
        told[f"produce with odd acks at {role}"] = await _produced(cluster, node, 5)

    async def followed() -> bool:
        return bool((await _fetched(cluster, follower, topic_id, 12, leader=leader))[1])

    await cluster.until("the follower", followed)
    for role, node in roles.items():
        for version in (4, 10, 11, 12, 16, 17):
            row = await _fetched(cluster, node, topic_id, version, leader=leader)
            told[f"fetch {version} at {role}"] = row
        for version in (12, 16):
            row = await _fetched(cluster, node, topic_id, version, leader=leader, epoch=WRONG_EPOCH)
            told[f"fetch {version} with a wrong epoch at {role}"] = row
        for epoch in (-1, WRONG_EPOCH):
            told[f"offsets with epoch {epoch} at {role}"] = await _offset(cluster, node, epoch)
            told[f"end of epoch with {epoch} at {role}"] = await _epoch_end(cluster, node, epoch)
        told[f"delete records at {role}"] = await _deleted(cluster, node)
    for node in cluster.links:
        for name in ("1", "2", "3"):
            told[f"node.id of {name} at {node}"] = await _node_id(cluster, node, name)
    return told


async def _produced(cluster: Cluster, node: int, acks: int) -> tuple[str, int]:
    batch = build_batch([Record(None, b"v", TIME)])
    data = k00.PartitionProduceData(index=0, records=batch)
    topic = k00.TopicProduceData(name=TOPIC, partition_data=[data])
    request = k00.ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[topic])
    answer = await cluster.links[node].ask("Produce", request, 9, "tool")
    row = answer.responses[0].partition_responses[0]
    return error_of(row.error_code), row.base_offset


async def _fetched(
    cluster: Cluster, node: int, topic_id: bytes, version: int, *, leader: int, epoch: int = -1
) -> tuple[Any, ...]:
    asked = k01.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1_000, current_leader_epoch=epoch
    )
    if version < 9:
        asked.current_leader_epoch = -1
    request = k01.FetchRequest(
        max_wait_ms=1,
        min_bytes=1,
        max_bytes=10_000,
        session_epoch=-1,
        topics=[k01.FetchTopic(topic=TOPIC, topic_id=topic_id, partitions=[asked])],
    )
    answer = await cluster.links[node].ask("Fetch", request, version, "tool")
    row = answer.responses[0].partitions[0]
    return (
        error_of(row.error_code),
        bool(row.records),
        row.high_watermark,
        row.preferred_read_replica,
        row.current_leader and row.current_leader.leader_id == leader,
        [endpoint.node_id == leader for endpoint in answer.node_endpoints],
    )


async def _offset(cluster: Cluster, node: int, epoch: int) -> tuple[Any, ...]:
    asked = k02.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=epoch)
    topics = [k02.ListOffsetsTopic(name=TOPIC, partitions=[asked])]
    request = k02.ListOffsetsRequest(replica_id=-1, topics=topics)
    answer = await cluster.links[node].ask("ListOffsets", request, 7, "tool")
    row = answer.topics[0].partitions[0]
    return error_of(row.error_code), row.offset, row.timestamp


async def _epoch_end(cluster: Cluster, node: int, epoch: int) -> tuple[str, int]:
    asked = k23.OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0)
    topics = [k23.OffsetForLeaderTopic(topic=TOPIC, partitions=[asked])]
    request = k23.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
    answer = await cluster.links[node].ask("OffsetForLeaderEpoch", request, 4, "tool")
    row = answer.topics[0].partitions[0]
    return error_of(row.error_code), row.end_offset


async def _deleted(cluster: Cluster, node: int) -> tuple[str, int]:
    asked = k21.DeleteRecordsPartition(partition_index=0, offset=0)
    topics = [k21.DeleteRecordsTopic(name=TOPIC, partitions=[asked])]
    request = k21.DeleteRecordsRequest(topics=topics, timeout_ms=5_000)
    answer = await cluster.links[node].ask("DeleteRecords", request, 2, "tool")
    row = answer.topics[0].partitions[0]
    return error_of(row.error_code), row.low_watermark


async def _node_id(cluster: Cluster, node: int, name: str) -> tuple[str, list[str]]:
    resource = k32.DescribeConfigsResource(
        resource_type=BROKER, resource_name=name, configuration_keys=["node.id"]
    )
    request = k32.DescribeConfigsRequest(resources=[resource])
    (result,) = (await cluster.ask(node, "DescribeConfigs", request)).results
    return error_of(result.error_code), [row.value for row in result.configs]


# -- groups --------------------------------------------------------------------------------------


async def _groups(cluster: Cluster) -> Told:
    """A group that another node coordinates, and one that the node does that is asked."""
    elsewhere, asked = await _group_of(cluster, 1), 2
    here = await _group_of(cluster, asked)
    told: Told = {}
    for label, node, group in (
        ("here", asked, here),
        ("at its own", 1, elsewhere),
        ("elsewhere", asked, elsewhere),
    ):
        told[f"commit {label}"] = await _committed(cluster, node, group)
    told |= await _membership(cluster, asked, elsewhere)
    told |= await _views(cluster, asked, here, elsewhere)
    await cluster.ask(1, "DeleteGroups", k42.DeleteGroupsRequest(groups_names=[elsewhere]))
    return told


async def _group_of(cluster: Cluster, node: int) -> str:
    """A group that this node coordinates and serves."""
    found: list[str] = []

    async def there_is_one() -> bool:
        names = [f"at-nodes-{n}" for n in range(50)]
        request = k10.FindCoordinatorRequest(coordinator_keys=names)
        answer = await cluster.ask(1, "FindCoordinator", request)
        found[:] = [row.key for row in answer.coordinators if row.node_id == node]
        if not found:
            return False
        described = k15.DescribeGroupsRequest(groups=found[:1])
        row = (await cluster.ask(node, "DescribeGroups", described)).groups[0]
        return error_of(row.error_code) in {"NONE", "GROUP_ID_NOT_FOUND"}

    await cluster.until(f"a group of node {node}", there_is_one)
    return found[0]


async def _committed(cluster: Cluster, node: int, group: str) -> dict[str, str]:
    row = k08.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [
        k08.OffsetCommitRequestTopic(name=name, partitions=[row]) for name in (TOPIC, "unknown")
    ]
    request = k08.OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, topics=topics
    )
    answer = await cluster.ask(node, "OffsetCommit", request)
    return {topic.name: error_of(topic.partitions[0].error_code) for topic in answer.topics}


async def _membership(cluster: Cluster, node: int, group: str) -> Told:
    told: Told = {}
    for label, name, session, member in (
        ("join", group, 10_000, ""),
        ("join with an id", group, 10_000, "m"),
        ("join with a short session", group, 1, ""),
        ("join no group", "", 10_000, ""),
    ):
        join = k11.JoinGroupRequest(
            group_id=name,
            session_timeout_ms=session,
            rebalance_timeout_ms=5_000,
            member_id=member,
            protocol_type="consumer",
            protocols=[k11.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = await cluster.ask(node, "JoinGroup", join)
        told[label] = (error_of(joined.error_code), joined.generation_id, joined.member_id)
    for label, name, kind in (
        ("sync", group, "consumer"),
        ("sync no group", "", "consumer"),
        ("sync no protocol", group, None),
    ):
        sync = k14.SyncGroupRequest(
            group_id=name,
            generation_id=1,
            member_id="m",
            protocol_type=kind,
            protocol_name=kind and "range",
        )
        told[label] = error_of((await cluster.ask(node, "SyncGroup", sync)).error_code)
    for name in (group, ""):
        beat = k12.HeartbeatRequest(group_id=name, generation_id=1, member_id="m")
        answer = await cluster.ask(node, "Heartbeat", beat)
        told[f"beat {'a' if name else 'no'} group"] = error_of(answer.error_code)
    leaver = k13.MemberIdentity(member_id="m", group_instance_id=None)
    left = await cluster.ask(
        node, "LeaveGroup", k13.LeaveGroupRequest(group_id=group, members=[leaver])
    )
    told["leave"] = error_of(left.error_code), len(left.members)
    alone = k13.LeaveGroupRequest(group_id=group, member_id="m")
    told["leave 2"] = error_of((await cluster.ask(node, "LeaveGroup", alone, 2)).error_code)
    return told


async def _views(cluster: Cluster, node: int, here: str, elsewhere: str) -> Told:
    told: Told = {}
    topic = k09.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
    for version in (1, 2, 7):
        fetch = k09.OffsetFetchRequest(group_id=elsewhere, topics=[topic])
        answer = await cluster.ask(node, "OffsetFetch", fetch, version)
        rows = [error_of(p.error_code) for t in answer.topics for p in t.partitions]
        told[f"fetch offsets {version}"] = error_of(answer.error_code), rows
    topics = [k09.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
    both = [
        k09.OffsetFetchRequestGroup(group_id=group, topics=topics) for group in (elsewhere, here)
    ]
    answer = await cluster.ask(node, "OffsetFetch", k09.OffsetFetchRequest(groups=both), 8)
    told["fetch offsets 8"] = {
        group.group_id == here: (
            error_of(group.error_code),
            [p.committed_offset for t in group.topics for p in t.partitions],
        )
        for group in answer.groups
    }
    for version in (0, 4, 5, 6):
        wanted = k15.DescribeGroupsRequest(groups=[elsewhere, here])
        described = await cluster.ask(node, "DescribeGroups", wanted, version)
        told[f"describe {version}"] = {
            row.group_id == here: (error_of(row.error_code), row.group_state, row.error_message)
            for row in described.groups
        }
    for asked in (1, node):
        listed = await cluster.ask(asked, "ListGroups", k16.ListGroupsRequest())
        names = {group.group_id for group in listed.groups}
        told[f"list at {asked}"] = here in names, elsewhere in names
    for name in (TOPIC, "unknown"):
        row = k47.OffsetDeleteRequestPartition(partition_index=0)
        asked_topics = [k47.OffsetDeleteRequestTopic(name=name, partitions=[row])]
        delete = k47.OffsetDeleteRequest(group_id=elsewhere, topics=asked_topics)
        gone = await cluster.ask(node, "OffsetDelete", delete)
        told[f"delete offsets of {name}"] = error_of(gone.error_code), len(gone.topics)
    request = k42.DeleteGroupsRequest(groups_names=[elsewhere, here])
    deleted = await cluster.ask(node, "DeleteGroups", request)
    told["delete groups"] = {
        row.group_id == here: error_of(row.error_code) for row in deleted.results
    }
    return told
