"""The metrics of consumers as Prometheus and OpenTelemetry read them, with the real libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.client.one_consumer import make, read
from tests.waiting import until

from kohort import Consumer, ResourceGroup
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.errors import WrongUse
from kohort.client.metrics import METRICS, Kind
from kohort.client.otel import observe_consumers
from kohort.client.prometheus import ConsumerCollector

METER = MeterProvider().get_meter("test")
ONE, TWO = {"group": "g", "client_id": "one"}, {"group": "g", "client_id": "two"}


def test_prometheus_scrapes_every_metric_of_every_consumer(broker: EmbeddedBroker) -> None:
    registry = CollectorRegistry()
    with make(broker, client_id="one") as one, make(broker, client_id="two") as two:
        registry.register(ConsumerCollector([one, two]))
        one.subscribe(["t"])
        read(one, 50)
        one.commit()
        page = generate_latest(registry).decode()
        numbers = one.metrics()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert families.keys() == {prometheus_name(each.name, each.kind) for each in METRICS}
    value = registry_value(families)
    assert value("kohort_consumer_records_consumed_total", ONE) == 50
    assert value("kohort_consumer_records_consumed_total", TWO) == 0
    assert value("kohort_consumer_assigned_partitions", ONE) == 2
    assert value("kohort_consumer_last_rebalance_seconds_ago", TWO) is None
    assert value("kohort_consumer_commit_latency_seconds_count", ONE) == numbers["commit-total"]
    total = value("kohort_consumer_commit_latency_seconds_sum", ONE)
    assert total == pytest.approx(numbers["commit-latency-total"] / 1_000)
    bucket = "kohort_consumer_commit_latency_seconds_bucket"
    assert value(bucket, {**ONE, "le": "100.0"}) == numbers["commit-latency-le-100000"]
    assert value(bucket, {**ONE, "le": "0.001"}) == numbers["commit-latency-le-1"]
    assert value(bucket, {**ONE, "le": "+Inf"}) == numbers["commit-latency-count"]


def prometheus_name(name: str, kind: Kind) -> str:
    text = "kohort_consumer_" + name.removesuffix("-total").replace("-", "_")
    return f"{text}_seconds" if kind is Kind.TIMING else text


def registry_value(families: dict[str, Any]) -> Callable[[str, dict[str, str]], float | None]:
    samples = [sample for family in families.values() for sample in family.samples]

    def value(name: str, labels: dict[str, str]) -> float | None:
        found = [s.value for s in samples if (s.name, s.labels) == (name, labels)]
        assert len(found) <= 1
        return found[0] if found else None

    return value


def test_opentelemetry_reads_every_number_but_the_buckets(broker: EmbeddedBroker) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with make(broker, client_id="one") as one, make(broker, client_id="two") as two:
        observe_consumers([one, two], provider.get_meter("test"))
        one.subscribe(["t"])
        read(one, 50)
        data: Any = reader.get_metrics_data()
        numbers = one.metrics()
    provider.shutdown()
    (scope,) = [each for resource in data.resource_metrics for each in resource.scope_metrics]
    told = {metric.name: metric for metric in scope.metrics}
    wanted = {name for name in numbers if "-le-" not in name}
    assert told.keys() == {"kohort.consumer." + name.replace("-", "_") for name in wanted}
    records = told["kohort.consumer.records_consumed_total"]
    assert records.data.is_monotonic
    attributes = {"messaging.consumer.group.name": "g"}
    assert [(point.value, dict(point.attributes)) for point in records.data.data_points] == [
        (50, {**attributes, "messaging.client.id": "one"}),
        (0, {**attributes, "messaging.client.id": "two"}),
    ]
    longest = told["kohort.consumer.join_time_max"]
    assert (longest.unit, len(longest.data.data_points)) == ("ms", 1)
    assert told["kohort.consumer.bytes_consumed_total"].unit == "By"
    assert told["kohort.consumer.last_poll_seconds_ago"].unit == "s"
    assert told["kohort.consumer.join_time_count"].data.is_monotonic


@pytest.mark.parametrize(
    "use", [ConsumerCollector, lambda consumers: observe_consumers(consumers, METER)]
)
def test_consumers_that_cannot_be_told_apart_are_refused(
    broker: EmbeddedBroker, use: Callable[[list[Consumer]], object]
) -> None:
    with make(broker) as one, make(broker) as two:
        use([one])
        with pytest.raises(WrongUse, match=r"two members of group g have the client\.id kohort"):
            use([one, two])


def test_both_readers_take_members_without_records(broker: EmbeddedBroker) -> None:
    address = broker.bootstrap_servers
    reader, registry = InMemoryMetricReader(), CollectorRegistry()
    provider = MeterProvider([reader])
    group = ResourceGroup(bootstrap_servers=address, group_id="g", resources=lambda: ["a", "b"])
    with group:
        until(lambda: len(group.owned()) == 2, "both resources are assigned")
        registry.register(ConsumerCollector([group]))
        page = generate_latest(registry).decode()
        observe_consumers([group], provider.get_meter("test"))
        data: Any = reader.get_metrics_data()
    provider.shutdown()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    value, labels = registry_value(families), {"group": "g", "client_id": "kohort"}
    assert value("kohort_consumer_assigned_partitions", labels) == 2
    assert value("kohort_consumer_rebalance_latency_seconds_count", labels) == 1
    assert not families["kohort_consumer_time_between_poll_seconds"].samples
    (scope,) = [each for resource in data.resource_metrics for each in resource.scope_metrics]
    assert "kohort.consumer.join_time_count" in {metric.name for metric in scope.metrics}
