"""pytest fixtures: a real broker on a free port of the loopback interface, gone after the test.

Registered as a pytest plugin by the distribution, so that ``pip install kohort`` is all a test
needs. Nothing of kohort is imported before a fixture is asked for.

The fixtures' brokers differ from Kafka's defaults in one setting, said here and nowhere else:
``group.initial.rebalance.delay.ms`` is 0, as in Kafka's own sample configuration and Docker image,
since a test should not wait three seconds for every first join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kohort.broker.embedded import EmbeddedBroker
    from kohort.testing.fault_proxy import FaultProxy
    from kohort.testing.real_kafka import RealKafka

FIXTURE_SETTINGS = {"group.initial.rebalance.delay.ms": 0}


@pytest.fixture
def kohort_broker_factory() -> Iterator[Callable[..., EmbeddedBroker]]:
    """Start brokers with settings of your own: ``factory(**{"num.partitions": 8})``.

    Takes what ``EmbeddedBroker`` takes; ``data_dir`` may be handed in to start again on the same
    data, and ``nodes=3`` makes it appear as a cluster of three. All brokers are closed at the end
    of the test.
    """
    from kohort.broker.embedded import EmbeddedBroker  # noqa: PLC0415 (asked for, not before)

    started: list[EmbeddedBroker] = []

    def start(data_dir: str | None = None, *, nodes: int = 1, **settings: Any) -> EmbeddedBroker:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        broker = EmbeddedBroker(data_dir, nodes=nodes, **{**FIXTURE_SETTINGS, **given})
        started.append(broker.start())
        return broker

    yield start
    for broker in reversed(started):
        broker.close()


@pytest.fixture
def kohort_broker(kohort_broker_factory: Callable[..., EmbeddedBroker]) -> EmbeddedBroker:
    """A broker of this test alone; clients connect to ``kohort_broker.bootstrap_servers``."""
    return kohort_broker_factory()


@pytest.fixture
def kohort_fault_proxy() -> Iterator[Callable[..., FaultProxy]]:
    """Put proxies that break what passes before brokers: ``kohort_fault_proxy("host:port")``.

    Takes what ``FaultProxy`` takes and starts it; clients connect to ``proxy.bootstrap_servers``.
    All proxies are closed at the end of the test.
    """
    from kohort.testing.fault_proxy import FaultProxy  # noqa: PLC0415 (asked for, not before)

    started: list[FaultProxy] = []

    def start(upstream: str, **options: Any) -> FaultProxy:
        started.append(FaultProxy(upstream, **options))
        return started[-1].start()

    yield start
    for proxy in reversed(started):
        proxy.close()


@pytest.fixture(scope="session")
def real_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """A node of real Apache Kafka for the whole run, or a skip that says how to get one."""
    from kohort.testing.kafka_fixture import kafka_for_session  # noqa: PLC0415 (asked for)

    yield from kafka_for_session(tmp_path_factory)
