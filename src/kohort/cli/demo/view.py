"""How the demo looks while it runs: a live picture on a terminal, plain lines elsewhere.

In come pictures and sentences; out goes text. It must not know where pictures come from, nor
decide anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kohort.cli.demo.picture import Application, Life, Picture, Rebalance

_RATE_WINDOW_S: Final = 4.0
_STATUS_EVERY_S: Final = 5.0
# Together with the members they fit a terminal of 24 lines.
_SAID_KEPT: Final = 4
_REBALANCES_KEPT: Final = 5


class View(Protocol):
    """What the stage shows things to."""

    def say(self, at: float, text: str) -> None:
        """A sentence about what happens."""
        ...

    def show(self, picture: Picture) -> None:
        """The present state."""
        ...

    def close(self) -> None:
        """Nothing more is shown."""
        ...


class Rates:
    """Records a second of each application, over the last four seconds."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def see(self, picture: Picture) -> None:
        """Note what landed up to now."""
        for name, application in picture.applications.items():
            seen = self._seen.setdefault(name, deque())
            seen.append((picture.at, application.landed))
            while len(seen) > 2 and seen[1][0] < picture.at - _RATE_WINDOW_S:
                seen.popleft()

    def of(self, name: str) -> float:
        """Records a second; 0 as long as that cannot be said."""
        seen = self._seen.get(name)
        if not seen or seen[-1][0] == seen[0][0]:
            return 0.0
        (begin, before), (end, now) = seen[0], seen[-1]
        return (now - before) / (end - begin)


class PlainView:
    """A line for every sentence and rebalance, and one on the state every five seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rates = Rates()
        self._told = 0
        self._next_status = 0.0

    def say(self, at: float, text: str) -> None:
        """See ``View``."""
        self._print(f"{at:6.1f} s  {text}")

    def show(self, picture: Picture) -> None:
        """See ``View``."""
        self._rates.see(picture)
        # A rebalance is told when its moves are known, or when the next one is there.
        while self._told < len(picture.rebalances):
            rebalance = picture.rebalances[self._told]
            if rebalance.moved is None and self._told == len(picture.rebalances) - 1:
                break
            self._told += 1
            self.say(rebalance.began + rebalance.seconds, describe_rebalance(rebalance))
        if picture.at >= self._next_status:
            self._next_status = picture.at + _STATUS_EVERY_S
            self.say(picture.at, self._status(picture))

    def close(self) -> None:
        """See ``View``."""

    def _status(self, picture: Picture) -> str:
        applications = "; ".join(
            f"{a.name} {doing(a, picture.at)}"
            + (f" {spans(a.owned)}, {self._rates.of(a.name):,.0f}/s" if a.owned else "")
            for a in picture.applications.values()
        )
        return f"{progress(picture)} | {applications}"

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class LiveView:
    """Members, partitions and rebalances, redrawn in place; what was said stays above."""

    def __init__(self, console: Console) -> None:
        self._rates = Rates()
        self._said: deque[str] = deque(maxlen=_SAID_KEPT)
        self._picture: Picture | None = None
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()

    def say(self, at: float, text: str) -> None:
        """See ``View``."""
        self._said.append(f"{at:6.1f} s  {text}")
        self._draw()

    def show(self, picture: Picture) -> None:
        """See ``View``."""
        self._rates.see(picture)
        self._picture = picture
        self._draw()

    def close(self) -> None:
        """See ``View``."""
        self._live.stop()

    def _draw(self) -> None:
        said = [Text(line, style="dim") for line in self._said]
        if self._picture is None:
            self._live.update(Group(*said), refresh=True)
            return
        picture = self._picture
        self._live.update(
            Group(
                Text(progress(picture), style="bold"),
                self._members(picture),
                _rebalance_table(picture.rebalances[-_REBALANCES_KEPT:]),
                *said,
            ),
            refresh=True,
        )

    def _members(self, picture: Picture) -> Table:
        table = Table(title="group members", title_justify="left", expand=False)
        for heading in ("application", "state", "pid", "partitions", "landed/s", "landed"):
            right = heading in {"pid", "landed/s", "landed"}
            table.add_column(heading, justify="right" if right else "left")
        for a in picture.applications.values():
            table.add_row(
                a.name,
                Text(doing(a, picture.at), style=_STYLES[a.life]),
                str(a.pid or "-"),
                spans(a.owned) or "-",
                f"{self._rates.of(a.name):,.0f}",
                f"{a.landed:,}",
            )
        return table


_STYLES: Final = {
    Life.ABSENT: "dim",
    Life.STARTING: "yellow",
    Life.MEMBER: "green",
    Life.KILLED: "bold red",
    Life.ENDED: "red",
}


def _rebalance_table(rebalances: Iterable[Rebalance]) -> Table:
    table = Table(title="rebalances", title_justify="left", expand=False)
    for heading in ("at", "generation", "cause", "took", "partitions moved"):
        table.add_column(heading, justify="left" if heading == "cause" else "right")
    for r in rebalances:
        moved = "-" if r.moved is None else str(r.moved)
        table.add_row(f"{r.began:.1f} s", str(r.generation), r.cause, f"{r.seconds:.2f} s", moved)
    return table


def doing(application: Application, at: float) -> str:
    """An application's state; how long Spark has been starting, which takes the longest."""
    if application.life is not Life.STARTING:
        state: str = application.life.value
        return state
    again = " again" if application.starts > 1 else ""
    return f"Spark starts{again}, {at - application.since:.0f} s"


def describe_rebalance(rebalance: Rebalance) -> str:
    """One line on a rebalance."""
    moved = "" if rebalance.moved is None else f", {rebalance.moved} partitions moved"
    return (
        f"rebalance to generation {rebalance.generation} ({rebalance.cause}) took "
        f"{rebalance.seconds:.2f} s{moved}"
    )


def progress(picture: Picture) -> str:
    """One line on the records."""
    return (
        f"fed {picture.fed:,}  landed {picture.landed:,}  backlog {sum(picture.backlog.values()):,}"
    )


def spans(partitions: Iterable[int]) -> str:
    """Partition numbers, runs shortened: ``0-3,7``."""
    runs: list[list[int]] = []
    for number in sorted(partitions):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)
