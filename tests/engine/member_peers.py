"""A broker with useful answers for the member engine, and the common steps of its tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.engine.scripted import Peers

from kohort.member.effects import Joined, PrepareJoin
from kohort.member.events import Join, JoinPrepared, RequestRejoin
from kohort.model.ids import ProtocolName, TopicPartition
from kohort.model.instants import Millis
from kohort.model.join import JoinProtocol
from kohort.model.positions import Position
from kohort.wire.messages.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kohort.wire.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kohort.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse
from kohort.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from kohort.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

T0 = TopicPartition("t", 0)
OFFSETS = {T0: Position(offset=5)}


class Broker:
    """A script with useful answers; ``codes`` and ``park`` change them by request class."""

    def __init__(self, coordinator: str = "one") -> None:
        self.coordinator = coordinator
        self.codes: dict[type, list[int]] = {}
        self.park: set[type] = set()
        self.generation = 1
        self.leader_of: dict[TopicPartition, int] = {T0: 2}
        self.nodes = {1: "one", 2: "two"}
        self.controller_id = 2

    def __call__(self, request: Any) -> Any:
        if type(request) in self.park:
            return None
        codes = self.codes.get(type(request), [])
        code = codes.pop(0) if codes else 0
        return self.answer(request, code)

    def answer(self, request: Any, code: int) -> Any:
        answers: dict[type, Callable[[], Any]] = {
            FindCoordinatorRequest: lambda: self._coordinator(request, code),
            JoinGroupRequest: lambda: self.joined(code),
            SyncGroupRequest: lambda: SyncGroupResponse(error_code=code, assignment=b"mine"),
            HeartbeatRequest: lambda: HeartbeatResponse(error_code=code),
            LeaveGroupRequest: lambda: LeaveGroupResponse(error_code=code),
            OffsetCommitRequest: lambda: self.committed(code),
            OffsetFetchRequest: lambda: self._fetched(request, code),
            MetadataRequest: self._metadata,
            ListOffsetsRequest: lambda: self._listed(code),
            CreatePartitionsRequest: lambda: CreatePartitionsResponse(
                results=[CreatePartitionsTopicResult(name="t", error_code=code)]
            ),
        }
        return answers[type(request)]()

    def joined(self, code: int = 0) -> JoinGroupResponse:
        return JoinGroupResponse(
            error_code=code,
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name="cooperative-sticky",
            leader="other",
            member_id="m1",
        )

    def committed(self, code: int = 0) -> OffsetCommitResponse:
        partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        return OffsetCommitResponse(
            topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])]
        )

    def _listed(self, code: int) -> ListOffsetsResponse:
        row = ListOffsetsPartitionResponse(partition_index=0, error_code=code)
        topic = ListOffsetsTopicResponse(name="t", partitions=[row])
        return ListOffsetsResponse(topics=[topic] if code else [])

    def _coordinator(self, request: FindCoordinatorRequest, code: int) -> FindCoordinatorResponse:
        fields: dict[str, Any] = {
            "node_id": 9,
            "host": self.coordinator,
            "port": 9092,
            "error_code": code,
        }
        if request.coordinator_keys:
            return FindCoordinatorResponse(coordinators=[Coordinator(key="g", **fields)])
        return FindCoordinatorResponse(**fields)

    def _fetched(self, request: OffsetFetchRequest, code: int) -> OffsetFetchResponse:
        if request.groups:
            group = OffsetFetchResponseGroup(group_id="g", error_code=code)
            return OffsetFetchResponse(groups=[group])
        partition = OffsetFetchResponsePartition(
            partition_index=0, committed_offset=7, error_code=code
        )
        return OffsetFetchResponse(
            topics=[OffsetFetchResponseTopic(name="t", partitions=[partition])]
        )

    def _metadata(self) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(partition_index=p.partition, leader_id=node)
            for p, node in self.leader_of.items()
        ]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=n, host=host, port=9092)
                for n, host in self.nodes.items()
            ],
            controller_id=self.controller_id,
            topics=[MetadataResponseTopic(name="t", partitions=partitions)],
        )


def joined(peers: Peers) -> None:
    """Join, prepare and sync."""
    peers.carry_out(peers.engine.handle(Join(), peers.now))
    prepare(peers)
    assert peers.got(Joined)


def prepare(peers: Peers) -> None:
    attempt = peers.got(PrepareJoin)[-1].attempt
    offer = (JoinProtocol(ProtocolName("cooperative-sticky"), b"offer"),)
    event = JoinPrepared(attempt=attempt, protocols=offer)
    peers.carry_out(peers.engine.handle(event, peers.now))


def rejoin(peers: Peers) -> None:
    peers.carry_out(peers.engine.handle(RequestRejoin(reason="r"), peers.now))
    prepare(peers)


def commit(peers: Peers, timeout_ms: int | None = None) -> None:
    timeout = None if timeout_ms is None else Millis(timeout_ms)
    peers.carry_out(peers.engine.commit(OFFSETS, peers.now, timeout_ms=timeout)[1])


def ask(peers: Peers, where: Any, message: Any, timeout_ms: int | None = None) -> None:
    timeout = None if timeout_ms is None else Millis(timeout_ms)
    peers.carry_out(peers.engine.request(where, message, peers.now, timeout_ms=timeout)[1])
