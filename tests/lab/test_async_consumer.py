"""``AsyncConsumer`` in the lab: random lives and faults under virtual time, judged by all checks.

The event loop, the poll loop and the driver are those of every live consumer. One poll in five is
cancelled. A seed gives the same history each time.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.lab.async_pods import AsyncPod, forget_the_dead, use_async_consumers

from kohort.client.partition_reader import PartitionReader
from kohort.lab import runs
from kohort.lab.random_plans import MODES, draw
from kohort.lab.runs import Report, run_plan
from kohort.lab.world import World


@pytest.fixture
def lives(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[AsyncPod]]:
    """Makes the lab run `AsyncConsumer`; gets the pods of every world."""
    use_async_consumers(monkeypatch)
    pods: list[AsyncPod] = []

    class Watched(World):
        def __init__(self, *given: object, **more: object) -> None:
            super().__init__(*given, **more)  # type: ignore[arg-type]
            pods.extend(pod for pod in self.pods.values() if isinstance(pod, AsyncPod))

    monkeypatch.setattr(runs, "World", Watched)
    yield pods
    for pod in pods:
        pod.finish()
    pods.clear()
    forget_the_dead()


def run_all(pods: list[AsyncPod], mode: str, seeds: range) -> None:
    for seed in seeds:
        pods.clear()
        report = run_plan(draw(seed, mode))
        for pod in pods:
            pod.finish()
        unhandled = [failure for pod in pods for failure in pod.failures]
        assert report.ok, f"{mode} {seed}: " + "; ".join(map(str, report.findings[:3]))
        assert unhandled == [], f"{mode} {seed}"
        assert pods != []


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "first"), [("safety", 0), ("liveness", 13)])
def test_drawn_worlds_of_async_consumers_break_no_promise(
    lives: list[AsyncPod], mode: str, first: int
) -> None:
    run_all(lives, mode, range(first, first + 3))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_many_drawn_worlds_of_async_consumers(lives: list[AsyncPod], mode: str) -> None:
    run_all(lives, mode, range(100))


def report_of(seed: int) -> Report:
    return run_plan(draw(seed, "safety"))


@pytest.mark.slow
@pytest.mark.usefixtures("lives")
def test_a_seed_gives_the_same_history_each_time() -> None:
    assert report_of(3).digest == report_of(3).digest


@pytest.mark.slow
@pytest.mark.usefixtures("lives")
def test_buffered_records_that_outlive_a_revocation_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PartitionReader, "unbuffer", lambda _self, _partitions: False)
    monkeypatch.setattr("kohort.client.unblocked_consumer.UnblockedConsumer.finish", one_by_one)
    rules = {finding.rule for seed in (2, 3) for finding in report_of(seed).findings}
    assert "delivered-while-assigned" in rules


def one_by_one(self: object, most: int) -> list[object]:
    """Hand out a single record, so that others wait in the buffer."""
    del most
    return [self.finish_one()]  # type: ignore[attr-defined]
