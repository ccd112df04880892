"""Faults of the network and of processes in the lab; every history keeps all promises.

The names of the tests begin with the fault in docs/reference/faults.md. tests/faults makes the same
faults with real sockets and processes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.lab.test_world import QUICK, everybody, plan, seen

from kohort.history.checker import check_history
from kohort.lab import actions
from kohort.lab.actions import Action
from kohort.lab.network import Line, Network
from kohort.lab.node import Node
from kohort.lab.plan import NetworkPlan, Plan
from kohort.lab.pod import Pod
from kohort.lab.world import World
from kohort.model import facts
from kohort.model.client_facts import Outcome, ResponseReceived
from kohort.model.errors import ErrorCode
from kohort.model.member_facts import RequestRefused

SESSION_S = QUICK.session_timeout_ms / 1_000
BEAT_S = QUICK.heartbeat_interval_ms / 1_000
SECOND = 1_000_000


def lived(*planned: Action, static: bool = False, **more: Any) -> World:
    """A world after its run; its history breaks no promise."""
    made: Plan = plan(*planned, **more)
    if static:
        pods = tuple(replace(pod, instance_id=pod.name) for pod in made.pods)
        made = replace(made, pods=pods)
    world = World(made)
    world.run()
    world.check()
    broken = [violation.message for violation in check_history(world.history).violations]
    assert not broken, broken
    return world


def whole(world: World) -> World:
    assert world.converged(everybody(world))
    return world


def generations(world: World) -> int:
    return len(seen(world, facts.JoinPhaseCompleted))


def expired(world: World) -> list[tuple[float, str]]:
    """The expired sessions: seconds, and the first letters of the member id."""
    return [
        (recorded.at / SECOND, recorded.fact.member_id[:2])
        for recorded in world.history
        if isinstance(recorded.fact, facts.MemberExpired)
    ]


def test_n1_a_second_of_delay_costs_nobody_a_place() -> None:
    world = whole(lived(network=NetworkPlan(delay_micros=500_000)))
    assert not expired(world)
    assert generations(world) <= 3, "one, and one for members that came late"


@pytest.mark.parametrize("seed", [1, 2])
def test_n2_n3_a_heavy_tail_below_the_session_costs_nobody_a_place(seed: int) -> None:
    network = NetworkPlan(
        delay_micros=20_000, jitter_micros=100_000, slow_ppm=50_000, slow_factor=30
    )
    assert not expired(whole(lived(network=network, seed=seed)))


def test_n4_a_member_that_was_cut_off_is_noticed_within_its_session() -> None:
    world = lived(actions.CutPod(at_ms=20_000, pod="p0", for_ms=25_000), seconds=90)
    ((at, who),) = expired(whole(world))
    assert who == "p0"
    assert 20 + SESSION_S - BEAT_S <= at <= 20 + SESSION_S + 1


@pytest.mark.parametrize(
    ("fault", "direction"), [("n5", "from broker"), ("n6", "to broker")], ids=["n5", "n6"]
)
def test_a_member_that_is_half_deaf_neither_blocks_the_group_nor_stays_out(
    fault: str, direction: str
) -> None:
    cut = actions.CutPod(at_ms=20_000, pod="p0", for_ms=30_000, direction=direction)
    world = World(plan(cut, seconds=110))
    world.run(49_000)
    others = ("p1", "p2")
    assert world.converged(others), f"{fault}: the others are stable while one is half deaf"
    world.run()
    assert not check_history(world.history).violations
    assert world.converged(everybody(world))


def test_n7_half_open_connections_end_by_silence() -> None:
    """The member gives them up after its request timeout, and goes on with new ones."""
    world = World(plan(actions.HalfOpenLines(at_ms=20_000, pod="p0"), seconds=90))
    world.run(20_000)
    half_open = world.network.lines_of(world.pods["p0"])
    assert half_open
    assert all(line.dead and line.at_client for line in half_open)
    world.run()
    assert not check_history(world.history).violations
    whole(world)
    assert not any(line.at_client for line in half_open)
    present = world.network.lines_of(world.pods["p0"])
    assert present
    assert not any(line.dead for line in present)
    timeout_s = QUICK.request_timeout_ms / 1_000
    given_up = [at for at, _ in ended(world, "p0", Outcome.UNKNOWN)]
    assert given_up
    assert 20 < min(given_up) <= 20 + BEAT_S + timeout_s
    assert {who for _, who in expired(world)} <= {"p0"}


def ended(world: World, pod: str, outcome: Outcome | None = None) -> list[tuple[float, int]]:
    """The ends of a pod's requests: seconds and numbers; all outcomes, or one."""
    return [
        (recorded.at / SECOND, recorded.fact.request)
        for recorded in world.history
        if recorded.source == pod
        and isinstance(recorded.fact, ResponseReceived)
        and outcome in (None, recorded.fact.outcome)
    ]


def test_n8_resets_among_torn_frames_change_nothing() -> None:
    resets = [actions.ResetLines(at_ms=20_000 + n * 313) for n in range(8)]
    world = whole(lived(*resets, network=NetworkPlan(torn_ppm=600_000)))
    assert not expired(world)


def pieces(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Everything that arrives anywhere from now on, as it arrives."""
    arrived: list[bytes] = []

    def note(kind: type[Any]) -> None:
        received = kind.line_received

        def noting(self: Any, line: Line, data: bytes) -> None:
            arrived.append(data)
            received(self, line, data)

        monkeypatch.setattr(kind, "line_received", noting)

    note(Node)
    note(Pod)
    return arrived


def test_n9_bytes_one_by_one_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived = pieces(monkeypatch)
    world = whole(lived(network=NetworkPlan(torn_ppm=1_000_000, longest_piece=1)))
    assert not expired(world)
    assert {len(data) for data in arrived} == {1}


def test_n9_pieces_of_two_frames_that_arrive_together_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arrived = pieces(monkeypatch)
    network = NetworkPlan(torn_ppm=500_000, merged_ppm=500_000, longest_piece=60)
    world = whole(lived(network=network))
    assert not expired(world)
    assert any(size_of(data) < len(data) - 4 for data in arrived), "two frames at once"
    assert any(size_of(data) > len(data) - 4 for data in arrived), "half a frame"


def size_of(data: bytes) -> int:
    """The size of the frame that these bytes begin, if they begin one."""
    return int.from_bytes(data[:4], "big")


@pytest.mark.parametrize("at_ms", [700, 1_500, 2_900])
def test_n10_connections_lost_while_joins_are_parked_leave_no_ghost(at_ms: int) -> None:
    made = plan(actions.ResetLines(at_ms=at_ms))
    made = replace(made, coordinator=(("group.initial.rebalance.delay.ms", "3000"),))
    world = World(made)
    world.run()
    assert not check_history(world.history).violations
    whole(world)
    sizes = [len(fact.member_ids) for fact in seen(world, facts.JoinPhaseCompleted)]
    assert max(sizes) == 3, f"members of generations: {sizes}"


def test_n11_answers_that_come_after_their_time_are_never_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They arrive on connections that the member has closed, and each request ends once."""
    late: list[str] = []
    arrive = Network._arrive_down

    def noting(self: Network, line: Line) -> None:
        if not line.at_client and not line.dead and line.down.queue[0][1]:
            late.append(line.client.process.name)
        arrive(self, line)

    monkeypatch.setattr(Network, "_arrive_down", noting)
    slow = actions.Weather(
        at_ms=20_000, for_ms=15_000, delay_micros=3_500_000, jitter_micros=500_000
    )
    world = whole(lived(slow, seconds=120))
    assert late
    for pod in set(late):
        assert ended(world, pod, Outcome.UNKNOWN)
        requests = [request for _, request in ended(world, pod)]
        assert len(set(requests)) == len(requests)


def test_n12_swizzled_members_cost_two_rebalances_each_at_most() -> None:
    at, step = 20_000, 2_000
    healing = {"p0": 9, "p1": 5, "p2": 7}
    cuts = [
        actions.CutPod(at_ms=at + n * step, pod=pod, for_ms=(healing[pod] - n) * step)
        for n, pod in enumerate(healing)
    ]
    before = World(plan())
    before.run(19_000)
    world = whole(lived(*cuts, seconds=110))
    assert generations(world) - generations(before) <= 2 * len(healing)


@pytest.mark.parametrize(("for_ms", "kept"), [(4_000, True), (30_000, False)])
def test_n13_all_members_cut_off_at_once(for_ms: int, kept: bool) -> None:
    made = [actions.CutPod(at_ms=20_000, pod=f"p{n}", for_ms=for_ms) for n in range(3)]
    before = World(replace(plan(*made), duration_ms=19_000))
    before.run()
    world = whole(lived(*made, static=True, seconds=110))
    if kept:
        assert not expired(world)
        assert generations(world) == 1
    else:
        assert {who for _, who in expired(world)} == {"p0", "p1", "p2"}


def test_p2_a_member_that_returns_inside_its_session_waits_for_its_former_self() -> None:
    world = whole(lived(actions.KillPod(at_ms=20_000, pod="p0", back_after_ms=2_000), seconds=90))
    ((at, who),) = expired(world)
    assert who == "p0"
    assert at <= 20 + SESSION_S + 1


def test_p3_a_static_member_that_returns_inside_its_session_moves_nothing() -> None:
    kill = actions.KillPod(at_ms=20_000, pod="p0", back_after_ms=2_000)
    world = whole(lived(kill, static=True))
    assert not expired(world)
    assert generations(world) == 1
    assert len(seen(world, facts.StaticMemberReplaced)) == 1


@pytest.mark.parametrize("for_ms", [100, 1_000, 3_000])
def test_p11_stalls_of_members_below_the_session_are_absorbed(for_ms: int) -> None:
    stalls = [
        actions.PausePod(at_ms=20_000 + 700 * n, pod=f"p{n}", for_ms=for_ms) for n in range(3)
    ]
    world = whole(lived(*stalls))
    assert not expired(world)
    assert generations(world) == 1


@pytest.mark.parametrize(("for_ms", "kept"), [(2_000, True), (20_000, False)])
def test_a_coordinator_that_moves_away_and_back_costs_no_partition_for_good(
    for_ms: int, kept: bool
) -> None:
    """Members ask for the coordinator until it is back; a session that ends meanwhile is lost."""
    world = whole(lived(actions.LoseCoordinator(at_ms=20_000, for_ms=for_ms), seconds=90))
    refused = {fact.error for fact in seen(world, RequestRefused)}
    assert ErrorCode.NOT_COORDINATOR in refused
    assert (len(expired(world)) == 0) == kept
