"""Members with different lists of assignors: no partition gets two owners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.client.stage import Feeder, topic
from tests.client.test_recorded_lives import consumer_of, judge, poll_all, shared, told

from kohort.broker.embedded import EmbeddedBroker

PARTITIONS = 6


@pytest.mark.slow
def test_a_third_member_that_knows_only_an_eager_assignor_makes_no_second_owner(
    tmp_path: Path,
) -> None:
    """Two members offer cooperative-sticky and range, and the vote falls to range."""
    history = tmp_path / "broker.jsonl"
    settings: dict[str, Any] = {"group.initial.rebalance.delay.ms": 0}
    lists = {"one": "cooperative-sticky,range", "two": "cooperative-sticky,range", "three": "range"}
    with (
        EmbeddedBroker(history=history, **settings) as broker,
        topic(broker.bootstrap_servers, PARTITIONS) as name,
        Feeder(broker.bootstrap_servers, name, PARTITIONS),
    ):
        members = []
        for file, strategy in lists.items():
            member = consumer_of(
                broker.bootstrap_servers,
                tmp_path / f"{file}.jsonl",
                **{"partition.assignment.strategy": strategy},
            )
            member.subscribe([name])
            members.append(member)
            poll_all(members, 30, lambda: shared(members))
            assert shared(members)
            poll_all(members, 1)
        for member in members:
            member.close()
    report = judge([history, *(tmp_path / f"{file}.jsonl" for file in lists)])
    assert report.clean, told(report)
