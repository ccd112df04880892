"""A group of live workers that share connectors and tasks, on any broker."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from tests.waiting import until

from kohort.client.config import parse_client_settings
from kohort.client.membership import Membership
from kohort.client.worker import Configuration, ConnectorTask, Worker, WorkState
from kohort.embedded.connect import decode_worker_assignment, encode_worker_assignment
from kohort.engine.connect_protocol import connect_protocol
from kohort.model.ids import ProtocolName
from kohort.model.join import JoinedMember
from kohort.policies.connect_groups import ALL, ConnectAssigner
from kohort.policies.losses import Moment
from kohort.policies.spec import EncodedPlan

TASKS = {"a": 4, "b": 3, "c": 2, "d": 1, "e": 1, "f": 1}
"""6 connectors and 12 tasks: 1, 2 and 3 workers have equal shares of both."""


class Crew:
    """Workers in the order in which they came, and the calls of their callbacks.

    Args:
        address: the broker.
        stack: ends the workers.
    """

    def __init__(self, address: str, stack: ExitStack) -> None:
        self.group = f"workers-{uuid.uuid4()}"
        self.configuration = Configuration(offset=1, tasks=TASKS)
        self.workers: list[Worker] = []
        self.collisions: list[ConnectorTask] = []
        """Work that a worker started while another one still ran it."""
        self.broken: set[ConnectorTask] = set()
        """Work that cannot be started."""
        self.lost: list[ConnectorTask] = []
        self.starts: list[ConnectorTask] = []
        self.running: dict[ConnectorTask, object] = {}
        self.on_stop: Callable[[], object] = lambda: None
        """Called by each stop."""
        self._lock = threading.Lock()
        self.address, self._stack = address, stack

    def join(self, read: object = None, **more: object) -> Worker:
        """A new worker; ``read`` is a configuration of its own, in place of the common one."""
        owner = object()

        def start(work: ConnectorTask) -> None:
            if work in self.broken:
                raise OSError(f"{work} is broken")
            with self._lock:
                self.starts.append(work)
                if self.running.setdefault(work, owner) is not owner:
                    self.collisions.append(work)

        def stop(work: ConnectorTask) -> None:
            self.on_stop()
            with self._lock:
                if self.running.pop(work) is not owner:
                    self.collisions.append(work)

        def lose(work: ConnectorTask) -> None:
            self.lost.append(work)
            stop(work)

        def configuration() -> Configuration:
            return read if isinstance(read, Configuration) else self.configuration

        protocols: Any = more.pop("protocols", ("compatible",))
        on_prepare: Any = more.pop("on_prepare", None)
        on_stopping: Any = more.pop("on_stopping", None)
        worker = Worker(
            {
                "bootstrap.servers": self.address,
                "group.id": self.group,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 50,
                **more,
            },
            configuration=configuration,
            on_start=start,
            on_stop=stop,
            on_lost=lose,
            on_stopping=on_stopping,
            on_prepare=on_prepare,
            protocols=protocols,
        )
        self._stack.callback(worker.leave)
        worker.join()
        self.workers.append(worker)
        return worker

    def leave(self, worker: Worker) -> None:
        self.workers.remove(worker)
        worker.leave()

    def settled(self, *shares: int) -> None:
        """Wait until everything runs, and the workers have this many connectors and tasks."""
        everything = set(self.configuration.work())

        def there() -> bool:
            work = [worker.work() for worker in self.workers]
            known = [key for mine in work for key in mine]
            states = {status.state for mine in work for status in mine.values()}
            return (
                sorted(map(len, work)) == sorted(shares)
                and len(known) == len(everything)
                and set(known) == everything
                and WorkState.WAITING not in states
                and self.running.keys() == everything - self.broken
            )

        until(there, f"shares of {shares}")
        assert self.collisions == []


class ConnectsLeader:
    """A worker that leads as Connect's workers do: its assignments name changes only."""

    def __init__(self, crew: Crew) -> None:
        protocol = connect_protocol("http://connect/", lambda: crew.configuration)
        assigner = _Terse(lambda: crew.configuration)
        settings = parse_client_settings(
            {
                "bootstrap.servers": crew.address,
                "group.id": crew.group,
                "heartbeat.interval.ms": 50,
            }
        )
        self.worker = Membership([ALL], settings, replace(protocol, assigner=assigner))

    def settle(self, others: list[Worker]) -> None:
        """Give revoked work up until all work is shared out evenly."""

        def there() -> bool:
            seen = self.worker.snapshot()
            if seen.revoking:
                self.worker.release(seen.revoking)
            shares = [len(seen.owned), *(len(each.work()) for each in others)]
            return sum(shares) == 18 and max(shares) - min(shares) <= 1

        until(there, "all work with a worker")


class _Terse(ConnectAssigner):
    def assign(
        self,
        protocol_name: ProtocolName,
        members: Sequence[JoinedMember],
        partitions: Mapping[str, int],
        moment: Moment | None = None,
    ) -> EncodedPlan:
        plan = super().assign(protocol_name, members, partitions, moment)
        assignments = {
            i: encode_worker_assignment(replace(decode_worker_assignment(data), detail=None))
            for i, data in plan.assignments.items()
        }
        return replace(plan, assignments=assignments)


def workers_come_and_go(crew: Crew) -> None:
    """Work moves in two steps, and stays where it can."""
    for shares in ([18], [9, 9], [6, 6, 6]):
        crew.join()
        crew.settled(*shares)
    before = [worker.owned() for worker in crew.workers[1:]]
    crew.leave(crew.workers[0])
    crew.settled(9, 9)
    after = [worker.owned() for worker in crew.workers]
    assert all(had <= has for had, has in zip(before, after, strict=True))
    crew.configuration = Configuration(offset=2, tasks={"a": 2, "b": 2})
    crew.workers[1].configuration_changed()
    crew.settled(3, 3)
    assert crew.lost == []


def work_moves_with_warm_copies(crew: Crew) -> None:
    """A newcomer gets its work when it has warm copies, the stateful work of others stays."""
    asked: list[frozenset[ConnectorTask]] = []
    crew.join(on_prepare=asked.append)
    crew.settled(18)
    newcomer = crew.join(on_prepare=asked.append)
    until(lambda: len(newcomer.snapshot().preparing) == 9, "nine connectors and tasks to prepare")
    announced = newcomer.snapshot().preparing
    crew.settled(0, 18)
    newcomer.report_warm(announced)
    crew.settled(9, 9)
    assert newcomer.owned() == announced
    assert asked == [announced]
