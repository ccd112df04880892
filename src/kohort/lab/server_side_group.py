"""The coordinator of a modelled group that assigns by itself (KIP-848).

In: heartbeats with the partitions that a member owns, closes, ends of sessions. Out: the assignment
in each answer, and a fact for each epoch. Must not know: processes, time between heartbeats.

The rules are those of Kafka's uniform assignor for equal subscriptions and of the reconciliation in
Kafka's coordinator, without epochs in requests: no request of the model is lost or late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from kohort.model.facts import Fact, JoinPhaseCompleted, MemberExpired, MemberLeft
from kohort.model.ids import (
    NO_MEMBER,
    GenerationId,
    GroupId,
    MemberId,
    ProtocolName,
    ProtocolType,
    TopicPartition,
)
from kohort.model.instants import Instant

Partitions = Set[TopicPartition]


def uniform(
    partitions: Iterable[TopicPartition], members: Sequence[str], former: Mapping[str, Partitions]
) -> dict[str, frozenset[TopicPartition]]:
    """The target of each member: balanced first, then as many former partitions as fit.

    As in Kafka, the first members get one more if the numbers differ, not those that had it.
    """
    everything = sorted(partitions)
    least, more = divmod(len(everything), len(members))
    quotas = {member: least + (place < more) for place, member in enumerate(members)}
    kept = {member: sorted(former.get(member, ()))[: quotas[member]] for member in members}
    taken = {tp for mine in kept.values() for tp in mine}
    free = [tp for tp in everything if tp not in taken]
    target = {}
    for member, mine in kept.items():
        missing = quotas[member] - len(mine)
        target[member] = frozenset((*mine, *free[:missing]))
        del free[:missing]
    return target


@dataclass(slots=True)
class _Member:
    """A member as the coordinator sees it."""

    assigned: Partitions = frozenset()
    revoking: Partitions = frozenset()
    """The member has not reported yet that it gave these up."""
    heard: Instant = Instant(0)
    away: bool = False
    """A static member that closed: the assignment is kept until its session is over."""

    @property
    def held(self) -> Partitions:
        """The partitions that no other member may get."""
        return self.assigned | self.revoking


class ServerSideGroup:
    """The coordinator's side: a target assignment, and the way of each member towards it."""

    def __init__(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        tell: Callable[[Fact], None],
    ) -> None:
        self.members: dict[str, _Member] = {}
        self.epoch = 0
        self._group_id = GroupId(group_id)
        self._partitions = tuple(partitions)
        self._tell = tell
        self._target: dict[str, frozenset[TopicPartition]] = {}

    def admits(self, key: str) -> bool:
        """Whether a new process may join as this member: no other process holds its place."""
        member = self.members.get(key)
        return member is None or member.away

    def beat(self, key: str, now: Instant, owned: Partitions | None = None) -> Partitions:
        """The assignment in the answer to a heartbeat; ``owned`` None: the request leaves it out.

        The first heartbeat of an unknown member is its join.
        """
        if key not in self.members:
            self.members[key] = _Member()
            self._retarget()
        member = self.members[key]
        member.heard, member.away = now, False
        self._reconcile(member, self._target[key], owned)
        return member.assigned

    def leave(self, key: str, *, for_now: bool = False) -> None:
        """A member closes; a static one goes for now, and its assignment is kept."""
        if for_now:
            self.members[key].away = True
        else:
            self._remove(key)
            self._tell(
                MemberLeft(
                    group_id=self._group_id,
                    generation_id=GenerationId(self.epoch),
                    member_id=MemberId(key),
                    group_instance_id=None,
                    client_reason=None,
                    pending=False,
                )
            )

    def expire(self, key: str, heard: Instant) -> None:
        """Remove a member that sent nothing since ``heard``."""
        member = self.members.get(key)
        if member is not None and member.heard == heard:
            self._remove(key)
            self._tell(
                MemberExpired(
                    group_id=self._group_id,
                    generation_id=GenerationId(self.epoch),
                    member_id=MemberId(key),
                    group_instance_id=None,
                )
            )

    def _remove(self, key: str) -> None:
        del self.members[key]
        self._retarget()

    def _retarget(self) -> None:
        """A new epoch and its target. The epoch is recorded as a generation."""
        self.epoch += 1
        order = sorted(self.members)
        self._target = uniform(self._partitions, order, self._target) if order else {}
        self._tell(
            JoinPhaseCompleted(
                group_id=self._group_id,
                generation_id=GenerationId(self.epoch),
                protocol_type=ProtocolType("consumer"),
                protocol_name=ProtocolName("uniform"),
                leader_id=NO_MEMBER,
                member_ids=tuple(map(MemberId, order)),
            )
        )

    def _reconcile(self, member: _Member, target: Partitions, owned: Partitions | None) -> None:
        """One step: first the member gives up, then it gets what is free, in its next answers."""
        if member.revoking and (owned is None or member.revoking & owned):
            return
        surplus = member.assigned - target
        member.assigned &= target
        if surplus and (owned is None or surplus & owned):
            member.revoking = surplus
            return
        member.revoking = frozenset()
        others = (each.held for each in self.members.values() if each is not member)
        member.assigned |= target - frozenset().union(*others)
