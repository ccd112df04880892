"""Groups of verifiable consumers while brokers restart or die, on a real cluster of three nodes.

The rules of Kafka's test_broker_rolling_bounce, test_broker_failure and
test_static_consumer_persisted_after_rejoin; and half an hour of random events.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.client.stage import Feeder
from tests.verifiable.conftest import PARTITIONS, MakeGroup
from tests.verifiable.group import (
    CONFLUENT,
    COOPERATIVE,
    JAVA,
    KOHORT,
    KOHORT_ASYNCIO,
    Make,
    VerifiableGroup,
)

from kohort.client.admin import Admin
from kohort.testing.kafka_jars import installed
from kohort.testing.real_kafka import RealKafka, absence

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.real_kafka,
    pytest.mark.timeout(3_600),
]

SESSION_MS = 30_000
"""Longer than a node's restart, as in Kafka's test: no member may expire meanwhile."""
SOAK_MINUTES = float(os.environ.get("KOHORT_SOAK_MINUTES", "30"))
NODES = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    if installed() is None:
        pytest.skip(absence())
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "min.insync.replicas": 2,
        "transaction.state.log.min.isr": 2,
    }
    directory = tmp_path_factory.mktemp("cluster")
    with RealKafka(directory, nodes=3, heap="384m", settings=settings, quick=True) as found:
        yield found


def coordinator_of(group: VerifiableGroup) -> int:
    with Admin(bootstrap_servers=group.bootstrap) as admin:
        return admin.describe_group(group.topic).coordinator_id


def in_sync(group: VerifiableGroup) -> None:
    """Wait until the topic and the group's offsets have three replicas in sync again."""

    def whole() -> bool:
        with Admin(bootstrap_servers=group.bootstrap) as admin:
            topics = admin.topics([group.topic, "__consumer_offsets"]).values()
        return all(len(p.in_sync) == len(NODES) for t in topics for p in t.partitions)

    group.until(whole, "all replicas are in sync", 120)


def restart(
    cluster: RealKafka, group: VerifiableGroup, node: int, how: Callable[[int], None]
) -> None:
    how(node)
    group.await_consumed()
    cluster.restart(node)
    in_sync(group)
    group.await_consumed()


def shown(group: VerifiableGroup) -> list[str]:
    """The lines that kohort's processes show, without librdkafka's warnings of lost connections."""
    logs = [p.log.read_text(encoding="utf-8") for p in group.all if p.make.name != JAVA.name]
    return [line for log in logs for line in log.splitlines() if not line.startswith("FAIL [")]


@pytest.mark.parametrize(
    "make",
    [
        KOHORT,
        KOHORT.using(COOPERATIVE),
        replace(KOHORT.using(COOPERATIVE), more=("--enable-autocommit",)),
        KOHORT_ASYNCIO.using(COOPERATIVE),
        JAVA,
    ],
    ids=lambda make: "-".join((make.name, make.assignors, *make.more)),
)
def test_restarts_and_deaths_of_brokers_cause_no_rebalance(
    cluster: RealKafka, make_group: MakeGroup, make: Make
) -> None:
    """Rolling restart, then the coordinator's node dies and comes back."""
    group = make_group(cluster.bootstrap_servers, copies=3, session_ms=SESSION_MS)
    with Feeder(group.bootstrap, group.topic, PARTITIONS) as feeder:
        for name in ("one", "two", "three"):
            group.start(make, name)
        group.await_members(3)
        group.await_consumed()
        before = group.rebalances()
        for node in NODES:
            restart(cluster, group, node, cluster.shut_down)
        restart(cluster, group, coordinator_of(group), cluster.kill)
        assert group.rebalances() == before
        feeder.stop()
        group.finish()
    assert shown(group) == []


@pytest.mark.parametrize("make", [KOHORT, JAVA], ids=lambda make: make.name)
def test_new_ids_of_static_members_outlive_a_rolling_restart(
    cluster: RealKafka, make_group: MakeGroup, make: Make
) -> None:
    group = make_group(cluster.bootstrap_servers, copies=3, session_ms=SESSION_MS)
    with Feeder(group.bootstrap, group.topic, PARTITIONS) as feeder:
        members = [group.start(make, name, name) for name in ("one", "two")]
        group.await_members(2)
        members = [group.bounce(member) for member in members]
        group.await_members(2)
        for node in NODES:
            restart(cluster, group, node, cluster.shut_down)
        assert len(group.alive) == 2
        feeder.stop()
        group.finish()


class Soak:
    """Random events in one group: members come, go and die, nodes restart and die."""

    def __init__(self, cluster: RealKafka, group: VerifiableGroup, assignors: str) -> None:
        self.cluster = cluster
        self.group = group
        self.done: list[str] = []
        makes = (KOHORT, KOHORT, KOHORT_ASYNCIO, JAVA, CONFLUENT)
        self.makes = [replace(make, assignors=assignors) for make in makes]
        self.random = random.Random(12)
        self.instances = 0

    def begin(self) -> None:
        for number, make in enumerate(self.makes):
            instance = f"static-{number}" if number == 0 else None
            self.group.start(make, f"m{number}", instance)
        self.settle()

    def settle(self) -> None:
        self.group.await_members(len(self.group.alive), 180)
        self.group.await_consumed()

    def step(self) -> None:
        chosen = self.random.choice(
            [self.bounce, self.bounce, self.crash, self.leave, self.roll, self.lose_coordinator]
        )
        self.done.append(chosen.__name__)
        chosen()
        self.settle()

    def bounce(self) -> None:
        self.group.bounce(self.random.choice(self.group.alive))

    def crash(self) -> None:
        victim = self.random.choice(self.group.alive)
        self.group.kill(victim)
        self.group.start(victim.make, victim.name, victim.member.instance)

    def leave(self) -> None:
        leaver = self.random.choice([p for p in self.group.alive if p.member.instance is None])
        self.group.stop(leaver)
        self.settle()
        self.group.start(leaver.make, leaver.name)

    def roll(self) -> None:
        restart(self.cluster, self.group, self.random.choice(NODES), self.cluster.shut_down)

    def lose_coordinator(self) -> None:
        restart(self.cluster, self.group, coordinator_of(self.group), self.cluster.kill)


@pytest.mark.parametrize("assignors", ["range", COOPERATIVE])
def test_half_an_hour_of_random_events_breaks_no_rule(
    cluster: RealKafka, make_group: MakeGroup, assignors: str
) -> None:
    """Each assignor gets half of the time: ``KOHORT_SOAK_MINUTES``, 30 by default."""
    group = make_group(cluster.bootstrap_servers, copies=3, session_ms=12_000)
    deadline = time.monotonic() + SOAK_MINUTES * 60 / 2
    with Feeder(group.bootstrap, group.topic, PARTITIONS, 200) as feeder:
        soak = Soak(cluster, group, assignors)
        soak.begin()
        while time.monotonic() < deadline:
            soak.step()
        feeder.stop()
        group.finish()
    assert {"crash", "roll"} <= set(soak.done) or SOAK_MINUTES < 10
