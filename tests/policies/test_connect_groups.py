"""Groups of kohort's workers: waits, limits of moves, weights, over rounds of drawn groups."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from tests.examples import seeds

from kohort.consumer.embedded_protocol import Offer
from kohort.embedded.connect import COMPATIBLE, NAMES, ConnectorTask
from kohort.engine.connect_protocol import connect_protocol
from kohort.engine.consumer_driver import GroupProtocol
from kohort.model.ids import NO_GENERATION, GenerationId, MemberId
from kohort.model.instants import Instant, Millis, after
from kohort.model.join import JoinedMember
from kohort.policies.connect import Configuration
from kohort.policies.connect_groups import ALL
from kohort.policies.deferred import Resolution
from kohort.policies.losses import LeaderMemory, Moment
from kohort.policies.spec import Say, say_nothing

WAIT_MS = Millis(10_000)


@dataclass
class _Worker:
    protocol: GroupProtocol[ConnectorTask]
    owned: frozenset[ConnectorTask] = frozenset()
    generation_id: GenerationId = NO_GENERATION
    user_data: bytes | None = None


@dataclass
class _Group:
    """Workers that join, apply their assignments at once, and join again."""

    configuration: Configuration
    resolution: Resolution
    warn: Say = say_nothing
    workers: dict[MemberId, _Worker] = field(default_factory=dict)
    generation_id: GenerationId = NO_GENERATION
    now: Instant = Instant(0)
    memory: LeaderMemory | None = None
    leader: MemberId | None = None
    moved: int = 0
    """Work that was revoked in the last round."""

    def come(self, name: str) -> None:
        protocol = connect_protocol(
            "",
            lambda: self.configuration,
            warn=self.warn,
            resolution=self.resolution,
            most_record_bytes=0,
        )
        self.workers[MemberId(name)] = _Worker(protocol)

    def round(self) -> bool:
        """One generation; returns whether anything changed."""
        self.generation_id = GenerationId(self.generation_id + 1)
        leader = self.leader if self.leader in self.workers else min(self.workers)
        assert leader is not None
        if leader != self.leader:
            self.memory = None
        self.leader = leader
        members = []
        for i, worker in self.workers.items():
            offer = Offer(
                topics=frozenset({ALL}),
                owned=worker.owned,
                previous=worker.owned,
                generation_id=worker.generation_id,
                user_data=worker.user_data,
            )
            (offered,) = worker.protocol.embedded.offer(offer)
            members.append(
                JoinedMember(member_id=i, group_instance_id=None, metadata=offered.metadata)
            )
        moment = Moment(
            generation_id=self.generation_id, now=self.now, memory=self.memory, leader_id=leader
        )
        assigner = self.workers[leader].protocol.assigner
        plan = assigner.assign(NAMES[COMPATIBLE], members, {}, moment)
        assert plan.memory is None or isinstance(plan.memory, LeaderMemory)
        self.memory = plan.memory
        before = {i: worker.owned for i, worker in self.workers.items()}
        for i, worker in self.workers.items():
            worker.owned, worker.user_data = worker.protocol.embedded.read_assignment(
                plan.assignments[i]
            )
            worker.generation_id = self.generation_id
        self.moved = sum(len(before[i] - w.owned) for i, w in self.workers.items())
        for i, worker in self.workers.items():
            for other, had in before.items():
                assert other == i or not worker.owned & had, "started before it was stopped"
        return any(before[i] != worker.owned for i, worker in self.workers.items())

    def settle(self) -> int:
        for rounds in range(200):
            if not self.round():
                return rounds
        raise AssertionError("the group does not settle")

    def pass_time(self, millis: int) -> None:
        self.now = after(self.now, Millis(millis))

    @property
    def running(self) -> list[ConnectorTask]:
        return sorted(work for worker in self.workers.values() for work in worker.owned)


def _configuration(rng: random.Random, *, weighted: bool) -> Configuration:
    tasks = {name: rng.randrange(6) for name in rng.sample("abcdefgh", rng.randrange(1, 7))}
    plain = Configuration(offset=1, tasks=tasks)
    weights = {work: rng.randrange(1, 9) for work in plain.work()} if weighted else {}
    return Configuration(offset=1, tasks=tasks, weights=weights)


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("most_moves", [None, 1, 3])
def test_every_drawn_group_settles_with_all_work_running_once(
    weighted: bool, most_moves: int | None
) -> None:
    for seed in range(24):
        rng = random.Random(seed)
        group = _Group(_configuration(rng, weighted=weighted), Resolution(most_moves=most_moves))
        for step in range(6):
            if len(group.workers) < 2 or rng.random() < 0.6:
                group.come(f"w{step}")
            else:
                del group.workers[rng.choice(sorted(group.workers))]
            if rng.random() < 0.2:
                group.configuration = _configuration(rng, weighted=weighted)
                group.settle()
            elif most_moves is not None:
                group.round()
                assert group.moved <= most_moves, seed
            group.settle()
            assert group.running == sorted(group.configuration.work()), seed


@pytest.mark.parametrize("weighted", [False, True])
def test_work_of_a_lost_worker_waits_for_one_that_comes_and_for_no_longer(weighted: bool) -> None:
    for seed in seeds(60):
        rng = random.Random(seed)
        group = _Group(_configuration(rng, weighted=weighted), Resolution(most_wait_ms=WAIT_MS))
        for name in "abcd":
            group.come(name)
        group.settle()
        gone = rng.choice(sorted(group.workers.keys() - {group.leader}))
        mine = group.workers.pop(gone).owned
        others = {i: worker.owned for i, worker in group.workers.items()}
        group.settle()
        assert {i: worker.owned for i, worker in group.workers.items()} == others, seed
        group.pass_time(4_000)
        if rng.random() < 0.5:
            group.come("e")
            group.settle()
            assert group.workers[MemberId("e")].owned == mine, seed
        else:
            group.pass_time(7_000)
            group.settle()
            assert group.running == sorted(group.configuration.work()), seed


def test_the_next_leader_lets_work_of_the_dead_leader_wait() -> None:
    group = _Group(
        Configuration(offset=1, tasks={"a": 4, "b": 3, "c": 2, "d": 1, "e": 1, "f": 1}),
        Resolution(most_wait_ms=WAIT_MS),
    )
    for name in "abc":
        group.come(name)
    group.settle()
    assert group.leader is not None
    mine = group.workers.pop(group.leader).owned
    group.configuration = Configuration(offset=2, tasks={**group.configuration.tasks, "new": 1})
    group.settle()
    assert set(group.running) == set(group.configuration.work()) - mine, "new work waits for nobody"
    group.come("d")
    group.settle()
    assert group.workers[MemberId("d")].owned == mine


def test_a_worker_with_unreadable_bytes_gets_no_work() -> None:
    faults: list[str] = []
    group = _Group(Configuration(offset=1, tasks={"a": 3}), Resolution(), faults.append)
    group.come("a")
    (worker,) = group.workers.values()
    name, data = worker.protocol.embedded.offer(
        Offer(
            topics=frozenset({ALL}),
            owned=frozenset(),
            previous=frozenset(),
            generation_id=NO_GENERATION,
        )
    )[0]
    members = [
        JoinedMember(member_id=MemberId(i), group_instance_id=None, metadata=bytes_)
        for i, bytes_ in (("a", data), ("b", b"\0"), ("c", data[:-1]), ("d", data[:-60]))
    ]
    moment = Moment(generation_id=GenerationId(1), now=Instant(0), leader_id=MemberId("a"))
    plan = worker.protocol.assigner.assign(name, members, {}, moment)
    shares = [
        len(worker.protocol.embedded.read_assignment(d)[0]) for d in plan.assignments.values()
    ]
    assert sum(shares) == 4
    assert shares[1:3] == [0, 0]
    assert [text.partition(":")[0] for text in faults] == [
        "member b gets no work",
        "member d gets no work",
        "member c gets nothing",
    ]
