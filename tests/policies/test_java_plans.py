"""Range and roundrobin give exactly the plans of Kafka's own assignors."""

from __future__ import annotations

import pytest
from tests.java import skip_without_kafkas_classes
from tests.policies.java_plans import RECORDED, javas_plans, kohorts_plans, random_group


def test_plans_are_those_that_kafka_4_3_1_made() -> None:
    asked, _, plans = RECORDED.read_text(encoding="utf-8").partition("plans\n")
    assert list(kohorts_plans(asked.splitlines())) == plans.splitlines()


@pytest.mark.real_kafka
@pytest.mark.slow
def test_plans_are_those_that_kafka_makes_now() -> None:
    skip_without_kafkas_classes()
    asked = [line for seed in range(1_000, 4_000) for line in random_group(seed)]
    assert list(kohorts_plans(asked)) == javas_plans(asked)
