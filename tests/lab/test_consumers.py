"""``AsyncConsumer`` and ``Consumer`` in the lab: random lives and faults, judged by all checks.

Their poll loop, driver, event loop and threads are those of every live consumer. ``AsyncConsumer``
is cancelled in one poll of five. A thread of ``Consumer`` loses the processor before any line of
the modules in ``RACING``: the poll loop and the driver meet in orders that real threads show
seldom. A seed gives the same history each time.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.lab.async_pods import forget_the_dead, use_async_consumers
from tests.lab.consumer_pods import ConsumerPod
from tests.lab.thread_pods import use_blocking_consumers

from kohort.client.consuming.partition_reader import PartitionReader
from kohort.lab import runs
from kohort.lab.random_plans import MODES, draw
from kohort.lab.runs import Report, run_plan
from kohort.lab.world import World

PREEMPTED = 0.01
"""The share of lines before which a thread loses the processor: hundreds in a second."""
KINDS = ("asyncio", "blocking")
A_TEST = 5
"""The worlds of one long test. 20 blocking worlds take 280 s on a machine with other work."""


class Lives:
    """Runs plans; has the pods of the last world."""

    def __init__(self) -> None:
        self.pods: list[ConsumerPod] = []

    def run(self, mode: str, seed: int) -> Report:
        """Run one plan."""
        self.pods.clear()
        try:
            return run_plan(draw(seed, mode))
        finally:
            for pod in self.pods:
                pod.finish()

    def run_all(self, mode: str, seeds: range) -> None:
        """Run plans that must break no promise."""
        for seed in seeds:
            report = self.run(mode, seed)
            assert report.ok, f"{mode} {seed}: " + "; ".join(map(str, report.findings[:3]))
            assert [failure for pod in self.pods for failure in pod.failures] == [], (
                f"{mode} {seed}"
            )
            assert self.pods != []


@pytest.fixture
def lives(kind: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lives]:
    """Makes the lab run these consumers."""
    if kind == "asyncio":
        use_async_consumers(monkeypatch)
    else:
        use_blocking_consumers(monkeypatch, PREEMPTED)
    found = Lives()

    class Watched(World):
        def __init__(self, *given: object, **more: object) -> None:
            super().__init__(*given, **more)  # type: ignore[arg-type]
            found.pods.extend(p for p in self.pods.values() if isinstance(p, ConsumerPod))

    monkeypatch.setattr(runs, "World", Watched)
    yield found
    found.pods.clear()
    forget_the_dead()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "mode", "seeds"),
    [
        ("asyncio", "safety", range(3)),
        ("asyncio", "liveness", range(13, 16)),
        ("blocking", "safety", range(1, 3)),
        ("blocking", "liveness", range(2, 3)),
    ],
)
def test_drawn_worlds_break_no_promise(lives: Lives, mode: str, seeds: range) -> None:
    lives.run_all(mode, seeds)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 100, A_TEST))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_many_drawn_worlds_break_no_promise(lives: Lives, mode: str, first: int) -> None:
    lives.run_all(mode, range(first, first + A_TEST))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_same_history_each_time(lives: Lives) -> None:
    assert lives.run("safety", 7).digest == lives.run("safety", 7).digest


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_buffered_records_that_outlive_a_revocation_are_found(
    lives: Lives, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PartitionReader, "unbuffer", lambda _self, _partitions: False)
    monkeypatch.setattr(
        "kohort.client.consuming.unblocked_consumer.UnblockedConsumer.finish", one_by_one
    )
    seeds, rule = {
        "asyncio": ((2, 3), "delivered-while-assigned"),
        "blocking": ((10,), "duplicates-have-a-cause"),
    }[kind]
    assert rule in {f.rule for seed in seeds for f in lives.run("safety", seed).findings}


def one_by_one(self: object, most: int) -> list[object]:
    """Hand out a single record, so that others wait in the buffer."""
    del most
    return [self.finish_one()]  # type: ignore[attr-defined]
