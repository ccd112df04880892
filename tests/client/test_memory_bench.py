"""The measurement of an idle consumer's memory runs; its numbers belong to `make bench`."""

from __future__ import annotations

import json

import pytest
from tests.client.stage import topic

from kohort.broker.embedded import EmbeddedBroker

memory = pytest.importorskip("bench.memory", reason="needs the peers", exc_type=ImportError)
PARTITIONS = 3


@pytest.mark.slow
@pytest.mark.parametrize("client", ["kohort", "kohort, asyncio"])
def test_an_idle_consumer_is_measured(
    kohort_broker: EmbeddedBroker, client: str, capsys: pytest.CaptureFixture[str]
) -> None:
    address = kohort_broker.bootstrap_servers
    with topic(address, PARTITIONS) as name:
        memory.CLIENTS[client](address, name, "g", memory.Watch(PARTITIONS, settle_s=0.1))
    measured = json.loads(capsys.readouterr().out)
    assert measured.keys() == {"mib", "cpu_percent", "threads"}
    assert abs(measured["mib"]) < 200, "this process also frees memory of other tests"
