"""One run of one scenario: from a setup to the cost.

In: a scenario, a setup; out: measurements, the plan and the history they come from. Must not know:
how results are shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohort.history.cost_values import Measured
from kohort.history.costs import measure
from kohort.lab.plan import Plan
from kohort.lab.scenarios.base import Scenario, Setup, plan_of
from kohort.lab.server_side import ServerSideWorld
from kohort.lab.world import World
from kohort.model.history_record import Recorded
from kohort.model.ids import GroupId
from kohort.model.instants import MICROS_PER_MILLI, Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The result of a run."""

    scenario: Scenario
    setup: Setup
    plan: Plan
    measured: Measured
    history: tuple[Recorded, ...]


def run(scenario: Scenario, setup: Setup) -> Run:
    """Let a scenario happen to a group, and measure it.

    Raises:
        ConfigError: impossible sizes.
    """
    plan, story = plan_of(scenario, setup)
    history = history_of(plan, server_side=setup.policy.server_side)
    measured = measure(
        history,
        plan.partitions,
        setup.costs,
        begin=Instant(story.begin_ms * MICROS_PER_MILLI),
        end=Instant(plan.duration_ms * MICROS_PER_MILLI),
        group_id=GroupId(plan.group_id),
    )
    return Run(
        scenario=scenario,
        setup=setup,
        plan=plan,
        measured=measured,
        history=tuple(history),
    )


def history_of(plan: Plan, *, server_side: bool) -> list[Recorded]:
    """All facts of a plan's world; ``server_side``: of the model of KIP-848."""
    if server_side:
        model = ServerSideWorld(plan)
        model.run()
        return model.history
    world = World(plan)
    world.run()
    world.calm()
    world.check()
    return world.history
