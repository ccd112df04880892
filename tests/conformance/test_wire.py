"""Every scenario over the wire, on kohort's broker or at ``--bootstrap HOST:PORT``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.conformance.judging import (
    NARROW_SETTINGS,
    ORDINARY_SETTINGS,
    asked_for,
    is_narrow,
    judge,
    play_on,
)
from tests.conformance.registry import Scenario, Verdict, play_all
from tests.conformance.wire import ALL

from kohort.broker.embedded import EmbeddedBroker

pytestmark = pytest.mark.slow

TEST = "test_scenario"


@pytest.fixture(scope="module")
def verdicts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, Verdict]:
    chosen = asked_for(request.session, TEST)
    bootstrap = request.config.getoption("bootstrap")
    if bootstrap is not None:
        return asyncio.run(play_all(str(bootstrap), chosen))
    with (
        EmbeddedBroker(**ORDINARY_SETTINGS) as ordinary,
        EmbeddedBroker(**NARROW_SETTINGS) as narrow,
        EmbeddedBroker(nodes=2, **ORDINARY_SETTINGS) as two,
    ):
        alone = [one for one in chosen if not {"nodes", "a restart"} & set(one.needs)]
        told = play_on(ordinary.bootstrap_servers, narrow.bootstrap_servers, alone)
        of_two = [one for one in chosen if "nodes" in one.needs]
        told |= asyncio.run(play_all(first_of(two), of_two))
    restarting = [one for one in chosen if "a restart" in one.needs]
    data = tmp_path_factory.mktemp("restarts") / "data"
    return told | (play_with_restart(data, restarting) if restarting else {})


def play_with_restart(data: Path, scenarios: list[Scenario]) -> dict[int, Verdict]:
    """Play scenarios on a broker that is stopped and started once."""
    broker = EmbeddedBroker(data, **ORDINARY_SETTINGS).start()

    def restart() -> str:
        nonlocal broker
        broker.close()
        broker = EmbeddedBroker(data, **ORDINARY_SETTINGS).start()
        return broker.bootstrap_servers

    try:
        return asyncio.run(play_all(broker.bootstrap_servers, scenarios, restart))
    finally:
        broker.close()


def first_of(broker: EmbeddedBroker) -> str:
    """The address of a broker's first node."""
    return broker.bootstrap_servers.partition(",")[0]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.label)
def test_scenario(
    scenario: Scenario, verdicts: dict[int, Verdict], request: pytest.FixtureRequest
) -> None:
    elsewhere = request.config.getoption("bootstrap") is not None
    like = request.config.getoption("like") if elsewhere else "kohort"
    verdict = verdicts[scenario.number]
    assert elsewhere or not verdict.lacks, f"lacks {verdict.lacks}"
    judge(scenario, verdict, like)


@pytest.mark.timeout(600)
def test_three_nodes_answer_as_one_does(request: pytest.FixtureRequest) -> None:
    """A client of a group's own coordinator cannot see how many nodes there are."""
    if request.config.getoption("bootstrap") is not None:
        pytest.skip("--bootstrap chooses the broker")
    with EmbeddedBroker(nodes=3, **ORDINARY_SETTINGS) as three:
        verdicts = asyncio.run(play_all(first_of(three), [s for s in ALL if not is_narrow(s)]))
    for scenario in ALL:
        verdict = verdicts.get(scenario.number)
        if verdict is None or verdict.lacks:
            alone = {"one node", "a restart"} & set(scenario.needs)
            assert is_narrow(scenario) or alone, scenario.label
        else:
            judge(scenario, verdict, "kohort")
