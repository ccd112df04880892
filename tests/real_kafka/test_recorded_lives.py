"""Histories of consumers on a real Apache Kafka keep the promises of clients."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.client.test_recorded_lives import judge, play, told

from kohort.history.checker import Verdict
from kohort.testing.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]

JUDGED_BY_CLIENTS = {4, 24, 25, 27, 38, 39, 40, 41, 42, 43, 44, 51}


def test_a_group_on_a_real_kafka_keeps_its_promises(real_kafka: RealKafka, tmp_path: Path) -> None:
    report = judge(play(real_kafka.bootstrap_servers, tmp_path))
    assert report.clean, told(report)
    judged = {r.number for r in report.results if r.verdict is not Verdict.VACUOUS}
    assert JUDGED_BY_CLIENTS - judged == set()
