"""An idempotent producer for programs that read and write: librdkafka's, with bounded waits.

In: records. Out: calls of ``on_delivery`` for each record, in the order of each partition. Must not
know: the reader.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaException

from kohort.client.config import ClientSettings
from kohort.client.errors import ClientError
from kohort.client.librdkafka_log import LibrdkafkaLog
from kohort.host.signals import signals_deferred
from kohort.model.errors import ConfigError

_LONGEST_S: Final = 30.0
"""Longest time to deliver a record, retries included."""
BATCH_BYTES: Final = 1_000_000
"""librdkafka's default."""
_MOST_RECORD_BYTES: Final = 100_000_000
"""The broker decides which records are too large, not the producer."""


class DeliveryFailed(ClientError):
    """Records did not reach the broker."""


class IdempotentProducer:
    """Writes each record once, and in order, unless a delivery fails.

    Args:
        settings: the brokers, and the id of this client.
        batch_bytes: the largest batch. A broker refuses larger ones than ``max.message.bytes``.
        gapless: after a failed delivery no later record is written, and the producer is over.
        compression: ``compression.type``.
        acks: the replicas that must have a record before it counts as written. Unless this is
            ``all`` the producer is not idempotent: a retry may write a record twice, as in Kafka.
        failures_only: call ``on_delivery`` only for records that were not written, which takes less
            CPU time.

    Raises:
        ConfigError: librdkafka refuses a setting.
    """

    def __init__(
        self,
        settings: ClientSettings,
        batch_bytes: int = BATCH_BYTES,
        *,
        gapless: bool = False,
        compression: str = "lz4",
        acks: str = "all",
        failures_only: bool = False,
    ) -> None:
        try:
            self._producer = confluent_kafka.Producer(
                {
                    **settings.security_of_librdkafka(),
                    "bootstrap.servers": settings.bootstrap_servers,
                    "client.id": settings.client_id,
                    "enable.idempotence": acks == "all",
                    "acks": acks,
                    "enable.gapless.guarantee": gapless,
                    "linger.ms": 5,
                    "compression.type": compression,
                    "delivery.report.only.error": failures_only,
                    "batch.size": min(batch_bytes, BATCH_BYTES),
                    "message.max.bytes": _MOST_RECORD_BYTES,
                    "message.timeout.ms": int(_LONGEST_S * 1_000),
                },
                logger=LibrdkafkaLog(),
            )
        except KafkaException as error:
            raise ConfigError(f"librdkafka refuses the settings: {error.args[0]}") from error
        self._over: str | None = None

    def produce(self, topic: str, **record: Any) -> None:
        """Begin to write a record; waits while the queue is full.

        Raises:
            DeliveryFailed: the queue stayed full, or librdkafka refuses the record.
        """
        deadline = None
        while True:
            try:
                self._producer.produce(topic, **record)
                return
            except BufferError:
                now = time.monotonic()
                deadline = deadline or now + _LONGEST_S
                if now > deadline:
                    raise DeliveryFailed("the producer's queue stayed full") from None
                # Short: an answer without a call does not end it.
                self._poll(0.01)
            except KafkaException as error:
                raise DeliveryFailed(
                    f"a record for {topic} was refused: {error.args[0]}"
                ) from error

    def look(self) -> None:
        """Call ``on_delivery`` for records that were answered."""
        self._poll(0)

    def _poll(self, timeout_s: float) -> None:
        with signals_deferred():
            try:
                self._producer.poll(timeout_s)
            except KafkaException as error:  # a fatal error; librdkafka raises it once
                self._over = str(error.args[0])
            if self._over is not None:
                # librdkafka would keep the records of a producer that is over until they time out.
                self._producer.purge()
                self._producer.poll(0)

    def unanswered(self) -> int:
        """The number of records without an answer so far."""
        return len(self._producer)

    def wait(self) -> None:
        """Wait until every record was answered.

        Raises:
            DeliveryFailed: an answer did not come, or the producer is over.
        """
        deadline = time.monotonic() + _LONGEST_S + 5
        while len(self._producer):
            if time.monotonic() > deadline:
                raise DeliveryFailed(
                    f"{len(self._producer)} records were not delivered within {_LONGEST_S:g} s"
                )
            self._poll(0.1)
        if self._over is not None:
            raise DeliveryFailed(f"the producer is over: {self._over}")

    def close(self) -> None:
        """Deliver the rest, and end the producer; harmless after a failed delivery.

        If a signal handler raises meanwhile, the wait ends, and the rest is not written.
        """
        try:
            with suppress(DeliveryFailed):
                self.wait()
        finally:
            with signals_deferred(), suppress(KafkaException):
                if len(self._producer):
                    self._producer.purge()  # else the next call waits, and no signal ends it
                self._producer.close()
