"""The producer of programs that read and write."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.config import parse_client_settings
from kohort.client.producing import DeliveryFailed, IdempotentProducer


def test_a_producer_that_is_over_gives_every_record_back_at_once(broker: EmbeddedBroker) -> None:
    topic = f"small-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 2, 1, {"max.message.bytes": "1000"})
    settings = parse_client_settings({"bootstrap.servers": broker.bootstrap_servers})
    producer = IdempotentProducer(settings, 1_000, gapless=True)
    errors: dict[int, Any] = {}

    def produce(number: int, value: bytes) -> None:
        producer.produce(
            topic,
            value=value,
            partition=number % 2,
            on_delivery=lambda error, _: errors.setdefault(number, error),
        )

    produce(0, b"fits")
    producer.wait()
    assert errors == {0: None}
    produce(1, random.Random(1).randbytes(2_000))
    began = time.monotonic()
    with suppress(DeliveryFailed):  # the producer may be over before the last record
        for number in range(2, 100_000):
            produce(number, b"behind")
    with pytest.raises(DeliveryFailed, match=f"over: .*{topic} .1. with 1 message"):
        producer.wait()
    assert time.monotonic() - began < 25, "librdkafka alone keeps records for 30 s"
    assert errors[1].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert sorted(errors) == list(range(len(errors))), "every record is answered"
    with pytest.raises(DeliveryFailed):
        produce(1, b"later")
    producer.close()


@pytest.fixture
def unreachable(ctrl_c: None) -> IdempotentProducer:
    """A producer without a broker, in a program that Ctrl-C ends."""
    return IdempotentProducer(parse_client_settings({"bootstrap.servers": "127.0.0.1:1"}))


def end_by_look(producer: IdempotentProducer) -> None:
    until(producer.look, "an answer")


@pytest.mark.parametrize("end", [end_by_look, IdempotentProducer.close])
def test_ctrl_c_in_a_delivery_callback_raises_keyboard_interrupt(
    unreachable: IdempotentProducer, end: Callable[[IdempotentProducer], None]
) -> None:
    """confluent-kafka loses an exception that a callback raises, and raises SystemError."""
    answered = []

    def answer(error: KafkaError | None, _record: Message) -> None:
        signal.raise_signal(signal.SIGINT)
        answered.append(error)

    unreachable.produce("t", value=b"a", on_delivery=answer)
    unreachable._producer.purge()
    with pytest.raises(KeyboardInterrupt):
        end(unreachable)
    assert len(answered) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    unreachable.close()


def test_ctrl_c_ends_the_wait_of_close_at_once(unreachable: IdempotentProducer) -> None:
    answered = []
    unreachable.produce("t", value=b"a", on_delivery=lambda error, _: answered.append(error))
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        unreachable.close()
    assert time.monotonic() - began < 10, "a record is given up after 30 s"
    assert [error.code() for error in answered] == [KafkaError._PURGE_QUEUE]
