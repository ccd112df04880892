"""Takes one record of ``__consumer_offsets`` apart for ``kohort explain``.

In: bytes of a key and a value, the time and the place of the record. Out: values for an explainer.
Must not know: where the record comes from (a live cluster, a segment file).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kohort.coordinator.records import GroupMetadata, GroupRecord, OffsetRecord
from kohort.explain.events import Place
from kohort.explain.offsets_topic.generations import (
    Committed,
    Settled,
    SettledMember,
    partitions_of,
    topics_of,
)
from kohort.explain.offsets_topic.topic_records import Recorded, record_of
from kohort.storage.group_records import read_record
from kohort.storage.server_group_records import read_server_record

TOPIC = "__consumer_offsets"


def told_by(
    key: bytes | None,
    value: bytes | None,
    *,
    at: float,
    place: Place,
    home: int | None,
    groups: Collection[str] = (),
) -> list[Recorded]:
    """The values of a record; empty if it says nothing that an explainer needs.

    Args:
        key: of the record.
        value: of the record; None for a tombstone.
        at: the time of the record, in seconds since 1970.
        place: of the record.
        home: the partition of the topic; None if unknown.
        groups: only records of these groups; of all groups if empty.

    Raises:
        ProtocolError: the record is in an unknown form.
    """
    read = read_record(key, value)
    if read is None:
        server = read_server_record(key, value)
        if server is None or (groups and server[0]["data"]["groupId"] not in groups):
            return []
        return [replace(told, home=home) for told in record_of(*server, at, place)]
    if (groups and read.group_id not in groups) or read.value is None:
        return []
    if isinstance(read, GroupRecord) and read.value is not None:
        return [_settled(read.group_id, read.value, at, place, home)]
    if isinstance(read, OffsetRecord) and read.value is not None:
        return [
            Committed(
                group=read.group_id,
                partition=read.partition,
                offset=read.value.offset,
                at=read.value.commit_timestamp / 1_000,
                home=home,
            )
        ]
    return []


def _settled(
    group: str, value: GroupMetadata, at: float, place: Place, home: int | None
) -> Settled:
    changed = value.current_state_timestamp  # Kafka before 2.1 wrote none
    return Settled(
        group=group,
        generation=value.generation_id,
        at=at if changed < 0 else changed / 1_000,
        protocol=value.protocol_name or "",
        members=tuple(
            SettledMember(
                member=each.member_id,
                instance=each.group_instance_id or "",
                client=each.client_id,
                host=each.client_host,
                session_s=each.session_timeout_ms / 1_000,
                rebalance_s=None
                if each.rebalance_timeout_ms < 0
                else each.rebalance_timeout_ms / 1_000,
                topics=topics_of(each.subscription),
                partitions=partitions_of(each.assignment),
            )
            for each in value.members
        ),
        place=place,
        home=home,
    )
