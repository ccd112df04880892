"""Other makes' clients as a group of three: one joins, one leaves, one is killed, all return.

The same story is told to a real Kafka and to kohort's broker, with every make of client, each
member and producer a process of its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interop.group import SESSION_MS, Group, Make
from tests.interop.makes import AIOKAFKA, AIOKAFKA_RANGE, CONFLUENT, KAFKA_PYTHON, MAKES, need

pytestmark = [pytest.mark.slow, pytest.mark.interop]

# Whoever leaves has a long session and whoever is killed a short one, so that a goodbye that was
# not understood, or a session that did not end, is told from a slow machine.
LONG_SESSION_MS = 40_000
SOON_S = 20


@pytest.mark.parametrize("make", MAKES, ids=lambda make: make.name)
def test_a_group_of_three_loses_and_doubles_nothing(
    make: Make, bootstrap: str, tmp_path: Path
) -> None:
    need(make)
    with Group.create(bootstrap, tmp_path) as group:
        produced = group.produce(make, "first", 300)
        first, second = group.join(make, "a"), group.join(make, "b")
        group.await_balance()
        group.await_values(produced)
        group.settle(produced, "first-")

        # One joins while records come.
        third = group.join(make, "c", LONG_SESSION_MS)
        produced |= group.produce(make, "joining", 300)
        group.await_balance()
        group.await_values(produced)
        group.settle(produced, "joining-")

        # One says goodbye: the others take over without waiting for its session to end.
        group.leave(third)
        assert group.await_balance() < SOON_S

        # It returns; then one is killed, and the others take over when its session has ended.
        third = group.join(make, "c-again")
        group.await_balance()
        group.settle(produced)
        group.kill(second)
        produced |= group.produce(make, "killed", 300)
        assert group.await_balance() < SESSION_MS / 1_000 + SOON_S
        group.await_values(produced)
        group.settle(produced, "killed-")

        # All end; records arrive meanwhile; a new group of three goes on where the old one ended.
        for member in (first, third):
            group.leave(member)
        told = set(group.seen())
        produced |= group.produce(make, "absent", 300)
        returned = [group.join(make, f"{name}-returned") for name in "abc"]
        group.await_balance()
        group.await_values(produced)
        group.settle(produced, "absent-")
        assert {value for member in returned for value in member.values} == produced - told


def test_makes_share_one_group(bootstrap: str, tmp_path: Path) -> None:
    """Whoever leads, each understands the others' subscriptions and its own share."""
    with Group.create(bootstrap, tmp_path) as group:
        produced = group.produce(CONFLUENT, "first", 300)
        makes = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA_RANGE)
        members = [group.join(make, make.name) for make in makes]
        group.await_balance()
        group.await_values(produced)
        group.settle(produced, "first-")

        # Each leaves in turn, so that each leads a group at some time.
        for member in members:
            group.leave(member)
            if group.members:
                group.await_balance()
        produced |= group.produce(AIOKAFKA, "second", 100)
        group.join(KAFKA_PYTHON, "last")
        group.await_balance()
        group.await_values(produced)
        group.settle(produced)
