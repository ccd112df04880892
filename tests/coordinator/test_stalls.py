"""A process that was stopped: every deadline moves, so no member pays for the stall."""

from __future__ import annotations

from tests.coordinator.world import World

from kohort.coordinator.interface import Loaded, Stalled

STALL_MS = 100_000


def stall(world: World) -> None:
    """The process is stopped for 100 s, and says so before anything else."""
    world.now += STALL_MS * 1_000  # type: ignore[assignment]
    assert world.feed(Stalled(micros=STALL_MS * 1_000)) == []


def test_a_stall_leaves_a_handed_out_id_its_grace() -> None:
    world = World()
    world.stable("a", session=60_000)
    world.join("c", "")
    world.wait(400)
    stall(world)
    world.join("a")
    assert world.state() == "PreparingRebalance", "the group waits for the member id c-1"
    assert world.wait(599) == []
    assert world.wait(1)[0] == "fact JoinPhaseCompleted generation=2 range a-1 [a-1]"


def test_a_stall_in_the_grace_of_a_handed_out_id_extends_the_grace() -> None:
    world = World()
    world.stable("a", session=60_000)
    world.join("c", "")
    world.join("a")
    world.wait(400)
    stall(world)
    assert world.wait(599) == []
    assert world.wait(1)[0] == "fact JoinPhaseCompleted generation=2 range a-1 [a-1]"


def test_a_stall_extends_the_join_phase_of_a_group_that_waited_for_a_handed_out_id() -> None:
    world = World()
    world.stable("a", "b", rebalance=8_000, session=60_000)
    world.join("c", "")
    world.join("a", name="a.waits", rebalance=8_000, session=60_000)
    world.join("b", rebalance=8_000, session=60_000)
    stall(world)
    world.lose("a.waits")
    assert world.wait(7_999) == []
    assert world.wait(1)[0] == "fact MembersNotRejoined generation=1 [a-1]"


def test_a_stall_extends_sync_phases_and_sessions() -> None:
    world = World()
    world.joined("a", "b", rebalance=8_000, session=8_000)
    world.sync("a", 1, {})
    world.wait(7_000)
    stall(world)
    assert world.wait(999) == []
    assert any("RebalanceStarted" in line for line in world.wait(1))


def test_a_stall_extends_the_initial_delay() -> None:
    world = World(delay=3_000)
    world.enter("a")
    world.wait(1_000)
    stall(world)
    assert world.wait(1_999) == []
    assert world.wait(1)[0].startswith("fact JoinPhaseCompleted")


def test_a_stall_moves_no_retention_by_the_wall_clock() -> None:
    """Offsets expire by the time of day, which a stall does not stop."""
    world = World(offsets_retention_minutes=1, offsets_retention_check_interval_ms=10_000)
    world.feed(Loaded())
    world.commit("", -1, {"t-0": 1})
    world.written()
    stall(world)
    lines = world.wait(10_000)
    assert any("write" in line for line in lines), lines
