"""Live workers that share connectors and tasks in Connect's bytes, on the embedded broker."""

from __future__ import annotations

import uuid
from contextlib import ExitStack

from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.config import parse_client_settings
from kohort.client.membership import Membership
from kohort.embedded.connect import ConnectorTask, decode_worker_assignment
from kohort.engine.connect_protocol import connect_protocol
from kohort.policies.connect import Configuration
from kohort.policies.connect_groups import ALL

TASKS = {"a": 4, "b": 3, "c": 2}
EVERYTHING = {ConnectorTask(name, n) for name, count in TASKS.items() for n in range(-1, count)}
Member = Membership[ConnectorTask]


class Crew:
    """Workers of one group that read one configuration, and stop revoked work in `settle`."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        self.group = f"workers-{uuid.uuid4()}"
        self._settings = parse_client_settings(
            {
                "bootstrap.servers": address,
                "group.id": self.group,
                "heartbeat.interval.ms": 50,
            }
        )
        self._stack = stack
        self.configuration = Configuration(offset=1, tasks=TASKS)
        self.workers: list[Member] = []
        self.said: list[str] = []
        self.broken = False

    def _read(self) -> Configuration:
        if self.broken:
            raise OSError("no configuration")
        return self.configuration

    def join(self) -> Member:
        protocol = connect_protocol("http://worker/", self._read, warn=self.said.append)
        worker = Member([ALL], self._settings, protocol)
        self._stack.callback(worker.leave)
        worker.join()
        self.workers.append(worker)
        return worker

    def settle(self, everything: set[ConnectorTask], spread: int) -> None:
        """Wait until the workers have all of this, with loads that differ by ``spread`` at most."""

        def there() -> bool:
            seen = [worker.snapshot() for worker in self.workers]
            for worker, each in zip(self.workers, seen, strict=True):
                if each.revoking:
                    worker.release(each.revoking)
            owned = [each.owned for each in seen]
            assert sum(map(len, owned)) == len(set().union(*owned)), "work is with two workers"
            loads = sorted(map(len, owned))
            return (
                set().union(*owned) == everything
                and loads[-1] - loads[0] <= spread
                and not any(each.revoking for each in seen)
            )

        until(there, "all work with a worker")


def test_workers_share_connectors_and_keep_them_when_one_leaves(
    kohort_broker: EmbeddedBroker,
) -> None:
    with ExitStack() as stack:
        crew = Crew(kohort_broker.bootstrap_servers, stack)
        crew.join()
        crew.settle(EVERYTHING, 2)
        crew.join()
        crew.join()
        crew.settle(EVERYTHING, 0)
        last = crew.workers.pop()
        before = [worker.snapshot().owned for worker in crew.workers]
        last.leave()
        crew.settle(EVERYTHING, 2)
        after = [worker.snapshot().owned for worker in crew.workers]
        assert all(had <= has for had, has in zip(before, after, strict=True))


def test_a_changed_configuration_is_shared_out(kohort_broker: EmbeddedBroker) -> None:
    with ExitStack() as stack:
        crew = Crew(kohort_broker.bootstrap_servers, stack)
        first = crew.join()
        crew.join()
        crew.settle(EVERYTHING, 2)
        crew.configuration = Configuration(offset=2, tasks={"a": 1})
        first.request_rejoin("the configuration changed")
        crew.settle({ConnectorTask("a"), ConnectorTask("a", 0)}, 2)


def test_a_configuration_that_cannot_be_read_ends_no_worker(kohort_broker: EmbeddedBroker) -> None:
    with ExitStack() as stack:
        crew = Crew(kohort_broker.bootstrap_servers, stack)
        first = crew.join()
        crew.join()
        crew.settle(EVERYTHING, 2)
        generation = first.snapshot().generation
        crew.broken = True
        first.request_rejoin("a test")
        until(lambda: first.snapshot().generation > generation, "another generation")
        crew.settle(EVERYTHING, 2)
        assert "OSError('no configuration')" in crew.said[0]


def test_assignments_name_the_leader_of_the_group(kohort_broker: EmbeddedBroker) -> None:
    with ExitStack() as stack:
        crew = Crew(kohort_broker.bootstrap_servers, stack)
        first = crew.join()
        crew.settle(EVERYTHING, 9)
        for _ in range(3):
            crew.join()
        crew.settle(EVERYTHING, 2)
        admin = stack.enter_context(Admin(bootstrap_servers=kohort_broker.bootstrap_servers))
        members = admin.describe_group(crew.group).members
        told = {decode_worker_assignment(member.assignment).leader for member in members}
        assert told == {first.snapshot().member}
