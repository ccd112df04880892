"""A broker with a topic of known records, and one consumer on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.client.one_consumer import make, write

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin


@pytest.fixture
def broker(kohort_broker: EmbeddedBroker) -> EmbeddedBroker:
    """A broker with the topic t: two partitions of a hundred records, "0" to "99"."""
    with Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as admin:
        admin.create_topic("t", 2, 1)
    write(kohort_broker, *[(n % 2, b"%d" % (n // 2)) for n in range(200)])
    return kohort_broker


@pytest.fixture
def consumer(broker: EmbeddedBroker) -> Iterator[Consumer]:
    with make(broker) as made:
        made.subscribe(["t"])
        yield made
