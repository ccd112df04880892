"""Pictures: well-formed, complete, and saying what the numbers say."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from kohort.history.cost_values import Measured
from kohort.lab.compared_policies import compared_policy
from kohort.lab.pictures import ownership_svg
from kohort.lab.scenarios.base import Setup
from kohort.lab.scenarios.registry import scenario
from kohort.lab.scenarios.running import run

SVG = "{http://www.w3.org/2000/svg}"


def measured(name: str, policy: str, members: int = 4, partitions: int = 12) -> Measured:
    setup = Setup(policy=compared_policy(policy), members=members, partitions=partitions)
    return run(scenario(name), setup).measured


def rectangles(root: ET.Element, told: str) -> list[ET.Element]:
    return [
        rect for rect in root.iter(f"{SVG}rect") if (rect.findtext(f"{SVG}title") or "") == told
    ]


def highest_column(root: ET.Element) -> float:
    """How much of the plot's height is red at one instant, at most."""
    red = [
        [float(rect.get(name, "")) for name in ("x", "width", "height")]
        for rect in rectangles(root, "not served")
    ]
    return max(sum(h for left, w, h in red if left <= x < left + w) for x, _, _ in red)


def texts(root: ET.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


@pytest.fixture(scope="module")
def eager() -> tuple[Measured, ET.Element]:
    run_of_it = measured("restart", "sticky")
    return run_of_it, ET.fromstring(ownership_svg(run_of_it, title='A < B & "C"'))


def test_it_stands_alone_and_has_its_title(eager: tuple[Measured, ET.Element]) -> None:
    _, root = eager
    assert root.tag == f"{SVG}svg"
    assert root.findtext(f"{SVG}title") == 'A < B & "C"'
    assert 'A < B & "C"' in texts(root)


def test_it_names_every_pod_and_its_events(eager: tuple[Measured, ET.Element]) -> None:
    run_of_it, root = eager
    words = texts(root)
    assert {f"pod-{n}" for n in range(4)} <= set(words)
    for mark in run_of_it.marks:
        if mark.kind != "generation":
            assert f"{mark.source} {mark.kind}" in words
    assert f"generation {next(m.text for m in run_of_it.marks if m.kind == 'generation')}" in words


def test_red_is_as_large_as_what_was_not_served(eager: tuple[Measured, ET.Element]) -> None:
    """The area in red and hatched, in partition-seconds, is the metric to within drawing."""
    run_of_it, root = eager
    ticks = [t for t in root.iter(f"{SVG}text") if (t.text or "").endswith(" s")]
    seconds = {int((t.text or "").removesuffix(" s")): float(t.get("x", "")) for t in ticks}
    first, second = sorted(seconds)[:2]
    per_second = (seconds[second] - seconds[first]) / (second - first)
    red = rectangles(root, "not served")
    heights = [float(rect.get("height", "")) for rect in rectangles(root, "pod-0")]
    row = min(heights) if heights else 0.0
    area = sum(float(r.get("width", "")) * float(r.get("height", "")) for r in red)
    drawn = area / per_second / (160 / 12)
    assert row > 0
    assert drawn == pytest.approx(run_of_it.metrics.unavailable_ms / 1_000, rel=0.01)


def test_an_eager_rebalance_is_a_red_band_through_all_and_a_cooperative_one_is_not(
    eager: tuple[Measured, ET.Element],
) -> None:
    _, root = eager
    assert highest_column(root) == pytest.approx(160)
    cooperative = ET.fromstring(ownership_svg(measured("restart", "cooperative-sticky"), title="c"))
    assert 0 < highest_column(cooperative) <= 160 / 4 + 1


def test_the_same_run_gives_the_same_picture() -> None:
    one, other = (ownership_svg(measured("scale-up", "range", 2, 4), title="t") for _ in range(2))
    assert one == other


@pytest.mark.slow
def test_a_crowd_that_starts_at_once_is_drawn_without_writing_over_itself() -> None:
    crowd = measured("join-storm-no-delay", "cooperative-sticky", members=30, partitions=7)
    root = ET.fromstring(ownership_svg(crowd, title="crowd"))
    lanes: dict[str, list[tuple[float, float]]] = {}
    for text in root.iter(f"{SVG}text"):
        if (text.text or "").endswith(" started") and text.get("text-anchor") == "start":
            x = float(text.get("x", ""))
            lanes.setdefault(text.get("y", ""), []).append((x, x + 6 * len(text.text or "")))
    assert lanes
    for placed in lanes.values():
        placed.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(placed))


def test_a_run_in_which_nothing_happened_can_be_drawn() -> None:
    alone = measured("join-storm", "range", members=1, partitions=1)
    quiet = Measured(
        metrics=alone.metrics,
        begin=alone.begin,
        end=alone.end,
        ownership=(),
        dead_times=(),
        marks=(),
    )
    ET.fromstring(ownership_svg(quiet, title="quiet"))
