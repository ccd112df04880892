"""Excerpts of real logs, with the situation that each shows. They are not part of the project."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tidy.trees import ROOT

from kohort.explain.explaining import Explained, Explainer
from kohort.explain.reading import LogReader
from kohort.explain.wordings.templates import number

EXCERPTS = ROOT.parent / "shared" / "broker_logs"

EXPECTED = {
    "01": ("2.3", "storm"),
    "03": ("2.3", "storm"),
    "05": ("2.3", "storm"),
    "07": ("3.0", "lone member"),
    "09": ("3.2", "session expired"),
    "11": ("2.2", "session expired"),
    "13": ("2.4", "slow joiner"),
    "15": ("2.3", "duplicate instance id"),
    "17": ("4.0", "initial delay"),
    "19": ("4.0", "new group protocol"),
    "21": ("4.1", "new group protocol"),
    "23": ("2.4", "empty"),
    "30": ("Java", "rebalance of others"),
    "32": ("Java", "session expired"),
    "34": ("Java", "normal first join"),
    "36": ("Java", "storm"),
    "40": ("librdkafka", "poll interval"),
    "42": ("librdkafka", "poll interval"),
    "44": ("librdkafka", "wrong call"),
    "46": ("librdkafka", "cooperative"),
    "48": ("librdkafka", "rebalance of others"),
    "50": ("librdkafka", "protocol not supported"),
    "60": ("kafka-python", "session expired"),
    "62": ("kafka-python", "session expired"),
    "64": ("kafka-python", "poll interval"),
    "70": ("aiokafka", "session expired"),
    "72": ("aiokafka", "join timed out"),
    "74": ("aiokafka", "coordinator lost"),
    "81": ("KafkaJS", "rebalance of others"),
    "83": ("brod", "join timed out"),
}
"""Number of the excerpt -> the broker's version or the client, and a pattern that is found."""

_UNREAD = {"83": 1}
"""Lines that tell nothing about a group by themselves: parts of a record of several lines."""


def explained(path: Path) -> tuple[LogReader, list[Explained]]:
    reader = LogReader(path.name)
    lines = path.read_text("utf-8", "replace").splitlines()
    events = [e for number, line in enumerate(lines, 1) for e in reader.read(number, line)]
    return reader, Explainer().feed_all([*events, *reader.rest()]).finish()


@pytest.mark.skipif(not EXCERPTS.is_dir(), reason="../shared/broker_logs is absent")
@pytest.mark.parametrize("excerpt", EXPECTED)
def test_an_excerpt_is_understood(excerpt: str) -> None:
    (path,) = EXCERPTS.glob(f"{excerpt}-*.log")
    maker, pattern = EXPECTED[excerpt]
    reader, groups = explained(path)
    assert reader.counts.unknown == 0, reader.counts.examples
    assert reader.counts.others == _UNREAD.get(excerpt, 0)
    assert pattern in {finding.name for group in groups for finding in group.findings}
    for group in groups:
        if maker[0].isdigit():
            low, high = group.story.versions or (0, 0)
            assert low <= number(maker) <= high
        else:
            assert maker in group.story.makers
        for finding in group.findings:
            assert finding.evidence, "each finding names the lines that prove it"


@pytest.mark.skipif(not EXCERPTS.is_dir(), reason="../shared/broker_logs is absent")
def test_the_culprits_and_the_waits_in_the_excerpts() -> None:
    def rebalances(excerpt: str) -> list[tuple[object, ...]]:
        (path,) = EXCERPTS.glob(f"{excerpt}-*.log")
        (group,) = explained(path)[1]
        return [
            (r.generation, r.member[:24], None if r.join_s is None else round(r.join_s, 3))
            for r in group.story.rebalances
        ]

    assert rebalances("13") == [
        (64, "rdkafka-64127778-170d-47", 300.001),
        (None, "rdkafka-64127778-170d-47", None),
    ]
    assert rebalances("05") == [
        (1690, "jaeger-ingester-e9c21519", 0.004),
        (1691, "jaeger-ingester-0eb85261", 0.017),
    ]
    assert [r[2] for r in rebalances("17")] == [3.01, 1.767]
