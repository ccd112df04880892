"""The demo's producer: sends records with their first field as the key.

In: an iterator of records, and how many of them may be sent. Out: records in a topic, and the end
of each partition as far as the broker acknowledged. Must not know: the story.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from kohort.cli.demo.web_events import first_field
from kohort.model.errors import ConfigError

LONGEST_LINE: Final = 1_000_000
"""A broker takes message.max.bytes of 1,048,588 by default."""

_CHUNK: Final = 1_000


class Feeder:
    """Sends records to a topic.

    Args:
        producer: sends.
        topic: a topic without records.
        records: are sent in this order.
    """

    def __init__(self, producer: Producer, topic: str, records: Iterator[bytes]) -> None:
        self._producer = producer
        self._topic = topic
        self._records = records
        self._unsent: bytes | None = None
        self._sent = 0
        self.feed(0)
        self.ends: dict[int, int] = {}
        """For each partition, the offset after the last acknowledged record."""
        self.failure: str | None = None

    def feed(self, upto: int, per_second: int | None = None) -> None:
        """Allow ``upto`` records in all: at once, or with this rate."""
        self._upto, self._rate = upto, per_second
        self._before, self._since = self._sent, time.monotonic()

    def send_for(self, seconds: float) -> None:
        """Send the allowed records, until this time is over."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._producer.poll(0 if self._send_some() else left)

    def close(self) -> None:
        """Disconnect."""
        del self._producer

    def _send_some(self) -> bool:
        """Send up to 1,000 records; returns whether more can be sent at once."""
        allowed = self._upto
        if self._rate is not None:
            due = self._before + int(self._rate * (time.monotonic() - self._since))
            allowed = min(allowed, due)
        count = min(_CHUNK, allowed - self._sent)
        for _ in range(count):
            record = next(self._records, None) if self._unsent is None else self._unsent
            if record is None:
                return False
            key = first_field(record)
            try:
                self._producer.produce(self._topic, record, key, on_delivery=self._acknowledged)
            except BufferError:
                self._unsent = record
                return False
            self._unsent = None
            self._sent += 1
        return count > 0

    def _acknowledged(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failure = f"the broker refused a record: {error}"
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.ends[partition] = offset + 1


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file, without line ends.

    Raises:
        ConfigError: a line is too long for a record.
    """
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 3), b""), start=1):
            stripped = line.rstrip(b"\r\n")
            if len(stripped) > LONGEST_LINE:
                raise ConfigError(
                    f"{path}, line {number} is longer than {LONGEST_LINE:,} bytes, which a broker "
                    "does not take as one record; a text file with one record a line is expected"
                )
            yield stripped


def count_lines(path: Path) -> int:
    """The number of records in a file; a last line without a line end counts.

    Raises:
        ConfigError: the file cannot be read, or a line is too long for a record.
    """
    try:
        return sum(1 for _ in lines_of(path))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; name a text file") from error
