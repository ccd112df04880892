"""Groups as the offsets topic tells them: owners, rebalances and stops so far."""

from __future__ import annotations

import pytest
from tests.explain.test_metering import PARTITIONS, commit, settled

from kohort.explain import live as module
from kohort.explain.amounts import Known, Stop
from kohort.explain.causes import Cause
from kohort.explain.events import Place
from kohort.explain.live import LiveGroup, LiveGroups
from kohort.explain.offsets_topic.leader_epochs import LeaderEpochs
from kohort.explain.offsets_topic.server_groups import Bumped, Reconciled, ServerMember
from kohort.explain.pages.picture import Cursor
from kohort.model.ids import TopicPartition


def group(groups: LiveGroups) -> LiveGroup:
    return groups.groups["g"]


def test_owners_rebalances_and_stops_are_told_as_they_come() -> None:
    groups = LiveGroups()
    groups.feed(settled(1, 10.0, a=[0, 1, 2, 3]))
    for number in range(4):
        groups.feed(commit(number, 5, 12.0))
    message, cursor = group(groups).picture.message(Cursor())
    assert message["open"] == [[n, 0, 0] for n in range(4)]
    assert message["rebalances"] == []
    version = group(groups).version
    groups.feed(commit(0, 6, 13.0))
    assert group(groups).version == version, "a commit outside of a rebalance is no news"
    groups.feed(settled(2, 20.0, a=[0, 3], b=[1, 2]))
    assert group(groups).version > version
    message, cursor = group(groups).picture.message(cursor)
    assert sorted(message["owned"]) == [(1, 0, 0, 10_000), (2, 0, 0, 10_000)]
    assert message["rebalances"][0]["told"].startswith("generation 2: a new member joined (likely)")
    groups.feed(commit(1, 6, 21.0))
    (rebalance,) = group(groups).picture.rebalances
    assert rebalance.stops == (Stop("t-1", 12.0, 21.0, Known.BOUNDED),)
    told = group(groups).explained()
    assert (told.story.total, told.story.causes) == (1, {Cause.NEW_MEMBER: 1})
    assert told.story.rebalances[0].stops


def test_a_group_that_becomes_empty_has_no_owners() -> None:
    groups = LiveGroups()
    groups.feed(settled(1, 10.0, a=[0, 1]))
    groups.feed(settled(2, 12.5))
    message, _ = group(groups).picture.message(Cursor())
    assert message["open"] == []
    assert sorted(message["owned"]) == [(0, 0, 0, 2_500), (1, 0, 0, 2_500)]


def test_a_group_of_the_new_protocol_has_names_of_topics_and_stops() -> None:
    groups = LiveGroups()
    groups.name_topics({"ID": "t"})
    place = Place("__consumer_offsets-0", 1)

    def reconciled(name: str, epoch: int, at: float, *numbers: int) -> None:
        owned = frozenset(TopicPartition("ID", PARTITIONS[n].partition) for n in numbers)
        groups.feed(Reconciled(group="g", member=name, epoch=epoch, partitions=owned, at=at))

    for epoch, name in ((1, "a"), (2, "b")):
        groups.feed(ServerMember(group="g", member=name, topics=frozenset({"t"}), at=float(epoch)))
        groups.feed(Bumped(group="g", epoch=epoch, at=float(epoch), place=place))
        if epoch == 1:
            reconciled("a", 1, 1.0, 0, 1)
    reconciled("a", 2, 2.5, 0)
    reconciled("b", 2, 3.25, 1)
    first, second = group(groups).picture.rebalances
    assert (first.generation, second.generation, second.moved) == (1, 2, 1)
    assert second.stops == (Stop("t-1", 2.5, 3.25, Known.ASSUMED),)
    message, _ = group(groups).picture.message(Cursor())
    assert message["partitions"] == ["t-0", "t-1"]
    assert message["open"] == [[0, 0, 0], [1, 1, 2_250]]


def test_groups_are_bounded_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = LiveGroups()
    assert groups.group("g", 0.0) is groups.group("g", 5.0)
    groups.forget("g")
    assert groups.groups == {}
    monkeypatch.setattr(module, "MOST_GROUPS", 1)
    assert groups.group("g", 0.0) is not None
    assert groups.group("h", 0.0) is None


def test_a_moved_coordinator_is_a_pattern_of_the_groups_that_it_had() -> None:
    groups, epochs = LiveGroups(), LeaderEpochs()
    groups.feed(settled(1, 10.0, a=[0, 1]))
    for epoch, at in ((3, 10.0), (4, 30.0)):
        for moved in epochs.note(7, epoch, at, Place("__consumer_offsets-7", 1), ["g", "other"]):
            groups.feed(moved)
    assert "other" not in groups.groups
    (finding,) = group(groups).explained().findings
    assert (finding.name, finding.known) == ("coordinator moved", Known.BOUNDED)
    assert group(groups).picture.rebalances == []
