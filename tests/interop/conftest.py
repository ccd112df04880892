"""The clusters for all Kafka clients: a real Kafka and kohort's broker."""

from __future__ import annotations

import pytest

MINIMUM_SESSION_MS = 1_000


@pytest.fixture(params=["kafka", "kohort"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Addresses of a cluster with short sessions allowed and no initial rebalance delay.

    The real Kafka proves the scenario: a failure on both clusters is a mistake of the test, a
    failure on one of them is a difference between kohort and Kafka.
    """
    if request.param == "kafka":
        return str(request.getfixturevalue("real_kafka").bootstrap_servers)
    factory = request.getfixturevalue("kohort_broker_factory")
    settings = {"group.min.session.timeout.ms": MINIMUM_SESSION_MS}
    return str(factory(**settings).bootstrap_servers)
