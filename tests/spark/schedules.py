"""Runs drawn lists of kills, pauses, rebalances and steps on a world of fake applications."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from hypothesis import strategies as st
from tests.spark.fake_engine import Application, Checkpoint, World

from kohort.model.ids import TopicPartition

NAMES = ("a", "b", "c")
actions = st.one_of(
    st.tuples(st.just("step"), st.sampled_from(NAMES), st.integers(1, 12)),
    st.tuples(st.just("kill"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("expire"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("wake"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("leave"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("produce"), st.integers(0, 2), st.integers(1, 15)),
)


@dataclass
class Slot:
    """One application: a checkpoint and its present start."""

    checkpoint: Checkpoint
    starts: int = 0
    application: Application | None = None
    steps: Iterator[str] | None = None


class Schedule:
    """Runs a list of actions on a world, then lets all applications finish."""

    def __init__(
        self, world: World, zombie_confirmed: bool, make: Callable[..., Application] = Application
    ) -> None:
        self.world = world
        self.make = make
        self.zombie_confirmed = zombie_confirmed
        self.slots = {name: Slot(Checkpoint()) for name in NAMES}

    def act(self, action: str, who: str, count: int) -> None:
        slot = self.slots[who]
        if action == "step":
            self.step(who, count)
        elif slot.application is not None:
            name = slot.application.name
            if action == "expire":
                self.world.coordinator.expire(name)
            elif action == "wake":
                slot.application.group.wake_up()
            elif action == "kill":
                # The coordinator notices at once.
                slot.application.kill()
                self.world.coordinator.expire(name)
                slot.application = slot.steps = None
            else:
                slot.application.driver.stop()
                slot.application.sink.close()
                slot.application = slot.steps = None

    def step(self, who: str, count: int) -> set[str]:
        """Resume an application ``count`` times; the points that it reached."""
        slot = self.slots[who]
        if slot.application is None or slot.steps is None:
            slot.starts += 1
            slot.application = self.make(
                self.world,
                f"{who}-{slot.starts}",
                slot.checkpoint,
                zombie_confirmed=self.zombie_confirmed,
            )
            slot.steps = slot.application.run()
        return {next(slot.steps) for _ in range(count)}

    def finish(self) -> None:
        """Run until all applications have been idle for three rounds."""
        for who in NAMES:
            self.step(who, 1)
        idle_rounds = 0
        while idle_rounds < 3:
            points: set[str] = set()
            for who in NAMES:
                application = self.slots[who].application
                assert application is not None
                application.group.wake_up()
                points |= self.step(who, 8)
            idle_rounds = idle_rounds + 1 if points == {"idle"} else 0
        for slot in self.slots.values():
            assert slot.application is not None
            slot.application.kill()


def play(
    script: Iterable[tuple[str, object, int]],
    zombie_confirmed: bool,
    world: World,
    make: Callable[..., Application] = Application,
) -> None:
    schedule = Schedule(world, zombie_confirmed, make)
    for action, who, count in script:
        if action == "produce":
            world.topics.end[TopicPartition("t", int(str(who)))] += count
        else:
            schedule.act(action, str(who), count)
    schedule.finish()
