"""Fixtures: commands for the broker of the test, and the log of kohort's brokers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import Kohort

from kohort.broker.embedded import EmbeddedBroker
from kohort.cli.broker import LOGGERS
from kohort.host.group_log import KafkaFormatter


@pytest.fixture
def kohort(kohort_broker: EmbeddedBroker) -> Kohort:
    return Kohort(kohort_broker.bootstrap_servers)


@pytest.fixture
def kohorts_log(tmp_path: Path) -> Iterator[Path]:
    handler = logging.FileHandler(tmp_path / "kohort.log")
    handler.setFormatter(KafkaFormatter())
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield tmp_path / "kohort.log"
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)
    handler.close()
