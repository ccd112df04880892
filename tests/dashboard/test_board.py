"""The board: each reader gets all once, then what changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.explain.test_metering import commit, settled
from tests.explain.test_picture import rebalance

from kohort.dashboard.board import Board, Reader, Seen, SeenMember
from kohort.explain.explaining import Explained
from kohort.explain.stories import Story


def seen(group: str, lag: int | None = None) -> Seen:
    member = SeenMember(
        member="a-1", instance="a", client="c", host="/10.0.0.1", partitions=4, lag=lag or 0
    )
    return Seen(group=group, state="Stable", protocol="range", members=(member,), lag=lag)


def told(board: Board, reader: Reader) -> dict[str, dict[str, Any]]:
    return dict(board.news(reader))


def story(group: str, generation: int, partition: int | None = None) -> Explained:
    made = Story(group=group, partition=partition, first=0.0, last=9.0)
    made.replace([rebalance(generation, 1.0, 2.0)])
    return Explained(story=made, findings=())


def test_a_reader_gets_groups_and_then_changes() -> None:
    board = Board("kafka:9092")
    reader = Reader("g")
    assert told(board, reader) == {
        "groups": {"source": "kafka:9092", "remarks": [], "rows": [], "gone": []},
        "missing": {"group": "g"},
    }
    assert told(board, reader) == {}
    board.feed(settled(1, 10.0, a=[0, 1, 2, 3]))
    board.looked([seen("g", 7), seen("h")], at=70.0)
    news = told(board, reader)
    assert [row["group"] for row in news["groups"]["rows"]] == ["g", "h"]
    assert news["group"]["picture"]["whole"]
    assert news["group"]["picture"]["lag"] == [(60_000, 7, None)]
    assert news["group"]["members"][0]["instance"] == "a"
    board.feed(settled(2, 71.0, a=[0, 1], b=[2, 3]))
    board.feed(commit(2, 5, 71.5))
    news = told(board, reader)
    (row,) = news["groups"]["rows"]
    assert (row["group"], row["rebalances"], row["minutes"][-1]) == ("g", 1, 1)
    assert (row["last"], row["cause"], row["lag"]) == (71.0, "a new member joined", 7)
    assert not news["group"]["picture"]["whole"]
    assert len(news["group"]["picture"]["owned"]) == 2
    board.looked([seen("h")], at=75.0)
    news = told(board, reader)
    assert news["groups"]["gone"] == ["g"]
    assert news["missing"] == {"group": "g"}


def test_the_age_of_commits_is_that_of_the_oldest_partition_with_a_lag() -> None:
    board, reader = Board("kafka:9092"), Reader("g")
    board.feed(settled(1, 10.0, a=[0, 1, 2]))
    for number, at in ((0, 20.0), (1, 30.0), (2, 40.0)):
        board.feed(commit(number, 5, at))
    behind = frozenset(commit(number, 0, 0.0).partition for number in (1, 2))
    board.looked([replace(seen("g", 7), behind=behind)], at=70.0)
    assert told(board, reader)["group"]["picture"]["lag"] == [(60_000, 7, 40_000)]


def test_remarks_come_and_go() -> None:
    board, reader = Board("kafka:9092"), Reader("")
    board.remark("looks", "the brokers do not answer")
    assert told(board, reader)["groups"]["remarks"] == ["the brokers do not answer"]
    board.remark("looks", "")
    assert told(board, reader)["groups"]["remarks"] == []


def test_only_chosen_groups_are_shown() -> None:
    board, reader = Board("kafka:9092", only=["h"]), Reader("")
    board.feed(settled(1, 10.0, a=[0]))
    assert told(board, reader)["groups"]["rows"] == []


def test_files_replace_what_was_read_before() -> None:
    board, reader = Board("a.log"), Reader("g")
    board.show([story("g", 4), story("g", 9, partition=7)])
    news = told(board, reader)
    assert [row["group"] for row in news["groups"]["rows"]] == ["g", "g (7)"]
    assert news["group"]["picture"]["rebalances"][0]["generation"] == 4
    assert told(board, reader) == {}
    board.show([story("g", 5)])
    news = told(board, reader)
    assert news["groups"]["gone"] == ["g (7)"]
    assert news["group"]["picture"]["whole"]
    assert news["group"]["picture"]["rebalances"][0]["generation"] == 5


def test_members_tell_the_owners_before_the_records_do() -> None:
    told_owners = {"t-0": "a", "t-1": "a"}
    board = Board("x", tells={"g": lambda recorded: {**recorded, **told_owners}})
    board.restart({})  # also before the first record is read
    board.feed(settled(1, 100.0, b=[2]))
    reader = Reader("g")

    def owners() -> list[tuple[str, str, int]]:
        picture = told(board, reader)["group"]["picture"]
        names = [name for name, *_ in picture["owners"]]
        parts = picture["partitions"]
        return sorted((parts[place], names[owner], at) for place, owner, at in picture["open"])

    assert owners() == [("t-0", "a", 0), ("t-1", "a", 0), ("t-2", "b", 0)]
    del told_owners["t-1"]
    board.members_told("g", 105.0)
    reader = Reader("g")
    assert owners() == [("t-0", "a", 0), ("t-2", "b", 0)]
    board.members_told("unknown", 106.0)
