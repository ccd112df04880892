"""The event of librdkafka's records, and the layout of confluent-kafka's objects below it."""

from __future__ import annotations

import sys

import pytest
from tests.client.one_consumer import make
from tests.client.test_async_consumer import make_async, play

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.consuming.record_event import RecordEvent, check_handle
from kohort.client.errors import ClientError


def test_an_event_of_records_ends(broker: EmbeddedBroker) -> None:
    consumer = make(broker)
    event = RecordEvent(consumer._fetcher._consumer, consumer.settings.client_id)
    number = event.fileno()
    event.close()
    event.close()
    consumer.close()
    assert number > 0


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_another_layout_of_confluent_kafkas_objects_is_refused(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in (None, 8, id(broker), id("kohort"), 2**64 - 8):
        with pytest.raises(ClientError, match="another layout than expected"):
            check_handle(wrong, "kohort")
    with make(broker, client_id="n" * 300) as long:
        long._fetcher.event().close()
    monkeypatch.setattr("kohort.client.consuming.record_event._HEAD_BYTES", 24)

    async def piece() -> None:
        async with make_async(broker) as consumer:
            with pytest.raises(ClientError, match="Install confluent-kafka"):
                consumer.subscribe(["t"])

    play(piece)
