"""The part of `Admin` about topics: their partitions, their settings, their records.

In: topics, settings and offsets. Out: the brokers' answers as plain values. Must not know: nodes,
connections, retries (``kohort.client.connections.cluster_client``).
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from kohort.client.connections.answer_checks import check, check_known
from kohort.client.connections.cluster_client import ClusterClient, left_ms
from kohort.client.descriptions import (
    NewTopic,
    PartitionDescription,
    SettingDescription,
    TopicDescription,
)
from kohort.engine.member_outputs import Target, Versioned
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.wire.messages import k03_metadata, k19_create_topics, k37_create_partitions
from kohort.wire.messages import k20_delete_topics as k20
from kohort.wire.messages import k21_delete_records as k21
from kohort.wire.messages import k32_describe_configs as k32
from kohort.wire.messages import k44_incremental_alter_configs as k44

TOPIC_RESOURCE: Final = 2
SET: Final = 0
DELETE: Final = 1

_SOURCES: Final = {
    1: "topic",
    2: "broker, dynamic",
    3: "cluster, dynamic",
    4: "broker",
    5: "default",
}
"""Where a setting comes from, by DescribeConfigs' numbers (KIP-226)."""


class TopicAdmin:
    """Administration of topics; `Admin` documents the errors of all methods."""

    _cluster: ClusterClient

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
        wanted = list(names)

        def ask(deadline: float) -> None:
            def build(version: int) -> k20.DeleteTopicsRequest:
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
        resource = k32.DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None
        )
        message = k32.DescribeConfigsRequest(resources=[resource])

        def ask(deadline: float) -> dict[str, SettingDescription]:
            (result,) = self._cluster.request(Target.CONTROLLER, message, deadline).results
            check_known(result.error_code, f"topic {topic}", result.error_message)
            return {
                row.name: SettingDescription(
                    name=row.name,
                    value=row.value,
                    source=_SOURCES.get(row.config_source, str(row.config_source)),
                )
                for row in sorted(result.configs, key=lambda row: row.name)
            }

        return self._cluster.retry(ask)

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
        change = k44.AlterableConfig
        changes = [
            *(change(name=n, config_operation=SET, value=v) for n, v in (new or {}).items()),
            *(change(name=n, config_operation=DELETE, value=None) for n in back_to_default),
        ]
        resource = k44.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configs=changes
        )
        message = k44.IncrementalAlterConfigsRequest(
            resources=[resource], validate_only=validate_only
        )

        def ask(deadline: float) -> None:
            for result in self._cluster.request(Target.CONTROLLER, message, deadline).responses:
                check_known(result.error_code, f"topic {topic}", result.error_message)

        self._cluster.retry(ask)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before these offsets, and tell where the partitions begin now.

        Args:
            before: the first offset to keep, by partition; ``LATEST`` keeps no present record.

        Raises:
            RequestFailed: OFFSET_OUT_OF_RANGE, POLICY_VIOLATION (a topic that is only compacted)
                and others, for the first partition refused.
        """

        def build(mine: Collection[TopicPartition], deadline: float) -> k21.DeleteRecordsRequest:
            topics: dict[str, k21.DeleteRecordsTopic] = {}
            for tp in mine:
                topic = topics.setdefault(tp.topic, k21.DeleteRecordsTopic(name=tp.topic))
                row = k21.DeleteRecordsPartition(partition_index=tp.partition, offset=before[tp])
                topic.partitions.append(row)
            return k21.DeleteRecordsRequest(
                topics=list(topics.values()), timeout_ms=left_ms(deadline)
            )

        def note(answer: k21.DeleteRecordsResponse, found: dict[TopicPartition, int]) -> None:
            for topic in answer.topics:
                for row in topic.partitions:
                    tp = TopicPartition(topic.name, row.partition_index)
                    check_known(row.error_code, f"partition {tp}")
                    found[tp] = row.low_watermark

        return self._cluster.ask_leaders(k21.DeleteRecordsRequest, before, build, note)


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
