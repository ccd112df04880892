"""Kafka's system tests of consumer groups, on a real Kafka, with kohort's consumers and Java's.

Each test judges all events of all processes by the rules in ``judge``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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
    Process,
    VerifiableGroup,
)
from tests.verifiable.judge import Event

from kohort.testing.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]

LONG_SESSION_MS = 40_000
"""No session ends in a test with this one, so that a rebalance has another cause."""
MAKES = [
    KOHORT.using(COOPERATIVE),
    *(
        pytest.param(make, marks=pytest.mark.long)
        for make in (KOHORT, KOHORT_ASYNCIO.using(COOPERATIVE), JAVA, JAVA.using(COOPERATIVE))
    ),
]


def named(make: Make) -> str:
    return f"{make.name}-{make.assignors}"


def three(group: VerifiableGroup, make: Make) -> list[Process]:
    members = [group.start(make, f"m{number}") for number in range(3)]
    group.await_members(3)
    group.await_consumed()
    return members


@pytest.mark.parametrize("make", MAKES, ids=named)
def test_members_join_bounce_and_leave_and_each_record_comes_once(
    real_kafka: RealKafka, make_group: MakeGroup, make: Make
) -> None:
    """Kafka's test_consumer_bounce (rolling, clean) and test_group_consumption."""
    group = make_group(real_kafka.bootstrap_servers)
    with Feeder(group.bootstrap, group.topic, PARTITIONS) as feeder:
        members = three(group, make)
        for at in range(2):
            group.stop(members[at])
            members[at] = group.start(make, f"m{at}")
            group.await_members(3)
            group.await_consumed()
        group.stop(members.pop())
        group.await_members(2)
        group.await_consumed()
        feeder.stop()
        group.finish()
    if make.name != JAVA.name:
        assert not any(process.member.loose for process in group.all)


@pytest.mark.long
@pytest.mark.parametrize("make", [KOHORT, KOHORT_ASYNCIO, JAVA], ids=named)
def test_all_members_bounce_at_once(
    real_kafka: RealKafka, make_group: MakeGroup, make: Make
) -> None:
    """Kafka's test_consumer_bounce (all, clean)."""
    group = make_group(real_kafka.bootstrap_servers)
    with Feeder(group.bootstrap, group.topic, PARTITIONS) as feeder:
        members = three(group, make)
        for _ in range(3):
            for member in members:
                group.stop(member)
            members = three(group, make)
        feeder.stop()
        group.finish()


@pytest.mark.long
@pytest.mark.parametrize("more", [(), ("--enable-autocommit",)], ids=["by-hand", "auto-commit"])
@pytest.mark.parametrize("make", [KOHORT, KOHORT_ASYNCIO.using(COOPERATIVE), JAVA], ids=named)
def test_a_killed_member_is_replaced_and_no_record_is_missing(
    real_kafka: RealKafka, make_group: MakeGroup, make: Make, more: tuple[str, ...]
) -> None:
    """Kafka's test_consumer_failure."""
    group = make_group(real_kafka.bootstrap_servers)
    make = replace(make, more=make.more + more)
    with Feeder(group.bootstrap, group.topic, PARTITIONS) as feeder:
        members = three(group, make)
        group.kill(members[0])
        group.await_members(2)
        group.await_consumed()
        feeder.stop()
        group.finish()


@pytest.mark.parametrize(
    "make", [KOHORT, pytest.param(JAVA, marks=pytest.mark.long)], ids=lambda make: make.name
)
def test_static_members_bounce_without_a_rebalance_and_are_fenced(
    real_kafka: RealKafka, make_group: MakeGroup, make: Make
) -> None:
    """Kafka's test_static_consumer_bounce and test_fencing_static_consumer, eager."""
    group = make_group(real_kafka.bootstrap_servers, session_ms=LONG_SESSION_MS)
    with Feeder(group.bootstrap, group.topic, PARTITIONS) as feeder:
        members = [group.start(make, name, name) for name in ("one", "two", "three")]
        group.await_members(3)
        group.await_consumed()
        stays = members[0].member
        heard = (stays.assignments, stays.revocations)
        for at in (1, 2):
            had = members[at].member.owned.copy()
            members[at] = group.bounce(members[at])
            group.await_members(3)
            group.await_consumed()
            assert members[at].member.owned == had
        assert (stays.assignments, stays.revocations) == heard

        fenced = members[1]
        fenced.member.fenced = True
        newcomer = group.start(make, "other", fenced.member.instance)
        group.until(lambda: fenced.member.ended, "the former process ends")
        assert fenced.wait() == (0 if make is JAVA else 2)
        group.until(lambda: newcomer.member.owned, "the newcomer has its partitions")
        group.await_members(3)
        assert (stays.assignments, stays.revocations) == heard
        feeder.stop()
        group.finish()
    if make is KOHORT:
        assert "FENCED_INSTANCE_ID" in fenced.log.read_text(encoding="utf-8")


def test_java_and_confluent_and_kohort_share_a_group_and_tell_the_same(
    real_kafka: RealKafka, make_group: MakeGroup
) -> None:
    """One judge for all; kohort's and Java's events have the same names and fields."""
    group = make_group(real_kafka.bootstrap_servers)
    makes = [replace(JAVA, more=("--verbose",)), CONFLUENT, replace(KOHORT, more=("--verbose",))]
    with Feeder(group.bootstrap, group.topic, PARTITIONS, 100) as feeder:
        java, confluent, kohort = [group.start(make, make.name) for make in makes]
        group.await_members(3)
        group.await_consumed()
        group.kill(confluent)
        group.await_members(2)
        group.await_consumed()
        group.stop(java)
        group.await_members(1)
        feeder.stop()
        group.finish()
    assert shapes(kohort) == shapes(java)
    assert len(shapes(java)) == 8


def shapes(process: Process) -> dict[str, object]:
    """The names of events with the names and types of their fields, in order."""
    return {event["name"]: shape(event) for event in process.member.events if whole(event)}


def whole(event: Event) -> bool:
    """Whether the event has no empty list and no refusal, so that its shape can be seen."""
    return [] not in event.values() and event.get("success", True)


def shape(value: Any) -> object:
    if isinstance(value, Mapping):
        return [(name, shape(each)) for name, each in value.items()]
    return [shape(value[0])] if isinstance(value, list) else type(value).__name__
