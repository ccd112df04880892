"""Groups of resources and elections on a real Apache Kafka."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from tests.client.candidates import Candidates, a_rolling_bounce_moves_leadership_twice_at_most
from tests.client.sharing import Crew, a_member_returns, copies_move_resources
from tests.client.working import Crew as WorkerCrew
from tests.client.working import work_moves_with_warm_copies, workers_come_and_go

from kohort.testing.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]


def test_members_share_resources_and_a_returning_member_gets_its_own(
    real_kafka: RealKafka,
) -> None:
    with ExitStack() as stack:
        address = real_kafka.bootstrap_servers
        crew = Crew(address, stack, scheduled_rebalance_max_delay_ms=60_000)
        a_member_returns(crew)
        assert crew.collisions == []


def test_resources_with_state_move_when_copies_are_warm(real_kafka: RealKafka) -> None:
    with ExitStack() as stack:
        copies_move_resources(Crew(real_kafka.bootstrap_servers, stack, kohort_standby_replicas=1))


def test_a_rolling_bounce_moves_leadership_twice_at_most(real_kafka: RealKafka) -> None:
    with ExitStack() as stack:
        candidates = Candidates(real_kafka.bootstrap_servers, stack)
        a_rolling_bounce_moves_leadership_twice_at_most(candidates, 2)


def test_work_moves_in_two_steps_when_workers_come_and_go(real_kafka: RealKafka) -> None:
    with ExitStack() as stack:
        workers_come_and_go(WorkerCrew(real_kafka.bootstrap_servers, stack))


def test_work_with_state_moves_when_copies_are_warm(real_kafka: RealKafka) -> None:
    with ExitStack() as stack:
        work_moves_with_warm_copies(WorkerCrew(real_kafka.bootstrap_servers, stack))
