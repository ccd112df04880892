"""``kohort produce``: write lines to a topic of any Kafka.

In: lines of files or of standard input. Out: records; progress, errors and a last line with the
throughput on standard error. Must not know: how records travel (``kohort.client.producing``).
"""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

import click
from confluent_kafka import KafkaError, Message
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from kohort.cli.asking import asking, existing_topic
from kohort.cli.groups.choice import complete_topics
from kohort.cli.output import (
    REFUSED,
    bootstrap_option,
    configured,
    counted,
    json_option,
    name_and_value,
    note,
    print_json,
    reading,
)
from kohort.client.admin import Admin
from kohort.client.config import parse_client_settings
from kohort.client.errors import RequestFailed
from kohort.client.producing import BATCH_BYTES, DeliveryFailed, IdempotentProducer
from kohort.model.errors import ConfigError

COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
LOOK_EVERY: Final = 1_000
"""Answers and the progress are looked at after this many lines."""

ADVICE: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "the record is larger than max.message.bytes of the topic: "
    "`kohort topics config {topic} --set max.message.bytes=N`",
    KafkaError._MSG_TIMED_OUT: "no answer of the partition's leader for 30 s: see "
    "`kohort topics describe {topic}`",
    KafkaError.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas: see "
    "`kohort topics describe {topic}`",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "this user may not write to the topic: it needs the "
    "operation Write",
    KafkaError._UNKNOWN_PARTITION: "see `kohort topics describe {topic}`",
    KafkaError.INVALID_RECORD: "a compacted topic needs keys: give --key-separator",
}
"""Advice for a failed delivery, by librdkafka's code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a line becomes a record."""

    key_separator: bytes | None
    null_marker: bytes | None

    def record(self, line: bytes) -> tuple[bytes | None, bytes | None] | None:
        """Key and value of a line; None if it has no separator."""
        key, value = None, line
        if self.key_separator is not None:
            key, separator, value = line.partition(self.key_separator)
            if not separator:
                return None
        marker = self.null_marker
        if marker is None:
            return key, value
        return None if key == marker else key, None if value == marker else value


@dataclass(slots=True)
class Tally:
    """The records that were given to the producer, and those that were not written.

    ``size`` is the bytes of the values.
    """

    given: int = 0
    size: int = 0
    lost: int = 0
    """Records without an answer at the end."""
    failures: Counter[int] = field(default_factory=Counter)
    errors: dict[int, KafkaError] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """The records that were not written, as far as is known."""
        return self.failures.total() + self.lost

    @property
    def records(self) -> int:
        """The records that were written."""
        return self.given - self.failed

    def answered(self, error: KafkaError | None, message: Message | None) -> None:
        """Count a record that was not written; librdkafka calls it."""
        if error is not None:
            self.failures[error.code()] += 1
            self.errors.setdefault(error.code(), error)
            self.size -= 0 if message is None else len(message)

    def problems(self, topic: str) -> list[str]:
        """A sentence for each kind of failure."""
        return [
            f"{counted(count, 'record')} not written: {self.errors[code].str()}"
            + (f"; {ADVICE[code].format(topic=topic)}" if code in ADVICE else "")
            for code, count in self.failures.items()
        ]

    def line(self, seconds: float) -> str:
        """The throughput."""
        rate = self.records / seconds
        return (
            f"{counted(self.records, 'record')}, {self.size / 1e6:,.1f} MB in {seconds:.2f} s: "
            f"{rate:,.0f} records/s, {self.size / 1e6 / seconds:,.1f} MB/s"
        )


def lines_of(files: tuple[Path, ...]) -> Iterator[tuple[str, int, bytes]]:
    """The lines of files, or of standard input: the file's name, the number, the line."""
    for path in files or (Path("-"),):
        if path == Path("-"):
            yield from _numbered("standard input", sys.stdin.buffer)
            continue
        with reading(path, "a text file"), path.open("rb") as file:
            yield from _numbered(str(path), file)


def _numbered(name: str, file: IO[bytes]) -> Iterator[tuple[str, int, bytes]]:
    for number, line in enumerate(file, 1):
        yield name, number, line.rstrip(b"\r\n") if line.endswith(b"\n") else line


class Interruptible:
    """Lines that a signal ends: between two lines, or while the next one is awaited.

    A record is never half given to the producer, so that the count of records is right. A second
    signal raises KeyboardInterrupt.
    """

    def __init__(self, lines: Iterable[tuple[str, int, bytes]]) -> None:
        self._lines = iter(lines)
        self._waiting = False
        self._ended = False

    def __iter__(self) -> Interruptible:
        return self

    def __next__(self) -> tuple[str, int, bytes]:
        if self._ended:
            raise StopIteration
        self._waiting = True
        try:
            return next(self._lines)
        finally:
            self._waiting = False

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        again, self._ended = self._ended, True
        if self._waiting or again:
            raise KeyboardInterrupt

    @contextmanager
    def ended_by_signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the lines."""
        before = {n: signal.signal(n, self.interrupt) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--topic", required=True, shell_complete=complete_topics, help="The topic; it must exist."
)
@click.option(
    "--key-separator",
    metavar="TEXT",
    help="Text between key and value of a line; \\t is a tab. Without this records have no key.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header of every record. May be repeated.",
)
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    help="Write to this partition; by default the key decides.",
)
@click.option("--compression", type=click.Choice(COMPRESSIONS), default="lz4", show_default=True)
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Replicas that must have a record. With 1 or 0 a retry may write it twice.",
)
@click.option("--null-marker", metavar="TEXT", help="Keys and values like this are null.")
@click.option("--quiet", is_flag=True, help="Show no progress and no throughput.")
@bootstrap_option
@json_option
def produce(
    *,
    files: tuple[Path, ...],
    topic: str,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    compression: str,
    acks: str,
    null_marker: str | None,
    quiet: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Write lines to a topic, a record each: of FILES, or of standard input.

    Each record is written once and in order, also when requests are repeated. Ctrl-C and
    SIGTERM end the input; the lines before it are written.

    Exit status: 0 if every line was written, 1 if not, 2 if nothing was begun.
    """
    settings = parse_client_settings(configured(bootstrap))
    with asking(bootstrap, settings) as admin:
        _check_partition(admin, topic, partition)
        largest = _largest_batch(admin, topic)
    form = Form(
        key_separator=_bytes(key_separator and key_separator.replace("\\t", "\t")),
        null_marker=_bytes(null_marker),
    )
    more: dict[str, Any] = {} if partition is None else {"partition": partition}
    if headers:
        more["headers"] = [(name, value.encode()) for name, value in map(_header, headers)]
    producer = IdempotentProducer(
        settings, largest, compression=compression, acks=acks, failures_only=True
    )
    writer = Writer(producer=producer, topic=topic, form=form, more=more)
    began = time.monotonic()
    problems = []
    lines = Interruptible(lines_of(files))
    shown = not quiet and sys.stderr.isatty()
    with lines.ended_by_signals(), _progress(files, shown=shown) as advance:
        with suppress(KeyboardInterrupt):
            problems += writer.write(lines, advance)
        problems += writer.end()
    seconds = max(time.monotonic() - began, 1e-9)
    tally = writer.tally
    problems += tally.problems(topic)
    for problem in problems:
        note(f"Error: {problem}")
    if as_json:
        print_json(_as_json(topic, tally, seconds, problems))
    elif not quiet:
        note(tally.line(seconds))
    if problems:
        click.get_current_context().exit(REFUSED)


def _header(text: str) -> tuple[str, str]:
    return name_and_value("--header", text)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _check_partition(admin: Admin, topic: str, partition: int | None) -> None:
    count = len(existing_topic(admin, topic).partitions)
    if partition is not None and partition >= count:
        raise ConfigError(
            f"--partition is {partition}, but topic {topic} has {count} partitions: expected 0 to "
            f"{count - 1}"
        )


def _largest_batch(admin: Admin, topic: str) -> int:
    """The largest batch that the topic takes; librdkafka's default if this user may not know."""
    try:
        return int(admin.topic_settings(topic)["max.message.bytes"].value or 1)
    except (RequestFailed, KeyError):
        return BATCH_BYTES


@dataclass(slots=True, kw_only=True)
class Writer:
    """Writes lines to a topic; ``more`` are the further values of every record."""

    producer: IdempotentProducer
    topic: str
    form: Form
    more: dict[str, Any]
    tally: Tally = field(default_factory=Tally)

    def write(
        self, lines: Iterable[tuple[str, int, bytes]], advance: Callable[[int], None]
    ) -> list[str]:
        """Write the lines; a problem that ended this early."""
        produce, record_of, topic, more = (
            self.producer.produce,
            self.form.record,
            self.topic,
            self.more,
        )
        answered, tally, read = self.tally.answered, self.tally, 0
        try:
            for at, (name, number, line) in enumerate(lines, 1):
                record = record_of(line)
                if record is None:
                    return [
                        f"line {number} of {name} has no key separator, expected KEY, the "
                        "separator, VALUE; the lines before it were written"
                    ]
                key, value = record
                produce(topic, value=value, key=key, on_delivery=answered, **more)
                tally.given = at
                if value is not None:
                    tally.size += len(value)
                read += len(line) + 1
                if at % LOOK_EVERY == 0:
                    self.producer.look()
                    advance(read)
                    read = 0
        except DeliveryFailed as error:
            return [str(error)]
        except ConfigError as error:
            return [f"{error}; the lines before it were written"]
        finally:
            advance(read)
        return []

    def end(self) -> list[str]:
        """Wait for the answers; a problem that ended this early."""
        try:
            self.producer.wait()
        except DeliveryFailed as error:
            self.tally.lost = self.producer.unanswered()
            return [str(error)]
        finally:
            self.producer.close()
        return []


@contextmanager
def _progress(files: tuple[Path, ...], *, shown: bool) -> Iterator[Callable[[int], None]]:
    """A function that moves a progress bar on by this many bytes."""
    if not shown or (not files and sys.stdin.isatty()):
        yield lambda size: None
        return
    known = bool(files) and all(path.is_file() for path in files)
    total = sum(path.stat().st_size for path in files) if known else None
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(
        *columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("writing", total=total)
        yield lambda size: bar.advance(task, size)


def _as_json(topic: str, tally: Tally, seconds: float, problems: list[str]) -> dict[str, object]:
    return {
        "topic": topic,
        "records": tally.records,
        "bytes": tally.size,
        "seconds": round(seconds, 3),
        "failed": tally.failed,
        "errors": problems,
    }
