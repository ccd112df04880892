"""The Kafka clients of these tests."""

from __future__ import annotations

import shutil

import pytest
from tests.interop.group import Make

CONFLUENT = Make(name="confluent", script="confluent_client.py", assignor="range")
COOPERATIVE = Make(
    name="confluent-cooperative", script="confluent_client.py", assignor="cooperative-sticky"
)
KAFKA_PYTHON = Make(name="kafka-python", script="kafka_python_client.py", assignor="range")
AIOKAFKA = Make(name="aiokafka", script="aiokafka_client.py", assignor="roundrobin")
AIOKAFKA_RANGE = Make(name="aiokafka-range", script="aiokafka_client.py", assignor="range")
KCAT = Make(name="kcat", script="kcat_client.py", assignor="range")
KAFKA_PYTHON_COOPERATIVE = Make(
    name="kafka-python-cooperative",
    script="kafka_python_client.py",
    assignor="cooperative-sticky",
)
MAKES = [CONFLUENT, COOPERATIVE, KAFKA_PYTHON, KAFKA_PYTHON_COOPERATIVE, AIOKAFKA, KCAT]


def need(make: Make) -> None:
    """Skip if the client is not installed."""
    if make is KCAT and shutil.which("kcat") is None:
        pytest.skip("kcat is not installed (Debian, Ubuntu: apt-get install kcat)")
