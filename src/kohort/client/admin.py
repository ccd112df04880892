"""A small blocking client for the administration of a cluster: topics, groups, offsets.

In: names and partitions. Out: the values of ``kohort.client.descriptions``. A call repeats its
requests until its time is over, if the error code says that this may help. Works with any Kafka.
One thread at a time may use it. Must not know: members, consuming.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence

from kohort.client import group_orders, topic_orders
from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.connections.answer_checks import (
    check,
    check_known,
    note_epoch_ends,
    note_offsets,
)
from kohort.client.connections.cluster_client import ClusterClient, left_ms
from kohort.client.descriptions import (
    BrokerDescription,
    ClusterDescription,
    GroupDescription,
    GroupListing,
    GroupMemberDescription,
    NewTopic,
    OffsetDescription,
    PartitionDescription,
    SettingDescription,
    TopicDescription,
)
from kohort.engine.member_offsets import epochs_request, fetch_request, fetched, list_request
from kohort.engine.member_outputs import Node, Target, Versioned
from kohort.model.errors import ErrorCode
from kohort.model.ids import GroupId, TopicPartition
from kohort.model.positions import LATEST, Position
from kohort.wire.messages import (
    k02_list_offsets,
    k03_metadata,
    k16_list_groups,
    k19_create_topics,
    k20_delete_topics,
    k23_offset_for_leader_epoch,
    k37_create_partitions,
)
from kohort.wire.messages.k09_offset_fetch import OffsetFetchRequest


class Admin:
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

    # -- cluster and topics -----------------------------------------------------------------------

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

    def topics(
        self, names: Collection[str] | None = None, *, create: bool = False
    ) -> dict[str, TopicDescription]:
        """Topics by name; all of them when ``names`` is None.

        Args:
            names: topics asked for.
            create: ask the broker to create missing topics; see its ``auto.create.topics.enable``.

        Raises:
            RequestFailed: UNKNOWN_TOPIC_OR_PARTITION and others, for the first topic that has one.
        """

        def ask(deadline: float) -> dict[str, TopicDescription]:
            answer = self._cluster.metadata(names, deadline, create=create)
            found = {t.name: _topic(t) for t in answer.topics if not t.error_code}
            for topic in answer.topics:
                # A missing topic is temporary trouble only while the broker creates the topic.
                (check if create else check_known)(topic.error_code, f"topic {topic.name}")
            return found

        return self._cluster.retry(ask)

    def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics, or only check the request; returns when a broker knows the topics.

        Raises:
            RequestFailed: TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS and others, for the first topic
                that was refused; the others were created.
        """
        wanted = [
            k19_create_topics.CreatableTopic(
                name=t.name,
                num_partitions=t.partitions,
                replication_factor=t.replication_factor,
                configs=[
                    k19_create_topics.CreatableTopicConfig(name=name, value=value)
                    for name, value in t.configs.items()
                ],
            )
            for t in topics
        ]

        def ask(deadline: float) -> None:
            message = k19_create_topics.CreateTopicsRequest(
                topics=wanted, timeout_ms=left_ms(deadline), validate_only=validate_only
            )
            for result in self._cluster.request(Target.CONTROLLER, message, deadline).topics:
                check(result.error_code, f"topic {result.name}", result.error_message)

        self._cluster.retry(ask)
        if not validate_only:
            # A broker may learn of a topic some milliseconds after the controller made it.
            self._cluster.retry(lambda deadline: self._see([t.name for t in wanted], deadline))

    def _see(self, names: list[str], deadline: float) -> None:
        for topic in self._cluster.metadata(names, deadline).topics:
            check(topic.error_code, f"topic {topic.name}")
            for p in topic.partitions:
                check(p.error_code, f"partition {topic.name}-{p.partition_index}")

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create one topic; see ``create_topics``."""
        self.create_topics(
            [
                NewTopic(
                    name=name,
                    partitions=partitions,
                    replication_factor=replication_factor,
                    configs=dict(configs or {}),
                )
            ]
        )

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics with their records.

        Raises:
            RequestFailed: for the first topic that was refused; the others were deleted.
        """
        k20 = k20_delete_topics
        wanted = list(names)

        def ask(deadline: float) -> None:
            def build(version: int) -> k20_delete_topics.DeleteTopicsRequest:
                states = [k20.DeleteTopicState(name=name) for name in wanted]
                return k20.DeleteTopicsRequest(
                    topics=states if version >= 6 else [],
                    topic_names=wanted,
                    timeout_ms=left_ms(deadline),
                )

            message = Versioned(request_class=k20.DeleteTopicsRequest, build=build)
            for result in self._cluster.request(Target.CONTROLLER, message, deadline).responses:
                check_known(result.error_code, f"topic {result.name}", result.error_message)

        self._cluster.retry(ask)

    def create_partitions(self, topic: str, total: int) -> None:
        """Raise the number of a topic's partitions to ``total``.

        Raises:
            RequestFailed: INVALID_PARTITIONS when it has as many already, and others.
        """

        def ask(deadline: float) -> None:
            message = k37_create_partitions.CreatePartitionsRequest(
                topics=[k37_create_partitions.CreatePartitionsTopic(name=topic, count=total)],
                timeout_ms=left_ms(deadline),
            )
            for result in self._cluster.request(Target.CONTROLLER, message, deadline).results:
                check(result.error_code, f"topic {result.name}", result.error_message)

        self._cluster.retry(ask)

    def topic_settings(self, topic: str) -> dict[str, SettingDescription]:
        """All settings of a topic by name, defaults included.

        Raises:
            RequestFailed: UNKNOWN_TOPIC_OR_PARTITION and others.
        """
        return topic_orders.describe_settings(self._cluster, topic)

    def alter_topic(
        self,
        topic: str,
        new: Mapping[str, str] | None = None,
        *,
        back_to_default: Collection[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Change settings of a topic, or only check the change; the other settings stay.

        Raises:
            RequestFailed: INVALID_CONFIG, UNKNOWN_TOPIC_OR_PARTITION and others; nothing changed.
        """
        topic_orders.alter_settings(self._cluster, topic, new or {}, back_to_default, validate_only)

    # -- offsets ----------------------------------------------------------------------------------

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
            k02_list_offsets.ListOffsetsRequest,
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
            k23_offset_for_leader_epoch.OffsetForLeaderEpochRequest,
            epochs,
            lambda mine, _: epochs_request({tp: epochs[tp] for tp in mine}),
            note_epoch_ends,
        )
        return {tp: end for tp, end in found.items() if end >= 0}

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before these offsets, and tell where the partitions begin now.

        Args:
            before: the first offset to keep, by partition; ``LATEST`` keeps no present record.

        Raises:
            RequestFailed: OFFSET_OUT_OF_RANGE, POLICY_VIOLATION (a topic that is only compacted)
                and others, for the first partition refused.
        """
        return topic_orders.delete_records(self._cluster, before)

    def committed(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Position]:
        """The committed positions of a group, without partitions that have none.

        Args:
            group_id: the group.
            partitions: which; None for all that have a commit.
        """
        wanted = None if partitions is None else set(partitions)
        message = Versioned(
            request_class=OffsetFetchRequest,
            build=lambda version: fetch_request(
                GroupId(group_id), wanted, version, require_stable=True
            ),
        )

        def ask(deadline: float) -> dict[TopicPartition, Position]:
            coordinator = self._cluster.coordinator(group_id, deadline)
            answer = self._cluster.request(coordinator, message, deadline)
            offsets, refused, code = fetched(answer)
            check(code, f"offsets of group {group_id}")
            for tp, refusal in refused.items():
                check(refusal, f"offset of group {group_id} for {tp}")
            return {tp: at for tp, at in offsets.items() if at is not None}

        return self._cluster.retry(ask)

    # -- groups -----------------------------------------------------------------------------------

    def list_groups(self) -> list[GroupListing]:
        """Every group of the cluster, by id."""

        def ask(deadline: float) -> list[GroupListing]:
            brokers = self._cluster.metadata([], deadline).brokers
            found: dict[str, GroupListing] = {}
            for node_id in sorted(broker.node_id for broker in brokers):
                message = k16_list_groups.ListGroupsRequest()
                answer = self._cluster.request(Node(node_id=node_id), message, deadline)
                check(answer.error_code, f"groups of broker {node_id}")
                for group in answer.groups:
                    found[group.group_id] = GroupListing(
                        group_id=group.group_id,
                        protocol_type=group.protocol_type,
                        state=group.group_state,
                        type=group.group_type,
                    )
            return [found[group_id] for group_id in sorted(found)]

        return self._cluster.retry(ask)

    def describe_group(self, group_id: str) -> GroupDescription:
        """State and members of a group of either protocol; Dead when there is no such group."""
        return group_orders.describe(self._cluster, group_id)

    def delete_group(self, group_id: str) -> None:
        """Delete a group without members, with its offsets.

        Raises:
            RequestFailed: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND and others.
        """
        group_orders.delete(self._cluster, group_id)

    def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit offsets of a group without members; a missing group is created.

        Returns:
            The code of each partition: NONE, UNKNOWN_MEMBER_ID if the group has members,
            UNKNOWN_TOPIC_OR_PARTITION and others.
        """
        return group_orders.alter_offsets(self._cluster, group_id, offsets)

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Delete committed offsets of a group (KIP-496) for topics that no member subscribes to.

        Returns:
            The code of each partition: NONE also if nothing was committed, and
            GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_TOPIC_OR_PARTITION and others.

        Raises:
            RequestFailed: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP (not a group of consumers).
        """
        return group_orders.delete_offsets(self._cluster, group_id, partitions)

    def remove_members(
        self, group_id: str, members: Sequence[GroupMemberDescription], reason: str = ""
    ) -> list[ErrorCode]:
        """Let members leave the group, as `describe_group` shows them; their partitions move.

        A member that still runs joins again. ``reason`` is for the broker's log (KIP-800).

        Returns:
            The code of each member: NONE, UNKNOWN_MEMBER_ID if it is gone, FENCED_INSTANCE_ID.
        """
        return group_orders.remove_members(self._cluster, group_id, members, reason)


def _topic(topic: k03_metadata.MetadataResponseTopic) -> TopicDescription:
    return TopicDescription(
        name=topic.name or "",
        internal=topic.is_internal,
        topic_id=base64.urlsafe_b64encode(topic.topic_id).decode("ascii").rstrip("=")
        if any(topic.topic_id)
        else None,
        partitions=tuple(
            PartitionDescription(
                partition=p.partition_index,
                leader_id=p.leader_id,
                leader_epoch=p.leader_epoch,
                replicas=tuple(p.replica_nodes),
                in_sync=tuple(p.isr_nodes),
                error=ErrorCode.of(p.error_code),
            )
            for p in sorted(topic.partitions, key=lambda p: p.partition_index)
        ),
    )
