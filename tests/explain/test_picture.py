"""The picture of a group: a reader gets all once, then only what is new."""

from __future__ import annotations

import pytest

from kohort.explain.causes import Cause
from kohort.explain.events import Place, Side
from kohort.explain.offsets_topic.lag import Lag
from kohort.explain.ownership import Owned
from kohort.explain.pages import picture as module
from kohort.explain.pages.picture import Cursor, Picture, picture_of
from kohort.explain.rebalances import Rebalance
from kohort.explain.stories import Story


def rebalance(generation: int, began: float, assigned: float) -> Rebalance:
    return Rebalance(
        side=Side.BROKER,
        cause=Cause.NEW_MEMBER,
        member="pod-1",
        before=generation - 1,
        generation=generation,
        began=began,
        assigned=assigned,
        members=2,
        moved=3,
        needless=1,
        place=Place("log", 1),
    )


def test_a_story_is_one_whole_message() -> None:
    story = Story(group="g", first=100.0, last=110.0, dated=True)
    story.owned = [Owned("t-1", "b", 104.0, 110.0, 106.0), Owned("t-0", "a", 101.0, 103.5, 101.0)]
    story.replace([rebalance(4, 103.0, 104.25)])
    message, _ = picture_of(story).message(Cursor())
    assert message == {
        "whole": True,
        "base": 100.0,
        "dated": True,
        "live": False,
        "first": 0,
        "last": 10_000,
        "since": 1_000,
        "partitions": ["t-0", "t-1"],
        "owners": [["a", "a", ""], ["b", "b", ""]],
        "owned": [(0, 0, 1_000, 3_500), (1, 1, 4_000, 10_000, 6_000)],
        "open": [],
        "from": 0,
        "rebalances": [
            {
                "generation": 4,
                "cause": "a new member joined",
                "began": 3_000,
                "joined": 4_250,
                "ended": 4_250,
                "told": "generation 4: a new member joined: pod-1; members 2; moved 3, "
                "needlessly 1; stopped ≤ 1.2 s",
                "cells": (
                    *("4", "a new member joined", "pod-1", "", "", "", "2", "3", "1"),
                    *("≤ 1.2 s", "", ""),
                ),
                "phases": [["join and assignment", 3_000, 4_250, ""]],
                "waited": "",
                "joins": [],
                "unshown": 0,
                "moved": 3,
                "needless": 1,
            }
        ],
        "lag": [],
    }


def test_a_reader_gets_what_is_new() -> None:
    picture = Picture(base=0.0, live=True)
    picture.now_own({"t-0": "a", "t-1": "a"}, 1.0)
    first, cursor = picture.message(Cursor())
    assert first["open"] == [[0, 0, 1_000], [1, 0, 1_000]]
    assert first["owned"] == []
    picture.now_own({"t-0": "a", "t-1": "b"}, 2.0)
    picture.rebalanced([rebalance(2, 1.5, 2.0)])
    picture.lagged(Lag(2.5, 7, 1.25))
    second, cursor = picture.message(cursor)
    assert not second["whole"]
    assert (second["partitions"], second["owners"]) == ([], [["b", "b", ""]])
    assert second["owned"] == [(1, 0, 1_000, 2_000)]
    assert second["open"] == [[0, 0, 1_000], [1, 1, 2_000]]
    assert [each["generation"] for each in second["rebalances"]] == [2]
    assert (second["lag"], second["last"]) == ([(2_500, 7, 1_250)], 2_500)
    picture.now_own({"t-1": "b"}, 4.0)
    third, _ = picture.message(cursor)
    assert (third["owned"], third["open"]) == ([(0, 0, 1_000, 4_000)], [[1, 1, 2_000]])
    assert third["from"] == 0, "the last rebalance is told again: its stops come later"


def test_a_reader_starts_again_when_old_parts_were_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 4)
    monkeypatch.setattr(module, "MOST_LAGS", 4)
    picture = Picture(base=0.0, live=True)
    _, cursor = picture.message(Cursor())
    for step in range(7):
        picture.now_own({"t-0": "ab"[step % 2]}, float(step))
        picture.lagged(Lag(float(step), step, None))
    message, cursor = picture.message(cursor)
    assert message["whole"]
    assert len(message["owned"]) <= 4
    assert message["owned"][-1] == (0, 1, 5_000, 6_000)
    assert message["lag"][-1] == (6_000, 6, None)
    assert not picture.message(cursor)[0]["whole"]
