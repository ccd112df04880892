"""Other makes' clients as a group of three: one joins, one leaves, one is killed, all return.

The same story is told to a real Kafka and to kohort's broker, with every make of client, each
member and producer a process of its own.
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.group import Group, Make, Member

pytestmark = [pytest.mark.slow, pytest.mark.interop]

PARTITIONS = 6
SESSION_MS = 3_000
# A member that says goodbye must not cost the group a session timeout: half of one is the limit.
GOODBYE_S = SESSION_MS / 1_000 / 2

CONFLUENT = Make(name="confluent", script="confluent_client.py", assignor="range")
COOPERATIVE = Make(
    name="confluent-cooperative", script="confluent_client.py", assignor="cooperative-sticky"
)
KAFKA_PYTHON = Make(name="kafka-python", script="kafka_python_client.py", assignor="range")
KAFKA_PYTHON_COOPERATIVE = Make(
    name="kafka-python-cooperative",
    script="kafka_python_client.py",
    assignor="cooperative-sticky",
)
AIOKAFKA = Make(name="aiokafka", script="aiokafka_client.py", assignor="roundrobin")
AIOKAFKA_RANGE = Make(name="aiokafka-range", script="aiokafka_client.py", assignor="range")
KCAT = Make(name="kcat", script="kcat_client.py", assignor="range")
MAKES = [CONFLUENT, COOPERATIVE, KAFKA_PYTHON, KAFKA_PYTHON_COOPERATIVE, AIOKAFKA, KCAT]


@pytest.mark.parametrize("make", MAKES, ids=lambda make: make.name)
def test_a_group_of_three_loses_and_doubles_nothing(
    make: Make, bootstrap: str, tmp_path: Path
) -> None:
    _need(make)
    with _group(bootstrap, tmp_path) as group:
        produced = group.produce(make, "first", 300)
        first, second = _join(group, make, "a"), _join(group, make, "b")
        group.await_balance()
        group.await_values(produced)
        _settle(group, produced)

        # One joins while records come.
        third = _join(group, make, "c")
        produced |= group.produce(make, "joining", 300)
        group.await_balance()
        group.await_values(produced)
        _settle(group, produced)

        # One says goodbye: the others take over without waiting for its session to end.
        group.leave(third)
        assert group.await_balance() < GOODBYE_S

        # It returns; then one is killed, and the others take over when its session has ended.
        third = _join(group, make, "c-again")
        group.await_balance()
        _settle(group, produced)
        group.kill(second)
        produced |= group.produce(make, "killed", 300)
        assert group.await_balance() < SESSION_MS / 1_000 * 2 + 2
        group.await_values(produced)
        _settle(group, produced)

        # All end; records arrive meanwhile; a new group of three goes on where the old one ended.
        for member in (first, third):
            group.leave(member)
        told = set(group.seen())
        produced |= group.produce(make, "absent", 300)
        returned = [_join(group, make, f"{name}-returned") for name in "abc"]
        group.await_balance()
        group.await_values(produced)
        _settle(group, produced)
        assert {value for member in returned for value in member.values} == produced - told


def test_makes_share_one_group(bootstrap: str, tmp_path: Path) -> None:
    """Whoever leads, each understands the others' subscriptions and its own share."""
    with _group(bootstrap, tmp_path) as group:
        produced = group.produce(CONFLUENT, "first", 300)
        makes = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA_RANGE)
        members = [_join(group, make, make.name) for make in makes]
        group.await_balance()
        group.await_values(produced)
        _settle(group, produced)

        # Each leaves in turn, so that each leads a group at some time.
        for member in members:
            group.leave(member)
            if group.members:
                group.await_balance()
        produced |= group.produce(AIOKAFKA, "second", 100)
        _join(group, KAFKA_PYTHON, "last")
        group.await_balance()
        group.await_values(produced)
        _settle(group, produced)


def _need(make: Make) -> None:
    if make is KCAT and shutil.which("kcat") is None:
        pytest.skip("kcat is not installed (Debian, Ubuntu: apt-get install kcat)")


def _group(bootstrap: str, logs: Path) -> Group:
    topic = f"interop-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])[
        topic
    ].result(30)
    return Group(bootstrap, topic, PARTITIONS, logs)


def _join(group: Group, make: Make, name: str) -> Member:
    return group.join(make, name, SESSION_MS)


def _settle(group: Group, produced: set[str]) -> None:
    """Waits until everything is committed. Nothing may have been lost or told twice by then.

    The group was at rest whenever a member left or was killed, so the only records that may come
    twice are those that were under way while one joined.
    """
    group.await_commits(lambda: _committed(group), len(produced))
    seen = group.seen()
    assert seen.keys() == produced
    doubled = [value for value, count in seen.items() if count > 1]
    assert [value for value in doubled if not value.startswith("joining-")] == []


def _committed(group: Group) -> int:
    admin = AdminClient({"bootstrap.servers": group.bootstrap})
    asked = [ConsumerGroupTopicPartitions(group.topic)]
    answer = admin.list_consumer_group_offsets(asked)[group.topic].result(30)
    return sum(max(0, p.offset) for p in answer.topic_partitions)
