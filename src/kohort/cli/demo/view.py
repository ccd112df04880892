"""How the demo looks: a live picture on a terminal, plain lines elsewhere.

In: pictures and sentences. Out: text. Must not know: the source of pictures, the story.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kohort.cli.demo.picture import Application, Life, Picture
from kohort.history.cost_values import Rebalance
from kohort.model.instants import MICROS_PER_SECOND

_RATE_WINDOW_S: Final = 4.0
_STATUS_EVERY_S: Final = 5.0
# Together with the members these fit a terminal of 24 lines.
_SENTENCES: Final = 5
_REBALANCES: Final = 5


class Rates:
    """Records a second of each application, over the last four seconds."""

    def __init__(self) -> None:
        self._pictures: deque[Picture] = deque()

    def see(self, picture: Picture) -> None:
        """Take the present picture."""
        self._pictures.append(picture)
        while len(self._pictures) > 2 and self._pictures[1].at < picture.at - _RATE_WINDOW_S:
            self._pictures.popleft()

    def of(self, name: str) -> float:
        """Records a second; 0 before the second picture."""
        if not self._pictures:
            return 0.0
        first, last = self._pictures[0], self._pictures[-1]
        landed = last.applications[name].landed - first.applications[name].landed
        return landed / (last.at - first.at) if last.at > first.at else 0.0


class View:
    """Plain text: a line for every sentence and rebalance, and the state every five seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rates = Rates()
        self._rebalances = 0
        self._next_status = 0.0

    def say(self, at: float, text: str) -> None:
        """Show a sentence; ``at`` is in seconds since the demo began."""
        self._console.print(f"{at:6.1f} s  {text}", markup=False, highlight=False, soft_wrap=True)

    def show(self, picture: Picture) -> None:
        """Show the present state."""
        self._rates.see(picture)
        for rebalance in picture.rebalances[self._rebalances :]:
            began, took = _began_and_took(picture, rebalance)
            self.say(
                began + took,
                f"rebalance to generation {rebalance.generation_id} ({rebalance.cause.value}) took "
                f"{took:.2f} s, {rebalance.moved} partitions moved",
            )
        self._rebalances = len(picture.rebalances)
        if picture.at >= self._next_status:
            self._next_status = picture.at + _STATUS_EVERY_S
            self.say(picture.at, f"{progress(picture)} | {self._states(picture)}")

    def close(self) -> None:
        """Nothing more is shown."""

    def _states(self, picture: Picture) -> str:
        return "; ".join(
            f"{a.name} {state(a, picture.at)}"
            + (f" {spans(a.owned)}, {self._rates.of(a.name):,.0f}/s" if a.owned else "")
            for a in picture.applications.values()
        )


class LiveView(View):
    """Members, rebalances and the last sentences, redrawn in place."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._sentences: deque[str] = deque(maxlen=_SENTENCES)
        self._drawing = Group()
        self._live = Live(console=console, auto_refresh=False)
        self._live.start()

    def say(self, at: float, text: str) -> None:
        """See ``View``."""
        self._sentences.append(f"{at:6.1f} s  {text}")
        self._draw()

    def show(self, picture: Picture) -> None:
        """See ``View``."""
        self._rates.see(picture)
        self._drawing = Group(
            Text(progress(picture), style="bold"), self._members(picture), _rebalances(picture)
        )
        self._draw()

    def close(self) -> None:
        """See ``View``."""
        self._live.stop()

    def _draw(self) -> None:
        sentences = [Text(sentence, style="dim") for sentence in self._sentences]
        self._live.update(Group(self._drawing, *sentences), refresh=True)

    def _members(self, picture: Picture) -> Table:
        headings = ("application", "state", "pid<", "partitions", "landed/s<", "landed<")
        table = _table("group members", headings)
        for a in picture.applications.values():
            table.add_row(
                a.name,
                Text(state(a, picture.at), style=_STYLES[a.life]),
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


def _table(title: str, headings: Iterable[str]) -> Table:
    """An empty table; columns with ``<`` are aligned to the right."""
    table = Table(title=title, title_justify="left", expand=False)
    for heading in headings:
        right = heading.endswith("<")
        table.add_column(heading.rstrip("<"), justify="right" if right else "left")
    return table


def _rebalances(picture: Picture) -> Table:
    table = _table("rebalances", ("at<", "generation<", "cause", "took<", "partitions moved<"))
    for r in picture.rebalances[-_REBALANCES:]:
        began, took = _began_and_took(picture, r)
        number = str(r.generation_id)
        table.add_row(f"{began:.1f} s", number, r.cause.value, f"{took:.2f} s", str(r.moved))
    return table


def _began_and_took(picture: Picture, rebalance: Rebalance) -> tuple[float, float]:
    began = (rebalance.started_at - picture.zero) / MICROS_PER_SECOND
    return began, (rebalance.micros or 0) / MICROS_PER_SECOND


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
