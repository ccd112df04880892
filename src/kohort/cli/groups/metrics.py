"""Metrics of groups for Prometheus: the brokers' answers at a scrape, and counts of rebalances.

In: an ``Admin``, a `Meter`. Out: metric families. Must not know: how records are read, HTTP. Needs
the extra ``prometheus``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kohort.cli.groups.choice import Groups
from kohort.cli.groups.watch import Look, look_at
from kohort.client.admin import Admin
from kohort.client.errors import ClientError
from kohort.explain.offsets_topic.metering import GroupCounts, Meter
from kohort.explain.told import Told

PREFIX = "kohort_group_"
PARTITION = ("group", "topic", "partition")


class GroupCollector(Collector):
    """The metrics of groups, labelled with the group.

    Args:
        admin: of the cluster; used by no other thread.
        groups: the groups to show.
        told: called with a failure of a scrape, which shows ``kohort_cluster_up`` 0 then.
    """

    def __init__(self, admin: Admin, groups: Groups, told: Callable[[ClientError], None]) -> None:
        self._admin = admin
        self._groups = groups
        self._told = told
        self._asking = threading.Lock()
        self._metering = threading.Lock()
        self._meter = Meter()
        self._counting = False

    def feed(self, item: Told) -> None:
        """A record of the offsets topic, from another thread."""
        with self._metering:
            self._meter.feed(item)

    def restart(self) -> None:
        """Forget all records: the topic will be read from its start."""
        with self._metering:
            self._meter, self._counting = Meter(), False

    def begin(self) -> None:
        """Count rebalances from now on: the records so far are the past."""
        with self._metering:
            self._meter.begin()
            self._counting = True

    def collect(self) -> Iterator[Metric]:
        """A family for each metric."""
        looks: list[Look] = []
        up = True
        with self._asking:
            try:
                looks = look_at(self._admin, self._groups)
            except ClientError as error:
                up = False
                self._told(error)
        yield _gauge("kohort_cluster_up", "1 if the brokers answered this scrape.", (), [((), up)])
        yield from _looked(looks)
        with self._metering:
            if up and self._groups.every:
                for name in self._meter.counts.keys() - {look.group.group_id for look in looks}:
                    self._meter.forget(name)
            names = set(self._meter.counts)
            if not self._groups.every:
                names &= set(self._groups.names)
            # A group that only commits has no rebalances to count.
            counted = {
                name: counts
                for name, counts in sorted(self._meter.counts.items())
                if name in names and (counts.generation, counts.epoch) != (None, None)
            }
            followed = [((), self._counting)]
            doc = "1 if rebalances are counted: the offsets topic is read up to its end."
            yield _gauge("kohort_offsets_topic_followed", doc, (), followed)
            yield from _counted(counted if self._counting else {})


def _looked(looks: Iterable[Look]) -> Iterator[Metric]:
    found = [(look.group, look.rows) for look in looks if look.group.state != "Dead"]
    states = [((group.group_id, group.state), 1) for group, _ in found]
    doc = "1 for the present state of a group."
    yield _gauge(f"{PREFIX}state", doc, ("group", "state"), states)
    members = [((group.group_id,), len(group.members)) for group, _ in found]
    yield _gauge(f"{PREFIX}members", "Members of a group.", ("group",), members)
    epochs = [((group.group_id,), group.epoch) for group, _ in found]
    doc = "Epoch of a group of KIP-848; each change of the group raises it."
    yield _gauge(f"{PREFIX}epoch", doc, ("group",), epochs)
    rows = [
        ((group.group_id, row.partition.topic, str(row.partition.partition)), row)
        for group, rows in found
        for row in rows
    ]
    for name, doc, cells in (
        ("lag", "Records behind the committed offset.", [(at, row.lag) for at, row in rows]),
        ("committed_offset", "Committed offset.", [(at, row.current_offset) for at, row in rows]),
        ("log_end_offset", "End of the log.", [(at, row.log_end_offset) for at, row in rows]),
    ):
        yield _gauge(f"{PREFIX}{name}", doc, PARTITION, cells)


def _counted(counted: dict[str, GroupCounts]) -> Iterator[Metric]:
    reasons = [
        ((name, cause.name.lower()), number)
        for name, counts in counted.items()
        for cause, number in counts.rebalances.items()
    ]
    yield _counter("rebalance", "Rebalances that ended.", ("group", "reason"), reasons)
    classic = {name: c for name, c in counted.items() if c.generation is not None}
    for metric, doc, values, groups in (
        ("partitions_moved", "Partitions that went to another member.", "moved", counted),
        ("partitions_moved_needlessly", "Those that could have stayed.", "needless", counted),
        (
            "coordinator_changes",
            "Changes and restarts of the coordinator, by leader epochs of the offsets topic.",
            "coordinator_changes",
            counted,
        ),
        (
            "unavailable_partition_seconds",
            "Time between the last commit before a rebalance and the first after it, at most the "
            "time without a reader.",
            "unavailable_s",
            classic,
        ),
        (
            "duplicate_records",
            "Records processed again after a move, at most.",
            "duplicates",
            classic,
        ),
    ):
        cells = [((name,), getattr(counts, values)) for name, counts in groups.items()]
        yield _counter(metric, doc, ("group",), cells)
    generations = [((name,), counts.generation) for name, counts in counted.items()]
    yield _gauge(f"{PREFIX}generation", "Generation of a classic group.", ("group",), generations)
    times = [((name,), counts.settled) for name, counts in counted.items()]
    doc = "Begin of the last generation or epoch of a group."
    yield _gauge(f"{PREFIX}last_rebalance_timestamp_seconds", doc, ("group",), times)


_Cells = Iterable[tuple[tuple[str, ...], float | None]]


def _gauge(name: str, doc: str, labels: tuple[str, ...], cells: _Cells) -> Metric:
    family = GaugeMetricFamily(name, doc, labels=labels)
    for at, value in cells:
        if value is not None:
            family.add_metric(at, float(value))
    return family


def _counter(name: str, doc: str, labels: tuple[str, ...], cells: _Cells) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}{name}", doc, labels=labels)
    for at, value in cells:
        family.add_metric(at, float(value or 0))
    return family
