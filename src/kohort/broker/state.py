"""What every handler may look at: who this broker is, its settings and its topics.

Nothing happens here; ``serve`` builds it, handlers read it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.broker.topics import Topics
from kohort.host.settings import BrokerSettings
from kohort.model.errors import ConfigError
from kohort.model.instants import WallMillis
from kohort.wire.messages.k03_metadata import MetadataResponsePartition


class Address(NamedTuple):
    """Where something listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``host:port`` or ``[host]:port``.

        Raises:
            ConfigError: it is neither.
        """
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= 65_535:
            raise ConfigError(f"{text!r} is no address, expected HOST:PORT")
        return cls(host, int(port))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """What a handler may look at."""

    settings: BrokerSettings
    node_id: int
    advertised: Address
    cluster_id: str
    leader_epoch: int
    """Epoch of every partition's leader: this broker, in this life of its data directory."""
    topics: Topics
    new_producer_id: Callable[[], int]
    wall_clock: Callable[[], WallMillis]
    partition_rows: list[MetadataResponsePartition] = field(default_factory=list)
    """Metadata's rows of partitions 0, 1, ...: the same for every topic here, so made once.

    A thousand members that ask for a thousand partitions would cost seconds otherwise.
    """
