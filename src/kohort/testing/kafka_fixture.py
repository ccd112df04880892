"""What the pytest fixture ``real_kafka`` does: one node of Apache Kafka for a whole test run.

What lives here: when a test may have it, and when its absence is a skip or a failure. Out goes a
running ``RealKafka``. It must not know how a node is started.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from kohort.testing.kafka_jars import installed
from kohort.testing.real_kafka import RealKafka, absence


def kafka_for_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """One node for the whole run, without initial delay and with sessions from 1 s upwards.

    Skips when Kafka was not fetched; where ``KOHORT_REQUIRE_PEERS`` is set, that is a failure.
    """
    if installed() is None:
        if os.environ.get("KOHORT_REQUIRE_PEERS", "") not in {"", "0"}:
            pytest.fail(f"{absence()}, and KOHORT_REQUIRE_PEERS asks for it")
        pytest.skip(absence())
    directory = tmp_path_factory.mktemp("real-kafka")
    settings = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1_000}
    with RealKafka(directory, settings=settings) as kafka:
        yield kafka
    shutil.rmtree(directory, ignore_errors=True)
