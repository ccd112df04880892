"""The demo's story against a small pretended world, without processes or Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kohort.cli.demo.picture import (
    Application,
    Cue,
    Feed,
    Finish,
    Kill,
    Life,
    Picture,
    Say,
    Start,
)
from kohort.cli.demo.script import (
    ACT_LIMIT_S,
    HELD_BACK,
    DemoFailed,
    Script,
)
from kohort.model.ids import TopicPartition
from kohort.spark.planning import share

PARTITIONS = 6
TOTAL = 10_000
START_S = 3
BATCH = 30
EVEN = (1,) * PARTITIONS


class World:
    """Applications that take seconds to start, share partitions evenly and land batches of 30.

    Args:
        total: records in all.
        batch: most records of a micro-batch.
        start_s: how long an application takes to start.
        weights: how many records go to each partition, in proportion.
    """

    def __init__(
        self,
        total: int = TOTAL,
        batch: int = BATCH,
        start_s: int = START_S,
        weights: tuple[int, ...] = EVEN,
    ) -> None:
        self.script = Script(total)
        self.total = total
        self.batch = batch
        self.start_s = start_s
        self.weights = weights
        self.now = 0.0
        self.feed = 0
        self.applications: dict[str, Application] = {}
        self.started_at: dict[str, float] = {}
        self.positions = dict.fromkeys(range(PARTITIONS), 0)
        self.cues: list[Cue] = []
        self.kill_hits = True
        self.finished = False

    def picture(self) -> Picture:
        fed = self.feed
        return Picture(
            at=self.now,
            applications=dict(self.applications),
            stable=True,
            fed=fed,
            fed_out=fed == self.total,
            ends=self._ends(),
            positions=dict(self.positions),
        )

    def _ends(self) -> dict[int, int]:
        ends = {p: self.feed * w // sum(self.weights) for p, w in enumerate(self.weights)}
        left = self.feed - sum(ends.values())
        return {p: end + (p < left) for p, end in ends.items()}

    def tick(self) -> None:
        self.now += 1
        self._share()
        self._land()
        picture = self.picture()
        for cue in self.script.step(picture):
            self.cues.append(cue)
            self._carry_out(cue, picture)

    def run(self, ticks: int = 2_000) -> None:
        while not self.finished and ticks:
            ticks -= 1
            self.tick()

    def _carry_out(self, cue: Cue, picture: Picture) -> None:
        match cue:
            case Start(name):
                starts = self.applications[name].starts if name in self.applications else 0
                self.applications[name] = Application(
                    name=name, life=Life.STARTING, starts=starts + 1
                )
                self.started_at[name] = self.now
            case Kill(name, anyway) if self.kill_hits or anyway:
                hit = self.kill_hits and self.applications[name].in_batch
                self.applications[name] = replace(
                    self.applications[name], life=Life.KILLED, owned=frozenset()
                )
                self.script.killed(picture, hit)
            case Kill():
                pass
            case Feed(upto):
                self.feed = upto
            case Finish():
                self.finished = True
            case Say():
                pass

    def _share(self) -> None:
        for name, application in self.applications.items():
            due = self.now - self.started_at[name] >= self.start_s
            if application.life is Life.STARTING and due:
                self.applications[name] = replace(application, life=Life.MEMBER)
        members = [a.name for a in self.applications.values() if a.life is Life.MEMBER]
        for index, name in enumerate(members):
            owned = frozenset(range(index, PARTITIONS, len(members)))
            self.applications[name] = replace(self.applications[name], owned=owned, acquired=owned)

    def _land(self) -> None:
        picture = self.picture()
        waiting = picture.backlog
        for name, application in self.applications.items():
            readable = {TopicPartition("t", p): waiting.get(p, 0) for p in application.owned}
            done = share(readable, self.batch)
            for partition, count in done.items():
                self.positions[partition.partition] += count
            landed = application.landed + sum(done.values())
            self.applications[name] = replace(
                application, landed=landed, in_batch=any(done.values())
            )


def test_the_story_is_played_in_order_and_everything_lands() -> None:
    world = World()
    world.run()
    acts = [cue for cue in world.cues if isinstance(cue, Start | Kill | Finish)]
    assert acts == [
        Start("app-1"),
        Start("app-2"),
        Start("app-3"),
        Kill("app-2"),
        Start("app-2"),
        Finish(),
    ]
    assert sum(world.positions.values()) == TOTAL
    script = world.script
    assert script.joined_under_backlog
    assert script.killed_under_backlog
    assert script.returned_under_backlog


def test_records_come_all_the_while_and_the_last_ones_in_the_last_act() -> None:
    world = World()
    world.run()
    allowed = [cue.upto for cue in world.cues if isinstance(cue, Feed)]
    assert allowed == sorted(set(allowed))
    assert len(allowed) > 10
    assert allowed[-2] <= TOTAL * (1 - HELD_BACK) < allowed[-1] == TOTAL


def test_too_few_records_to_kill_in_are_not_waited_for() -> None:
    world = World(total=5)
    world.run(60)
    assert world.finished
    assert Kill("app-2", anyway=True) in world.cues
    assert not world.script.killed_under_backlog
    assert sum(world.positions.values()) == 5


def test_a_victim_whose_partitions_stay_empty_is_not_waited_for_long() -> None:
    world = World(weights=(1, 0, 0, 0, 0, 0))
    world.run(500)
    assert world.finished
    assert Kill("app-2", anyway=True) in world.cues
    assert sum(world.positions.values()) == TOTAL


def test_a_kill_between_two_batches_is_tried_again() -> None:
    world = World()
    world.kill_hits = False
    while not any(isinstance(cue, Kill) for cue in world.cues):
        world.tick()
    for _ in range(3):
        world.tick()
    assert world.cues.count(Kill("app-2")) == 4
    assert world.applications["app-2"].life is Life.MEMBER
    world.kill_hits = True
    world.run()
    assert world.finished
    assert world.cues.count(Start("app-2")) == 2


def test_a_table_that_outruns_the_feeder_is_not_called_backlog() -> None:
    world = World(batch=10 * TOTAL)
    world.kill_hits = False
    world.run()
    assert world.finished, "the story goes on, so that its records are judged"
    assert not world.script.joined_under_backlog
    assert not world.script.killed_under_backlog
    assert not world.script.killed_in_batch
    assert Kill("app-2") not in world.cues, "no kill is asked for without backlog everywhere"
    assert Kill("app-2", anyway=True) in world.cues


def test_an_act_that_does_not_end_says_what_was_awaited() -> None:
    world = World()
    world.batch = 0  # They own their shares, but nothing lands.
    with pytest.raises(DemoFailed, match="app-1 and app-2 share the partitions and write"):
        world.run(int(ACT_LIMIT_S) + 10)


def test_an_application_that_ends_by_itself_ends_the_demo() -> None:
    world = World()
    world.tick()
    world.applications["app-1"] = replace(world.applications["app-1"], life=Life.ENDED)
    with pytest.raises(DemoFailed, match="app-1 ended by itself"):
        world.script.step(world.picture())
