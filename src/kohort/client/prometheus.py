"""Metrics of consumers for Prometheus; needs the extra ``prometheus``.

In: consumers. Out: metric families, with each scrape. Must not know: how metrics are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from kohort.client.metrics import LIMITS_MS, METRICS, Kind, Measured, by_client

LABELS: Final = ("group", "client_id")

_LIMITS: Final = [(limit, str(limit / 1_000)) for limit in LIMITS_MS]


class ConsumerCollector(Collector):
    """The metrics of consumers and members, with the labels ``group`` and ``client_id``.

    Args:
        consumers: all consumers and members of this process.

    Raises:
        WrongUse: two of them have one group and one ``client.id``.
    """

    def __init__(self, consumers: Iterable[Measured]) -> None:
        self._consumers = by_client(consumers)

    def collect(self) -> Iterator[Metric]:
        """A family for each metric. Times are in seconds."""
        told = {labels: consumer.metrics() for labels, consumer in self._consumers.items()}
        for metric in METRICS:
            name = "kohort_consumer_" + metric.name.replace("-", "_")
            family: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
            if metric.kind is Kind.TIMING:
                family = HistogramMetricFamily(f"{name}_seconds", metric.doc, labels=LABELS)
                for labels, numbers in told.items():
                    total = numbers.get(f"{metric.name}-total")
                    if total is not None:  # a member without records has no polls
                        family.add_metric(labels, _buckets(metric.name, numbers), total / 1_000)
            else:
                counts = metric.kind is Kind.COUNTER
                make = CounterMetricFamily if counts else GaugeMetricFamily
                family = make(name, metric.doc, labels=LABELS)
                for labels, numbers in told.items():
                    if metric.name in numbers:
                        family.add_metric(labels, numbers[metric.name])
            yield family


def _buckets(name: str, numbers: Mapping[str, float]) -> list[tuple[str, float]]:
    buckets = [(text, numbers[f"{name}-le-{limit}"]) for limit, text in _LIMITS]
    return [*buckets, ("+Inf", numbers[f"{name}-count"])]
