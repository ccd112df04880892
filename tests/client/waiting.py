"""A group of live members with a limit of waits, on any broker (Design II)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Protocol, TypeAlias

import confluent_kafka
from tests.waiting import until

from kohort.client.admin import Admin
from kohort.client.descriptions import GroupMemberDescription
from kohort.client.membership import GroupMembership
from kohort.embedded.consumer import decode_assignment
from kohort.model.ids import TopicPartition

PARTITIONS = 12
MINUTE: Mapping[str, object] = {"scheduled.rebalance.max.delay.ms": 60_000}

Partitions: TypeAlias = frozenset[TopicPartition]


class OtherMember(Protocol):
    """A member of another Kafka client, with the methods of confluent-kafka's consumer."""

    def poll(self, timeout: float, /) -> Any: ...

    def assignment(self) -> Sequence[Any]: ...

    def close(self) -> Any: ...


MakeOther: TypeAlias = Callable[[str, str], OtherMember]
"""Makes a member, by the broker's address, of the group and topic with a name."""


class WaitingGroup:
    """Members of kohort, and perhaps of librdkafka, that share a topic of 12 partitions.

    Args:
        address: the broker.
        stack: ends the members.
        settings: further settings of the members of kohort.
    """

    def __init__(self, address: str, stack: ExitStack, settings: Mapping[str, object]) -> None:
        self.name = f"waits-{uuid.uuid4()}"
        self._stack = stack
        self._settings = {
            "bootstrap.servers": address,
            "group.id": self.name,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 50,
        }
        self._more = settings
        self.kohort: list[GroupMembership] = []
        self.others: list[OtherMember] = []
        """Members that kohort did not make."""
        self._admin = stack.enter_context(Admin(bootstrap_servers=address))
        self._admin.create_topic(self.name, PARTITIONS, 1)

    def stateful(self, standbys: int = 0) -> None:
        """The topic has local state from now on, for members that join after this."""
        self._more = {
            **self._more,
            "kohort.stateful.topics": self.name,
            "kohort.standby.replicas": standbys,
        }

    def prepare(self, member: GroupMembership, count: int) -> Partitions:
        """Wait until this many partitions are announced to a member; it reports them as warm."""
        until(
            lambda: bool(self.owned()) and len(member.snapshot().preparing) == count,
            f"{count} partitions are announced",
        )
        announced = member.snapshot().preparing
        member.report_warm(announced)
        return announced

    def join(self, **more: object) -> GroupMembership:
        member = GroupMembership([self.name], {**self._settings, **self._more}, **more)
        self._stack.callback(member.leave)
        member.join()
        self.kohort.append(member)
        return member

    def join_other(self, make: MakeOther) -> None:
        """A member of another Kafka client."""
        member = make(str(self._settings["bootstrap.servers"]), self.name)
        self._stack.callback(member.close)
        self.others.append(member)

    def join_librdkafka(self) -> None:
        consumer = confluent_kafka.Consumer(
            {**self._settings, "partition.assignment.strategy": "cooperative-sticky"}
        )
        self._stack.callback(consumer.close)
        consumer.subscribe([self.name])
        self.others.append(consumer)

    def lose(self, member: GroupMembership) -> Partitions:
        """Let a member of kohort leave; returns its partitions."""
        self.kohort.remove(member)
        lost = member.snapshot().owned
        member.leave()
        # librdkafka joins again in its poll.
        until(
            lambda: self.owned() and all(member.waits() for member in self.kohort),
            "the others know that the group waits",
        )
        return lost

    def owned(self) -> list[Partitions]:
        """The partitions of each member; members of kohort give up revoked ones."""
        for member in self.kohort:
            member.release(member.snapshot().revoking)
        for other in self.others:
            other.poll(0)
        return [m.snapshot().owned for m in self.kohort] + [
            frozenset(TopicPartition(p.topic, p.partition) for p in c.assignment())
            for c in self.others
        ]

    def settled(self, *shares: int) -> list[Partitions]:
        """Wait until the members have this many partitions, and no partition has two owners."""

        def there() -> bool:
            # One snapshot for each member: its generation is that of its partitions.
            seen = [member.snapshot() for member in self.kohort]
            owned = [each.owned for each in seen] + self.owned()[len(seen) :]
            one_generation = len({each.generation for each in seen}) <= 1
            return one_generation and sorted(map(len, owned)) == sorted(shares)

        until(there, f"shares of {shares}")
        owned = self.owned()
        assert len(frozenset().union(*owned)) == sum(shares)
        return owned

    def members(self) -> Sequence[GroupMemberDescription]:
        """The members, by the coordinator."""
        return self._admin.describe_group(self.name).members

    def user_data(self) -> list[bytes | None]:
        """The userdata of each stored assignment."""
        return [decode_assignment(member.assignment).user_data for member in self.members()]


def a_member_returns(group: WaitingGroup, leaver: int) -> None:
    """The returning member gets its partitions in two generations; no other partition moves."""
    for shares in ([12], [6, 6], [4, 4, 4]):
        group.join()
        group.settled(*shares)
    gone = group.kohort[leaver]
    lost_id = "" if leaver == 0 else gone.snapshot().member  # a new leader did not know the old one
    generation, before = gone.snapshot().generation, group.owned()
    lost = group.lose(gone)
    del before[leaver]
    assert group.settled(4, 4) == before
    (wait,) = group.kohort[0].waits()
    assert (wait.partitions, wait.member) == (lost, lost_id)
    assert 0 < wait.remaining_ms <= 60_000
    status = group.kohort[1].status()
    assert {each.partitions for each in status.waits} == {lost}
    (sentence,) = status.waiting_for
    assert sentence.startswith("4 partitions wait up to ")
    assert ", ".join(map(str, sorted(lost))) in sentence
    returned = group.join()
    assert group.settled(4, 4, 4) == [*before, lost]
    assert returned.snapshot().generation == generation + 2
    assert [member.waits() for member in group.kohort] == [()] * 3
    until(lambda: group.user_data() == [None] * 3, "the group can be converted (KAFKA-18134)")


def a_static_leader_restarts_in_a_wait(group: WaitingGroup) -> None:
    """The wait goes on with the time that is left; no partition moves."""
    leader = group.join(group_instance_id="one")
    group.settled(12)
    for shares in ([6, 6], [4, 4, 4]):
        group.join()
        group.settled(*shares)
    before = group.owned()[:2]
    group.lose(group.kohort[2])
    assert group.settled(4, 4) == before
    follower = group.kohort[1]
    (wait,) = follower.waits()
    until(lambda: follower.waits()[0].remaining_ms < 59_000, "a second of the wait is over")
    generation = follower.snapshot().generation
    group.kohort.remove(leader)
    leader.leave()  # A static member sends no LeaveGroup.
    group.join(group_instance_id="one")
    group.kohort.reverse()
    until(lambda: follower.snapshot().generation > generation, "the restarted leader takes over")
    assert group.settled(4, 4) == before
    for member in group.kohort:
        (left,) = member.waits()
        assert left.partitions == wait.partitions
        assert 0 < left.remaining_ms < 59_000


def members_with_identities_return(group: WaitingGroup) -> None:
    """Each process gets the partitions of the process before it, in whatever order they come."""
    group.join()
    group.settled(12)
    for name, shares in (("a", [6, 6]), ("b", [4, 4, 4])):
        group.join(kohort_member_identity=name)
        group.settled(*shares)
    first, *before = group.owned()
    for member in group.kohort[:0:-1]:
        group.lose(member)
        group.settled(*[4] * len(group.kohort))
    for name in "ab":  # b was lost first
        group.join(kohort_member_identity=name)
        group.settled(*[4] * len(group.kohort))
    assert group.owned() == [first, *before]


def a_member_is_drained(group: WaitingGroup) -> None:
    """Its partitions move while it is a member; nothing waits for it after it left."""
    for shares in ([12], [6, 6], [4, 4, 4]):
        group.join()
        group.settled(*shares)
    goes = group.kohort[1]
    goes.drain()
    owned = group.settled(0, 6, 6)
    assert goes.drained
    assert owned[1] == frozenset()
    group.kohort.remove(goes)
    goes.leave()
    until(lambda: len(group.members()) == 2, "two members are left")
    assert group.settled(6, 6) == [owned[0], owned[2]]
    assert [member.waits() for member in group.kohort] == [()] * 2


def a_drain_under_another_leader_is_over_at_once(
    group: WaitingGroup, join: Callable[[WaitingGroup], None] = WaitingGroup.join_librdkafka
) -> None:
    """The leader knows no drains: the member leaves as usual."""
    join(group)
    group.settled(12)
    goes = group.join()
    group.settled(6, 6)
    goes.drain()
    until(lambda: bool(group.owned()) and goes.drained, "the drain is over")
    assert goes.snapshot().owned
    group.kohort.remove(goes)
    goes.leave()
    group.settled(12)


def a_newcomer_prepares(group: WaitingGroup) -> None:
    """Nothing moves before the newcomer reports warm copies; then exactly these move."""
    group.stateful()
    group.join()
    (before,) = group.settled(12)
    newcomer = group.join()
    until(lambda: len(newcomer.snapshot().preparing) == 6, "six partitions are announced")
    assert group.settled(0, 12) == [before, frozenset()]
    announced = group.prepare(newcomer, 6)
    assert group.settled(6, 6) == [before - announced, announced]
    until(lambda: group.user_data() == [None] * 2, "the group can be converted (KAFKA-18134)")


def _three_members_prepare(group: WaitingGroup) -> None:
    group.stateful()
    for shares, count in (([12], 0), ([6, 6], 6), ([4, 4, 4], 4)):
        member = group.join()
        if count:
            group.prepare(member, count)
        group.settled(*shares)


def a_member_is_drained_warmly(group: WaitingGroup) -> None:
    """The member that leaves works until the others have warm copies."""
    _three_members_prepare(group)
    *others, goes = group.kohort
    before = group.owned()
    goes.drain()
    until(
        lambda: [len(member.snapshot().preparing) for member in others] == [2, 2],
        "the partitions are announced",
    )
    assert group.settled(4, 4, 4) == before
    assert not goes.drained
    for member in others:
        group.prepare(member, 2)
    group.settled(0, 6, 6)
    assert goes.drained


def a_standby_takes_over(group: WaitingGroup) -> None:
    """Lost partitions go to the members that have warm copies of them."""
    _three_members_prepare(group)
    first, second, lost = group.owned()
    copies = frozenset(sorted(lost)[1:3])
    group.kohort[1].report_warm(copies)
    group.kohort[1].request_rejoin("a probing rebalance")
    group.settled(4, 4, 4)
    gone = group.kohort.pop()
    gone.leave()
    assert group.settled(6, 6) == [first | (lost - copies), second | copies]


def standbys_of_the_leader_take_over(group: WaitingGroup) -> None:
    """The leader spreads standbys; partitions of a lost member go to the members with copies."""
    group.stateful(standbys=1)
    warm: dict[GroupMembership, Partitions] = {}

    def all_warm(shares: Sequence[int]) -> bool:
        for member in group.kohort:
            seen = member.snapshot()
            if seen.preparing:
                member.report_warm(seen.preparing)
                warm[member] = warm.get(member, frozenset()) | seen.preparing
        return sorted(map(len, group.owned())) == sorted(shares)

    for shares in ([12], [6, 6], [4, 4, 4]):
        group.join()
        until(lambda wanted=shares: all_warm(wanted), f"shares {shares}")  # type: ignore[misc]
    first, second, third = group.kohort
    generation = first.snapshot().generation
    first.request_rejoin("the copies are warm now")
    until(lambda: all_warm([4, 4, 4]) and first.snapshot().generation > generation, "a round")
    lost = third.snapshot().owned
    group.kohort.remove(third)
    third.leave()
    before = [member.snapshot().owned for member in (first, second)]
    until(lambda: all_warm([6, 6]), "the standbys take over")
    for member, had in zip((first, second), before, strict=True):
        came = member.snapshot().owned - had
        assert came <= lost
        assert came <= warm[member], "only members with a copy took over"
