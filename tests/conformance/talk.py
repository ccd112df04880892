"""A conversation with any broker: a group of its own, raw requests, answers to compare.

Every request that waits has a connection to itself, so that nothing queues behind a parked one.
Member ids are random; a scenario compares them with earlier answers.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tests.conformance.profile import Profile
from tests.conformance.shown import shown

from kohort.model.errors import ErrorCode
from kohort.wire.apis import BY_NAME
from kohort.wire.codec import decode_response, encode_request
from kohort.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kohort.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.messages.k15_describe_groups import DescribedGroup, DescribeGroupsRequest
from kohort.wire.messages.k16_list_groups import ListGroupsRequest
from kohort.wire.messages.k42_delete_groups import DeleteGroupsRequest
from kohort.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

T = TypeVar("T")

VERSIONS = {
    "OffsetCommit": 9,
    "OffsetFetch": 7,
    "FindCoordinator": 4,
    "JoinGroup": 9,
    "Heartbeat": 4,
    "LeaveGroup": 5,
    "SyncGroup": 5,
    "DescribeGroups": 6,
    "ListGroups": 5,
    "ApiVersions": 3,
    "Metadata": 9,
    "CreateTopics": 5,
    "DeleteTopics": 4,
    "DescribeConfigs": 4,
    "DeleteGroups": 2,
    "OffsetDelete": 0,
}
"""The version of each request unless a scenario says otherwise: the last that names topics."""

PATIENCE_S = 40
"""How long anything may take that has to happen; reached only when it does not."""

PARKED_S = 0.3
"""A request that is not answered for so long is taken for parked."""

_POLL_S = 0.05


def error_of(code: int) -> str:
    return ErrorCode.of(code).name


def frame_of(api: str, request: object) -> bytes:
    """A request in the scenarios' version, for a connection on which several are under way."""
    return encode_request(request, VERSIONS[api], 1, "tool")


def told(frame: bytes, api: str) -> Any:
    """The answer in a frame, to a request of ``frame_of``."""
    return decode_response(BY_NAME[api].response, VERSIONS[api], frame)[1]


def commit_of(
    group: str,
    offsets: dict[str, int],
    *,
    member_id: str = "",
    generation: int = -1,
    instance: str | None = None,
    metadata: str | None = "",
    epoch: int = -1,
    retention: int = -1,
) -> OffsetCommitRequest:
    """A commit of ``topic-partition`` positions."""
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        retention_time_ms=retention,
        topics=[
            OffsetCommitRequestTopic(
                name=partition.rpartition("-")[0],
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=int(partition.rpartition("-")[2]),
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        committed_metadata=metadata,
                    )
                ],
            )
            for partition, offset in offsets.items()
        ],
    )


class Link:
    """One connection with at most one request under way."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._serial = itertools.count(1)

    @classmethod
    async def to(cls, address: str) -> Link:
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, api: str, request: object, version: int, client: str) -> Any:
        self._writer.write(encode_request(request, version, next(self._serial), client))
        return decode_response(BY_NAME[api].response, version, await self.frame())[1]

    async def frame(self) -> bytes:
        """The next answer; IncompleteReadError when the broker closes the connection."""
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return await self._reader.readexactly(size)

    def send(self, frame: bytes) -> None:
        self._writer.write(frame)

    def close(self) -> None:
        self._writer.transport.abort()


class Restart:
    """One restart of a broker, which several scenarios share.

    The broker restarts when all of them have come so far, or have failed.
    """

    def __init__(self, restart: Callable[[], str], scenarios: int) -> None:
        self.stopped_at = 0.0
        self._restart = restart
        self._left = scenarios
        self._address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reached: set[asyncio.Task[Any] | None] = set()

    async def reached(self) -> str:
        """Wait for the restart; returns the broker's new address."""
        self._reached.add(asyncio.current_task())
        await self._one_less()
        return await self._address

    async def ended(self) -> None:
        """The present scenario has ended, perhaps without waiting for the restart."""
        if asyncio.current_task() not in self._reached:
            await self._one_less()

    async def _one_less(self) -> None:
        self._left -= 1
        if not self._left:
            self.stopped_at = time.monotonic()
            try:
                self._address.set_result(await asyncio.to_thread(self._restart))
            except BaseException as failure:
                self._address.set_exception(failure)
                raise


class Talk:
    """The requests of one scenario to a broker, with their answers."""

    def __init__(self, profile: Profile, group: str) -> None:
        self.profile = profile
        self.group = group
        self.address = profile.address
        self.other_groups: list[str] = []
        self.differences: dict[str, str] = {}
        """By the name of a difference: ``kafka`` or ``kohort``, the way that the broker went."""
        self.restart: Restart | None = None
        self._idle: list[Link] = []
        self._opened: list[Link] = []
        self._tasks: list[asyncio.Task[Any]] = []

    # -- requests ------------------------------------------------------------------------------

    async def opens(self) -> Link:
        """A connection that is opened now, for requests that say they go ``over`` it."""
        link = await Link.to(self.address)
        self._opened.append(link)
        return link

    async def ask(
        self,
        api: str,
        request: object,
        version: int | None = None,
        client: str = "tool",
        *,
        over: Link | None = None,
    ) -> Any:
        chosen = VERSIONS[api] if version is None else version
        if over is not None:
            return await over.ask(api, request, chosen, client)
        link = self._idle.pop() if self._idle else await Link.to(self.address)
        try:
            answer = await link.ask(api, request, chosen, client)
        except BaseException:
            link.close()
            raise
        self._idle.append(link)
        return answer

    def starts(self, request: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Send a request without waiting for its answer; cancelling closes its connection."""
        task = asyncio.create_task(request)
        self._tasks.append(task)
        return task

    async def waits(self, *tasks: asyncio.Task[Any], seconds: float = PARKED_S) -> None:
        """Nothing has answered these for a while."""
        done, _ = await asyncio.wait(tasks, timeout=seconds)
        assert not done, f"expected to wait, was answered {shown(done.pop().result())}"

    async def within(self, task: Awaitable[T], seconds: float = PATIENCE_S) -> T:
        return await asyncio.wait_for(task, seconds)

    async def until(
        self, what: str, holds: Callable[[], Awaitable[bool]], seconds: float = PATIENCE_S
    ) -> None:
        deadline = time.monotonic() + seconds
        while not await holds():
            assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
            await asyncio.sleep(_POLL_S)

    def differs(self, name: str, saw: object, *, kafka: object, kohort: object) -> None:
        """The broker goes one of two ways, which is listed under ``name``."""
        ways = {"kafka": kafka, "kohort": kohort}
        went = [who for who, way in ways.items() if way == saw]
        assert went, f"{name}: saw {saw!r}, neither Kafka's {kafka!r} nor kohort's {kohort!r}"
        self.differences[name] = went[0]

    # -- the group from outside ----------------------------------------------------------------

    async def described(self, group: str | None = None, version: int | None = None) -> Any:
        wanted = self.group if group is None else group
        answer = await self.ask("DescribeGroups", DescribeGroupsRequest(groups=[wanted]), version)
        described: DescribedGroup = answer.groups[0]
        return described

    async def state(self) -> str:
        """The group's state; ``Dead`` when there is none."""
        return str((await self.described()).group_state)

    async def until_state(self, state: str, seconds: float = PATIENCE_S) -> None:
        async def is_there() -> bool:
            return await self.state() == state

        await self.until(f"state {state}", is_there, seconds)

    async def until_members(self, count: int, seconds: float = PATIENCE_S) -> None:
        async def are_there() -> bool:
            return len((await self.described()).members) == count

        await self.until(f"{count} members", are_there, seconds)

    async def listed(self, *states: str, types: tuple[str, ...] = ()) -> dict[str, Any]:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        answer = await self.ask("ListGroups", request)
        assert answer.error_code == 0
        return {group.group_id: group for group in answer.groups}

    async def leave(
        self, *entries: tuple[str, str | None], reason: str | None = None, group: str | None = None
    ) -> list[str]:
        """Leave as a batch of member ids and instance ids; the error of each."""
        answer = await self.leaves_answer(*entries, reason=reason, group=group)
        assert answer.error_code == 0
        return [error_of(member.error_code) for member in answer.members]

    async def leaves_answer(
        self, *entries: tuple[str, str | None], reason: str | None = None, group: str | None = None
    ) -> Any:
        members = [
            MemberIdentity(member_id=member_id, group_instance_id=instance, reason=reason)
            for member_id, instance in entries
        ]
        wanted = self.group if group is None else group
        return await self.ask("LeaveGroup", LeaveGroupRequest(group_id=wanted, members=members))

    async def delete(self, *groups: str) -> list[str]:
        names = list(groups) or [self.group]
        answer = await self.ask("DeleteGroups", DeleteGroupsRequest(groups_names=names))
        found = {result.group_id: error_of(result.error_code) for result in answer.results}
        return [found[name] for name in names]

    # -- offsets -------------------------------------------------------------------------------

    async def commit(
        self,
        offsets: dict[str, int],
        *,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        group: str | None = None,
        metadata: str | None = "",
        epoch: int = -1,
        retention: int = -1,
        version: int | None = None,
        over: Link | None = None,
    ) -> str:
        """Commit ``topic-partition`` positions; the errors, one word if all are the same."""
        request = commit_of(
            self.group if group is None else group,
            offsets,
            member_id=member_id,
            generation=generation,
            instance=instance,
            metadata=metadata,
            epoch=epoch,
            retention=retention,
        )
        answer = await self.ask("OffsetCommit", request, version, over=over)
        errors = [error_of(p.error_code) for t in answer.topics for p in t.partitions]
        assert len(errors) == len(offsets)
        return errors[0] if len(set(errors)) == 1 else " ".join(errors)

    async def fetched(self, *partitions: str, group: str | None = None) -> dict[str, Any]:
        """Committed offsets by ``topic-partition``; all of the group if none is named."""
        found = await self.fetched_whole(*partitions, group=group)
        return {name: partition.committed_offset for name, partition in found.items()}

    async def fetched_whole(self, *partitions: str, group: str | None = None) -> dict[str, Any]:
        topics = [
            OffsetFetchRequestTopic(
                name=partition.rpartition("-")[0],
                partition_indexes=[int(partition.rpartition("-")[2])],
            )
            for partition in partitions
        ]
        wanted = self.group if group is None else group
        request = OffsetFetchRequest(group_id=wanted, topics=topics or None)
        answer = await self.ask("OffsetFetch", request)
        assert answer.error_code == 0
        found = [(t.name, p) for t in answer.topics for p in t.partitions]
        assert all(p.error_code == 0 for _, p in found)
        assert len({(name, p.partition_index) for name, p in found}) == len(found), "said twice"
        return {f"{name}-{p.partition_index}": p for name, p in found}

    async def delete_offsets(self, *partitions: str, group: str | None = None) -> Any:
        request = OffsetDeleteRequest(
            group_id=self.group if group is None else group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=partition.rpartition("-")[0],
                    partitions=[
                        OffsetDeleteRequestPartition(
                            partition_index=int(partition.rpartition("-")[2])
                        )
                    ],
                )
                for partition in partitions
            ],
        )
        return await self.ask("OffsetDelete", request)

    # -- beginning and end ---------------------------------------------------------------------

    async def begin(self) -> None:
        """Find the group's coordinator, and wait until it serves the group."""

        async def serves() -> bool:
            found = await self.ask(
                "FindCoordinator", FindCoordinatorRequest(coordinator_keys=[self.group])
            )
            (coordinator,) = found.coordinators
            if coordinator.error_code:
                return False
            address = f"{coordinator.host}:{coordinator.port}"
            if address != self.address:
                self._hang_up()
                self.address = address
            described = await self.described()
            return error_of(described.error_code) in {"NONE", "GROUP_ID_NOT_FOUND"}

        await self.until("a coordinator", serves)

    async def restarted(self) -> float:
        """Wait until the broker was stopped and started again; returns when it was stopped."""
        assert self.restart is not None
        for task in self._tasks:
            task.cancel()
        self._hang_up()
        self.address = await self.restart.reached()
        await self.begin()
        return self.restart.stopped_at

    async def end(self) -> None:
        """Leave nothing behind on a broker that is not ours."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for group in (self.group, *self.other_groups):
            described = await self.described(group)
            if described.members:
                await self.leaves_answer(
                    *((member.member_id, None) for member in described.members), group=group
                )
            if described.group_state != "Dead":
                await self.delete(group)
        self._hang_up()

    def _hang_up(self) -> None:
        for links in (self._idle, self._opened):
            while links:
                links.pop().close()
