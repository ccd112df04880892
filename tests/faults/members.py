"""A group member made of single requests, so that a fault can be put between any two of them.

In: raw connections. Out: ``Member``, and a whole rebalance of several members; error codes and
bytes as the broker sent them. Must not know: the faults.
"""

from __future__ import annotations

import struct
import time

from tests.broker.conftest import RawClient

from kohort.model.errors import ErrorCode
from kohort.wire.messages import (
    k08_offset_commit,
    k09_offset_fetch,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
)

PATIENCE_S = 30.0
SUBSCRIPTION = struct.pack(">hih", 0, 1, 1) + b"t" + struct.pack(">i", -1)


class Member:
    """One member of a group of consumers."""

    def __init__(
        self,
        client: RawClient,
        group: str = "g",
        *,
        instance: str | None = None,
        session_ms: int = 1_000,
        rebalance_ms: int | None = None,
        metadata: bytes = SUBSCRIPTION,
    ) -> None:
        self.client = client
        self.group = group
        self.instance = instance
        self.session_ms = session_ms
        self.rebalance_ms = session_ms if rebalance_ms is None else rebalance_ms
        self.metadata = metadata
        self.id = ""
        self.generation = -1
        self.assignment = b""
        self.leader = False
        self.others: list[str] = []

    # -- joining ----------------------------------------------------------------------------------

    def send_join(self, version: int | None = None) -> None:
        m = k11_join_group
        self.client.send(
            m.JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=self.session_ms,
                rebalance_timeout_ms=self.rebalance_ms,
                member_id=self.id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocols=[m.JoinGroupRequestProtocol(name="range", metadata=self.metadata)],
            ),
            version,
        )

    def joined(self, timeout: float = PATIENCE_S) -> int:
        """Take the answer to a JoinGroup; its error."""
        answer: k11_join_group.JoinGroupResponse = self.client.receive(timeout)
        if answer.error_code in (0, ErrorCode.MEMBER_ID_REQUIRED):
            self.id = answer.member_id
        if answer.error_code == 0:
            self.generation = answer.generation_id
            self.leader = answer.leader == answer.member_id
            self.others = [row.member_id for row in answer.members]
        return answer.error_code

    def ask_for_id(self) -> None:
        """The first step of a dynamic member (KIP-394)."""
        if not self.id and self.instance is None:
            self.send_join()
            assert self.joined() == ErrorCode.MEMBER_ID_REQUIRED

    def join(self) -> int:
        """Both steps, waiting for the end of the round; the error."""
        self.ask_for_id()
        self.send_join()
        return self.joined()

    # -- syncing ----------------------------------------------------------------------------------

    def send_sync(self, assignments: dict[str, bytes] | None = None) -> None:
        m = k14_sync_group
        self.client.send(
            m.SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    m.SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                    for member_id, data in (assignments or {}).items()
                ],
            )
        )

    def synced(self, timeout: float = PATIENCE_S) -> int:
        """Take the answer to a SyncGroup; its error."""
        answer: k14_sync_group.SyncGroupResponse = self.client.receive(timeout)
        if answer.error_code == 0:
            self.assignment = bytes(answer.assignment)
        return answer.error_code

    def plan(self) -> dict[str, bytes]:
        """The leader's assignments: bytes that name the member and the generation."""
        return {
            member_id: f"{member_id} in {self.generation}".encode() for member_id in self.others
        }

    def sync(self) -> int:
        self.send_sync(self.plan() if self.leader else None)
        return self.synced()

    # -- living -----------------------------------------------------------------------------------

    def beat(self) -> int:
        answer: k12_heartbeat.HeartbeatResponse = self.client.ask(
            k12_heartbeat.HeartbeatRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.id,
                group_instance_id=self.instance,
            )
        )
        return answer.error_code

    def beat_for(self, seconds: float, every: float = 0.1) -> set[int]:
        """Beat; the codes that were told."""
        codes = set()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            codes.add(self.beat())
            time.sleep(every)
        return codes

    def beat_until(self, code: int, every: float = 0.05) -> None:
        """Beat until told so."""
        began = time.monotonic()
        while (told := self.beat()) != code:
            assert told == 0, ErrorCode(told)
            assert time.monotonic() - began < PATIENCE_S
            time.sleep(every)

    def commit(self, offset: int, partition: int = 0, metadata: str = "") -> int:
        m = k08_offset_commit
        row = m.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = m.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
            topics=[m.OffsetCommitRequestTopic(name="t", partitions=[row])],
        )
        answer: m.OffsetCommitResponse = self.client.ask(request, 9)
        return answer.topics[0].partitions[0].error_code

    def leave(self) -> int:
        m = k13_leave_group
        identity = m.MemberIdentity(member_id=self.id, group_instance_id=self.instance)
        request = m.LeaveGroupRequest(group_id=self.group, members=[identity])
        answer: m.LeaveGroupResponse = self.client.ask(request)
        return answer.members[0].error_code


def committed(client: RawClient, group: str = "g", partition: int = 0) -> int:
    """The offset that the group has committed, -1 for none."""
    m = k09_offset_fetch
    topic = m.OffsetFetchRequestTopics(name="t", partition_indexes=[partition])
    wanted = m.OffsetFetchRequestGroup(group_id=group, topics=[topic])
    answer: m.OffsetFetchResponse = client.ask(m.OffsetFetchRequest(groups=[wanted]), 9)
    assert answer.groups[0].error_code == 0
    return answer.groups[0].topics[0].partitions[0].committed_offset


def described(client: RawClient, group: str = "g") -> tuple[str, list[str]]:
    """State and member ids of a group."""
    request = k15_describe_groups.DescribeGroupsRequest(groups=[group])
    row = client.ask(request).groups[0]
    return row.group_state, [member.member_id for member in row.members]


def form(members: list[Member]) -> None:
    """Bring members into one stable generation, in any order."""
    for member in members:
        member.ask_for_id()
    parked: list[Member] = []
    deadline = time.monotonic() + PATIENCE_S
    while parked or not _together(members):
        for member in members:
            if member not in parked:
                member.send_join()
                parked.append(member)
        for member in list(parked):
            if not member.client.silent(0.1):
                assert member.joined() == 0
                parked.remove(member)
        assert time.monotonic() < deadline
    for member in members:
        member.send_sync(member.plan() if member.leader else None)
    assert [member.synced() for member in members] == [0] * len(members)


def _together(members: list[Member]) -> bool:
    generations = {member.generation for member in members}
    leaders = [member for member in members if member.leader]
    return (
        len(generations) == 1
        and len(leaders) == 1
        and set(leaders[0].others) == {member.id for member in members}
    )
