"""Mistakes that a cluster refuses, on the embedded broker; tests/real_kafka repeats them."""

from __future__ import annotations

import pytest
from tests.client import refusals

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def bootstrap() -> object:
    with EmbeddedBroker(group_initial_rebalance_delay_ms=0) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=[Consumer, refusals.OfAsync], ids=["Consumer", "AsyncConsumer"])
def kind(request: pytest.FixtureRequest) -> refusals.Kind:
    found: refusals.Kind = request.param
    return found


def test_an_unreachable_broker_is_told_and_tried_again(kind: refusals.Kind) -> None:
    refusals.an_unreachable_broker_is_told_and_tried_again(kind)


def test_refusals_of_the_coordinator_are_told(bootstrap: str, kind: refusals.Kind) -> None:
    refusals.refusals_of_the_coordinator_are_told(bootstrap, kind)


def test_a_fenced_member_is_told(bootstrap: str, kind: refusals.Kind) -> None:
    refusals.a_fenced_member_is_told(bootstrap, kind)


def test_an_unknown_topic_is_told(
    bootstrap: str, caplog: pytest.LogCaptureFixture, kind: refusals.Kind
) -> None:
    refusals.an_unknown_topic_is_told_and_read_once_it_exists(bootstrap, caplog, kind)
