"""Stateful tasks on a real Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.client.counting import (
    Words,
    every_word_counts_once_while_processes_come_and_go,
    killed_processes_lose_and_repeat_nothing,
    standbys_take_over,
)

from kohort.testing.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]


@pytest.fixture
def words(real_kafka: RealKafka, tmp_path: Path) -> Iterator[Words]:
    with ExitStack() as stack:
        yield Words(real_kafka.bootstrap_servers, stack, tmp_path)


def test_every_word_counts_once_while_processes_come_and_go(words: Words) -> None:
    every_word_counts_once_while_processes_come_and_go(words)


def test_standbys_take_over(words: Words) -> None:
    words.settings["kohort.standby.replicas"] = 1
    standbys_take_over(words)


def test_killed_processes_lose_and_repeat_nothing(words: Words) -> None:
    killed_processes_lose_and_repeat_nothing(words)
