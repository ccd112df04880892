"""Groups of three other Kafka clients: one joins, one leaves, one is killed, all return.

The same test runs on kohort's broker and on a real Kafka with each client; on the real Kafka with
one client in an ordinary run, since Kafka only proves the test. Each member and each producer is a
process.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interop.group import SESSION_MS, Group, Make
from tests.interop.makes import AIOKAFKA, AIOKAFKA_RANGE, CONFLUENT, KAFKA_PYTHON, MAKES, need

pytestmark = [pytest.mark.slow, pytest.mark.interop, pytest.mark.real_kafka]

# The member that leaves has a long session, and the killed member a short one. So a LeaveGroup
# without effect, or a session without end, differs from a slow machine.
LONG_SESSION_MS = 40_000
SOON_S = 20


BROKERS_AND_MAKES = [
    pytest.param(
        broker,
        make,
        id=f"{broker}-{make.name}",
        marks=pytest.mark.long if broker == "kafka" and make is not CONFLUENT else (),
    )
    for make in MAKES
    for broker in ("kafka", "kohort")
]


@pytest.mark.parametrize(("bootstrap", "make"), BROKERS_AND_MAKES, indirect=["bootstrap"])
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

        # One member joins while records arrive.
        third = group.join(make, "c", LONG_SESSION_MS)
        produced |= group.produce(make, "joining", 300)
        group.await_balance()
        group.await_values(produced)
        group.settle(produced, "joining-")

        # One member leaves: the others take over before the end of its session.
        group.leave(third)
        assert group.await_balance() < SOON_S

        # The member returns. Another one is killed, and the others take over after its session.
        third = group.join(make, "c-again")
        group.await_balance()
        group.settle(produced)
        group.kill(second)
        produced |= group.produce(make, "killed", 300)
        assert group.await_balance() < SESSION_MS / 1_000 + SOON_S
        group.await_values(produced)
        group.settle(produced, "killed-")

        # All members end and records arrive; three new members continue at the committed offsets.
        for member in (first, third):
            group.leave(member)
        told = set(group.seen())
        produced |= group.produce(make, "absent", 300)
        returned = [group.join(make, f"{name}-returned") for name in "abc"]
        group.await_balance()
        group.await_values(produced)
        group.settle(produced, "absent-")
        assert {value for member in returned for value in member.values} == produced - told


def test_different_clients_share_one_group(bootstrap: str, tmp_path: Path) -> None:
    """Each client reads the subscriptions of the others when it leads, and its own assignment."""
    with Group.create(bootstrap, tmp_path) as group:
        produced = group.produce(CONFLUENT, "first", 300)
        makes = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA_RANGE)
        members = [group.join(make, make.name) for make in makes]
        group.await_balance()
        group.await_values(produced)
        group.settle(produced, "first-")

        # The members leave in turn, so each of them leads the group once.
        for member in members:
            group.leave(member)
            if group.members:
                group.await_balance()
        produced |= group.produce(AIOKAFKA, "second", 100)
        group.join(KAFKA_PYTHON, "last")
        group.await_balance()
        group.await_values(produced)
        group.settle(produced)
