"""The demo's producer, a process of its own: ``python -m kohort.cli.demo.feeder …``.

What lives here: the sending of generated events or of a file's lines, one record each, keyed by
the first field. In come numbers on standard input, each on a line: how many records may have been
sent in all. Out go JSON lines on standard output: ``{"acknowledged": n, "out": false}``. It ends
when standard input does, or with 1 and a sentence when the broker refuses a record.
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from kohort.cli.demo.web_events import first_field, web_events
from kohort.model.errors import ConfigError

LONGEST_LINE: Final = 1_000_000
"""A little less than what a broker takes by default (message.max.bytes 1,048,588)."""

_CHUNK: Final = 1_000
_TELL_EVERY: Final = 5_000
_WAIT_S: Final = 0.1


class Feeder:
    """Sends records as far as it is allowed to and counts what the broker acknowledged.

    Args:
        producer: of confluent-kafka.
        topic: where to.
        records: what.
        total: how many ``records`` has.
    """

    def __init__(
        self, producer: Producer, topic: str, records: Iterator[bytes], total: int
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._records = records
        self._total = total
        self.sent = 0
        self.acknowledged = 0
        self.out = False
        self.refused: KafkaError | None = None

    def send(self, upto: int) -> None:
        """Sends at most a chunk, and no more than ``upto`` in all."""
        for record in islice(self._records, min(_CHUNK, upto - self.sent)):
            self._produce(first_field(record), record)
            self.sent += 1
        self.out = self.sent >= self._total

    def settle(self) -> None:
        """Waits until everything that was sent is acknowledged or refused."""
        while self._producer.flush(_WAIT_S) and self.refused is None:
            pass

    def _produce(self, key: bytes, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(self._topic, value=value, key=key, on_delivery=self._done)
            except BufferError:
                self._producer.poll(_WAIT_S)
            else:
                self._producer.poll(0)
                return

    def _done(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.refused = error


def lines_of(path: Path) -> Iterator[bytes]:
    """A file's lines without their ends.

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
    """How many records a file holds; a last line without an end counts.

    Raises:
        ConfigError: the file cannot be read.
    """
    count, last = 0, b"\n"
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                count += block.count(b"\n")
                last = block[-1:]
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; name a text file") from error
    return count + (last != b"\n")


def main() -> int:
    """Feed until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--input", type=Path)
    options = parser.parse_args()
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "client.id": "feeder",
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 131_072,
            "queue.buffering.max.messages": 50_000,
        }
    )
    given = options.input
    records = lines_of(given) if given else web_events(options.records, options.seed)
    feeder = Feeder(producer, options.topic, records, options.records)
    try:
        _feed(feeder)
    except ConfigError as error:
        return _give_up(str(error))
    if feeder.refused is not None:
        return _give_up(f"the broker refused a record: {feeder.refused}")
    return 0


def _feed(feeder: Feeder) -> None:
    allowed: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(allowed,), daemon=True).start()
    upto: int | None = 0
    told = -1
    while upto is not None and feeder.refused is None:
        if feeder.sent < upto and not feeder.out:
            feeder.send(upto)
        else:
            feeder.settle()
        idle = feeder.out or feeder.sent >= upto
        if feeder.acknowledged - told >= (1 if idle else _TELL_EVERY) or (idle and feeder.out):
            told = feeder.acknowledged
            _tell({"acknowledged": told, "out": feeder.out and told == feeder.sent})
        upto = _latest(allowed, upto, wait=idle)


def _listen(allowed: queue.SimpleQueue[int | None]) -> None:
    for line in sys.stdin:
        allowed.put(int(line))
    allowed.put(None)


def _latest(allowed: queue.SimpleQueue[int | None], upto: int, *, wait: bool) -> int | None:
    latest: int | None = upto
    try:
        latest = allowed.get(timeout=_WAIT_S) if wait else allowed.get_nowait()
        while latest is not None:
            latest = allowed.get_nowait()
    except queue.Empty:
        pass
    return latest


def _tell(what: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _give_up(sentence: str) -> int:
    sys.stderr.write(sentence + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
