"""Metrics of consumers for OpenTelemetry; needs the extra ``otel``.

In: consumers and a meter. Out: observations, with each collection of a reader. Must not know: how
metrics are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from kohort.client.metrics import METRICS, Kind, Measured, Metric, by_client

_TIMINGS: Final = {"count": True, "total": True, "avg": False, "max": False}
"""The numbers of a timing, and whether each only grows."""


def observe_consumers(consumers: Iterable[Measured], meter: Meter) -> None:
    """Make observable counters and gauges of all metrics of these consumers and members.

    Args:
        consumers: all consumers and members of this process.
        meter: makes the instruments.

    Raises:
        WrongUse: two of them have one group and one ``client.id``.
    """
    told = by_client(consumers)
    for metric in METRICS:
        for number, grows in _numbers(metric):
            make = meter.create_observable_counter if grows else meter.create_observable_gauge
            name = "kohort.consumer." + number.replace("-", "_")
            make(name, [partial(_observe, told, number)], _unit(number, metric), metric.doc)


def _numbers(metric: Metric) -> list[tuple[str, bool]]:
    """Names in ``metrics()``, and whether each number only grows."""
    if metric.kind is Kind.TIMING:
        return [(f"{metric.name}-{end}", grows) for end, grows in _TIMINGS.items()]
    return [(metric.name, metric.kind is Kind.COUNTER)]


def _unit(number: str, metric: Metric) -> str:
    if metric.kind is Kind.TIMING and not number.endswith("-count"):
        return "ms"
    if number.endswith("-seconds-ago"):
        return "s"
    return "By" if number.startswith("bytes-") else "1"


def _observe(
    consumers: dict[tuple[str, str], Measured], number: str, _options: CallbackOptions
) -> Iterator[Observation]:
    for (group, client_id), consumer in consumers.items():
        value = consumer.metrics().get(number)
        if value is not None:
            names = {"messaging.consumer.group.name": group, "messaging.client.id": client_id}
            yield Observation(value, names)
