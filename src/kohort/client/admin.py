"""A small blocking client for the administration of a cluster: topics, groups, offsets.

In: names and partitions. Out: the values of ``kohort.client.descriptions``. A call repeats its
requests until its time is over, if the error code says that this may help. Works with any Kafka.
One thread at a time may use it. Must not know: members, consuming.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.connections.answer_checks import note_epoch_ends, note_offsets
from kohort.client.connections.cluster_client import ClusterClient
from kohort.client.descriptions import BrokerDescription, ClusterDescription, OffsetDescription
from kohort.client.group_admin import GroupAdmin
from kohort.client.topic_admin import TopicAdmin
from kohort.engine.member_offsets import epochs_request, list_request
from kohort.model.ids import TopicPartition
from kohort.model.positions import LATEST
from kohort.wire.messages.k02_list_offsets import ListOffsetsRequest
from kohort.wire.messages.k23_offset_for_leader_epoch import OffsetForLeaderEpochRequest


class Admin(TopicAdmin, GroupAdmin):
    """Administration of a cluster; a context manager.

    Args:
        settings: a ``ClientSettings``, or names and values as ``parse_client_settings`` takes them.
        more: further settings; ``bootstrap_servers`` is the one that is needed.

    Every method raises ``BrokerUnreachable`` or ``RequestTimedOut`` when ``default.api.timeout.ms``
    runs out (``socket.connection.setup.timeout.ms`` while no broker was reached at all), and
    ``RequestFailed`` with Kafka's code if a broker refuses the request.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(
        self, settings: ClientSettings | Mapping[str, object] | None = None, /, **more: object
    ) -> None:
        self._settings = parse_client_settings(settings, **more)
        self._cluster = ClusterClient(self._settings)

    @property
    def refused_tries(self) -> int | None:
        """The number of refused connections to each address after which a call fails.

        Refusals count only until a broker was reached. None, the default: a call waits as long as
        for a silent broker, because a broker may be starting.
        """
        return self._cluster.engine.refused_tries

    @refused_tries.setter
    def refused_tries(self, tries: int | None) -> None:
        self._cluster.engine.refused_tries = tries

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection. Closing twice is harmless."""
        self._cluster.close()

    def describe_cluster(self) -> ClusterDescription:
        """Brokers and controller."""
        answer = self._cluster.retry(lambda deadline: self._cluster.metadata([], deadline))
        return ClusterDescription(
            cluster_id=answer.cluster_id,
            controller_id=answer.controller_id,
            brokers=tuple(
                BrokerDescription(node_id=b.node_id, host=b.host, port=b.port, rack=b.rack)
                for b in answer.brokers
            ),
        )

    def list_offsets(
        self, partitions: Iterable[TopicPartition], at: int = LATEST
    ) -> dict[TopicPartition, OffsetDescription]:
        """Offsets in the logs, from the leaders.

        Args:
            partitions: which.
            at: ``EARLIEST``, ``LATEST``, or a timestamp in ms: the first record that is not
                older.

        Raises:
            RequestFailed: UNKNOWN_TOPIC_OR_PARTITION and others, for the first partition refused.
        """
        isolation_level = 1 if self._settings.isolation_level == "read_committed" else 0
        return self._cluster.ask_leaders(
            ListOffsetsRequest,
            partitions,
            lambda mine, _: list_request(mine, at, isolation_level),
            note_offsets,
        )

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The end of a leader epoch in each log: the first offset of a later leader (KIP-320).

        Records that were read under this epoch and are not before this offset are lost.

        Args:
            epochs: the leader epoch, by partition. If a log does not know the epoch, the answer
                does not have its partition.

        Raises:
            RequestFailed: UNKNOWN_TOPIC_OR_PARTITION and others, for the first partition refused.
        """
        found = self._cluster.ask_leaders(
            OffsetForLeaderEpochRequest,
            epochs,
            lambda mine, _: epochs_request({tp: epochs[tp] for tp in mine}),
            note_epoch_ends,
        )
        return {tp: end for tp, end in found.items() if end >= 0}
