"""Other Kafka clients on a broker of three nodes, with the address of one node.

The group's coordinator is another node, and each node leads two of the topic's partitions. A client
that sends all requests to the first node fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.interop.conftest import MINIMUM_SESSION_MS
from tests.interop.group import PARTITIONS, Group, Make
from tests.interop.makes import MAKES, need

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin

pytestmark = [pytest.mark.slow, pytest.mark.interop]

NODES = 3


@pytest.mark.parametrize("make", MAKES, ids=lambda make: make.name)
def test_a_group_finds_its_coordinator_and_its_leaders(
    make: Make, kohort_broker_factory: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    need(make)
    settings = {"group.min.session.timeout.ms": MINIMUM_SESSION_MS}
    broker = kohort_broker_factory(nodes=NODES, **settings)
    first = broker.bootstrap_servers.partition(",")[0]
    with Admin(bootstrap_servers=first) as admin:
        names = (f"spread-{n}" for n in range(100))
        topic = next(name for name in names if admin.describe_group(name).coordinator_id != 1)
        admin.create_topic(topic, PARTITIONS, 2)
        leaders = Counter(p.leader_id for p in admin.topics([topic])[topic].partitions)
    assert leaders == {1: 2, 2: 2, 3: 2}

    with Group(first, topic, PARTITIONS, tmp_path) as group:
        produced = group.produce(make, "first", 120)
        group.join(make, "a")
        second = group.join(make, "b")
        group.await_balance()
        group.await_values(produced)
        group.settle(produced)
        group.leave(second)
        group.await_balance()
        produced |= group.produce(make, "second", 120)
        group.await_values(produced)
        group.settle(produced)
