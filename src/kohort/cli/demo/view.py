"""How the demo looks: lines of text, and on a terminal a table of the members below them.

In: pictures and sentences. Out: text. Must not know: the source of pictures, the story.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kohort.cli.demo.picture import Application, Life, Picture
from kohort.model.instants import MICROS_PER_SECOND

_RATE_WINDOW_S: Final = 4.0
_STATUS_EVERY_S: Final = 5.0
_STYLES: Final = {
    Life.ABSENT: "dim",
    Life.STARTING: "yellow",
    Life.MEMBER: "green",
    Life.KILLED: "bold red",
    Life.ENDED: "red",
}


class View:
    """A line for every sentence and rebalance, and the state of the applications.

    Args:
        console: shows the text.
        live: show the state as a table that is redrawn; otherwise as a line every five seconds.
    """

    def __init__(self, console: Console, *, live: bool) -> None:
        self._console = console
        self._pictures: deque[Picture] = deque()
        self._rebalances = 0
        self._next_status = 0.0
        self._live = Live(console=console, auto_refresh=False) if live else None
        if self._live is not None:
            self._live.start()

    def say(self, at: float, text: str) -> None:
        """Show a sentence; ``at`` is in seconds since the demo began."""
        self._console.print(f"{at:6.1f} s  {text}", markup=False, highlight=False, soft_wrap=True)

    def show(self, picture: Picture) -> None:
        """Show the present state."""
        self._pictures.append(picture)
        while len(self._pictures) > 2 and self._pictures[1].at < picture.at - _RATE_WINDOW_S:
            self._pictures.popleft()
        for rebalance in picture.rebalances[self._rebalances :]:
            began = (rebalance.started_at - picture.zero) / MICROS_PER_SECOND
            took = (rebalance.micros or 0) / MICROS_PER_SECOND
            self.say(
                began + took,
                f"rebalance to generation {rebalance.generation_id} ({rebalance.cause.value}) took "
                f"{took:.2f} s, {rebalance.moved} partitions moved",
            )
        self._rebalances = len(picture.rebalances)
        if self._live is not None:
            self._live.update(self._table(picture), refresh=True)
        elif picture.at >= self._next_status:
            self._next_status = picture.at + _STATUS_EVERY_S
            self.say(picture.at, f"{progress(picture)} | {self._states(picture)}")

    def rate(self, name: str) -> float:
        """Records a second of an application, over the last four seconds."""
        first, last = self._pictures[0], self._pictures[-1]
        landed = last.applications[name].landed - first.applications[name].landed
        return landed / max(last.at - first.at, 0.001)

    def close(self) -> None:
        """Leave the terminal's cursor below the table. Nothing more is shown."""
        if self._live is not None:
            self._live.stop()

    def _states(self, picture: Picture) -> str:
        return "; ".join(
            f"{a.name} {state(a, picture.at)}"
            + (f" {spans(a.owned)}, {self.rate(a.name):,.0f}/s" if a.owned else "")
            for a in picture.applications.values()
        )

    def _table(self, picture: Picture) -> Table:
        table = Table(title=progress(picture), title_justify="left", title_style="bold")
        for heading in ("application", "state", "pid", "partitions", "landed/s", "landed"):
            number = heading in {"pid", "landed/s", "landed"}
            table.add_column(heading, justify="right" if number else "left")
        for a in picture.applications.values():
            table.add_row(
                a.name,
                Text(state(a, picture.at), style=_STYLES[a.life]),
                str(a.pid or "-"),
                spans(a.owned) or "-",
                f"{self.rate(a.name):,.0f}",
                f"{a.landed:,}",
            )
        return table


def state(application: Application, at: float) -> str:
    """The state of an application, with the time that Spark has been starting."""
    if application.life is not Life.STARTING:
        return str(application.life.value)
    again = " again" if application.starts > 1 else ""
    return f"Spark starts{again}, {at - application.since:.0f} s"


def progress(picture: Picture) -> str:
    """The numbers of records."""
    return (
        f"fed {picture.fed:,}  landed {picture.landed:,}  backlog {picture.fed - picture.landed:,}"
    )


def spans(partitions: Iterable[int]) -> str:
    """Partition numbers with ranges: ``0-3,7``."""
    runs: list[list[int]] = []
    for number in sorted(partitions):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)
