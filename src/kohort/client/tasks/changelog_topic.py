"""The topic with the changelogs of an application.

In: the input topic. Out: a compacted topic with a partition for each partition of the input. Must
not know: stores, the group's members.
"""

from __future__ import annotations

from typing import Final

from kohort.client.admin import Admin
from kohort.client.errors import RequestFailed
from kohort.model.errors import ConfigError, ErrorCode

_SETTINGS: Final = {
    "cleanup.policy": "compact",
    # The new owner repairs a late record of a former owner before compaction may use the record.
    "min.compaction.lag.ms": "600000",
}


def name_of_changelog(group_id: str, topic: str) -> str:
    """The name of the topic with the changelogs."""
    return f"{group_id}-{topic}-changelog"


def make_changelog(admin: Admin, topic: str, changelog: str) -> None:
    """Create the changelog topic, or check the existing one.

    Raises:
        ConfigError: the input does not exist; the changelog is not compacted, or has more or fewer
            partitions than the input.
        ClientError: the brokers refuse a request.
    """
    known = admin.topics()
    if topic not in known:
        raise ConfigError(f"the topic {topic} does not exist: create it before its tasks run")
    wanted = len(known[topic].topic_partitions)
    if changelog not in known:
        try:
            admin.create_topic(changelog, wanted, configs=_SETTINGS)
        except RequestFailed as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        known = admin.topics([changelog])
    found = len(known[changelog].topic_partitions)
    if found != wanted:
        raise ConfigError(
            f"{changelog} has {found} partitions, expected {wanted}, as many as {topic}: with "
            "another number of partitions keys are in other partitions than their state"
        )
    policy = admin.topic_settings(changelog)["cleanup.policy"].value
    if policy != "compact":
        raise ConfigError(
            f"{changelog} has cleanup.policy={policy}, expected compact: old state would be deleted"
        )
