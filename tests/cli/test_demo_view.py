"""What the demo shows, with and without a terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from kohort.cli.demo.picture import Application, Life, Picture, Rebalance
from kohort.cli.demo.view import LiveView, PlainView, Rates, spans

APP = Application(
    name="app-1",
    life=Life.MEMBER,
    starts=1,
    owned=frozenset({0, 1, 2, 5}),
    landed=1_000,
    pid=4_711,
)
PICTURE = Picture(
    at=10.0,
    applications={
        "app-1": APP,
        "app-2": Application(name="app-2", life=Life.STARTING, starts=1, since=3.0),
    },
    fed=5_000,
    ends={0: 2_500, 1: 2_500},
    positions={0: 1_000, 1: 0},
    rebalances=(Rebalance(generation=1, cause="member joined", began=8.0, seconds=0.25, moved=0),),
)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((3,), "3"), ((0, 1, 2, 5), "0-2,5"), ((5, 4), "4-5"), ((1, 3, 5), "1,3,5")],
)
def test_partitions_are_shortened(numbers: tuple[int, ...], text: str) -> None:
    assert spans(numbers) == text


def test_rates_follow_the_last_seconds() -> None:
    rates = Rates()
    assert rates.of("app-1") == 0.0
    for second in range(20):
        landed = 100 * second if second < 10 else 900 + 300 * (second - 9)
        rates.see(_at(second, landed))
    assert rates.of("app-1") == pytest.approx(300)
    for second in range(20, 26):
        rates.see(_at(second, 3_900))
    assert rates.of("app-1") == 0.0


def _at(second: float, landed: int) -> Picture:
    return replace(PICTURE, at=float(second), applications={"app-1": replace(APP, landed=landed)})


def test_without_a_terminal_every_event_is_a_line() -> None:
    out = io.StringIO()
    view = PlainView(Console(file=out, width=200))
    view.say(1.0, "starting [app-1]")
    view.show(PICTURE)
    view.show(replace(PICTURE, at=12.0))
    pending = Rebalance(generation=2, cause="member expired", began=13.0, seconds=1.0)
    view.show(replace(PICTURE, at=14.0, rebalances=(*PICTURE.rebalances, pending)))
    known = replace(pending, moved=3)
    view.show(replace(PICTURE, at=14.5, rebalances=(*PICTURE.rebalances, known)))
    again = replace(PICTURE.applications["app-2"], starts=2, since=14.0)
    view.show(replace(PICTURE, at=16.0, applications={"app-2": again}))
    view.close()
    assert out.getvalue().splitlines() == [
        "   1.0 s  starting [app-1]",
        "   8.2 s  rebalance to generation 1 (member joined) took 0.25 s, 0 partitions moved",
        "  10.0 s  fed 5,000  landed 1,000  backlog 4,000 | "
        "app-1 member 0-2,5, 0/s; app-2 Spark starts, 7 s",
        "  14.0 s  rebalance to generation 2 (member expired) took 1.00 s, 3 partitions moved",
        "  16.0 s  fed 5,000  landed 1,000  backlog 4,000 | app-2 Spark starts again, 2 s",
    ]


def test_on_a_terminal_members_and_rebalances_are_drawn() -> None:
    out = io.StringIO()
    view = LiveView(Console(file=out, width=120, force_terminal=True, color_system=None))
    view.say(1.0, "starting")
    view.show(PICTURE)
    view.close()
    drawn = out.getvalue()
    for part in (
        "app-1",
        "member",
        "4711",
        "0-2,5",
        "member joined",
        "0.25 s",
        "backlog 4,000",
    ):
        assert part in drawn


def test_the_picture_fits_a_terminal_of_24_lines() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, height=24, force_terminal=True, color_system=None)
    view = LiveView(console)
    for number in range(9):
        view.say(float(number), f"sentence {number}")
    (rebalance,) = PICTURE.rebalances
    view.show(
        replace(
            PICTURE,
            applications={name: replace(APP, name=name) for name in ("app-1", "app-2", "app-3")},
            rebalances=tuple(replace(rebalance, generation=n) for n in range(9)),
        )
    )
    view.close()
    drawn = out.getvalue().rpartition("fed 5,000")[2]
    assert drawn.count("\n") == 23
    assert "sentence 8" in drawn
    assert "backlog 4,000\n" in drawn.replace(" \n", "\n")
