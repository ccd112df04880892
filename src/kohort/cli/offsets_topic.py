"""Reads ``__consumer_offsets`` of a live cluster for ``kohort explain``.

In: the address of a cluster, names of groups. Out: records for an explainer. Must not know: the
meaning of generations. Nothing is written and no group is joined. The user needs the permission to
read the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from kohort import Consumer
from kohort.cli.evidence import Reader
from kohort.client.admin import Admin
from kohort.client.records import Record
from kohort.coordinator.partitions import partition_for
from kohort.coordinator.records import GroupMetadata, GroupRecord, OffsetRecord
from kohort.explain.events import Place
from kohort.explain.explaining import Told
from kohort.explain.generations import (
    Committed,
    Settled,
    SettledMember,
    partitions_of,
    topics_of,
)
from kohort.explain.topic_records import record_of
from kohort.model.errors import ConfigError, ProtocolError
from kohort.model.ids import TopicPartition
from kohort.storage.group_records import read_record
from kohort.storage.server_group_records import read_server_record

TOPIC = "__consumer_offsets"
_AT_ONCE = 2_000
_WAIT_S = 0.5


def read_offsets(
    settings: Mapping[str, object],
    groups: Collection[str],
    reader: Reader,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> str:
    """Read the topic up to its present end.

    Args:
        settings: of the cluster's clients.
        groups: only these groups; all if empty.
        reader: gets the records.
        progress: called with the number of records that were read, and the number in all.

    Returns:
        A remark about records that could not be read; empty if there is none.

    Raises:
        ConfigError: the cluster has no such topic: no group ever committed there.
    """
    places, names = _places(settings, groups)
    reader.name_topics(names)
    unread = 0
    with Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
        ends = _begin(consumer, places)
        total, done = sum(ends.values()) - sum(consumer.position(p) for p in places), 0
        while any(consumer.position(place) < ends[place] for place in places):
            records = consumer.consume(_AT_ONCE, _WAIT_S)
            done += len(records)
            progress(done, total)
            unread += sum(not _feed(record, groups, reader.feed) for record in records)
    return f"{unread:,} records of {TOPIC} are in an unknown form" if unread else ""


def follow_offsets(
    settings: Mapping[str, object],
    feed: Callable[[Told], None],
    caught_up: Callable[[], None],
    ended: Callable[[], bool] = lambda: False,
) -> None:
    """Read the topic from its begin, and all records that come.

    Args:
        settings: of the cluster's clients.
        feed: gets the records.
        caught_up: called once, behind the records that were there at the start.
        ended: called often; True ends the reading.

    Raises:
        ConfigError: the cluster has no such topic.
    """
    places, _ = _places(settings, ())
    with Consumer({**settings, "auto.offset.reset": "earliest"}) as reader:
        ends = _begin(reader, places)
        behind = True
        while not ended():
            for record in reader.consume(_AT_ONCE, _WAIT_S):
                _feed(record, (), feed)
            if behind and all(reader.position(place) >= ends[place] for place in places):
                behind = False
                caught_up()


def _places(
    settings: Mapping[str, object], groups: Collection[str]
) -> tuple[list[TopicPartition], dict[str, str]]:
    """The partitions of the topic with records of these groups, and topics by their ids."""
    with Admin(settings) as admin:
        topics = admin.topics()
    if TOPIC not in topics:
        raise ConfigError(f"the cluster has no topic {TOPIC}: no consumer group was ever there")
    count = len(topics[TOPIC].partitions)
    wanted = {partition_for(group, count) for group in groups} or set(range(count))
    places = [TopicPartition(TOPIC, number) for number in sorted(wanted)]
    return places, {t.topic_id: name for name, t in topics.items() if t.topic_id}


def _begin(reader: Consumer, places: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Go to the begin of the partitions; their present ends."""
    reader.assign(places)
    begins, ends = reader.beginning_offsets(places), reader.end_offsets(places)
    for place in places:
        reader.seek(place, begins[place])
    return ends


def _feed(record: Record, groups: Collection[str], feed: Callable[[Told], None]) -> bool:
    """Hand a record on; False if the record cannot be read."""
    try:
        read = read_record(record.key(), record.value())
    except ProtocolError:
        return False
    if read is None:
        return _feed_server(record, groups, feed)
    if (groups and read.group_id not in groups) or read.value is None:
        return True
    partition = record.partition() or 0
    if isinstance(read, GroupRecord) and read.value is not None:
        place = Place(f"{TOPIC}-{partition}", record.offset() or 0)
        feed(_settled(read.group_id, read.value, place, partition))
    elif isinstance(read, OffsetRecord) and read.value is not None:
        feed(
            Committed(
                group=read.group_id,
                partition=read.partition,
                offset=read.value.offset,
                at=read.value.commit_timestamp / 1_000,
                home=partition,
            )
        )
    return True


def _feed_server(record: Record, groups: Collection[str], feed: Callable[[Told], None]) -> bool:
    """Hand on a record of a group of the new protocol; other types are no trouble."""
    try:
        found = read_server_record(record.key(), record.value())
    except ProtocolError:
        return False
    if found is None or (groups and found[0]["data"]["groupId"] not in groups):
        return True
    home = record.partition() or 0
    place = Place(f"{TOPIC}-{home}", record.offset() or 0)
    for told in record_of(*found, record.timestamp()[1] / 1_000, place):
        feed(replace(told, home=home))
    return True


def _settled(group: str, value: GroupMetadata, place: Place, home: int) -> Settled:
    return Settled(
        group=group,
        generation=value.generation_id,
        at=value.current_state_timestamp / 1_000,
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
