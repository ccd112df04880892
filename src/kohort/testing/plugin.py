"""pytest fixtures: brokers, fault proxies and a real Kafka on free ports of the loopback interface.

In: settings. Out: running servers, which are closed at the end. Must not know: anything of kohort
before a test uses a fixture. The distribution registers this plugin, so tests need only
``pip install kohort``.

Two settings of the brokers differ from Kafka's defaults. ``group.initial.rebalance.delay.ms`` is 0,
as in Kafka's sample configuration and Docker image; otherwise every first join takes 3 seconds.
``offsets.topic.num.partitions`` is 4: with 50 the first group of a broker costs half more CPU time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kohort.broker.embedded import EmbeddedBroker
    from kohort.testing.fault_proxy import FaultProxy
    from kohort.testing.kafka_group import KafkaGroup
    from kohort.testing.real_kafka import RealKafka

FIXTURE_SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 4}


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest the marks of this plugin."""
    config.addinivalue_line(
        "markers", "kafka_group(members, partitions, policy, settings): of the fixture kafka_group"
    )


@pytest.fixture
def kohort_broker_factory() -> Iterator[Callable[..., EmbeddedBroker]]:
    """Starts brokers with chosen settings: ``factory(**{"num.partitions": 8})``.

    The parameters are those of ``EmbeddedBroker``: an existing ``data_dir`` keeps its data, and
    ``nodes=3`` starts three nodes. All brokers are closed at the end of the test.
    """
    from kohort.broker.embedded import EmbeddedBroker  # noqa: PLC0415 - only when used

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
def kafka_group(
    request: pytest.FixtureRequest, kohort_broker: EmbeddedBroker
) -> Iterator[KafkaGroup]:
    """A group of consumer processes ``c1``, ``c2``, … on a broker of this test alone.

    ``@pytest.mark.kafka_group(members=6, partitions=24, policy="range", settings={…})`` changes the
    parameters of ``KafkaGroup``. All processes end with the test.
    """
    from kohort.testing.kafka_group import KafkaGroup  # noqa: PLC0415 - only when used

    mark = request.node.get_closest_marker("kafka_group")
    given = {} if mark is None else mark.kwargs
    with KafkaGroup(kohort_broker.bootstrap_servers, **given) as group:
        yield group


@pytest.fixture
def kohort_fault_proxy() -> Iterator[Callable[..., FaultProxy]]:
    """Starts fault proxies for brokers: ``kohort_fault_proxy("host:port")``.

    The parameters are those of ``FaultProxy``; clients connect to ``proxy.bootstrap_servers``. All
    proxies are closed at the end of the test.
    """
    from kohort.testing.fault_proxy import FaultProxy  # noqa: PLC0415 - only when used

    started: list[FaultProxy] = []

    def start(upstream: str, **options: Any) -> FaultProxy:
        started.append(FaultProxy(upstream, **options))
        return started[-1].start()

    yield start
    for proxy in reversed(started):
        proxy.close()


@pytest.fixture(scope="session")
def real_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """A node of real Apache Kafka for the whole run; skips without the jars of Kafka.

    The node has no initial rebalance delay and allows sessions from 1 s. It deletes no empty groups
    on its own within a day: with Kafka's default it would do so every ten minutes, at any moment of
    a test. The environment variable ``KOHORT_REQUIRE_PEERS`` turns the skip into a failure.
    """
    yield from kafka_for_session(tmp_path_factory)


def kafka_for_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """See ``real_kafka``."""
    from kohort.testing.kafka_jars import installed  # noqa: PLC0415 - only when used
    from kohort.testing.real_kafka import RealKafka, absence  # noqa: PLC0415 - as above

    if installed() is None:
        if os.environ.get("KOHORT_REQUIRE_PEERS", "") not in {"", "0"}:
            pytest.fail(f"{absence()}, and KOHORT_REQUIRE_PEERS is set")
        pytest.skip(absence())
    directory = tmp_path_factory.mktemp("real-kafka")
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1_000,
        "offsets.retention.check.interval.ms": 86_400_000,
    }
    with RealKafka(directory, settings=settings, quick=True) as kafka:
        yield kafka
    shutil.rmtree(directory, ignore_errors=True)
