"""A second real Kafka for the whole run, beside the fixture ``real_kafka``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from tests.conformance.judging import NARROW_SETTINGS

from kohort.testing.kafka_jars import installed
from kohort.testing.real_kafka import RealKafka, absence

SHORT_QUOTAS = {"quota.window.num": 3}
"""Quotas are taken over 2 s, not over 10 s."""


@pytest.fixture(scope="session")
def narrow_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """A node with an initial delay, small groups, frequent sweeps and short windows of quotas.

    A test may kill it and must then start it again.
    """
    if installed() is None:
        pytest.skip(absence())
    directory = tmp_path_factory.mktemp("narrow-kafka")
    with RealKafka(directory, settings=NARROW_SETTINGS | SHORT_QUOTAS, quick=True) as node:
        yield node
    shutil.rmtree(directory, ignore_errors=True)
