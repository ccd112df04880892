"""A member of a scenario's group: it remembers what it was told and says it again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, TypedDict

from tests.conformance.talk import Talk, error_of

from kohort.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.messages.k13_leave_group import LeaveGroupRequest
from kohort.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment

TOPIC = "kohort-conformance"
OTHER_TOPIC = "kohort-conformance-2"


def subscription(*topics: str) -> bytes:
    """A consumer subscription, version 0, without user data."""
    parts = [(0).to_bytes(2, "big"), len(topics).to_bytes(4, "big")]
    parts += [len(t).to_bytes(2, "big") + t.encode() for t in topics]
    return b"".join(parts) + (0).to_bytes(4, "big")


@dataclass(frozen=True)
class Joined:
    """A JoinGroup answer; ids in it are the broker's."""

    error: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str
    me: str
    members: dict[str, bytes]
    instances: dict[str, str | None]
    skips: bool


@dataclass(frozen=True)
class Synced:
    """A SyncGroup answer."""

    error: str
    assignment: bytes
    protocol_type: str | None
    protocol: str | None


class MemberSettings(TypedDict, total=False):
    """Settings that several members of a scenario share."""

    protocols: str | dict[str, bytes]
    session: int
    rebalance: int


class Member:
    """One process that wants to be a member."""

    def __init__(
        self,
        talk: Talk,
        name: str,
        *,
        instance: str | None = None,
        protocols: str | dict[str, bytes] = "range",
        protocol_type: str = "consumer",
        session: int | None = None,
        rebalance: int = 60_000,
        group: str | None = None,
    ) -> None:
        self.talk = talk
        self.name = name
        self.group = talk.group if group is None else group
        self.instance = instance
        self.protocols = protocols
        self.protocol_type = protocol_type
        self.session = max(30_000, talk.profile.least_session_ms) if session is None else session
        self.rebalance = rebalance
        self.id = ""
        self.generation = -1
        self.protocol: str | None = None

    # -- joining -------------------------------------------------------------------------------

    async def join(self, member_id: str | None = None, *, version: int | None = None) -> Joined:
        """Join under the id it has, or another one; remembers what it is told."""
        offered = self.protocols
        if isinstance(offered, str):
            offered = dict.fromkeys(offered.split(), subscription(TOPIC))
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session,
            rebalance_timeout_ms=self.rebalance,
            member_id=self.id if member_id is None else member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in offered.items()
            ],
        )
        answer = await self.talk.ask("JoinGroup", request, version, self.name)
        joined = Joined(
            error=error_of(answer.error_code),
            generation=answer.generation_id,
            protocol_type=answer.protocol_type,
            protocol=answer.protocol_name,
            leader=answer.leader,
            me=answer.member_id,
            members={member.member_id: bytes(member.metadata) for member in answer.members},
            instances={m.member_id: m.group_instance_id for m in answer.members},
            skips=answer.skip_assignment,
        )
        if joined.error in {"NONE", "MEMBER_ID_REQUIRED"}:
            self.id = joined.me
        if joined.error == "NONE":
            self.generation, self.protocol = joined.generation, joined.protocol
        return joined

    def joins(
        self, member_id: str | None = None, *, version: int | None = None
    ) -> asyncio.Task[Joined]:
        """Join without waiting for the answer."""
        return self.talk.starts(self.join(member_id, version=version))

    async def knocks(self) -> Joined:
        """The first step of a dynamic member: it is given an id."""
        joined = await self.join("")
        assert joined.error == "MEMBER_ID_REQUIRED", joined
        return joined

    async def enters(self) -> asyncio.Task[Joined]:
        """Join as a new member, dynamic or static, up to where the answer has to wait."""
        if self.instance is None:
            await self.knocks()
        return self.joins(None if self.instance is None else "")

    # -- being a member ------------------------------------------------------------------------

    async def sync(
        self,
        plan: dict[Member, bytes] | dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        member_id: str | None = None,
        protocol_type: str | None = "",
        protocol: str | None = "",
        version: int | None = None,
    ) -> Synced:
        """Ask for the assignment; ``plan`` makes it a leader's."""
        given = {m.id if isinstance(m, Member) else m: part for m, part in (plan or {}).items()}
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.id if member_id is None else member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type if protocol_type == "" else protocol_type,
            protocol_name=(self.protocol or "range") if protocol == "" else protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=part)
                for member, part in given.items()
            ],
        )
        answer = await self.talk.ask("SyncGroup", request, version, self.name)
        return Synced(
            error=error_of(answer.error_code),
            assignment=bytes(answer.assignment),
            protocol_type=answer.protocol_type,
            protocol=answer.protocol_name,
        )

    def syncs(self, plan: Any = None, **how: Any) -> asyncio.Task[Synced]:
        """Sync without waiting for the answer."""
        return self.talk.starts(self.sync(plan, **how))

    async def beat(self, generation: int | None = None, member_id: str | None = None) -> str:
        """A heartbeat; the error it is answered with."""
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.id if member_id is None else member_id,
            group_instance_id=self.instance,
        )
        answer = await self.talk.ask("Heartbeat", request, client=self.name)
        return error_of(answer.error_code)

    async def hears(self, error: str) -> None:
        """Beat until the answer is this error."""

        async def heard() -> bool:
            return await self.beat() == error

        await self.talk.until(f"{error} to {self.name}'s heartbeat", heard)

    async def commit(self, offset: int = 7, **how: Any) -> str:
        """Commit a position as the member that it is."""
        how = {
            "member_id": self.id,
            "generation": self.generation,
            "instance": self.instance,
            "group": self.group,
            **how,
        }
        return await self.talk.commit({f"{TOPIC}-0": offset}, **how)

    async def leave(self) -> str:
        """Leave by its id and instance id; the error of its entry."""
        (error,) = await self.talk.leave((self.id, self.instance), group=self.group)
        return error

    async def leaves_alone(self, version: int) -> str:
        """Leave as clients before batches did; the error of the whole."""
        request = LeaveGroupRequest(group_id=self.group, member_id=self.id)
        answer = await self.talk.ask("LeaveGroup", request, version, self.name)
        return error_of(answer.error_code)


# -- scenes ------------------------------------------------------------------------------------


async def forms(*members: Member) -> None:
    """These become the members of one generation, which is told and not synced; the first leads.

    The first one joins alone and the others while it is there, so that the outcome is the same
    with and without an initial delay: generation 1 if it is alone, else 2.
    """
    first, *others = members
    talk = first.talk
    assert (await talk.within(await first.enters())).error == "NONE"
    if not others:
        return
    waiting = []
    for count, member in enumerate(others, start=2):
        waiting.append(await member.enters())
        await talk.until_members(count)
    assert (await talk.within(first.joins())).error == "NONE"
    for task in waiting:
        assert (await talk.within(task)).error == "NONE"
    assert {member.generation for member in members} == {2}


async def settles(*members: Member) -> None:
    """They sync: each is assigned its own name, and the group is Stable."""
    leader, *others = members
    waiting = [member.syncs() for member in others]
    plan = {member: member.name.encode() for member in members}
    synced = [await leader.talk.within(leader.syncs(plan))]
    synced += [await leader.talk.within(task) for task in waiting]
    assert [s.error for s in synced] == ["NONE"] * len(members)
    assert [s.assignment for s in synced] == [m.name.encode() for m in members]


async def stable(*members: Member) -> None:
    """A Stable group of these, led by the first; each has its own name for an assignment."""
    await forms(*members)
    await settles(*members)


async def rejoin(first: Member, *others: Member) -> None:
    """All rejoin, and the round closes: one that the first starts, or that is under way.

    The others join when it is open; before, their answer would be the present generation.
    """
    talk = first.talk
    tasks = [first.joins()]
    if others:
        await talk.until_state("PreparingRebalance")
    tasks += [member.joins() for member in others]
    for task in tasks:
        assert (await talk.within(task)).error == "NONE"
