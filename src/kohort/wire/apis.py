"""The table of APIs: their keys, names and versions for the client and the broker.

In: nothing. Out: rows by key, by name and by message class; the APIs that the broker announces.
Must not know: connections. Importing this module loads no message; a row loads its own on first
use.

``broker`` is announced by kohort's broker, which handles exactly these versions. Two entries need a
reason:

- Produce is announced from 0 and handled from 3. Librdkafka before 2.11 takes a higher minimum as a
  broker without compression (KAFKA-18659), and no client sends 0 to 2 to a present broker.
- FindCoordinator stops at 4 on the broker, since 5 and 6 promise transactions and share groups.

kohort's own client names topics, so its ranges end below the versions that have only ids (Fetch 13,
OffsetCommit and OffsetFetch 10); the broker serves those. Produce ends at 9: 10 to 13 serve leaders
that move, and transactions. The broker has no logins (17, 36). Telemetry (71, 72) and the new group
protocol (68, 69) are not announced, because clients would start to use them; kohort's client
describes such groups of other brokers (69).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from kohort.model.errors import ProtocolError
from kohort.schema import VersionRange


class Api(NamedTuple):
    """One API: a key of Kafka's protocol and the versions that kohort supports."""

    key: int
    name: str
    client: VersionRange
    """Versions that kohort's client may use."""
    broker: VersionRange
    """Versions that kohort's broker announces."""
    handled: VersionRange
    """Versions that kohort's broker accepts; smaller than ``broker`` only for Produce."""

    @property
    def request(self) -> type:
        """The class of the request."""
        return _load(self.key, self.name, "Request")

    @property
    def response(self) -> type:
        """The class of the response."""
        return _load(self.key, self.name, "Response")

    def __str__(self) -> str:
        return f"{self.name} ({self.key})"


@cache
def _load(key: int, name: str, side: str) -> type:
    # Every answer needs it, so the name of the module is made on first use only.
    loaded: type = getattr(importlib.import_module(_module(key, name)), name + side)
    return loaded


def _module(key: int, name: str) -> str:
    return f"kohort.wire.messages.k{key:02}_{_snake(name)}"


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def _row(
    key: int, name: str, client: str, *, broker: str | None = None, handled: str | None = None
) -> Api:
    announced = broker or client
    return Api(
        key,
        name,
        VersionRange.parse(client),
        VersionRange.parse(announced),
        VersionRange.parse(handled or announced),
    )


APIS: tuple[Api, ...] = (
    _row(0, "Produce", "3-9", broker="0-9", handled="3-9"),
    _row(1, "Fetch", "4-12", broker="4-18"),
    _row(2, "ListOffsets", "1-7"),
    _row(3, "Metadata", "0-13"),
    _row(8, "OffsetCommit", "2-9", broker="2-10"),
    _row(9, "OffsetFetch", "1-9", broker="1-10"),
    _row(10, "FindCoordinator", "0-6", broker="0-4"),
    _row(11, "JoinGroup", "0-9"),
    _row(12, "Heartbeat", "0-4"),
    _row(13, "LeaveGroup", "0-5"),
    _row(14, "SyncGroup", "0-5"),
    _row(15, "DescribeGroups", "0-6"),
    _row(16, "ListGroups", "0-5"),
    _row(17, "SaslHandshake", "0-1", broker="none"),
    _row(18, "ApiVersions", "0-4"),
    _row(19, "CreateTopics", "2-7"),
    _row(20, "DeleteTopics", "1-6"),
    _row(21, "DeleteRecords", "0-2"),
    _row(22, "InitProducerId", "0-4"),
    _row(23, "OffsetForLeaderEpoch", "2-4"),
    _row(32, "DescribeConfigs", "1-4"),
    _row(33, "AlterConfigs", "0-2"),
    _row(36, "SaslAuthenticate", "0-2", broker="none"),
    _row(37, "CreatePartitions", "0-3"),
    _row(42, "DeleteGroups", "0-2"),
    _row(44, "IncrementalAlterConfigs", "0-1"),
    _row(47, "OffsetDelete", "0"),
    _row(60, "DescribeCluster", "0-1"),
    _row(69, "ConsumerGroupDescribe", "0-1", broker="none"),
)

BY_KEY: dict[int, Api] = {api.key: api for api in APIS}
BY_NAME: dict[str, Api] = {api.name: api for api in APIS}

API_VERSIONS = BY_NAME["ApiVersions"]
SASL_HANDSHAKE = BY_NAME["SaslHandshake"]
SASL_AUTHENTICATE = BY_NAME["SaslAuthenticate"]


def api_of(key: int) -> Api:
    """The API with ``key``; ProtocolError for an unknown key."""
    api = BY_KEY.get(key)
    if api is None:
        raise ProtocolError(f"unknown API key {key}: kohort speaks {sorted(BY_KEY)}")
    return api


def announced(apis: Iterable[Api] = APIS) -> list[tuple[int, int, int]]:
    """Key, lowest and highest version of each API, as an ApiVersions response lists them."""
    return [(api.key, *api.broker) for api in apis if api.broker.high >= 0]
