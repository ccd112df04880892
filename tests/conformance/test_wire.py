"""Every scenario over the wire, on kohort's broker or at ``--bootstrap HOST:PORT``."""

from __future__ import annotations

import asyncio

import pytest
from tests.conformance.judging import (
    NARROW_SETTINGS,
    ORDINARY_SETTINGS,
    asked_for,
    judge,
    play_on,
)
from tests.conformance.registry import Scenario, Verdict, play_all
from tests.conformance.wire import ALL

from kohort.broker.embedded import EmbeddedBroker

pytestmark = pytest.mark.slow

TEST = "test_scenario"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Scenarios of several nodes are for --bootstrap: kohort's broker is one node here."""
    if "scenario" in metafunc.fixturenames:
        anywhere = metafunc.config.getoption("bootstrap") is not None
        chosen = [one for one in ALL if anywhere or "nodes" not in one.needs]
        metafunc.parametrize("scenario", chosen, ids=lambda scenario: scenario.label)


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest) -> dict[int, Verdict]:
    chosen = asked_for(request.session, TEST)
    bootstrap = request.config.getoption("bootstrap")
    if bootstrap is not None:
        return asyncio.run(play_all(str(bootstrap), chosen))
    with (
        EmbeddedBroker(**ORDINARY_SETTINGS) as ordinary,
        EmbeddedBroker(**NARROW_SETTINGS) as narrow,
    ):
        return play_on(ordinary.bootstrap_servers, narrow.bootstrap_servers, chosen)


@pytest.mark.timeout(600)
def test_scenario(
    scenario: Scenario, verdicts: dict[int, Verdict], request: pytest.FixtureRequest
) -> None:
    elsewhere = request.config.getoption("bootstrap") is not None
    like = request.config.getoption("like") if elsewhere else "kohort"
    verdict = verdicts[scenario.number]
    assert elsewhere or not verdict.lacks, f"lacks {verdict.lacks}"
    judge(scenario, verdict, like)
