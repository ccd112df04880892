"""The demo's story as a step function: pictures in, cues out.

What lives here: two applications start, a third joins, one is killed in the middle of a micro-batch
and returns, everything is consumed; and the conditions on which each act ends. It must not know
processes, Spark, a clock or a terminal: a picture says what is, a cue what shall be.

While acts are played the feeder is held to a reserve above what has landed, so that records keep
coming all the while. What is fed before the last act is less than everything, for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

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
from kohort.model.errors import KohortError

FIRST: Final = ("app-1", "app-2")
ADDED: Final = "app-3"
VICTIM: Final = "app-2"
NAMES: Final = (*FIRST, ADDED)

RESERVE: Final = 0.25
"""Of all records, how many may wait in the topic while the acts are played."""

HELD_BACK: Final = 0.1
"""Of all records, how many are fed in the last act only."""

KILL_ANYWAY_S: Final = 30.0
"""How long the kill waits for something to read for an idle victim, which few or uneven records may
never give."""

ACT_LIMIT_S: Final = 300.0
DRAIN_LIMIT_S: Final = 600.0

BATCHES: Final = 150
"""So many micro-batches, would hold all records."""

_FEED_STEP: Final = 0.005


class DemoFailed(KohortError):
    """The demo could not play its story; the message says which act, and what was awaited."""


class Script:
    """The story, one picture at a time.

    Args:
        total: records that will have been fed in the end.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._step = max(1, int(total * _FEED_STEP))
        self._allowed = 0
        self._idle_since = 0.0
        self._act: Callable[[Picture], list[Cue]] = self._open
        self._awaited = "the first picture"
        self._since = 0.0
        self._limit = ACT_LIMIT_S
        self._landed_before: dict[str, int] = {}
        self.joined_under_backlog = False
        self.killed_under_backlog = False
        self.killed_in_batch = False
        self.returned_under_backlog = False

    def step(self, picture: Picture) -> list[Cue]:
        """What happens now.

        Raises:
            DemoFailed: an act took longer than its limit, or an application ended by itself.
        """
        for application in picture.applications.values():
            if application.life is Life.ENDED:
                raise DemoFailed(f"{application.name} ended by itself")
        if picture.at - self._since > self._limit:
            raise DemoFailed(f"waited {self._limit:.0f} s in vain until {self._awaited}")
        cues = self._act(picture)
        return [*cues, *self._feed(picture)]

    def killed(self, picture: Picture, in_batch: bool) -> None:
        """The last ``Kill`` was carried out; whether it hit a micro-batch.

        Nobody died, and this is not called, when none was under way and the cue did not say
        ``anyway``.
        """
        self.killed_in_batch = in_batch
        self.killed_under_backlog = in_batch and picture.backlog_everywhere
        self._next(picture, self._bring_back, f"{VICTIM} is dead")

    def _open(self, picture: Picture) -> list[Cue]:
        self._next(picture, self._add, f"{' and '.join(FIRST)} share the partitions and write")
        return [Say(f"starting {' and '.join(FIRST)}"), *map(Start, FIRST)]

    def _add(self, picture: Picture) -> list[Cue]:
        if not self._at_work(picture, FIRST):
            return []
        self._next(picture, self._see_added, f"{ADDED} has its share and writes")
        return [Say(f"both write; starting {ADDED}"), Start(ADDED)]

    def _see_added(self, picture: Picture) -> list[Cue]:
        if not self.joined_under_backlog and picture.applications[ADDED].owned:
            self.joined_under_backlog = picture.backlog_everywhere
        if not self._at_work(picture, NAMES):
            return []
        self._next(picture, self._kill, f"{VICTIM} is in the middle of a micro-batch")
        self._idle_since = picture.at
        return [Say(f"all three write; waiting for a micro-batch of {VICTIM} to kill it in")]

    def _kill(self, picture: Picture) -> list[Cue]:
        if self._in_vain(picture):
            return [Kill(VICTIM, anyway=True)]
        ready = picture.stable and picture.backlog_everywhere
        return [Kill(VICTIM)] if ready and picture.applications[VICTIM].in_batch else []

    def _in_vain(self, picture: Picture) -> bool:
        """Whether no micro-batch of the victim can be waited for: few records, or uneven ones."""
        waiting, owned = picture.backlog, picture.applications[VICTIM].owned
        if not picture.stable or not owned or any(waiting.get(p) for p in owned):
            self._idle_since = picture.at
            return False
        fed = picture.fed == self._allowed and not self._may_feed(picture)
        nothing_comes = fed and not any(waiting.values())
        return nothing_comes or picture.at - self._idle_since > KILL_ANYWAY_S

    def _bring_back(self, picture: Picture) -> list[Cue]:
        self._next(picture, self._see_back, f"{VICTIM} is back, has its share and writes")
        where = "in the middle of a micro-batch" if self.killed_in_batch else "between two batches"
        return [Say(f"killed {VICTIM} {where}; starting it again"), Start(VICTIM)]

    def _see_back(self, picture: Picture) -> list[Cue]:
        if not self.returned_under_backlog and picture.applications[VICTIM].owned:
            self.returned_under_backlog = picture.backlog_everywhere
        if not self._at_work(picture, NAMES):
            return []
        self._next(picture, self._drain, "everything is consumed", limit=DRAIN_LIMIT_S)
        return [Say(f"{VICTIM} is back; now everything that is left is fed, and consumed")]

    def _drain(self, picture: Picture) -> list[Cue]:
        done = picture.fed_out and picture.fed == sum(picture.ends.values()) == picture.landed
        return [Finish()] if done else []

    def _at_work(self, picture: Picture, names: tuple[str, ...]) -> bool:
        """Whether these share all partitions, took them over, and each wrote since then."""
        applications = [picture.applications[name] for name in names]
        owned = [a.owned for a in applications]
        if not picture.stable or sum(map(len, owned)) != len(picture.ends) or not all(owned):
            return False
        if any(a.owned != a.acquired for a in applications):
            return False
        return all(self._wrote(a, picture) for a in applications)

    def _wrote(self, application: Application, picture: Picture) -> bool:
        before = self._landed_before.setdefault(application.name, application.landed)
        waiting = any(picture.backlog.get(partition) for partition in application.owned)
        return application.landed > before or not waiting

    def _next(
        self,
        picture: Picture,
        act: Callable[[Picture], list[Cue]],
        awaited: str,
        *,
        limit: float = ACT_LIMIT_S,
    ) -> None:
        self._act, self._awaited = act, awaited
        self._since, self._limit = picture.at, limit
        self._landed_before.clear()

    def _feed(self, picture: Picture) -> list[Cue]:
        if not self._may_feed(picture):
            return []
        self._allowed = self._wanted(picture)
        return [Feed(self._allowed)]

    def _may_feed(self, picture: Picture) -> bool:
        """By whole steps, so that the feeder is not written to at every picture."""
        wanted = self._wanted(picture)
        return wanted - self._allowed >= self._step or wanted == self._total > self._allowed

    def _wanted(self, picture: Picture) -> int:
        """How many records shall have been fed."""
        if self._act == self._drain:
            return self._total
        held_back = int(self._total * (1 - HELD_BACK))
        return min(held_back, picture.landed + int(self._total * RESERVE))
