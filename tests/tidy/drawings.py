"""Draws the pictures of the documentation as SVG: ``make docs`` writes them, a test compares.

In: runs of the lab, the import contracts of ``pyproject.toml``, and the steps of the two sequences
below. Out: SVG documents with the look of the lab's timelines.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.tidy.rules import layers, pure_contract
from tests.tidy.trees import ROOT, SOURCE

from kohort.history.clairvoyant import Costs
from kohort.history.cost_values import Measured
from kohort.history.costs import measure
from kohort.lab.compared_policies import compared_policy
from kohort.lab.pictures import (
    FAINT,
    INK,
    LEFT,
    STOPPED,
    WIDTH,
    Canvas,
    axis,
    colours_of,
    document,
    legend,
    line,
    mark_lines,
    owner_names,
    ownership_svg,
    placed_marks,
    plot,
    rows_of,
    span_of,
    text,
)
from kohort.lab.scenarios.base import Setup, plan_of
from kohort.lab.scenarios.registry import scenario
from kohort.lab.scenarios.running import run
from kohort.lab.world import World
from kohort.model.ids import GroupId
from kohort.model.instants import MICROS_PER_MILLI, Instant

BLUE, YELLOW, PALE = "#4477aa", "#ccbb44", "#eef1f4"
STEP = 40
"""The height of one step of a sequence."""


def timeline(policy: str) -> str:
    """A run of the page about policies, as ``kohort lab run`` draws it."""
    setup = Setup(policy=compared_policy(policy), members=5, partitions=30)
    what = scenario("rolling-bounce")
    return ownership_svg(run(what, setup).measured, title=f"{what.title} · {setup.policy.title}")


def rolling_bounce() -> str:
    """One rolling bounce of four processes, with an eager and with a cooperative assignor."""
    runs = {
        "Eager: each rebalance stops every partition": _bounce("sticky"),
        "Cooperative, kohort's default: only moving partitions stop": _bounce("cooperative-sticky"),
    }
    span = (min(span_of(m)[0] for m in runs.values()), max(span_of(m)[1] for m in runs.values()))
    height, top = 168.0, 150.0
    body = [
        *_lines(
            LEFT,
            48,
            "Four processes restart one after another, in a simulation of the real engines. Each "
            "row is a partition, in the colour of the process that reads it. Red and striped: no "
            "process reads the partition.",
            140,
        )
    ]
    canvas = Canvas(*span, {}, 0, 0)
    for heading, measured in runs.items():
        rows, metrics = rows_of(measured), measured.metrics
        canvas = Canvas(*span, rows, height / len(rows), top)
        marks = list(placed_marks([m for m in measured.marks if m.kind != "generation"], span))
        stopped = (
            f"at most {metrics.peak_down} of {metrics.partitions} stop at once, "
            f"{metrics.unavailable_ms / 1000:.0f} partition-seconds in sum"
        )
        body += [
            text(LEFT, top - 44, heading, anchor="start", size=17, bold=True),
            text(WIDTH - 20, top - 44, stopped, anchor="end", size=15),
            *plot(measured, canvas, colours_of(measured)),
            *owner_names(measured, canvas),
            *mark_lines(marks, canvas, top - 36),
        ]
        top += height + 78
    base = top - 78 + 10
    body += axis(measured, canvas, base)
    body += legend(colours_of(measured), base + 44)
    return document(round(base + 60), "A rolling restart of a consumer group, twice", body)


def _bounce(policy: str) -> Measured:
    """The scenario of the lab without costs of state, and with batches of 1.5 s on average."""
    costs = Costs()
    setup = Setup(policy=compared_policy(policy), members=4, partitions=12, costs=costs)
    plan, story = plan_of(scenario("rolling-bounce"), setup)
    pods = (replace(p, behaviour=replace(p.behaviour, batch_ms=1_500)) for p in plan.pods)
    topics = (replace(topic, records_per_second=5) for topic in plan.topics)
    world = World(replace(plan, pods=tuple(pods), topics=tuple(topics)))
    world.run()
    world.calm()
    return measure(
        world.history,
        plan.partitions,
        costs,
        begin=Instant(story.begin_ms * MICROS_PER_MILLI),
        end=Instant(plan.duration_ms * MICROS_PER_MILLI),
        group_id=GroupId(plan.group_id),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One row of a sequence: an arrow between two actors, or a note at one actor."""

    source: str
    words: str
    target: str = ""
    crash: str = ""
    """The consequence of a crash after this step."""


def _sequence(actors: dict[str, float], steps: list[Step], top: float) -> Iterator[str]:
    """Lifelines with arrows and notes; a crash point is a numbered red circle below its step."""
    bottom = top + len(steps) * STEP + 40
    for name, x in actors.items():
        head, _, below = name.partition("\n")
        yield text(x, top - 24, head, size=15, bold=True)
        yield text(x, top - 8, below, size=12, fill="#57606a")
        yield line(x, top, x, bottom, FAINT)
    places = {name.partition("\n")[0]: x for name, x in actors.items()}
    for number, step in enumerate(steps):
        y = top + (number + 1) * STEP - 8
        x = places[step.source]
        if step.target:
            to = places[step.target]
            yield (
                f'<line x1="{x}" y1="{y}" x2="{to}" y2="{y}" stroke="{INK}" stroke-width="1.2"'
                ' marker-end="url(#arrow)"/>'
            )
            yield _on_white((x + to) / 2, y - 6, step.words)
        else:
            left = x < WIDTH / 3
            note = (x + 10, "start") if left else (x - 10, "end")
            yield text(note[0], y, step.words, anchor=note[1], size=14)


def _on_white(x: float, y: float, words: str) -> str:
    """Text with a white edge, so that lifelines do not run through letters."""
    edge = 'stroke="#fff" stroke-width="4" paint-order="stroke" stroke-linejoin="round"'
    return text(x, y, words, size=14).replace("<text ", f"<text {edge} ", 1)


def crash_points() -> str:
    """One batch of a pipeline with the points where a process may die."""
    actors = {
        "Driver\nsource and sink of one application": 150.0,
        "Ledger\nDelta log, SQLite, PostgreSQL": 430.0,
        "Tasks\nPython workers of Spark": 610.0,
        "Files\nParquet": 760.0,
    }
    steps = [
        Step(source="Driver", target="Ledger", words="acquire orders-0: epoch 7 becomes 8"),
        Step(
            source="Ledger",
            target="Driver",
            words="position 100",
            crash="Nothing was read. The next start begins at 100.",
        ),
        Step(
            source="Driver",
            target="Ledger",
            words="intend [100, 200) under epoch 8",
            crash="The next start acquires epoch 9 and drops this intent. It begins at 100.",
        ),
        Step(source="Driver", target="Tasks", words="read and write [100, 200)"),
        Step(
            source="Tasks",
            target="Files",
            words="write, sync, rename",
            crash="No commit names the file, so it does not count. The next start begins at 100.",
        ),
        Step(source="Tasks", target="Driver", words="file name, size, CRC-32C"),
        Step(source="Driver", target="Ledger", words="transaction: position 100 → 200, file"),
        Step(
            source="Ledger",
            words="if position is 100 and epoch is 8",
            crash="The position is 200 and the file counts. If Spark repeats the batch, the source "
            "drops the range.",
        ),
        Step(source="Driver", words="next batch: [200, …)"),
    ]
    top = 134.0
    bottom = top + len(steps) * STEP + 40
    body = [
        *_lines(
            LEFT,
            48,
            "A crash at any point loses no record and doubles none: the position and the list of "
            "files change together, in one transaction. A former owner that was paused still has "
            "an older epoch, so its transaction changes nothing.",
            140,
        ),
        *_sequence(actors, steps, top),
        text(826, top - 24, "After a crash at this point", anchor="start", size=15, bold=True),
        *_crashes(steps, top, 800.0),
    ]
    return document(round(bottom + 16), "One batch, and its crash points", body)


def _crashes(steps: list[Step], top: float, left: float) -> Iterator[str]:
    number = 0
    for row, step in enumerate(steps):
        if not step.crash:
            continue
        number += 1
        y = top + (row + 1) * STEP + 4
        yield line(100, y, left + 8, y, STOPPED, dash="5 4")
        yield f'<circle cx="{left + 18}" cy="{y}" r="10" fill="{STOPPED}"/>'
        yield text(left + 18, y + 4, str(number), fill="#fff", size=12, bold=True)
        yield from _lines(left + 36, y - 3, step.crash, 47)


def _lines(x: float, y: float, words: str, width: int) -> Iterator[str]:
    for number, part in enumerate(textwrap.wrap(words, width)):
        yield text(x, y + number * 17, part, anchor="start", size=14)


def two_rounds() -> str:
    """A cooperative rebalance: messages at the left, the readers of each partition at the right."""
    actors = {
        "app-1\nowns 0, 1, 2 and 3; leader": 160.0,
        "Coordinator\n": 450.0,
        "app-2\nnew": 740.0,
    }
    round_1 = [
        Step(source="app-2", target="Coordinator", words="JoinGroup: owns nothing"),
        Step(source="Coordinator", target="app-1", words="heartbeat: REBALANCE_IN_PROGRESS"),
        Step(source="app-1", target="Coordinator", words="JoinGroup: owns 0, 1, 2, 3"),
        Step(source="app-1", target="Coordinator", words="SyncGroup: app-1 0, 1; app-2 none"),
        Step(source="Coordinator", target="app-2", words="assignment: none yet"),
        Step(source="app-1", words="callback, commit, gives up 2 and 3"),
    ]
    round_2 = [
        Step(source="app-1", target="Coordinator", words="JoinGroup: owns 0, 1"),
        Step(source="Coordinator", target="app-2", words="heartbeat: REBALANCE_IN_PROGRESS"),
        Step(source="app-2", target="Coordinator", words="JoinGroup: owns nothing"),
        Step(source="app-1", target="Coordinator", words="SyncGroup: app-1 0, 1; app-2 2, 3"),
        Step(source="Coordinator", target="app-2", words="assignment: 2, 3"),
        Step(source="app-2", words="reads 2 and 3 from the commits"),
    ]
    steps = [*round_1, *round_2]
    top = 116.0
    bottom = top + len(steps) * STEP + 40
    middle = top + len(round_1) * STEP + 4
    body = [
        *_lines(
            LEFT,
            48,
            "Partitions 0 and 1 stay with app-1 and are read all the time. Partitions 2 and 3 "
            "move to app-2: they stop only between the rounds.",
            140,
        ),
        *_sequence(actors, steps, top),
        line(20, middle, 830, middle, INK, dash="5 4"),
        text(24, top + 18, "round 1", anchor="start", size=15, bold=True),
        text(24, middle + 20, "round 2", anchor="start", size=15, bold=True),
        text(1015, top - 24, "The reader of each partition", size=15, bold=True),
    ]
    for partition in range(4):
        x = 865 + partition * 80
        moves = partition >= 2
        body.append(text(x + 30, top - 8, f"partition {partition}", size=12, fill="#57606a"))
        ends = (middle - 16, bottom - 62) if moves else (bottom, bottom)
        pieces = [(top, ends[0], BLUE, "app-1"), (ends[0], ends[1], STOPPED, "nobody")]
        pieces.append((ends[1], bottom, YELLOW, "app-2"))
        for begin, end, colour, reader in pieces:
            if end <= begin:
                continue
            fills = (colour, "url(#not-served)") if colour == STOPPED else (colour,)
            body += [_box((x, begin, 60, end - begin), fill) for fill in fills]
            y = (begin + end) / 2 + 4
            body.append(
                text(
                    x + 30, y, reader, size=12, bold=True, fill="#fff" if colour != YELLOW else INK
                )
            )
    return document(round(bottom + 20), "A cooperative rebalance takes two rounds", body)


def _box(area: tuple[float, float, float, float], fill: str, stroke: str = "none") -> str:
    x, y, width, height = (round(number, 2) for number in area)
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" fill="{fill}"'
        f' stroke="{stroke}"/>'
    )


def rooms() -> str:
    """The rooms of the package in the layers of the import contract."""
    pure = {name.removeprefix("kohort.") for name in pure_contract()["source_modules"]}
    gap, top = 10.0, 70.0
    body = [
        *_lines(
            LEFT,
            48,
            "A room imports only rooms further down. Blue with a double edge: pure, without clock, "
            "socket, thread, randomness or logging.",
            140,
        )
    ]
    y = top
    for layer in layers():
        width = (WIDTH - LEFT - 20 - gap * (len(layer) - 1)) / len(layer)
        about = {room: textwrap.wrap(_about(room), int(width / 8.2)) for room in layer}
        height = 36 + 17 * max(map(len, about.values()))
        for number, room in enumerate(layer):
            x = LEFT + number * (width + gap)
            stroke = BLUE if room in pure else FAINT
            body.append(_box((x, y, width, height), "#e3ecf5" if room in pure else PALE, stroke))
            if room in pure:
                body.append(_box((x + 3, y + 3, width - 6, height - 6), "none", stroke))
            body.append(text(x + 12, y + 23, room, anchor="start", size=16, bold=True))
            body += _lines(x + 12, y + 42, " ".join(about[room]), int(width / 8.2))
        y += height + gap
    bottom = y - gap
    body.append(
        f'<line x1="44" y1="{top}" x2="44" y2="{bottom}" stroke="{INK}" stroke-width="1.5"'
        ' marker-end="url(#arrow)"/>'
    )
    body.append(
        f'<text transform="translate(36 {(top + bottom) / 2}) rotate(-90)" text-anchor="middle"'
        ' font-size="15">imports</text>'
    )
    return document(round(bottom + 18), "The rooms of kohort", body)


def _about(room: str) -> str:
    """The first sentence about a room in its ``__init__`` module, without the layer."""
    note = (SOURCE / room / "__init__.py").read_text(encoding="utf-8").split('"""')[1]
    return " ".join(note.split()).partition(". ")[2].partition(". ")[0].rstrip(".")


EXPLANATION = ROOT / "docs" / "explanation"
FROM_THE_LAB: dict[Path, Callable[[], str]] = {
    EXPLANATION / "rolling-bounce.svg": rolling_bounce,
    EXPLANATION / "rolling-bounce-sticky.svg": lambda: timeline("sticky"),
    EXPLANATION / "rolling-bounce-cooperative-sticky.svg": lambda: timeline("cooperative-sticky"),
}
DRAWN: dict[Path, Callable[[], str]] = {
    EXPLANATION / "crash-points.svg": crash_points,
    EXPLANATION / "two-rounds.svg": two_rounds,
    EXPLANATION / "rooms.svg": rooms,
}
