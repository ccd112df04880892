"""Arrows of the trace: from a rebalance to the new owners of the partitions that it stopped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.explain.test_picture import rebalance

from kohort.explain.amounts import Known, Stop
from kohort.explain.explaining import Explained
from kohort.explain.ownership import Owned
from kohort.explain.pages.trace import trace
from kohort.explain.stories import Story


def arrows(story: Story) -> list[dict[str, Any]]:
    found = trace([Explained(story=story, findings=())])["traceEvents"]
    return [event for event in found if event["ph"] in {"s", "f"}]


def stopped(*partitions: str) -> tuple[Stop, ...]:
    return tuple(Stop(partition, 103.0, 104.0, Known.MEASURED) for partition in partitions)


def test_an_arrow_leads_from_the_rebalance_to_each_new_owner_of_a_stopped_partition() -> None:
    story = Story(group="g", dated=True)
    story.owned = [
        Owned("t-0", "a", 101.0, 103.0),
        Owned("t-0", "b", 104.0, 110.0),
        Owned("t-1", "a", 101.0, 110.0),
    ]
    story.replace([replace(rebalance(4, 103.0, 104.25), stops=stopped("t-0"))])
    start, end = arrows(story)
    assert start["id"] == end["id"]
    assert start["name"] == end["name"] == "moved by pod-1"
    assert (start["ph"], start["tid"], start["ts"]) == ("s", 1, 103_000_000)
    assert (end["ph"], end["bp"], end["tid"], end["ts"]) == ("f", "e", 2, 104_000_000)


def test_a_stop_without_a_new_owner_has_no_arrow() -> None:
    story = Story(group="g", dated=True)
    story.owned = [Owned("t-0", "a", 101.0, 103.0), Owned("t-1", "a", 50.0, 60.0)]
    story.replace([replace(rebalance(4, 103.0, 104.25), stops=stopped("t-1", "t-9"))])
    assert arrows(story) == []


def test_arrows_of_two_groups_have_different_numbers() -> None:
    stories = []
    for group in "gh":
        story = Story(group=group, dated=True)
        story.owned = [Owned("t-0", "a", 104.0, 110.0)]
        story.replace([replace(rebalance(4, 103.0, 104.25), stops=stopped("t-0"))])
        stories.append(Explained(story=story, findings=()))
    numbers = [e["id"] for e in trace(stories)["traceEvents"] if e["ph"] == "s"]
    assert len(set(numbers)) == 2
