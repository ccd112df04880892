"""``kohort consume``: read topics of any Kafka as a member of a group.

In: topics and a group. Out: records on standard output, one a line; assigned, revoked and lost
partitions on standard error. Must not know: membership and fetching (``kohort.client``).
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import click

from kohort.cli.asking import asking, existing_topic
from kohort.cli.output import bootstrap_option, configured, json_option, settings_option
from kohort.client.config import parse_client_settings
from kohort.client.consumer import Consumer
from kohort.client.listeners import Callbacks
from kohort.client.records import Record
from kohort.model.ids import TopicPartition


@click.command()
@click.option(
    "--topic", "topics", multiple=True, required=True, help="The topic to read. May be repeated."
)
@click.option("--group", required=True, help="The group to join; its members share the partitions.")
@bootstrap_option
@click.option(
    "--from-beginning", is_flag=True, help="Start with the oldest record if no offset is committed."
)
@click.option(
    "--max-messages", type=click.IntRange(min=1), help="Leave after this number of records."
)
@click.option(
    "--timeout-ms", type=click.IntRange(min=1), help="Leave after this time without a record."
)
@click.option("--key", "show_key", is_flag=True, help="Print key, tab, value.")
@settings_option("A setting by Kafka's name.")
@click.option("--quiet", is_flag=True, help="Print nothing about partitions.")
@json_option
def consume(
    *,
    topics: tuple[str, ...],
    group: str,
    bootstrap: str,
    from_beginning: bool,
    max_messages: int | None,
    timeout_ms: int | None,
    show_key: bool,
    assignments: dict[str, str],
    quiet: bool,
    as_json: bool,
) -> None:
    """Read topics as a member of a group; start it several times to share them.

    Ctrl-C and SIGTERM commit, leave the group and end with status 0.
    """
    given = {**configured(bootstrap), "group.id": group}
    if from_beginning:
        given["auto.offset.reset"] = "earliest"
    settings = parse_client_settings({**given, **assignments})
    with asking(bootstrap, settings) as admin:
        for topic in topics:
            existing_topic(admin, topic)
    listener = Callbacks() if quiet else _talking()
    with ended_by_signals(), Consumer(settings) as consumer:
        consumer.subscribe(topics, listener)
        # Ctrl-C and a closed pipe are ordinary ends, not failures.
        with suppress(KeyboardInterrupt, BrokenPipeError):
            _copy(consumer, max_messages, timeout_ms, show_key=show_key, as_json=as_json)


def _copy(
    consumer: Consumer,
    max_messages: int | None,
    timeout_ms: int | None,
    *,
    show_key: bool,
    as_json: bool,
) -> None:
    left = max_messages
    heard = time.monotonic()
    while left is None or left > 0:
        limit = 500 if left is None else min(500, left)
        records = consumer.consume(limit, 0.2)
        for record in records:
            click.echo(_as_json(record) if as_json else _as_line(record, show_key=show_key))
        if records:
            heard = time.monotonic()
            left = None if left is None else left - len(records)
        elif timeout_ms is not None and consumer.assignment():
            if time.monotonic() - heard >= timeout_ms / 1_000:
                return
        elif not consumer.assignment():
            heard = time.monotonic()


def _as_line(record: Record, *, show_key: bool) -> str:
    value = _text(record.value())
    line = "null" if value is None else value
    return f"{_text(record.key()) or 'null'}\t{line}" if show_key else line


def _as_json(record: Record) -> str:
    return json.dumps(
        {
            "topic": record.topic(),
            "partition": record.partition(),
            "offset": record.offset(),
            "timestamp": record.timestamp()[1],
            "key": _text(record.key()),
            "value": _text(record.value()),
            "headers": [[header[0], _text(header[1])] for header in record.headers() or []],
        },
        ensure_ascii=False,
    )


def _text(data: bytes | str | None) -> str | None:
    if data is None or isinstance(data, str):
        return data
    return data.decode("utf-8", "backslashreplace")


def _talking() -> Callbacks:
    def say(word: str, partitions: list[TopicPartition]) -> None:
        if partitions:
            click.echo(f"{word} {', '.join(map(str, partitions))}", err=True)

    return Callbacks(
        on_assign=lambda _, partitions: say("assigned", partitions),
        on_revoke=lambda _, partitions: say("revoked", partitions),
        on_lost=lambda _, partitions: say("lost", partitions),
    )


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM ends the command as Ctrl-C does: with a commit and a LeaveGroup."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes standard output again at exit, and the pipe is closed.
        sys.stdout = None
    finally:
        signal.signal(signal.SIGTERM, before)
