"""The fixture ``kohort``: commands for the broker of the test."""

from __future__ import annotations

import pytest
from tests.cli.commands import Kohort

from kohort.broker.embedded import EmbeddedBroker


@pytest.fixture
def kohort(kohort_broker: EmbeddedBroker) -> Kohort:
    return Kohort(kohort_broker.bootstrap_servers)
