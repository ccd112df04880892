"""Reads and changes the settings of topics, and deletes their records.

In: topics, settings and offsets. Out: the brokers' answers as plain values. Must not know: nodes,
connections, retries (``kohort.client.connections.cluster_client``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from kohort.client.connections.answer_checks import check_known
from kohort.client.connections.cluster_client import ClusterClient, left_ms
from kohort.client.descriptions import SettingDescription
from kohort.engine.member_outputs import Target
from kohort.model.ids import TopicPartition
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


def describe_settings(cluster: ClusterClient, topic: str) -> dict[str, SettingDescription]:
    """All settings of a topic, by name."""

    def ask(deadline: float) -> dict[str, SettingDescription]:
        resource = k32.DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None
        )
        message = k32.DescribeConfigsRequest(resources=[resource])
        (result,) = cluster.request(Target.CONTROLLER, message, deadline).results
        check_known(result.error_code, f"topic {topic}", result.error_message)
        return {
            row.name: SettingDescription(
                name=row.name,
                value=row.value,
                source=_SOURCES.get(row.config_source, str(row.config_source)),
            )
            for row in sorted(result.configs, key=lambda row: row.name)
        }

    return cluster.retry(ask)


def alter_settings(
    cluster: ClusterClient,
    topic: str,
    new: Mapping[str, str],
    back_to_default: Collection[str],
    validate_only: bool,
) -> None:
    """Change single settings of a topic; the others stay as they are."""
    changes = [
        *(k44.AlterableConfig(name=n, config_operation=SET, value=v) for n, v in new.items()),
        *(
            k44.AlterableConfig(name=n, config_operation=DELETE, value=None)
            for n in back_to_default
        ),
    ]

    def ask(deadline: float) -> None:
        resource = k44.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configs=changes
        )
        message = k44.IncrementalAlterConfigsRequest(
            resources=[resource], validate_only=validate_only
        )
        for result in cluster.request(Target.CONTROLLER, message, deadline).responses:
            check_known(result.error_code, f"topic {topic}", result.error_message)

    cluster.retry(ask)


def delete_records(
    cluster: ClusterClient, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Delete the records before these offsets; -1: all that are there. Where partitions begin."""

    def note(answer: k21.DeleteRecordsResponse, found: dict[TopicPartition, int]) -> None:
        for topic in answer.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                check_known(row.error_code, f"partition {tp}")
                found[tp] = row.low_watermark

    return cluster.ask_leaders(
        k21.DeleteRecordsRequest,
        before,
        lambda mine, deadline: _delete_records_message(before, mine, deadline),
        note,
    )


def _delete_records_message(
    before: Mapping[TopicPartition, int], mine: Collection[TopicPartition], deadline: float
) -> k21.DeleteRecordsRequest:
    topics: dict[str, list[k21.DeleteRecordsPartition]] = {}
    for tp in mine:
        row = k21.DeleteRecordsPartition(partition_index=tp.partition, offset=before[tp])
        topics.setdefault(tp.topic, []).append(row)
    return k21.DeleteRecordsRequest(
        topics=[k21.DeleteRecordsTopic(name=name, partitions=p) for name, p in topics.items()],
        timeout_ms=left_ms(deadline),
    )
