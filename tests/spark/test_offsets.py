"""The offset document: written offsets are parsed back, damaged documents are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.source.offsets import OwnedRange, SourceOffset, parse, render

topics = st.text(alphabet="abz019._-", min_size=1, max_size=12)
counts = st.integers(min_value=0, max_value=2**63 - 1)
ranges = st.tuples(counts, counts, counts).map(
    lambda t: OwnedRange(begin=min(t[:2]), end=max(t[:2]), epoch=t[2])
)
offsets = st.builds(
    SourceOffset,
    ranges=st.dictionaries(st.builds(TopicPartition, topics, st.integers(0, 10**6)), ranges),
    warm_up=st.none() | st.integers(1, 99),
    lag=st.none() | counts,
    generation=st.none() | counts,
    rebalances=st.none() | counts,
    held_ms=st.none() | counts,
)


@given(offsets)
def test_a_written_offset_is_read_back_unchanged(offset: SourceOffset) -> None:
    assert parse(json.loads(json.dumps(render(offset)))) == offset


@given(offsets, st.randoms())
def test_equal_offsets_are_written_as_equal_text(offset: SourceOffset, random: Random) -> None:
    shuffled = list(offset.ranges.items())
    random.shuffle(shuffled)
    twin = replace(offset, ranges=dict(shuffled))
    assert json.dumps(render(twin)) == json.dumps(render(offset))


def test_the_document_is_the_documented_one() -> None:
    offset = SourceOffset(
        ranges={
            TopicPartition("web-log", 10): OwnedRange(begin=5, end=9, epoch=3),
            TopicPartition("web-log", 2): OwnedRange(begin=7, end=7, epoch=1),
        }
    )
    assert json.dumps(render(offset), separators=(",", ":")) == (
        '{"v":1,"p":{"web-log-10":[5,9,3],"web-log-2":[7,7,1]}}'
    )


def test_a_warm_up_changes_the_text_and_reads_nothing() -> None:
    offset = SourceOffset(ranges={TopicPartition("t", 0): OwnedRange(begin=5, end=9, epoch=3)})
    first = offset.warmed_up()
    second = first.warmed_up()
    assert len({json.dumps(render(o)) for o in (offset, first, second)}) == 3
    assert all(r.size == 0 for r in first.ranges.values())
    assert first.ranges[TopicPartition("t", 0)].end == 9


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "expected a JSON object"),
        (None, "expected a JSON object"),
        ({}, "expected version 1"),
        ({"v": 2, "p": {}}, "found 2"),
        ({"v": True, "p": {}}, "found True"),
        ({"v": 1}, "object of partitions"),
        ({"v": 1, "p": []}, "object of partitions"),
        ({"v": 1, "p": {}, "x": 1}, "unknown keys ['x']"),
        ({"v": 1, "p": {}, "w": "1"}, "expected a count"),
        ({"v": 1, "p": {"t": [0, 0, 0]}}, "expected topic-number"),
        ({"v": 1, "p": {"-1": [0, 0, 0]}}, "expected topic-number"),
        ({"v": 1, "p": {"t-01": [0, 0, 0]}}, "expected topic-number"),
        ({"v": 1, "p": {"t-٣": [0, 0, 0]}}, "expected topic-number"),
        ({"v": 1, "p": {"t-1": [0, 0]}}, "[begin, end, epoch] for t-1"),
        ({"v": 1, "p": {"t-1": [0, 1.0, 0]}}, "[begin, end, epoch] for t-1"),
        ({"v": 1, "p": {"t-1": [0, True, 0]}}, "[begin, end, epoch] for t-1"),
        ({"v": 1, "p": {"t-1": [-1, 0, 0]}}, "[begin, end, epoch] for t-1"),
        ({"v": 1, "p": {"t-1": [2, 1, 0]}}, "greater than its end"),
    ],
)
def test_damage_is_told(document: object, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(document)
    assert said in str(raised.value)
    assert "new checkpoint directory" in str(raised.value)
