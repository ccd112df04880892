"""Workers that start and stop connectors and tasks, on the embedded broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.client.stage import expel, until
from tests.client.working import Crew, workers_come_and_go

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.errors import WrongUse
from kohort.client.worker import Configuration, ConnectorTask, Worker, WorkState
from kohort.model.errors import ConfigError

FIRST = ConnectorTask("a", 0)


@pytest.fixture
def crew(kohort_broker: EmbeddedBroker) -> Iterator[Crew]:
    with ExitStack() as stack:
        yield Crew(kohort_broker.bootstrap_servers, stack)


def test_work_moves_in_two_steps_when_workers_come_and_go(crew: Crew) -> None:
    workers_come_and_go(crew)


def test_work_that_cannot_be_started_fails_alone_and_can_be_restarted(crew: Crew) -> None:
    crew.broken = {FIRST}
    worker = crew.join()
    crew.settled(18)
    failed = worker.work()[FIRST]
    assert failed.state is WorkState.FAILED
    assert str(failed.error) == "a-0 is broken"
    assert FIRST in worker.owned(), "failed work stays with its worker"
    crew.broken = set()
    worker.restart(FIRST)
    crew.settled(18)
    assert worker.work()[FIRST].state is WorkState.RUNNING


def test_running_work_is_stopped_and_started_by_a_restart(crew: Crew) -> None:
    worker = crew.join()
    crew.settled(18)
    worker.restart(FIRST)
    until(lambda: crew.starts.count(FIRST) == 2, "the second start")
    crew.settled(18)
    with pytest.raises(WrongUse, match="nowhere-1 is not with this worker; it has a, a-0, "):
        worker.restart(ConnectorTask("nowhere", 1))


def test_a_follower_holds_new_work_back_until_its_configuration_is_read(crew: Crew) -> None:
    leader = crew.join()
    crew.settled(18)
    old = Configuration(offset=0, tasks={})
    behind = crew.join(old)
    until(lambda: len(behind.work()) == 9, "the follower has work")
    until(lambda: len(leader.work()) == 9, "the leader gave work up")
    assert {status.state for status in behind.work().values()} == {WorkState.WAITING}
    object.__setattr__(old, "offset", 1)  # the follower has read on
    crew.settled(9, 9)


def test_a_leader_that_is_behind_assigns_when_it_has_read_on(crew: Crew) -> None:
    old = Configuration(offset=0, tasks={})
    leader = crew.join(old)
    until(lambda: leader.snapshot().assignments > 0, "the first worker leads")
    ahead = crew.join()
    until(lambda: ahead.snapshot().generation >= 2, "a generation of both")
    assert crew.running == {}
    object.__setattr__(old, "tasks", crew.configuration.tasks)
    object.__setattr__(old, "offset", 1)
    crew.settled(9, 9)


def test_work_of_a_lost_membership_is_lost(crew: Crew) -> None:
    crew.join()
    second = crew.join()
    crew.settled(9, 9)
    mine = second.owned()
    expel(crew.address, crew.group, second.snapshot().member)
    until(lambda: set(crew.lost) == mine, "the loss is told")


def test_weights_balance_the_load_and_not_the_number(crew: Crew) -> None:
    crew.configuration = Configuration(offset=1, tasks={"a": 4, "b": 3}, weights={FIRST: 8})
    crew.join()
    crew.join()
    crew.settled(1, 8)
    heavy = next(worker for worker in crew.workers if len(worker.work()) == 1)
    assert heavy.owned() == {FIRST}


@pytest.mark.parametrize(
    "settings",
    [
        {"group.instance.id": "one"},
        {"scheduled.rebalance.max.delay.ms": 1_000},
        {"kohort.max.moves.per.round": 1},
        {"kohort.member.identity": "one"},
        {"kohort.stateful.topics": "t"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_without_effect_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings)).replace(".", r"\.")):
        Worker(
            settings,
            bootstrap_servers="h:1",
            group_id=str(uuid.uuid4()),
            configuration=lambda: Configuration(offset=0, tasks={}),
            on_start=print,
            on_stop=print,
        )


def test_a_plan_that_the_broker_cannot_store_is_refused(crew: Crew) -> None:
    crew.configuration = Configuration(offset=1, tasks={f"connector-{n}": 9 for n in range(200)})
    worker = crew.join(kohort_max_group_record_bytes=2_000)

    def failed() -> bool:
        try:
            worker.snapshot()
        except Exception as error:
            return "Use fewer connectors or tasks" in str(error)
        return False

    until(failed, "the leader fails with a clear error")
