"""The brokers for scenarios, and the meaning of a verdict for a test.

All scenarios that a test run asks for are played at once, when the first of them is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest
from tests.conformance.profile import ROOM
from tests.conformance.registry import Scenario, Verdict, play_all

ORDINARY_SETTINGS: dict[str, Any] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    "offsets.topic.num.partitions": 8,
}
NARROW_SETTINGS: dict[str, Any] = {
    **ORDINARY_SETTINGS,
    "group.initial.rebalance.delay.ms": 1_500,
    "group.max.size": 4,
    "offsets.retention.check.interval.ms": 500,
}
"""With an initial delay, groups that are soon full, and a sweep every half second."""


def is_narrow(scenario: Scenario) -> bool:
    """Whether a scenario is for the broker with narrow settings."""
    return bool(ROOM & set(scenario.needs))


def asked_for(session: pytest.Session, test: str) -> list[Scenario]:
    """The scenarios that this run asks for by the test of that name."""
    return [
        cast("Scenario", item.callspec.params["scenario"])  # pytest keeps no types of these
        for item in session.items
        if isinstance(item, pytest.Function) and item.originalname == test
    ]


def play_on(ordinary: str, narrow: str, scenarios: Iterable[Scenario]) -> dict[int, Verdict]:
    """Play each scenario on the broker that is made for it, both brokers at a time."""
    chosen = list(scenarios)

    async def both() -> dict[int, Verdict]:
        first, second = await asyncio.gather(
            play_all(ordinary, [one for one in chosen if not is_narrow(one)]),
            play_all(narrow, [one for one in chosen if is_narrow(one)]),
        )
        return first | second

    return asyncio.run(both())


def judge(scenario: Scenario, verdict: Verdict, like: str | None) -> None:
    """Fail or skip the test of a scenario, or let it pass.

    ``like`` is the broker to follow where Kafka and kohort differ; with None, both ways pass.
    """
    if verdict.failure is not None:
        raise verdict.failure
    if verdict.lacks:
        pytest.skip(f"needs a broker with {verdict.lacks}")
    if like is not None:
        strays = {name: way for name, way in verdict.differences.items() if way != like}
        assert not strays, (
            f"{sorted(strays)} went {'Kafka' if like == 'kohort' else 'kohort'}'s way: "
            "differences.toml lists a difference that is none"
        )
