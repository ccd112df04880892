"""The story of the demo: two applications start, a third joins, one is killed and returns.

In: pictures. Out: calls of a ``Demo``. Must not know: processes, Spark, clocks, terminals.

Every partition must have a backlog when an application joins and when one is killed. So records
are fed in step with the story: a trickle while Spark starts, and a burst at each of these two
moments. A burst is many times larger than a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from kohort.cli.demo.picture import Application, Life, Picture
from kohort.model.errors import KohortError

FIRST: Final = ("app-1", "app-2")
ADDED: Final = "app-3"
VICTIM: Final = "app-2"
NAMES: Final = (*FIRST, ADDED)

# Shares of all records.
AT_START: Final = 0.05
BEFORE_JOIN: Final = 0.2
BURST: Final = 0.28
BEFORE_RETURN: Final = 0.9
TRICKLE_PER_S: Final = 0.005

BATCHES: Final = 80
"""This many micro-batches of the largest size would hold all records."""

STEP_LIMIT_S: Final = 300.0
DRAIN_LIMIT_S: Final = 600.0
KILL_PATIENCE_S: Final = 30.0
"""After this time the victim is killed between two micro-batches: there are too few records."""


class DemoFailed(KohortError):
    """The demo could not show its story; the message says which step failed."""


class Demo(Protocol):
    """Everything that the story can do."""

    def look(self) -> Picture:
        """Wait a moment; returns the present picture."""

    def say(self, text: str) -> None:
        """Show a sentence."""

    def feed(self, upto: int, per_second: int | None = None) -> None:
        """Feed records until ``upto`` are in the topic: at once, or with this rate."""

    def start(self, name: str) -> None:
        """Start an application, for the first time or again."""

    def kill(self, name: str, *, in_batch: bool) -> bool:
        """SIGKILL an application; with ``in_batch`` only during a micro-batch.

        Returns whether the application was killed during a micro-batch.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The conditions under which the demo's claims were shown, and the last picture."""

    joined_under_backlog: bool
    killed_under_backlog: bool
    killed_in_batch: bool
    last: Picture


def play(demo: Demo, total: int) -> Shown:
    """Show the whole story with ``total`` records.

    Raises:
        DemoFailed: a step took too long, or an application ended.
    """

    def trickle(share: float) -> None:
        demo.feed(int(total * share), max(1, int(total * TRICKLE_PER_S)))

    demo.feed(int(total * AT_START))
    demo.say(f"starting {' and '.join(FIRST)}")
    for name in FIRST:
        demo.start(name)
    trickle(BEFORE_JOIN)
    _wait(demo, _at_work(FIRST), f"{' and '.join(FIRST)} share the partitions and write")

    demo.say(f"both write; starting {ADDED}")
    demo.start(ADDED)
    picture = _wait(
        demo, lambda now: now.applications[ADDED].life is Life.MEMBER, f"{ADDED} is a member"
    )
    demo.feed(picture.fed + int(total * BURST))
    picture = _wait(
        demo, lambda now: bool(now.applications[ADDED].owned), f"{ADDED} owns partitions"
    )
    joined_under_backlog = picture.backlog_everywhere
    picture = _wait(demo, _at_work(NAMES, picture), "all three share the partitions and write")

    demo.say(f"all three write; waiting for a micro-batch of {VICTIM} to kill it in")
    demo.feed(picture.fed + int(total * BURST))
    picture, killed_in_batch = _kill(demo)
    where = "in the middle of a micro-batch" if killed_in_batch else "between two batches"

    demo.say(f"killed {VICTIM} {where}; starting it again")
    demo.start(VICTIM)
    trickle(BEFORE_RETURN)
    _wait(demo, _at_work(NAMES, picture), f"{VICTIM} is back, owns partitions and writes")

    demo.say(f"{VICTIM} is back; now all records that are left are fed and consumed")
    demo.feed(total)
    last = _wait(
        demo, lambda now: total == now.fed == now.landed, "all is consumed", limit=DRAIN_LIMIT_S
    )
    return Shown(
        joined_under_backlog=joined_under_backlog,
        killed_under_backlog=killed_in_batch and picture.backlog_everywhere,
        killed_in_batch=killed_in_batch,
        last=last,
    )


def _kill(demo: Demo) -> tuple[Picture, bool]:
    """Kill the victim during a micro-batch, or between two if no micro-batch comes."""
    picture = demo.look()
    give_up = picture.at + KILL_PATIENCE_S
    while picture.at < give_up:
        ready = picture.stable and picture.backlog_everywhere
        if ready and demo.kill(VICTIM, in_batch=True):
            return picture, True
        picture = _checked(demo.look())
    return picture, demo.kill(VICTIM, in_batch=False)


def _wait(
    demo: Demo, until: Callable[[Picture], bool], awaited: str, limit: float = STEP_LIMIT_S
) -> Picture:
    picture = _checked(demo.look())
    give_up = picture.at + limit
    while not until(picture):
        if picture.at > give_up:
            raise DemoFailed(f"waited {limit:.0f} s for this: {awaited}")
        picture = _checked(demo.look())
    return picture


def _checked(picture: Picture) -> Picture:
    for application in picture.applications.values():
        if application.life is Life.ENDED:
            raise DemoFailed(f"{application.name} ended without a request to do so")
    return picture


def _at_work(names: tuple[str, ...], before: Picture | None = None) -> Callable[[Picture], bool]:
    """Whether these applications share all partitions, and each has written since ``before``."""

    def writes(application: Application, now: Picture) -> bool:
        landed = before.applications[application.name].landed if before else 0
        idle = not any(now.backlog.get(partition) for partition in application.owned)
        return application.landed > landed or idle

    def check(now: Picture) -> bool:
        applications = [now.applications[name] for name in names]
        owned = [application.owned for application in applications]
        complete = all(owned) and frozenset().union(*owned) >= now.ends.keys()
        return now.stable and complete and all(writes(a, now) for a in applications)

    return check
