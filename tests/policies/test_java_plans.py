"""Range and roundrobin give exactly the plans of Kafka's own assignors."""

from __future__ import annotations

import subprocess

import pytest
from tests.policies.java_plans import RECORDED, javas_plans, kohorts_plans, random_group

from kohort.host.java import find_java
from kohort.testing.kafka_jars import installed
from kohort.testing.real_kafka import absence


def test_plans_are_those_that_kafka_4_3_1_made() -> None:
    asked, _, plans = RECORDED.read_text(encoding="utf-8").partition("plans\n")
    assert list(kohorts_plans(asked.splitlines())) == plans.splitlines()


@pytest.mark.real_kafka
@pytest.mark.slow
def test_plans_are_those_that_kafka_makes_now() -> None:
    if installed() is None:
        pytest.skip(absence())
    modules = subprocess.run(
        [str(find_java().executable), "--list-modules"], capture_output=True, text=True, check=True
    )
    if "jdk.compiler" not in modules.stdout:
        pytest.skip("the Java program needs a Java with a compiler")
    asked = [line for seed in range(1_000, 4_000) for line in random_group(seed)]
    assert list(kohorts_plans(asked)) == javas_plans(asked)
