"""Mistakes that a cluster refuses, on the embedded broker; tests/real_kafka repeats them."""

from __future__ import annotations

import pytest
from tests.client import refusals

from kohort.broker.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def bootstrap() -> object:
    with EmbeddedBroker(group_initial_rebalance_delay_ms=0) as broker:
        yield broker.bootstrap_servers


def test_an_unreachable_broker_is_told_and_tried_again() -> None:
    refusals.an_unreachable_broker_is_told_and_tried_again()


def test_refusals_of_the_coordinator_are_told(bootstrap: str) -> None:
    refusals.refusals_of_the_coordinator_are_told(bootstrap)


def test_a_fenced_member_is_told(bootstrap: str) -> None:
    refusals.a_fenced_member_is_told(bootstrap)


def test_an_unknown_topic_is_told(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    refusals.an_unknown_topic_is_told_and_read_once_it_exists(bootstrap, caplog)
