"""Connectors and tasks: Connect's eager plan byte for byte, and the promises of the incremental."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.java import java_output, skip_without_kafkas_classes
from tests.policies.workers import decided

from kohort.embedded.connect import (
    COMPATIBLE,
    CONFIG_MISMATCH,
    EAGER,
    ConnectAssignment,
    ConnectorTask,
    WorkerState,
    decode_worker_assignment,
    encode_worker_assignment,
    encode_worker_state,
)
from kohort.model.errors import ConfigError
from kohort.model.ids import GenerationId, MemberId, ProtocolName
from kohort.model.instants import Instant
from kohort.model.join import JoinedMember
from kohort.policies.connect import Configuration, eager_assignments
from kohort.policies.connect_groups import ConnectAssigner
from kohort.policies.losses import Moment

EAGER_PLANS = Path(__file__).parent / "java" / "EagerPlans.java"
COUNTS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 9), max_size=8)
A, B, C = map(MemberId, "ABC")


def _workers(names: str, offset: int = 5) -> dict[MemberId, WorkerState]:
    return {MemberId(n): WorkerState(url=f"http://{n}/", config_offset=offset) for n in names}


def _all(tasks: Mapping[str, int]) -> set[ConnectorTask]:
    return {ConnectorTask(name, n) for name, count in tasks.items() for n in range(-1, count)}


def _settle(workers: dict[MemberId, WorkerState], tasks: Mapping[str, int]) -> int:
    """Rounds until nothing changes; in each, nobody starts what another worker still has."""
    for rounds in range(4):
        plan = decided(min(workers), workers, Configuration(offset=5, tasks=tasks))
        before = {i: _has(state) for i, state in workers.items()}
        for member_id, told in plan.items():
            others = [had for i, had in before.items() if i != member_id]
            assert not told.assigned & set().union(*others)
            assert told.revoked <= before[member_id]
            has = (before[member_id] - told.revoked) | told.assigned
            workers[member_id] = replace(workers[member_id], allocation=replace(told, assigned=has))
        if not any(told.assigned or told.revoked for told in plan.values()):
            return rounds
    raise AssertionError("the group does not settle")


def _has(state: WorkerState) -> frozenset[ConnectorTask]:
    return frozenset(state.allocation.assigned) if state.allocation else frozenset()


def _assert_shared(workers: Mapping[MemberId, WorkerState], tasks: Mapping[str, int]) -> None:
    shares = [_has(state) for state in workers.values()]
    assert sum(map(len, shares)) == len(_all(tasks))
    assert frozenset[ConnectorTask]().union(*shares) == _all(tasks)
    for kind in (True, False):
        loads = [sum(each.is_connector == kind for each in mine) for mine in shares]
        assert max(loads) - min(loads) <= 1


@pytest.mark.real_kafka
@pytest.mark.slow
def test_eager_plans_are_those_that_connect_makes() -> None:
    skip_without_kafkas_classes()
    rng = random.Random(3)
    lines, plans = [], []
    for _ in range(500):
        workers = _workers("".join(rng.sample("ABCDEFG", rng.randrange(1, 8))))
        leader = rng.choice(list(workers))
        tasks = {n: rng.randrange(6) for n in rng.sample("abcdefghijklmno", rng.randrange(9))}
        read = Configuration(offset=rng.choice((4, 5)), tasks=tasks)
        states = " ".join(f"{i}:{encode_worker_state(s, EAGER).hex()}" for i, s in workers.items())
        words = ",".join(f"{name}:{count}" for name, count in tasks.items()) or "-"
        lines.append(f"{leader} {read.offset} {words} {states}")
        plan = sorted(eager_assignments(leader, workers, read).items())
        told = (f"{i} {encode_worker_assignment(mine, EAGER).hex()}" for i, mine in plan)
        plans.append(" ".join(told))
    assert java_output(EAGER_PLANS, lines) == plans


def test_eager_shares_connectors_first_then_tasks() -> None:
    plan = eager_assignments(A, _workers("AB"), Configuration(offset=6, tasks={"b": 1, "a": 2}))
    assert plan[A] == ConnectAssignment(
        leader=A,
        leader_url="http://A/",
        config_offset=6,
        assigned={ConnectorTask("a"), ConnectorTask("a", 0), ConnectorTask("b", 0)},
    )
    assert plan[B].assigned == {ConnectorTask("b"), ConnectorTask("a", 1)}


@given(COUNTS, COUNTS)
def test_every_task_runs_once_and_loads_are_level(
    tasks: Mapping[str, int], later: Mapping[str, int]
) -> None:
    workers = _workers("A")
    for change in ("", "BC", "D"):
        workers |= _workers(change)
        assert _settle(workers, tasks) <= 2
        _assert_shared(workers, tasks)
    del workers[B]
    _settle(workers, tasks)
    _assert_shared(workers, tasks)
    _settle(workers, later)
    _assert_shared(workers, later)


@given(COUNTS)
def test_work_of_the_others_keeps_running_when_a_worker_dies(tasks: Mapping[str, int]) -> None:
    workers = _workers("ABC")
    _settle(workers, tasks)
    before = {i: _has(state) for i, state in workers.items()}
    del workers[C]
    assert _settle(workers, tasks) <= 1
    assert all(before[i] <= _has(state) for i, state in workers.items())


def test_work_that_two_workers_claim_is_stopped_by_both_first() -> None:
    claim = ConnectAssignment(assigned={ConnectorTask("a", 0)})
    workers = {i: replace(s, allocation=claim) for i, s in _workers("AB").items()}
    plan = decided(A, workers, Configuration(offset=5, tasks={"a": 1}))
    assert [told.revoked for told in plan.values()] == [{ConnectorTask("a", 0)}] * 2
    _settle(workers, {"a": 1})
    _assert_shared(workers, {"a": 1})


@pytest.mark.parametrize("decide", [eager_assignments, decided])
def test_a_leader_that_is_behind_assigns_nothing(decide: type) -> None:
    workers = _workers("A", offset=5) | _workers("B", offset=9)
    plan = decide(A, workers, Configuration(offset=8, tasks={"a": 2}))
    assert plan == dict.fromkeys(
        [A, B],
        ConnectAssignment(leader=A, leader_url="http://A/", config_offset=9, error=CONFIG_MISMATCH),
    )


def test_a_negative_number_of_tasks_is_refused() -> None:
    with pytest.raises(ConfigError, match="tasks of a, got -1"):
        Configuration(offset=0, tasks={"a": -1})


@pytest.mark.parametrize(("name", "version"), [("default", EAGER), ("compatible", COMPATIBLE)])
def test_124_every_worker_is_told_in_the_version_that_was_voted_for(
    name: str, version: int
) -> None:
    """The leader, too, learns of its own work from its assignment."""
    leader, other = MemberId("a"), MemberId("b")
    state = WorkerState(url="http://a/", config_offset=1)
    configuration = Configuration(offset=1, tasks={"c": 3})
    members = [
        JoinedMember(
            member_id=i, group_instance_id=None, metadata=encode_worker_state(state, version)
        )
        for i in (leader, other)
    ]
    moment = Moment(generation_id=GenerationId(1), now=Instant(0), leader_id=leader)
    plan = ConnectAssigner(lambda: configuration).assign(ProtocolName(name), members, {}, moment)
    assert {int.from_bytes(data[:2], "big") for data in plan.assignments.values()} == {version}
    told = {i: decode_worker_assignment(data) for i, data in plan.assignments.items()}
    assert told[leader].leader == leader
    assert told[leader].assigned
    assert told[leader].assigned | told[other].assigned == set(configuration.work())
