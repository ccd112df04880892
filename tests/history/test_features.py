"""Real engines give each check something to judge, except the pending checks."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.engine.coordinator_bench import Bench, Client
from tests.engine.recorded_pair import RecordedWorld

from kohort.engine.coordinator_engine import CoordinatorEngine
from kohort.engine.coordinator_outputs import Observed, Output
from kohort.engine.coordinator_recording import RecordingCoordinatorEngine
from kohort.history.checker import Checker, Report
from kohort.history.registry import BY_NUMBER
from kohort.lab.compared_policies import compared_policy
from kohort.lab.random_plans import draw
from kohort.lab.runs import run_plan
from kohort.lab.scenarios.base import Setup
from kohort.lab.scenarios.registry import scenario
from kohort.lab.scenarios.running import Run, run
from kohort.model.errors import ErrorCode
from kohort.model.history_record import Recorded
from kohort.model.instants import Millis
from kohort.policies.consumer_groups import ConsumerAssigner
from kohort.policies.deferred import Resolution
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity

PENDING = Path(__file__).with_name("features_pending.toml")
SAFETY, LIVENESS = range(1, 9), range(1, 3)


class RecordedBench(Bench):
    """A bench with a recorded engine."""

    def __init__(self, **settings: Any) -> None:
        self.history: list[Recorded] = []
        super().__init__(**settings)

    def make_engine(self, *args: Any, **more: Any) -> CoordinatorEngine:
        return RecordingCoordinatorEngine(*args, record_timers=True, **more)

    def _make_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}-{self._ids:016x}"

    def carry_out(self, outputs: Iterable[Output]) -> None:
        outputs = list(outputs)
        for output in outputs:
            if isinstance(output, Observed):
                self.history.append(
                    Recorded(
                        sequence=len(self.history) + 1,
                        at=output.at,
                        incarnation=1,
                        source="broker",
                        fact=output.fact,
                    )
                )
        super().carry_out(outputs)


def static_join(client: Client, instance: str, member_id: str = "") -> Any:
    request = client.join_request("g", member_id)
    request.group_instance_id = instance
    client.send("JoinGroup", request)
    return client


def static_members() -> RecordedBench:
    """One comes back in Stable; its former self is fenced; an operator removes it."""
    bench = RecordedBench()
    first, second, operator = (bench.client(n) for n in ("one", "two", "operator"))
    static_join(first, "i")
    bench.wait(10)
    bench.written()
    old = first.answers[-1].member_id
    first.sync("g", first.answers[-1].generation_id, old, {old: b""})
    bench.written()
    static_join(second, "i")
    bench.written()
    new = second.answers[-1].member_id
    assert new != old
    second.sync("g", second.answers[-1].generation_id, new)
    bench.written()
    bench.wait(10)
    first.send(
        "Heartbeat",
        HeartbeatRequest(group_id="g", generation_id=1, member_id=old, group_instance_id="i"),
    )
    assert first.answers[-1].error_code == ErrorCode.FENCED_INSTANCE_ID
    leaving = MemberIdentity(member_id="", group_instance_id="i")
    operator.send("LeaveGroup", LeaveGroupRequest(group_id="g", members=[leaving]))
    bench.written()
    return bench


def followers_and_neighbours() -> RecordedBench:
    """A follower assigns; meanwhile another group beats; somebody talks nonsense."""
    bench = RecordedBench(delay=100)
    leader, follower, other = (bench.client(n) for n in ("leader", "follower", "other"))
    quiet = other.enter("quiet")
    bench.wait(150)
    bench.written()
    other.sync("quiet", 1, quiet, {quiet: b""})
    bench.written()
    leads, follows = leader.enter("g"), follower.enter("g")
    assert other.beat("quiet", 1, quiet) == ErrorCode.NONE
    bench.wait(250)
    bench.written()
    follower.sync("g", 1, follows, {leads: b"", follows: b"mine"})
    leader.sync("g", 1, leads, {leads: b"all", follows: b""})
    bench.written()
    assert leader.answers[-1].assignment == b"all"
    bad = leader.join_request("g", leads)
    bad.session_timeout_ms = 1
    leader.send("JoinGroup", bad)
    assert leader.answers[-1].error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    return bench


def a_member_that_does_not_rejoin() -> RecordedBench:
    """The first member only beats; the join phase goes on without the member at its end."""
    bench = RecordedBench()
    first, second = bench.client("first"), bench.client("second")
    member_id = first.enter("g")
    bench.wait(1)
    first.sync("g", 1, member_id, {member_id: b""})
    bench.written()
    second.enter("g")
    for _ in range(12):
        assert first.beat("g", 1, member_id) == ErrorCode.REBALANCE_IN_PROGRESS
        bench.wait(5_000)
    bench.written()
    assert [m.member_id for m in second.answers[-1].members] == [second.answers[-1].member_id]
    return bench


def a_group_of_three() -> RecordedWorld:
    world = RecordedWorld()
    a, b, c = [world.client(name).join() for name in "abc"]
    world.until(lambda: world.settled(a, b, c), within_ms=20_000)
    a.commit()
    world.run(5_000)
    a.leave()
    world.until(lambda: world.settled(b, c), within_ms=20_000)
    return world


def a_group_that_waits_for_a_lost_member() -> RecordedWorld:
    world = RecordedWorld()
    assigner = ConsumerAssigner(Resolution(most_wait_ms=Millis(60_000)))
    a, b, c = [world.client(name, assigner=assigner).join() for name in "abc"]
    world.until(lambda: world.settled(a, b, c), within_ms=20_000)
    c.leave()
    world.run(10_000)
    d = world.client("d", assigner=assigner).join()
    world.until(lambda: world.settled(a, b, d), within_ms=20_000)
    return world


def a_group_that_grows_by_one_move_a_round() -> Run:
    policy = compared_policy("paced")
    return run(scenario("scale-up"), Setup(policy=policy, members=3, partitions=12))


def a_group_that_prepares_before_it_moves() -> Run:
    policy = compared_policy("handover")
    return run(scenario("rolling-bounce"), Setup(policy=policy, members=3, partitions=12))


SCENES = (
    a_group_that_prepares_before_it_moves,
    a_group_that_grows_by_one_move_a_round,
    a_group_that_waits_for_a_lost_member,
    static_members,
    followers_and_neighbours,
    a_member_that_does_not_rejoin,
    a_group_of_three,
)


def checked(history: Sequence[Recorded]) -> Report:
    report = Checker().feed_all(history).finish()
    assert report.clean, report.violations[:3]
    return report


def reports() -> Iterator[Report]:
    for scene in SCENES:
        yield checked(scene().history)
    for mode, seeds in (("safety", SAFETY), ("liveness", LIVENESS)):
        for seed in seeds:
            yield checked(run_plan(draw(seed, mode)).history)


@pytest.mark.slow
def test_real_engines_give_each_check_something_to_judge_except_pending_ones() -> None:
    judged = {r.number for report in reports() for r in report.results if r.judged}
    pending = {int(number) for number in tomllib.loads(PENDING.read_text())["pending"]}
    assert pending <= BY_NUMBER.keys()
    assert judged & pending == set(), "these are built: take them off the list"
    assert BY_NUMBER.keys() - judged == pending, "nothing real gives these anything to judge"


@pytest.mark.parametrize("scene", SCENES)
def test_histories_of_real_engines_break_no_promise(scene: Any) -> None:
    checked(scene().history)
