"""A cooperative group in virtual time, for tests of waits and of limits of moves."""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.embedded.deferral import NOTHING, Echo, Pending, encode_echo
from kohort.model.ids import NO_GENERATION, GenerationId, MemberId, TopicPartition
from kohort.model.instants import Instant, Millis
from kohort.policies.deferred import DeferredPlan, Resolution, deferred_plan
from kohort.policies.losses import LeaderMemory, Moment
from kohort.policies.spec import GroupSpec, MemberSpec

MINUTE = Resolution(most_wait_ms=Millis(60_000))


@dataclass
class Consumer:
    """A member between two joins."""

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION
    pending: Pending = NOTHING
    told_at: int = 0
    memory: LeaderMemory | None = None
    known: dict[str, int] = field(default_factory=dict)
    echoes: bool = True
    identity: int | None = None
    draining: bool = False
    prepares: bool = False
    warm: frozenset[TopicPartition] = frozenset()

    @property
    def announced(self) -> frozenset[TopicPartition]:
        """The partitions that this member shall prepare."""
        handovers = (each.partitions for each in self.pending.handovers)
        return frozenset[TopicPartition]().union(*handovers)


class Group:
    """A cooperative group; each ``settle`` runs rounds until no member gives anything up."""

    def __init__(self, names: str, resolution: Resolution = MINUTE, **sizes: int) -> None:
        self.sizes = sizes or {"t": 12}
        self.resolution = resolution
        self.members: dict[str, Consumer] = {}
        self.now = 0
        self.generation = 0
        self.generations = 0
        self.moves = 0
        self.owner: dict[TopicPartition, str] = {}
        self.last: DeferredPlan | None = None
        self.join(*names.split())
        self.settle()
        self.moves = self.generations = 0

    def join(self, *names: str, topics: str = "", identity: int | None = None) -> None:
        for name in names:
            wanted = frozenset(topics.split()) if topics else frozenset(self.sizes)
            self.members[name] = Consumer(
                wanted, identity=identity, prepares=bool(self.resolution.stateful)
            )

    def leave(self, *names: str) -> None:
        for name in names:
            del self.members[name]

    @property
    def leader(self) -> str:
        """The member that has been in the group for longest, as a coordinator keeps its leader."""
        return next(iter(self.members))

    def round(self) -> bool:
        """One rebalance; whether a member gave something up, so that another round follows."""
        members = {}
        for name, each in self.members.items():
            left = each.pending.after(Millis((self.now - each.told_at) // 1_000))
            echo = encode_echo(
                GenerationId(each.generation),
                Echo(
                    pending=left if each.echoes else NOTHING,
                    identity=each.identity,
                    draining=each.draining,
                    prepares=each.prepares,
                    warm=each.warm - each.owned,
                ),
            )
            members[MemberId(name)] = MemberSpec(
                topics=each.topics,
                owned=each.owned,
                generation_id=GenerationId(each.generation),
                user_data=echo,
            )
        self.generation += 1
        self.generations += 1
        first = self.members[self.leader]
        moment = Moment(
            generation_id=GenerationId(self.generation),
            now=Instant(self.now),
            memory=first.memory,
            known=first.known,
            leader_id=MemberId(self.leader),
        )
        self.last = plan = self.decide(GroupSpec(members=members, partitions=self.sizes), moment)
        gave_up = False
        for name, each in self.members.items():
            mine = frozenset(plan.partitions[MemberId(name)])
            gave_up |= bool(each.owned - mine)
            for partition in mine:
                self.moves += self.owner.get(partition, name).rstrip("'") != name.rstrip("'")
                self.owner[partition] = name
            each.owned, each.generation = mine, self.generation
            each.pending, each.told_at = plan.pending_of(MemberId(name)), self.now
            each.memory = None
        first.memory, first.known = plan.memory, dict(self.sizes)
        return gave_up

    def decide(self, spec: GroupSpec, moment: Moment) -> DeferredPlan:
        """The leader's plan."""
        return deferred_plan(spec, moment, self.resolution)

    def settle(self) -> DeferredPlan:
        for _ in range(60):
            if not self.round():
                assert self.last is not None
                return self.last
        raise AssertionError("the group does not settle")

    def sleep(self, seconds: float) -> None:
        """Time passes; the leader's timer starts rounds."""
        end = self.now + int(seconds * 1_000_000)
        while self.last and self.last.again and self.members:
            due = self.told_at + self.last.again.after_ms * 1_000
            if due > end:
                break
            self.now = max(self.now, due)
            self.settle()
        self.now = end

    @property
    def told_at(self) -> int:
        return self.members[self.leader].told_at

    @property
    def idle(self) -> set[TopicPartition]:
        owned = {p for each in self.members.values() for p in each.owned}
        return {TopicPartition(t, n) for t, size in self.sizes.items() for n in range(size)} - owned

    def owned(self, name: str) -> frozenset[TopicPartition]:
        return self.members[name].owned
