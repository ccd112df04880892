"""Runs drawn lists of kills, pauses, rebalances and steps on a world of fake applications."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import lcm
from pathlib import Path

from hypothesis import strategies as st
from tests.spark.fake_engine import Application, Checkpoint, World

from kohort.model.ids import TopicPartition

NAMES = ("a", "b", "c")
Action = tuple[str, object, int]

_KINDS: list[Sequence[Action]] = [
    [("step", name, count) for name in NAMES for count in range(1, 13)],
    *[[(kind, name, 0) for name in NAMES] for kind in ("kill", "expire", "wake", "leave")],
    [("produce", partition, count) for partition in range(3) for count in range(1, 16)],
]
# One draw an action: to draw its kind, name and number apart took a fifth of the time of a test.
# Each kind is as likely as any other.
actions = st.sampled_from(
    [action for kind in _KINDS for action in list(kind) * (lcm(*map(len, _KINDS)) // len(kind))]
)


@contextmanager
def folder_of_a_run() -> Iterator[Path]:
    """A folder in memory if there is such a file system: each commit of SQLite waits for its disk.

    On a disk a run takes a third more CPU time.
    """
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="kohort-", dir=place) as folder:
        yield Path(folder)


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
        """Resume an application ``count`` times, or until it is idle; the points that it reached.

        An idle application stays idle until something else happens.
        """
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
        points: set[str] = set()
        while count and "idle" not in points:
            points.add(next(slot.steps))
            count -= 1
        return points

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
