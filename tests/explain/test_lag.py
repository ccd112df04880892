"""The past lag of a group, from its commits and the ends of the logs."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from tests.explain.test_metering import commit, settled

from kohort.explain.explaining import Explainer
from kohort.explain.offsets_topic import lag as module
from kohort.explain.offsets_topic.lag import TIMES, Commits, Lag
from kohort.explain.pages.picture import Cursor, picture_of
from kohort.explain.pages.trace import trace
from kohort.model.ids import TopicPartition


def ten_a_second(partitions: Collection[TopicPartition], at: float) -> dict[TopicPartition, int]:
    """The ends of logs that grow by ten records a second."""
    return {partition: round(10 * at) for partition in partitions}


def test_the_lag_is_the_end_of_the_log_at_that_time_less_the_commit_before() -> None:
    commits = Commits()
    commits.feed(commit(0, 0, at=0.0))
    commits.feed(commit(0, 100, at=10.0))
    commits.feed(commit(1, 990, at=99.0))
    found = commits.lags(ten_a_second)
    lags = {each.at: each.records for each in found}
    assert len(lags) == TIMES
    assert lags[9.0] == 90, "nothing was committed since second 0"
    assert lags[10.0] == 0
    assert lags[98.0] == 880
    assert lags[99.0] == 890, "partition 1 counts from its first commit on, and is not behind"
    ages = {each.at: each.age_s for each in found}
    assert ages[9.0] == 9.0
    assert ages[10.0] is None, "everything is committed"
    assert ages[99.0] == 89.0, "partition 0 has the oldest last commit of those behind"


def test_a_partition_that_is_gone_has_no_lag() -> None:
    commits = Commits()
    commits.feed(commit(0, 0, at=0.0))
    commits.feed(commit(1, 0, at=9.0))
    assert commits.lags(lambda partitions, at: {}) == []
    assert Commits().lags(ten_a_second) == []


def test_memory_is_bounded_and_the_last_commit_of_each_partition_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_STEPS", 20)
    commits = Commits()
    for second in range(10_000):
        commits.feed(commit(second % 2, 10 * second, at=float(second)))
    assert len(commits._steps) <= 24
    assert commits.lags(ten_a_second)[-1] == Lag(9_999.0, 10, 1.0)


def test_the_picture_and_the_trace_have_the_lag() -> None:
    explainer = Explainer(lags=True)
    explainer.feed_all([settled(1, 1.0, a=[0]), commit(0, 0, 1.0), commit(0, 10, 2.0)])
    explained = explainer.finish()
    explainer.add_lags(explained, ten_a_second)
    message, _ = picture_of(explained[0].story).message(Cursor())
    assert len(message["lag"]) == TIMES
    assert message["lag"][-1][1] == 10
    counted = [event for event in trace(explained)["traceEvents"] if event["ph"] == "C"]
    by_name = {
        name: [event["args"][unit] for event in counted if event["name"] == name]
        for name, unit in (("lag", "records"), ("commit age", "seconds"))
    }
    assert by_name["lag"] == [lag for _, lag, _ in message["lag"]]
    ages = [age for *_, age in message["lag"] if age is not None]
    assert by_name["commit age"] == pytest.approx([age / 1_000 for age in ages], abs=0.001)
    assert max(ages) == pytest.approx(990, abs=1), "just before the second commit"


def test_commits_are_kept_only_if_a_cluster_can_tell_the_ends() -> None:
    explainer = Explainer()
    explainer.feed_all([commit(0, 0, 1.0), commit(0, 10, 2.0)])
    explained = explainer.finish()
    explainer.add_lags(explained, ten_a_second)
    assert explained[0].story.lags == []
