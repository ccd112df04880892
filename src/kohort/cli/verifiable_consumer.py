"""``kohort verifiable-consumer``: a consumer that prints what it goes through, for system tests.

In: the options of Kafka's VerifiableConsumer. Out: its events on standard output, one JSON object a
line with the same names and fields, so that Kafka's system tests can run this command in its place.
Must not know: the rules by which tests judge the events.

Every poll with records is one ``records_consumed``. Without ``--enable-autocommit`` a commit
follows, which is one ``offsets_committed``. Java's tool forgets a commit that a rebalance refused;
this one repeats it, so that an orderly end doubles no record.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from kohort.cli.output import FILE, bootstrap_option, configured, settings_option
from kohort.client.async_consumer import AsyncConsumer
from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.consumer import Consumer
from kohort.client.errors import ClientError, Fenced
from kohort.client.listeners import Callbacks, PartitionsCallback
from kohort.client.records import Record, place_of
from kohort.host.clock import wall_now
from kohort.host.settings import read_properties
from kohort.model.ids import TopicPartition

POLL_S: Final = 0.2
"""Longest poll: the time until a signal is noticed."""


@click.command("verifiable-consumer")
@bootstrap_option
@click.option("--topic", required=True, help="Consumes messages from this topic.")
@click.option("--group-id", required=True, help="The group to join.")
@click.option("--group-instance-id", help="Identity of a static member.")
@click.option("--group-protocol", default="classic", help="Only classic.")
@click.option("--group-remote-assignor", help="Accepted, and without effect: see group-protocol.")
@click.option(
    "--assignment-strategy",
    default="range",
    show_default=True,
    help="Assignors by wire name or Java class name, comma separated.",
)
@click.option("--session-timeout", type=int, metavar="TIMEOUT_MS", help="session.timeout.ms")
@click.option(
    "--max-messages", type=int, default=-1, help="End after this many records; -1: never."
)
@click.option("--reset-policy", default="earliest", show_default=True, help="auto.offset.reset")
@click.option("--enable-autocommit", is_flag=True, help="Commit automatically.")
@click.option("--verbose", is_flag=True, help="Print each record.")
@click.option("--consumer.config", "config", type=FILE, help="As --command-config, in older Kafka.")
@settings_option("A setting; not in Kafka.")
@click.option("--asyncio", "in_loop", is_flag=True, help="Read by AsyncConsumer; not in Kafka.")
def verifiable_consumer(
    *,
    bootstrap: str,
    topic: str,
    group_id: str,
    group_instance_id: str | None,
    group_protocol: str,
    group_remote_assignor: str | None,
    assignment_strategy: str,
    session_timeout: int | None,
    max_messages: int,
    reset_policy: str,
    enable_autocommit: bool,
    verbose: bool,
    config: Path | None,
    assignments: dict[str, str],
    in_loop: bool,
) -> None:
    """Consume a topic and print events as JSON, as Kafka's VerifiableConsumer does.

    Events: startup_complete, partitions_assigned, partitions_revoked, records_consumed,
    record_data (with --verbose), offsets_committed (without --enable-autocommit),
    shutdown_requested, shutdown_complete. SIGTERM and Ctrl-C close the consumer in order. SIGUSR1
    stops the polls, the next one goes on: an application that is busy; not in Kafka.
    """
    del group_remote_assignor  # KIP-848's; Kafka's system tests give it to every consumer.
    options = {
        "bootstrap.servers": bootstrap,
        "group.id": group_id,
        "group.instance.id": group_instance_id,
        "group.protocol": group_protocol.lower(),
        "partition.assignment.strategy": assignment_strategy,
        "session.timeout.ms": session_timeout,
        "auto.offset.reset": reset_policy,
        "enable.auto.commit": enable_autocommit,
    }
    files = {**configured(), **({} if config is None else read_properties(config))}
    given = {name: value for name, value in options.items() if value is not None}
    settings = parse_client_settings({**files, **given, **assignments})
    most = None if max_messages < 0 else max_messages
    events = Events(verbose=verbose, most=most, by_hand=not enable_autocommit)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: events.stop())
    signal.signal(signal.SIGUSR1, lambda *_: events.stall())
    try:
        if in_loop:
            asyncio.run(_consume_in_loop(settings, topic, events))
        else:
            _consume(settings, topic, events)
    except BrokenPipeError:
        sys.stdout = None  # Nobody reads any more; Python would flush it again at exit.
    finally:
        events.tell("shutdown_complete")


def _consume(settings: ClientSettings, topic: str, events: Events) -> None:
    def commit(consumer: Consumer, offsets: dict[TopicPartition, int]) -> None:
        if offsets:
            try:
                consumer.commit(offsets)
            except ClientError as error:
                events.refused(offsets, error)
            else:
                events.committed(offsets)

    def give_up(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        commit(consumer, events.uncommitted(partitions))
        events.revoked(partitions)

    events.tell("startup_complete")
    with Consumer(settings) as consumer:
        consumer.subscribe([topic], events.listener(give_up))
        while most := events.wanted(settings.max_poll_records):
            if events.stalled:
                time.sleep(POLL_S)
                continue
            events.consumed(consumer.consume(most, POLL_S))
            commit(consumer, events.uncommitted())
        events.ending()


async def _consume_in_loop(settings: ClientSettings, topic: str, events: Events) -> None:
    async def commit(consumer: AsyncConsumer, offsets: dict[TopicPartition, int]) -> None:
        if offsets:
            try:
                await consumer.commit(offsets)
            except ClientError as error:
                events.refused(offsets, error)
            else:
                events.committed(offsets)

    async def give_up(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        await commit(consumer, events.uncommitted(partitions))
        events.revoked(partitions)

    events.tell("startup_complete")
    async with AsyncConsumer(settings) as consumer:
        consumer.subscribe([topic], events.listener(give_up))
        while most := events.wanted(settings.max_poll_records):
            if events.stalled:
                await asyncio.sleep(POLL_S)
                continue
            events.consumed(await consumer.consume(most, POLL_S))
            await commit(consumer, events.uncommitted())
        events.ending()


class Events:
    """Prints the events of one consumer in the form of Kafka's VerifiableConsumer.

    Args:
        verbose: print each record.
        most: the number of records to consume; None: until ``stop``.
        by_hand: commits are made with the offsets of ``uncommitted``.
    """

    def __init__(self, *, verbose: bool, most: int | None, by_hand: bool) -> None:
        self._verbose = verbose
        self._left = most
        self._by_hand = by_hand
        self._stopped = False
        self.stalled = False
        """Whether the application is busy and does not poll."""
        self._due: dict[TopicPartition, int] = {}
        """Offsets after consumed records that no accepted commit covers."""

    def listener(self, give_up: PartitionsCallback) -> Callbacks:
        """Prints assignments and losses (a loss is a revocation, as in Java).

        Args:
            give_up: called for a revocation; commits before it calls ``revoked``.
        """
        return Callbacks(
            on_assign=lambda _, partitions: self._moved("partitions_assigned", partitions),
            on_revoke=give_up,
            on_lost=lambda _, partitions: self.revoked(partitions),
        )

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Print a revocation."""
        for partition in partitions:
            self._due.pop(partition, None)
        self._moved("partitions_revoked", partitions)

    def uncommitted(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """The offsets to commit, of these partitions or of all.

        A commit that a rebalance refused is among them: it comes again after the next poll, or
        before the revocation.
        """
        return {tp: at for tp, at in self._due.items() if partitions is None or tp in partitions}

    def stop(self) -> None:
        """A signal came; it may interrupt this very object, so that nothing is printed here."""
        self._stopped = True

    def stall(self) -> None:
        """A signal came: stop to poll, or go on."""
        self.stalled = not self.stalled

    def wanted(self, most: int) -> int:
        """The number of records that the next poll may return; 0: the end."""
        if self._stopped:
            return 0
        return most if self._left is None else min(most, self._left)

    def tell(self, name: str, **fields: object) -> None:
        """Print one event, with the time of day in milliseconds."""
        if sys.stdout is not None:
            event = {"timestamp": wall_now(), "name": name, **fields}
            click.echo(json.dumps(event, separators=(",", ":"), ensure_ascii=False))

    def ending(self) -> None:
        """Reading is over; the consumer will be closed."""
        if self._stopped:
            self.tell("shutdown_requested")

    def consumed(self, records: Sequence[Record]) -> None:
        """Print the records of one poll."""
        by_partition: dict[TopicPartition, list[Record]] = {}
        for record in records:
            by_partition.setdefault(place_of(record), []).append(record)
        for record in records if self._verbose else ():
            self.tell(
                "record_data",
                key=_text(record.key()),
                value=_text(record.value()),
                topic=record.topic(),
                partition=record.partition(),
                offset=record.offset(),
            )
        if records:
            summaries = [_summary(place, found) for place, found in by_partition.items()]
            self.tell("records_consumed", count=len(records), partitions=summaries)
            self._left = None if self._left is None else self._left - len(records)
        if self._by_hand:
            ends = {place: found[-1].offset() or 0 for place, found in by_partition.items()}
            self._due |= {place: last + 1 for place, last in ends.items()}

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Print an accepted commit."""
        self._due = {tp: at for tp, at in self._due.items() if offsets.get(tp) != at}
        self.tell("offsets_committed", offsets=_offsets(offsets), success=True)

    def refused(self, offsets: Mapping[TopicPartition, int], error: ClientError) -> None:
        """Print a refused commit; raise again what ends the consumer, as Java does."""
        if isinstance(error, Fenced):
            raise error
        self.tell("offsets_committed", offsets=_offsets(offsets), error=str(error), success=False)

    def _moved(self, name: str, partitions: Collection[TopicPartition]) -> None:
        self.tell(name, partitions=[_named(partition) for partition in partitions])


def _named(partition: TopicPartition) -> dict[str, object]:
    return {"topic": partition.topic, "partition": partition.partition}


def _summary(place: TopicPartition, records: Sequence[Record]) -> dict[str, object]:
    first, last = records[0].offset(), records[-1].offset()
    return {**_named(place), "count": len(records), "minOffset": first, "maxOffset": last}


def _offsets(offsets: Mapping[TopicPartition, int]) -> list[dict[str, object]]:
    return [{**_named(place), "offset": offset} for place, offset in offsets.items()]


def _text(data: bytes | str | None) -> str | None:
    return data.decode("utf-8", "backslashreplace") if isinstance(data, bytes) else data
