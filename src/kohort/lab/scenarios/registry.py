"""Scenarios by name, in the order of the table.

In: a name from a user; out: a scenario. A new one takes part by being added here. Must not know:
policies, how results are shown.
"""

from __future__ import annotations

from typing import Final

from kohort.lab.scenarios.base import Scenario
from kohort.lab.scenarios.join_storm import JOIN_STORM, JOIN_STORM_AT_ONCE
from kohort.lab.scenarios.leader_death import LEADER_DEATH
from kohort.lab.scenarios.process_death import IN_TIME, NEVER, TOO_LATE
from kohort.lab.scenarios.restart import RESTART
from kohort.lab.scenarios.rolling_bounce import ROLLING_BOUNCE
from kohort.lab.scenarios.scaling import SCALE_DOWN, SCALE_UP
from kohort.lab.scenarios.slow_consumer import SLOW_CONSUMER
from kohort.lab.scenarios.storm import STORM
from kohort.model.errors import ConfigError

SCENARIOS: Final[dict[str, Scenario]] = {
    scenario.name: scenario
    for scenario in (
        IN_TIME,
        TOO_LATE,
        NEVER,
        RESTART,
        ROLLING_BOUNCE,
        SCALE_UP,
        SCALE_DOWN,
        JOIN_STORM,
        JOIN_STORM_AT_ONCE,
        SLOW_CONSUMER,
        STORM,
        LEADER_DEATH,
    )
}


def scenario(name: str) -> Scenario:
    """The scenario of that name.

    Raises:
        ConfigError: there is none; the message has the choices.
    """
    found = SCENARIOS.get(name.strip())
    if found is None:
        raise ConfigError(f"scenario {name!r} is unknown; choose among: {', '.join(SCENARIOS)}")
    return found
