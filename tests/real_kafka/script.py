"""Raw requests to any broker, and its answers and log lines in a form that can be compared.

Member ids are random, so they are named by the order in which they are seen.
"""

from __future__ import annotations

import re
import socket
import time
from typing import Any

from kohort.model.errors import ErrorCode
from kohort.wire.apis import BY_NAME
from kohort.wire.codec import decode_response, encode_request
from kohort.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.k09_offset_fetch import OffsetFetchRequest
from kohort.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kohort.wire.messages.k15_describe_groups import DescribeGroupsRequest
from kohort.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.k42_delete_groups import DeleteGroupsRequest

SUBSCRIPTION = bytes.fromhex("0000000000010001740000000000")
SETTLING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class Peer:
    """A connection that speaks raw requests."""

    def __init__(self, port: int, name: str) -> None:
        self.name = name
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._sent: list[tuple[str, int]] = []
        self._correlation = 0

    def send(self, api: str, request: object, version: int | None = None) -> None:
        known = BY_NAME[api]
        chosen = min(known.broker.high, known.client.high) if version is None else version
        self._correlation += 1
        self._sent.append((api, chosen))
        self._socket.sendall(encode_request(request, chosen, self._correlation, self.name))

    def receive(self) -> Any:
        api, version = self._sent.pop(0)
        size = int.from_bytes(self._exactly(4), "big")
        return decode_response(BY_NAME[api].response, version, self._exactly(size))[1]

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data

    def close(self) -> None:
        self._socket.close()


class Script:
    """The requests to a broker and its answers, line by line."""

    def __init__(self, port: int, group: str) -> None:
        self.group = group
        self.lines: list[str] = []
        self.names: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.instances: dict[str, str] = {}
        """Peers that are static members, and their instance ids."""

        self.peers = {name: Peer(port, name) for name in "abcyz"}

    def told(self, what: str, answer: object) -> None:
        self.lines.append(f"{what}: {self.anonymous(str(answer))}")

    def anonymous(self, text: str) -> str:
        for member_id, name in self.names.items():
            text = text.replace(member_id, name)
        return text.replace(self.group, "GROUP")

    def name_of(self, member_id: str) -> str:
        """A member's name: its client's or instance's, and the how-manieth id that was seen."""
        if member_id and member_id not in self.names:
            self.names[member_id] = f"<{member_id[0]}{len(self.names)}>"
        return self.names.get(member_id, "nobody")

    # -- requests ------------------------------------------------------------------------------

    def ask(self, peer: str, api: str, request: object, version: int | None = None) -> Any:
        self.peers[peer].send(api, request, version)
        return self.peers[peer].receive()

    def join_request(
        self,
        peer: str,
        member_id: str,
        *,
        protocol: str = "range",
        metadata: bytes = SUBSCRIPTION,
        session: int = 30_000,
        rebalance: int = 2_000,
    ) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata) for name in protocol.split()
            ],
            reason="because",
            group_instance_id=self.instances.get(peer),
        )

    def starts_join(
        self, peer: str, member_id: str | None = None, *, version: int | None = None, **how: Any
    ) -> None:
        chosen = self.ids[peer] if member_id is None else member_id
        self.peers[peer].send("JoinGroup", self.join_request(peer, chosen, **how), version)
        time.sleep(0.1)  # so that both brokers see requests of several connections in this order

    def ends_join(self, peer: str, what: str = "join") -> None:
        answer = self.peers[peer].receive()
        if answer.member_id:
            self.name_of(answer.member_id)
            self.ids[peer] = answer.member_id
        members = sorted(
            (self.name_of(m.member_id), m.group_instance_id or "", m.metadata)
            for m in answer.members
        )
        self.told(
            f"{peer} {what}",
            (
                ErrorCode.of(answer.error_code).name,
                answer.generation_id,
                answer.protocol_type,
                answer.protocol_name,
                answer.leader,
                answer.member_id,
                members,
                answer.skip_assignment,
            ),
        )

    def joins(self, peer: str, member_id: str | None = None, **how: Any) -> None:
        self.starts_join(peer, member_id, **how)
        self.ends_join(peer)

    def sync_request(
        self, peer: str, generation: int, plan: dict[str, bytes] | None, protocol: str
    ) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=self.ids[peer],
            group_instance_id=self.instances.get(peer),
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=self.ids[p], assignment=a)
                for p, a in (plan or {}).items()
            ],
        )

    def starts_sync(self, peer: str, generation: int, plan: dict[str, bytes] | None = None) -> None:
        request = self.sync_request(peer, generation, plan, "range")
        self.peers[peer].send("SyncGroup", request)
        time.sleep(0.1)

    def ends_sync(self, peer: str) -> None:
        answer = self.peers[peer].receive()
        self.told(
            f"{peer} sync",
            (ErrorCode.of(answer.error_code).name, answer.protocol_name, answer.assignment),
        )

    def syncs(
        self,
        peer: str,
        generation: int,
        plan: dict[str, bytes] | None = None,
        protocol: str = "range",
    ) -> None:
        self.peers[peer].send("SyncGroup", self.sync_request(peer, generation, plan, protocol))
        self.ends_sync(peer)

    def beat_request(self, peer: str, generation: int) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=self.ids[peer],
            group_instance_id=self.instances.get(peer),
        )

    def beats(self, peer: str, generation: int) -> None:
        answer = self.ask(peer, "Heartbeat", self.beat_request(peer, generation))
        self.told(f"{peer} beat {generation}", ErrorCode.of(answer.error_code).name)

    def commits(
        self, peer: str, generation: int, member_id: str | None = None, version: int | None = None
    ) -> None:
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=0, committed_offset=generation + 10, committed_metadata=metadata
            )
            for metadata in ("note", "x" * 5_000)
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=self.ids[peer] if member_id is None else member_id,
            group_instance_id=self.instances.get(peer) if member_id is None else None,
            topics=[
                OffsetCommitRequestTopic(name=topic, partitions=[partition])
                for topic, partition in (
                    ("t", partitions[0]),
                    ("u", partitions[1]),
                    ("none", partitions[0]),
                )
            ],
        )
        answer = self.ask(peer, "OffsetCommit", request, version)
        errors = [ErrorCode.of(t.partitions[0].error_code).name for t in answer.topics]
        self.told(f"{peer} commit {generation}", sorted(errors))

    def fetches(self, peer: str) -> None:
        request = OffsetFetchRequest(group_id=self.group, topics=None)
        answer = self.ask(peer, "OffsetFetch", request, 7)
        kept = [
            (t.name, p.committed_offset, p.committed_leader_epoch, p.metadata)
            for t in answer.topics
            for p in t.partitions
        ]
        self.told(f"{peer} fetch", (ErrorCode.of(answer.error_code).name, kept))

    def leaves(self, peer: str, *member_ids: str, version: int | None = None) -> None:
        ids = member_ids or (self.ids[peer],)
        if version == 1:
            request = LeaveGroupRequest(group_id=self.group, member_id=ids[0])
        else:
            members = [MemberIdentity(member_id=m, reason="enough") for m in ids]
            request = LeaveGroupRequest(group_id=self.group, members=members)
        answer = self.ask(peer, "LeaveGroup", request, version)
        entries = [(m.member_id, ErrorCode.of(m.error_code).name) for m in answer.members]
        self.told(f"{peer} leave", (ErrorCode.of(answer.error_code).name, entries))

    def leaves_as(self, peer: str, *entries: tuple[str, str | None]) -> None:
        """Leave in a batch of member ids with instance ids."""
        members = [
            MemberIdentity(member_id=m, group_instance_id=i, reason="enough") for m, i in entries
        ]
        request = LeaveGroupRequest(group_id=self.group, members=members)
        answer = self.ask(peer, "LeaveGroup", request)
        errors = [
            (m.member_id, m.group_instance_id, ErrorCode.of(m.error_code).name)
            for m in answer.members
        ]
        self.told(f"{peer} leave", (ErrorCode.of(answer.error_code).name, errors))

    def describes(self) -> None:
        answer = self.ask("z", "DescribeGroups", DescribeGroupsRequest(groups=[self.group]))
        (group,) = answer.groups
        members = sorted(
            (
                self.name_of(m.member_id),
                m.group_instance_id or "",
                m.client_id,
                m.client_host,
                m.member_metadata,
                m.member_assignment,
            )
            for m in group.members
        )
        self.told(
            "describe",
            (
                ErrorCode.of(group.error_code).name,
                group.group_state,
                group.protocol_type,
                group.protocol_data,
                members,
            ),
        )

    def deletes(self) -> None:
        answer = self.ask("z", "DeleteGroups", DeleteGroupsRequest(groups_names=[self.group]))
        self.told("delete", ErrorCode.of(answer.results[0].error_code).name)

    def close(self) -> None:
        for peer in self.peers.values():
            peer.close()


def settle(script: Script) -> None:
    """Wait until topics and the coordinator are there."""
    topics = [CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in ("t", "u")]
    script.ask("z", "CreateTopics", CreateTopicsRequest(topics=topics, timeout_ms=30_000))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = script.ask(
            "z", "FindCoordinator", FindCoordinatorRequest(coordinator_keys=[script.group])
        )
        described = script.ask("z", "DescribeGroups", DescribeGroupsRequest(groups=[script.group]))
        error = ErrorCode.of(described.groups[0].error_code)
        if not found.coordinators[0].error_code and error not in SETTLING:
            return
        time.sleep(0.1)
    raise AssertionError("the coordinator did not come up in a minute")


def lines_of(log: str, script: Script) -> list[str]:
    """A group's lines without time and logger's frame, as both brokers write them.

    What Kafka says of its own unexpected exceptions is left out.
    """
    found = re.findall(r"(INFO|WARN|ERROR) \[GroupCoordinator ([^\]]+)\] (.*)", log)
    return [
        f"{level} {script.anonymous(text)}"
        for level, _, text in found
        if script.group in text and "hit an unexpected exception" not in text
    ]


def port_of(bootstrap: str) -> int:
    return int(bootstrap.rpartition(":")[2])
