"""The demo's story against a small simulated group, without processes or Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kohort.cli.demo.picture import Application, Life, Picture
from kohort.cli.demo.story import BATCHES, NAMES, STEP_LIMIT_S, DemoFailed, Shown, play
from kohort.model.ids import TopicPartition
from kohort.spark.source.planning import share

PARTITIONS = 12
TOTAL = 30_000
EVEN = (1,) * PARTITIONS
UNEVEN = (45, 127, 66, 90, 75, 80, 101, 88, 70, 60, 95, 103)
"""Visitors are keys: the log in tests/data fills the partitions with 4.5 % to 12.7 %."""


class Group:
    """A ``story.Demo``: one micro-batch of each application in each second.

    Args:
        total: records in all.
        start_s: seconds that Spark takes to start.
        weights: the share of each partition in the records.
        rebalance_s: seconds from the join of a member until it owns partitions.
    """

    def __init__(
        self,
        total: int = TOTAL,
        start_s: int = 12,
        weights: tuple[int, ...] = EVEN,
        rebalance_s: int = 4,
    ) -> None:
        self.total, self.start_s, self.weights = total, start_s, weights
        self.rebalance_s = rebalance_s
        self.batch = max(PARTITIONS, total // BATCHES)
        self.now = 0
        self.fed = 0.0
        self.target: tuple[int, float] = (0, 0)
        self.applications = {name: Application(name=name) for name in NAMES}
        self.positions = dict.fromkeys(range(PARTITIONS), 0)
        self.in_batch = True
        self.events: list[str] = []

    def play(self) -> Shown:
        return play(self, self.total)

    def look(self) -> Picture:
        self.now += 1
        upto, rate = self.target
        self.fed = max(self.fed, min(upto, self.total, self.fed + rate))
        members = []
        for name, a in self.applications.items():
            if a.life is Life.STARTING and self.now - a.since >= self.start_s:
                self.applications[name] = replace(a, life=Life.MEMBER, since=self.now)
            if self.applications[name].life is Life.MEMBER:
                members.append(name)
        ready = [n for n in members if self.now - self.applications[n].since >= self.rebalance_s]
        for name in members:
            owned = range(ready.index(name), PARTITIONS, len(ready)) if name in ready else ()
            self.applications[name] = replace(self.applications[name], owned=frozenset(owned))
            self._land(name)
        return self._picture(stable=len(ready) == len(members))

    def say(self, text: str) -> None:
        self.events.append(text)

    def feed(self, upto: int, per_second: int | None = None) -> None:
        self.target = (upto, self.total if per_second is None else per_second)

    def start(self, name: str) -> None:
        a = self.applications[name]
        self.applications[name] = replace(
            a, life=Life.STARTING, starts=a.starts + 1, since=self.now
        )
        self.events.append(f"start {name}")

    def kill(self, name: str, *, in_batch: bool) -> bool:
        if in_batch and not self.in_batch:
            return False
        self.applications[name] = replace(
            self.applications[name], life=Life.KILLED, owned=frozenset()
        )
        self.events.append(f"kill {name}")
        return in_batch

    def _picture(self, *, stable: bool) -> Picture:
        whole = sum(self.weights)
        ends = {p: int(self.fed) * w // whole for p, w in enumerate(self.weights)}
        ends[0] += int(self.fed) - sum(ends.values())
        return Picture(
            at=self.now,
            applications=dict(self.applications),
            stable=stable,
            ends={p: end for p, end in ends.items() if end},
            positions=dict(self.positions),
        )

    def _land(self, name: str) -> None:
        backlog = self._picture(stable=True).backlog
        owned = {TopicPartition("t", p): backlog.get(p, 0) for p in self.applications[name].owned}
        done = share(owned, self.batch)
        for tp, count in done.items():
            self.positions[tp.partition] += count
        a = self.applications[name]
        self.applications[name] = replace(a, landed=a.landed + sum(done.values()))


def test_the_story_has_its_steps_in_order_and_consumes_everything() -> None:
    group = Group()
    shown = group.play()
    steps = [event for event in group.events if event.startswith(("start app", "kill app"))]
    assert steps == ["start app-1", "start app-2", "start app-3", "kill app-2", "start app-2"]
    assert shown.last.landed == TOTAL
    assert shown.killed_in_batch


@pytest.mark.parametrize("weights", [EVEN, UNEVEN])
@pytest.mark.parametrize("start_s", [1, 12, 45, 150, 290])
def test_every_partition_has_a_backlog_at_join_and_kill_on_fast_and_slow_machines(
    start_s: int, weights: tuple[int, ...]
) -> None:
    shown = Group(start_s=start_s, weights=weights).play()
    assert shown.joined_under_backlog
    assert shown.killed_under_backlog


def test_too_few_records_do_not_stop_the_story() -> None:
    shown = Group(total=5).play()
    assert shown.last.landed == 5
    assert not shown.killed_under_backlog


def test_the_kill_waits_for_a_micro_batch_and_goes_on_without_one() -> None:
    group = Group()
    group.in_batch = False
    shown = group.play()
    assert "kill app-2" in group.events
    assert not shown.killed_in_batch
    assert not shown.killed_under_backlog
    assert any("between two batches" in event for event in group.events)


def test_a_step_that_takes_too_long_names_the_awaited_state() -> None:
    group = Group(start_s=int(STEP_LIMIT_S) + 10)
    with pytest.raises(DemoFailed, match="app-1 and app-2 share the partitions and write"):
        group.play()


def test_an_application_that_ends_without_request_ends_the_demo() -> None:
    group = Group()
    group.applications["app-3"] = Application(name="app-3", life=Life.ENDED)
    with pytest.raises(DemoFailed, match="app-3 ended"):
        group.play()
