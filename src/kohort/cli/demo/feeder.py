"""The demo's producer: sends records with their first field as the key.

In: an iterator of records, and how many of them may be sent. Out: records in a topic, and the end
of each partition as far as the broker acknowledged. Must not know: the story.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from kohort.cli.output import reading
from kohort.host.signals import signals_deferred
from kohort.model.errors import ConfigError

LONGEST_LINE: Final = 1_000_000
"""A broker takes message.max.bytes of 1,048,588 by default."""

_CHUNK: Final = 1_000


class Feeder:
    """Sends ``records`` in their order to a topic without records.

    Attributes:
        ends: for each partition, the offset after the last acknowledged record.
        failure: why the broker refused a record, or None.
    """

    def __init__(self, producer: Producer, topic: str, records: Iterator[bytes]) -> None:
        self._producer = producer
        self._topic = topic
        self._records = records
        self._sent = 0
        self.ends: dict[int, int] = {}
        self.failure: str | None = None
        self.feed(0)

    def feed(self, upto: int, per_second: int | None = None) -> None:
        """Allow ``upto`` records in all: at once, or with this rate."""
        self._upto, self._rate = upto, per_second
        self._before, self._since = self._sent, time.monotonic()

    def send_for(self, seconds: float) -> None:
        """Send the allowed records, until this time is over."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            wait_s = 0 if self._send_some() else left
            with signals_deferred():
                self._producer.poll(wait_s)

    def _send_some(self) -> bool:
        """Send up to 1,000 records; returns whether more can be sent at once."""
        allowed = self._upto
        if self._rate is not None:
            due = self._before + int(self._rate * (time.monotonic() - self._since))
            allowed = min(allowed, due)
        chunk_end = min(allowed, self._sent + _CHUNK)
        while self._sent < chunk_end:
            record = next(self._records)
            try:
                self._producer.produce(
                    self._topic, record, first_field(record), on_delivery=self._acknowledged
                )
            except BufferError:
                self._records = chain([record], self._records)
                return False
            self._sent += 1
        return self._sent < allowed

    def _acknowledged(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failure = f"the broker refused a record: {error}"
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.ends[partition] = offset + 1


def first_field(line: bytes) -> bytes:
    """The key of a record: the text before the first blank; empty for a blank line."""
    return line.split(None, 1)[0] if line.strip() else b""


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file, without line ends; a last line without a line end counts.

    Raises:
        ConfigError: the file cannot be read, or a line is too long for a record.
    """
    with reading(path, "a text file"), path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 3), b""), 1):
            stripped = line.rstrip(b"\r\n")
            if len(stripped) > LONGEST_LINE:
                raise ConfigError(
                    f"{path}, line {number} is longer than {LONGEST_LINE:,} bytes, which a broker "
                    "does not take as one record; a text file with one record a line is expected"
                )
            yield stripped
