"""The brokers of a cluster as a blocking client sees them: whom to ask, and to ask again.

In come settings and questions; out go connections to any broker, a certain one, the controller, a
group's coordinator or partitions' leaders. Must not know: what is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from kohort.client.broker_connection import BrokerConnection
from kohort.client.config import ClientSettings
from kohort.client.errors import (
    BrokerUnreachable,
    ClientError,
    Closed,
    ConnectionsRefused,
    RequestFailed,
)
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.wire.messages import k03_metadata, k10_find_coordinator

T = TypeVar("T")


class FailedForGood(Exception):
    """Carries an error that must not be tried again although its code is a retriable one."""

    def __init__(self, error: RequestFailed) -> None:
        super().__init__(str(error))
        self.error = error


class Brokers:
    """Connections by address, and who is where as far as known.

    Args:
        settings: bootstrap servers and timeouts.

    Raises:
        ConfigError: no bootstrap server.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._bootstrap = settings.bootstrap
        self._by_address: dict[tuple[str, int], BrokerConnection] = {}
        self.known: dict[int, tuple[str, int]] = {}
        """Addresses by node id, from the last Metadata answer."""
        self.refused_tries: int | None = None
        """Tries of one call after which it gives up while nobody listens at any address and no
        broker was ever reached; None: as long as if they were silent, since one may be starting."""
        self._closed = False

    def close(self) -> None:
        """Close every connection. Closing twice is harmless."""
        self._closed = True
        for connection in self._by_address.values():
            connection.close()
        self._by_address.clear()

    def retry(self, ask: Callable[[float], T]) -> T:
        """Ask until it works, fails for good, or ``default.api.timeout.ms`` is over."""
        if self._closed:
            raise Closed("this client was closed; make a new one")
        deadline = time.monotonic() + self._patience_s()
        backoff = self._settings.retry_backoff_ms / 1_000
        tries = 0
        while True:
            tries += 1
            try:
                return ask(deadline)
            except FailedForGood as final:
                raise final.error from None
            except ClientError as error:
                if not error.retriable or time.monotonic() + backoff >= deadline:
                    raise
                if isinstance(error, ConnectionsRefused) and tries == self.refused_tries:
                    raise
                time.sleep(backoff)
                backoff = min(2 * backoff, self._settings.retry_backoff_max_ms / 1_000)

    def _patience_s(self) -> float:
        """Until a broker was reached once, the address is likely wrong: say so sooner."""
        whole = self._settings.default_api_timeout_ms
        if not self.known:
            whole = min(whole, self._settings.socket_connection_setup_timeout_ms)
        return whole / 1_000

    def metadata(
        self, names: Collection[str] | None, deadline: float, *, create: bool = False
    ) -> Any:
        """Ask any broker for topics (all of them: None); learns all brokers from the answer."""
        topics = None
        if names is not None:
            topics = [k03_metadata.MetadataRequestTopic(name=name) for name in sorted(names)]
        message = k03_metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=create)
        answer = self.any(deadline).request(message, deadline)
        self.known = {b.node_id: (b.host, b.port) for b in answer.brokers}
        return answer

    def any(self, deadline: float) -> BrokerConnection:
        """A connected broker: one that is known, or a bootstrap server."""
        for connection in self._by_address.values():
            if not connection.broken:
                return connection
        failures: list[str] = []
        refused = True
        for host, port in [*self._bootstrap, *self.known.values()]:
            connection = self._open(host, port)
            try:
                connection.connect(deadline)
            except BrokerUnreachable as error:
                failures.append(str(error))
                refused = refused and isinstance(error, ConnectionsRefused)
            else:
                return connection
        kind = ConnectionsRefused if refused and not self.known else BrokerUnreachable
        raise kind("; ".join(dict.fromkeys(failures)))

    def _open(self, host: str, port: int) -> BrokerConnection:
        known = self._by_address.get((host, port))
        if known is not None and not known.broken:
            return known
        connection = BrokerConnection(
            host,
            port,
            client_id=self._settings.client_id,
            connect_timeout_s=self._settings.socket_connection_setup_timeout_ms / 1_000,
        )
        self._by_address[(host, port)] = connection
        return connection

    def node(self, node_id: int, deadline: float) -> BrokerConnection:
        """A connection to a certain broker.

        Raises:
            BrokerUnreachable: the cluster does not tell of it.
        """
        if node_id not in self.known:
            self.metadata([], deadline)
        address = self.known.get(node_id)
        if address is None:
            raise BrokerUnreachable(
                f"broker {node_id} is not among the cluster's brokers {sorted(self.known)}; "
                "it may be down"
            )
        return self._open(*address)

    def controller(self, deadline: float) -> BrokerConnection:
        """A connection to the broker that takes topic administration."""
        answer = self.metadata([], deadline)
        if answer.controller_id < 0:
            raise RequestFailed(ErrorCode.NOT_CONTROLLER, "no controller is known")
        return self.node(answer.controller_id, deadline)

    def coordinator(self, group_id: str, deadline: float) -> tuple[BrokerConnection, int]:
        """A connection to a group's coordinator, and its node id."""
        connection = self.any(deadline)
        kind = k10_find_coordinator.FindCoordinatorRequest
        if connection.version_of(kind, deadline) >= 4:
            answer = connection.request(kind(coordinator_keys=[group_id]), deadline)
            found = answer.coordinators[0]
        else:
            found = connection.request(kind(key=group_id), deadline)
        check(found.error_code, f"coordinator of group {group_id}", found.error_message)
        self.known[found.node_id] = (found.host, found.port)
        return self.node(found.node_id, deadline), found.node_id

    def leaders(
        self, partitions: Sequence[TopicPartition], deadline: float
    ) -> list[tuple[BrokerConnection, list[TopicPartition]]]:
        """Connections to the partitions' leaders, each with what it leads of them."""
        answer = self.metadata({tp.topic for tp in partitions}, deadline)
        leaders: dict[TopicPartition, int] = {}
        for topic in answer.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise FailedForGood(
                    RequestFailed(ErrorCode.of(topic.error_code), f"topic {topic.name}")
                )
            check(topic.error_code, f"topic {topic.name}")
            for p in topic.partitions:
                leaders[TopicPartition(topic.name, p.partition_index)] = p.leader_id
        mine: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            leader = leaders.get(tp)
            if leader is None:
                unknown = RequestFailed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {tp}")
                raise FailedForGood(unknown)
            if leader < 0:
                raise RequestFailed(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {tp}")
            mine.setdefault(leader, []).append(tp)
        return [(self.node(node_id, deadline), group) for node_id, group in mine.items()]


def check(code: int, about: str, message: str | None = None) -> None:
    """Raise RequestFailed if ``code`` is an error."""
    if code:
        raise RequestFailed(ErrorCode.of(code), about, message)
