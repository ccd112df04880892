"""The leader knows the racks of replicas, and rebalances if they change and count."""

from __future__ import annotations

import pytest

from kohort.embedded.consumer import Subscription, decode_assignment, encode_subscription
from kohort.engine.cluster import Cluster
from kohort.engine.leader_duties import LeaderDuties
from kohort.member.effects import PerformAssignment
from kohort.member.events import AssignmentPerformed
from kohort.model.ids import GenerationId, MemberId, ProtocolName
from kohort.model.instants import Instant, Millis
from kohort.model.join import JoinedMember
from kohort.policies.consumer_groups import ConsumerAssigner
from kohort.wire.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPICS = frozenset({"t"})


def metadata(
    racks: dict[int, str | None], replicas: list[list[int]], *, topic: str = "t"
) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node, host="h", port=1, rack=rack)
            for node, rack in racks.items()
        ],
        topics=[
            MetadataResponseTopic(
                error_code=0,
                name=topic,
                partitions=[
                    MetadataResponsePartition(
                        error_code=0,
                        partition_index=number,
                        leader_id=nodes[0],
                        replica_nodes=nodes,
                        isr_nodes=nodes,
                    )
                    for number, nodes in reversed(list(enumerate(replicas)))
                ],
            )
        ],
    )


def test_a_cluster_knows_the_racks_of_each_partition() -> None:
    cluster = Cluster()
    cluster.learn(None, metadata({1: "a", 2: "b", 3: None}, [[1], [2, 1], [3]]))
    assert cluster.racks_of({"t", "unknown"}) == {
        "t": [frozenset("a"), frozenset("ab"), frozenset()]
    }


def test_90_a_broker_that_is_offline_keeps_its_rack() -> None:
    """Otherwise each bounce of a broker would start a rebalance (KAFKA-20778)."""
    cluster = Cluster()
    cluster.learn(None, metadata({1: "a", 2: "b"}, [[1, 2]]))
    before = cluster.racks_of(TOPICS)
    cluster.learn(None, metadata({1: "a"}, [[1, 2]]))
    assert cluster.racks_of(TOPICS) == before


def test_a_cluster_without_racks_keeps_no_replicas() -> None:
    cluster = Cluster()
    cluster.learn(None, metadata({1: None, 2: None}, [[1], [2]]))
    assert cluster.racks_of(TOPICS) == {}


def decided(duties: LeaderDuties, racks: list[str], *of_members: str | None) -> dict[str, str]:
    """The plan of a leader for two partitions, with the racks of their replicas."""
    members = tuple(
        JoinedMember(
            member_id=MemberId(f"m{n}"),
            group_instance_id=None,
            metadata=encode_subscription(Subscription(topics=TOPICS, rack_id=rack)),
        )
        for n, rack in enumerate(of_members)
    )
    duties.asked(
        PerformAssignment(
            generation_id=GenerationId(1),
            protocol_name=ProtocolName("cooperative-sticky"),
            members=members,
        )
    )
    duties.racks = {"t": [frozenset({rack}) for rack in racks]}
    made = duties.decide(GenerationId(1), TOPICS, {"t": 2}, Instant(0))
    assert isinstance(made, AssignmentPerformed)
    duties.joined(is_leader=True, assignment=b"", now=Instant(0))
    return {
        member_id: " ".join(map(str, decode_assignment(data).partitions))
        for member_id, data in made.assignments.items()
    }


@pytest.mark.parametrize(("of_members", "counts"), [("ba", True), ((None, None), False)])
def test_89_a_leader_uses_racks_and_sees_them_change_if_a_member_has_one(
    of_members: tuple[str | None, str | None], counts: bool
) -> None:
    duties = LeaderDuties(
        ConsumerAssigner(), max_age_ms=Millis(300_000), missing_refresh_ms=Millis(1_000)
    )
    plan = decided(duties, ["a", "b"], *of_members)
    assert plan == ({"m0": "t-1", "m1": "t-0"} if counts else {"m0": "t-0", "m1": "t-1"})
    assert duties.changed({"t": 2}) is None
    duties.racks = {"t": [frozenset("b"), frozenset("b")]}
    assert duties.changed({"t": 2}) == ("racks of replicas changed" if counts else None)
