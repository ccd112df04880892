"""Workers that start and stop connectors and tasks, on the embedded broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.client.stage import expel
from tests.client.working import (
    ConnectsLeader,
    Crew,
    work_moves_with_warm_copies,
    workers_come_and_go,
)
from tests.waiting import until

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


def test_work_with_state_moves_when_copies_are_warm(crew: Crew) -> None:
    work_moves_with_warm_copies(crew)


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


def test_work_that_fails_while_it_runs_stays_and_is_started_by_a_restart(crew: Crew) -> None:
    worker = crew.join()
    crew.settled(18)
    worker.report_failed(FIRST, ValueError("a-0 ran out of memory"))
    until(lambda: worker.work()[FIRST].state is WorkState.FAILED, "the failure is known")
    assert str(worker.work()[FIRST].error) == "a-0 ran out of memory"
    assert FIRST in worker.owned(), "failed work stays with its worker"
    worker.restart(FIRST)
    until(lambda: worker.work()[FIRST].state is WorkState.RUNNING, "it runs again")
    assert crew.starts.count(FIRST) == 2
    with pytest.raises(WrongUse, match="nowhere-1 is not with this worker"):
        worker.report_failed(ConnectorTask("nowhere", 1), ValueError("lost"))


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


def test_125_work_of_a_lost_membership_is_lost(crew: Crew) -> None:
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


def test_a_setting_without_effect_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"kohort\.stateful\.topics is for consumers"):
        Worker(
            {"kohort.stateful.topics": "t"},
            bootstrap_servers="h:1",
            group_id=str(uuid.uuid4()),
            configuration=lambda: Configuration(offset=0, tasks={}),
            on_start=print,
            on_stop=print,
        )


def test_a_static_worker_returns_to_all_of_its_work_without_a_rebalance(crew: Crew) -> None:
    crew.join()
    names = [{"group.instance.id": name} for name in ("one", "two")]
    crew.join(**names[0])
    second = crew.join(**names[1])
    crew.settled(6, 6, 6)
    mine, generation = second.owned(), second.snapshot().generation
    crew.leave(second)  # a static member does not leave the group
    again = crew.join(**names[1])
    crew.settled(6, 6, 6)
    assert again.owned() == mine
    assert again.snapshot().generation == generation, "no rebalance"


def test_work_of_a_worker_that_left_waits_for_its_return(crew: Crew) -> None:
    wait = {"scheduled.rebalance.max.delay.ms": 600_000}
    names = [wait | {"kohort.member.identity": name} for name in "abc"]
    first, second, _ = [crew.join(**each) for each in names]
    crew.settled(6, 6, 6)
    mine = second.owned()
    crew.leave(second)
    sentence = "6 connectors and tasks wait up to"
    until(lambda: sentence in str(first.status().waiting_for), "the wait is told")
    assert str(min(mine)) in str(first.status().waiting_for)
    assert sorted(len(worker.work()) for worker in crew.workers) == [6, 6]
    again = crew.join(**names[1])
    crew.settled(6, 6, 6)
    assert again.owned() == mine
    until(lambda: first.status().waiting_for == (), "nothing waits")


def test_a_limit_of_moves_lets_work_move_in_small_steps(crew: Crew) -> None:
    crew.join(**{"kohort.max.moves.per.round": 2})
    crew.settled(18)
    before = crew.workers[0].snapshot().generation
    crew.join()
    crew.settled(9, 9)
    rounds = crew.workers[0].snapshot().generation - before
    assert rounds >= 5, "9 moves by 2 a round"
    assert len(crew.starts) == 18 + 9, "nothing moved twice"


def test_a_drained_worker_hands_its_work_over_and_owns_it_until_then(crew: Crew) -> None:
    moves = {"kohort.max.moves.per.round": 3}
    first, second = crew.join(**moves), crew.join(**moves)
    crew.settled(9, 9)
    second.drain()
    until(lambda: second.drained, "the drain is over")
    until(lambda: len(first.work()) == 18, "the first worker has everything")
    assert not second.owned()
    assert crew.lost == []
    crew.leave(second)
    crew.settled(18)


def test_a_static_worker_under_a_leader_of_connect_asks_for_its_work(crew: Crew) -> None:
    leader = ConnectsLeader(crew)
    with leader.worker:
        until(lambda: leader.worker.snapshot().assignments > 0, "the leader is there")
        leader.settle([])
        name = {"group.instance.id": "one"}
        second = crew.join(**name)
        leader.settle([second])
        # A running rebalance absorbs the request: both have finished the last one.
        both = (leader.worker, second)
        until(lambda: len({w.snapshot().generation for w in both}) == 1, "one generation")
        before = second.snapshot().generation
        leader.worker.request_rejoin("the next assignment names no changes")
        until(lambda: second.snapshot().generation > before, "another generation")
        crew.leave(second)
        again = crew.join(**name)
        leader.settle([again])
        assert len(again.owned()) == 9


def test_eager_workers_stop_all_work_in_each_rebalance(crew: Crew) -> None:
    eager = {"protocols": ("default",)}
    for shares in ([18], [9, 9], [6, 6, 6]):
        crew.join(**eager)
        crew.settled(*shares)
    assert len(crew.starts) == 18 * 3
    assert crew.lost == []


def test_all_work_that_stops_hears_so_before_the_first_stop(crew: Crew) -> None:
    """As in Connect: all tasks end at a time, and the worker waits for each."""
    heard: list[ConnectorTask] = []
    with_end = {"protocols": ("default",), "on_stopping": heard.append}
    worker = crew.join(**with_end)
    crew.settled(18)
    worker.restart(FIRST)
    until(lambda: crew.starts.count(FIRST) == 2, "the second start")
    assert heard == [FIRST]
    heard.clear()
    seen: list[int] = []
    crew.on_stop = lambda: seen.append(len(heard))
    crew.join(**with_end)
    crew.settled(9, 9)
    assert seen == [18] * 18
    assert heard == sorted(crew.configuration.work(), reverse=True), "tasks before their connector"


@pytest.mark.slow
def test_a_group_changes_its_protocol_by_two_rolling_restarts(crew: Crew) -> None:
    both = ("compatible", "default")
    for _ in range(3):
        crew.join(protocols=("default",))
    crew.settled(6, 6, 6)
    for protocols in (both, ("compatible",), both, ("default",)):
        for _ in range(3):
            crew.leave(crew.workers[0])
            crew.settled(9, 9)
            crew.join(protocols=protocols)
            crew.settled(6, 6, 6)
    assert crew.lost == []


@pytest.mark.parametrize("protocols", [(), "default", ("sessioned",), ("default", "default")])
def test_other_protocols_are_refused(crew: Crew, protocols: object) -> None:
    with pytest.raises(ConfigError, match="expected protocols out of compatible, default"):
        crew.join(protocols=protocols)


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
