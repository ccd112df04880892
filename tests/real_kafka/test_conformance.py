"""The same scenarios on a real Kafka: all its other answers are listed, and no more.

Whatever differs without being listed fails here or in tests/conformance, since both play the same
scenarios; a listed difference that is none any more fails too.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.conformance.conversation import CONVERSATIONS, Replay, compare, replay_all
from tests.conformance.judging import asked_for, judge, play_on
from tests.conformance.registry import Scenario, Verdict, differences, play_all
from tests.conformance.wire import ALL

from kohort.testing.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]

TEST = "test_scenario_on_kafka"
ONE_NODE = [one for one in ALL if "nodes" not in one.needs]
"""Those that take two nodes are played in test_cluster.py, which has them."""


@pytest.fixture(scope="module")
def verdicts(
    request: pytest.FixtureRequest, real_kafka: RealKafka, narrow_kafka: RealKafka
) -> dict[int, Verdict]:
    chosen = asked_for(request.session, TEST)
    restarting = [one for one in chosen if "a restart" in one.needs]
    others = [one for one in chosen if "a restart" not in one.needs]
    verdicts = play_on(real_kafka.bootstrap_servers, narrow_kafka.bootstrap_servers, others)

    def restart() -> str:
        real_kafka.kill()
        real_kafka.restart()
        return real_kafka.bootstrap_servers

    if restarting:
        verdicts |= asyncio.run(play_all(real_kafka.bootstrap_servers, restarting, restart))
    return verdicts


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", ONE_NODE, ids=lambda scenario: scenario.label)
def test_scenario_on_kafka(scenario: Scenario, verdicts: dict[int, Verdict]) -> None:
    verdict = verdicts[scenario.number]
    assert not verdict.lacks, f"lacks {verdict.lacks}"
    judge(scenario, verdict, "kafka")


@pytest.fixture(scope="module")
def replays(real_kafka: RealKafka) -> dict[str, Replay]:
    return asyncio.run(replay_all(real_kafka.bootstrap_servers))


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_runs_on_kafka_as_written(name: str, replays: dict[str, Replay]) -> None:
    compare(name, replays[name])


def test_every_listed_difference_was_seen(
    verdicts: dict[int, Verdict], request: pytest.FixtureRequest
) -> None:
    if len(asked_for(request.session, TEST)) < len(ONE_NODE):
        pytest.skip("only a part of the scenarios was asked for")
    seen = {name for verdict in verdicts.values() for name in verdict.differences}
    assert seen == set(differences())
