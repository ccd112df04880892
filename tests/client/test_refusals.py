"""Mistakes that a cluster refuses, on the embedded broker; tests/real_kafka repeats them."""

from __future__ import annotations

import pytest
from tests.client import refusals

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.config import parse_client_settings
from kohort.client.connections.driver_thread import consumer_thread
from kohort.engine.member_outputs import Committed
from kohort.member.requests import RequestId
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.instants import Instant


@pytest.fixture(scope="module")
def bootstrap() -> object:
    with EmbeddedBroker(group_initial_rebalance_delay_ms=0) as broker:
        yield broker.bootstrap_servers


@refusals.each_kind
def test_an_unreachable_broker_is_told_and_tried_again(kind: refusals.Kind) -> None:
    refusals.an_unreachable_broker_is_told_and_tried_again(kind)


@refusals.each_kind
def test_refusals_of_the_coordinator_are_told(bootstrap: str, kind: refusals.Kind) -> None:
    refusals.refusals_of_the_coordinator_are_told(bootstrap, kind)


@refusals.each_kind
def test_a_fenced_member_is_told(bootstrap: str, kind: refusals.Kind) -> None:
    refusals.a_fenced_member_is_told(bootstrap, kind)


@refusals.each_kind
def test_an_unknown_topic_is_told(
    bootstrap: str, caplog: pytest.LogCaptureFixture, kind: refusals.Kind
) -> None:
    refusals.an_unknown_topic_is_told_and_read_once_it_exists(bootstrap, caplog, kind)


def test_a_refused_automatic_commit_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    settings = parse_client_settings(bootstrap_servers="localhost:1", group_id="g")
    refused = {TopicPartition("t", 1): ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    answer = Committed(request_id=RequestId(1), refused=refused)
    assert consumer_thread(settings, None).take(answer, Instant(0)) == []
    (line,) = caplog.messages
    assert "automatic commit of group g for t-1: the broker answered TOPIC_AUTHORIZATION" in line
    assert line.endswith("; these offsets are not committed")
