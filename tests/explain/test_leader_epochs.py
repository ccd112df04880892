"""A coordinator that moved, from the leader epochs of the offsets topic alone."""

from __future__ import annotations

import pytest

from kohort.explain.amounts import Known
from kohort.explain.events import Event, Kind, Place
from kohort.explain.explaining import Explainer
from kohort.explain.offsets_topic import leader_epochs
from kohort.explain.offsets_topic.generations import Committed
from kohort.explain.offsets_topic.leader_epochs import LeaderEpochs
from kohort.model.ids import TopicPartition


def note(
    epochs: LeaderEpochs, offset: int, epoch: int | None, at: float, *groups: str, home: int = 7
) -> list[Event]:
    return list(epochs.note(home, epoch, at, Place(f"__consumer_offsets-{home}", offset), groups))


def test_each_group_of_the_partition_gets_an_event_with_both_bounds() -> None:
    epochs = LeaderEpochs()
    assert note(epochs, 0, 3, 100.0, "a") == []
    assert note(epochs, 1, 3, 200.0, "b") == []
    moved = note(epochs, 2, 5, 260.0, "c")
    assert [(e.kind, e.group, e.partition, e.at) for e in moved] == [
        (Kind.COORDINATOR_MOVED, "a", 7, 260.0),
        (Kind.COORDINATOR_MOVED, "b", 7, 260.0),
    ], "group c had no record before"
    assert moved[0].details == {"since": "200.0", "before": "3", "epoch": "5"}
    assert moved[0].place == Place("__consumer_offsets-7", 2)


def test_an_epoch_of_another_partition_or_none_is_no_change() -> None:
    epochs = LeaderEpochs()
    note(epochs, 0, 3, 100.0, "a")
    assert note(epochs, 0, 9, 101.0, "b", home=8) == []
    assert note(epochs, 1, None, 102.0, "a") == []
    assert note(epochs, 2, -1, 103.0, "a") == []
    assert note(epochs, 3, 2, 104.0, "a") == [], "an epoch never falls"
    assert note(epochs, 4, 3, 105.0, "a") == []


def test_the_groups_of_a_partition_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_epochs, "MOST_GROUPS", 2)
    epochs = LeaderEpochs()
    note(epochs, 0, 1, 100.0, "a", "b", "c")
    assert [event.group for event in note(epochs, 1, 2, 101.0)] == ["a", "b"]


def test_the_finding_tells_the_epochs_and_the_time_between_the_records() -> None:
    epochs, explainer = LeaderEpochs(), Explainer()
    for offset, (epoch, at) in enumerate([(3, 100.0), (5, 142.0), (6, 200.0)]):
        explainer.feed_all(note(epochs, offset, epoch, at, "a"))
        position = TopicPartition("t", 0)
        explainer.feed(Committed(group="a", partition=position, offset=offset, at=at, home=7))
    (found,) = explainer.finish()
    (finding,) = found.findings
    assert (finding.name, finding.known) == ("coordinator moved", Known.BOUNDED)
    assert "rose from 3 to 5" in finding.says
    assert "within 42.0 s" in finding.says
    assert "rose twice" in finding.says or "rose 2 times" in finding.says
    assert found.makers == "offsets topic"
