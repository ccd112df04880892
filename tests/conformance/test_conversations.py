"""The conversations of this folder, replayed at kohort's broker or at ``--bootstrap HOST:PORT``."""

from __future__ import annotations

import asyncio

import pytest
from tests.conformance.conversation import CONVERSATIONS, Replay, compare, replay_all
from tests.conformance.judging import ORDINARY_SETTINGS

from kohort.broker.embedded import EmbeddedBroker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def replays(request: pytest.FixtureRequest) -> dict[str, Replay]:
    bootstrap = request.config.getoption("bootstrap")
    if bootstrap is not None:
        return asyncio.run(replay_all(str(bootstrap)))
    with EmbeddedBroker(**ORDINARY_SETTINGS) as broker:
        return asyncio.run(replay_all(broker.bootstrap_servers))


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_goes_as_it_is_written(name: str, replays: dict[str, Replay]) -> None:
    compare(name, replays[name])
