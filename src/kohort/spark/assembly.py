"""Puts a source's driver together from real parts: membership, ledger, brokers, clock.

What lives here: ``make_driver`` and ``KafkaTopics``. In go the options of a query, out comes a
``SourceDriver``. It must not know Spark; it runs in the process that Spark starts for the reader.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Sequence

from kohort.client.admin import Admin
from kohort.client.config import ClientSettings
from kohort.client.errors import RequestFailed
from kohort.client.membership import GroupMembership
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.positions import EARLIEST, LATEST
from kohort.spark.driver import DriverConfig, SourceDriver
from kohort.spark.ledger import Ledger
from kohort.spark.options import SourceOptions
from kohort.spark.sqlite_ledger import SqliteLedger
from kohort.spark.unfenced import NONCE_BITS, UnfencedLedger


def make_driver(options: SourceOptions) -> SourceDriver:
    """The driver of one query; nothing is sent yet and no group is joined.

    Raises:
        ConfigError: a setting is wrong, or the ledger belongs to another group.
    """
    group = options.client.group_id
    if group is None:
        raise ConfigError("format kohort needs the option group.id: the group to join")
    membership = GroupMembership(options.topics, options.client)
    ledger: Ledger = (
        UnfencedLedger(secrets.randbits(NONCE_BITS))
        if options.ledger is None
        else SqliteLedger(options.ledger, group)
    )
    return SourceDriver(
        membership,
        ledger,
        KafkaTopics(options.topics, options.client),
        DriverConfig(
            application=options.application,
            reset=options.client.auto_offset_reset,
            read_tasks=options.read_tasks,
            idle_wait_s=options.idle_wait_s,
            fail_on_data_loss=options.fail_on_data_loss,
        ),
        clock=time.monotonic,
        sleep=time.sleep,
    )


class KafkaTopics:
    """The subscribed topics' offsets, asked of their leaders.

    Raises:
        ConfigError: ``partitions`` does, for a topic that does not exist.
    """

    def __init__(self, names: Sequence[str], settings: ClientSettings) -> None:
        self._names = tuple(names)
        self._servers = settings.bootstrap_servers
        self._admin = Admin(settings)

    def partitions(self) -> list[TopicPartition]:
        """All partitions of the subscribed topics."""
        try:
            found = self._admin.topics(self._names)
        except RequestFailed as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            there = ", ".join(sorted(self._admin.topics())[:10]) or "none at all"
            raise ConfigError(
                f"{error.about} does not exist on {self._servers} (topics there: {there}); "
                "make it with `kohort topics create`, or correct the name"
            ) from error
        return sorted(
            TopicPartition(name, partition.partition)
            for name, topic in found.items()
            for partition in topic.partitions
        )

    def beginnings(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each log still has."""
        return self._offsets(partitions, EARLIEST)

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that cannot be read yet."""
        return self._offsets(partitions, LATEST)

    def close(self) -> None:
        """Close the connections."""
        self._admin.close()

    def _offsets(
        self, partitions: Collection[TopicPartition], at: int
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        found = self._admin.list_offsets(partitions, at)
        return {partition: told.offset for partition, told in found.items()}
