"""The published experiment on Connect's incremental protocol, scaled down (bench/connectors.py)."""

from __future__ import annotations

import pytest
from bench.connectors import WHOLE_MB_S, WORK_S, done_after_s, started

from kohort.history.cost_values import OwnershipInterval
from kohort.model.ids import TopicPartition
from kohort.model.instants import Instant


@pytest.mark.slow
def test_an_eager_start_costs_more_with_each_connector_and_an_incremental_one_does_not() -> None:
    eager = [started("sticky", n)["start_s"] for n in (10, 20)]
    incremental = [started("cooperative-sticky", n)["start_s"] for n in (10, 20)]
    assert incremental[1] == pytest.approx(2 * incremental[0], rel=0.15)
    assert eager[1] > 3 * eager[0]


def test_the_work_is_done_later_if_the_tasks_wait() -> None:
    def interval(begin_s: int) -> tuple[OwnershipInterval, ...]:
        at = Instant(begin_s * 1_000_000)
        end = Instant(10_000 * 1_000_000)
        return tuple(
            OwnershipInterval(
                partition=TopicPartition("t", n), owner="w", begin=at, ready=at, end=end
            )
            for n in range(200)
        )

    assert done_after_s(interval(10)) == pytest.approx(WORK_S)
    assert done_after_s(interval(110)) == pytest.approx(WORK_S + 100)
    assert WHOLE_MB_S * WORK_S / done_after_s(interval(10)) == pytest.approx(WHOLE_MB_S)
