"""Records of ``__consumer_offsets`` as Kafka's tools print them, as values.

In: the JSON of a key and a value, as ``kafka-dump-log`` and the formatters of
``kafka-console-consumer`` print it. Out: records of groups and commits. Must not know: files, bytes
of the log.

The types of keys: 1 is a commit, 2 a classic group, 3 the epoch of a group of the new protocol
(KIP-848), 5 its member, 8 the present assignment of a member. Other types are ignored.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from kohort.explain.events import Place
from kohort.explain.lines.values import client_of
from kohort.explain.offsets_topic.generations import (
    Committed,
    Settled,
    SettledMember,
    partitions_of,
    topics_of,
)
from kohort.explain.offsets_topic.server_groups import Bumped, Reconciled, ServerMember
from kohort.model.ids import TopicPartition

Recorded: TypeAlias = Settled | Committed | Bumped | ServerMember | Reconciled
_DUMPED: Final = re.compile(
    r"offset: (\d+) \w+: (\d+) .*?key: (\{.*\}) payload: (\{.*\}|<DELETE>|null)\s*$"
)
"""A line of ``kafka-dump-log --offsets-decoder``."""
_OLD_DUMPED: Final = re.compile(
    r"offset: \d+ (?:position: \d+ )?\w+: (\d+) .*?key: (?:(?P<commit>offset_commit::group=|"
    r"offset::)|group_metadata::group=)(?P<key>.*?) payload: (?P<value>.*)$"
)
"""A line of ``kafka-dump-log --offsets-decoder`` before Kafka 3.8."""
_OLD_COMMIT: Final = re.compile(
    r"^\[(?P<group>.*),(?P<topic>[^,]+),(?P<number>\d+)\]::(?:OffsetAndMetadata\(offset=(?P<offset>\d+)"
    r".*, commitTimestamp=(?P<at>\d+)|\[OffsetMetadata\[(?P<offset2>\d+),.*,CommitTime "
    r"(?P<at2>\d+))"
)
"""A line of the formatter of offsets of ``kafka-console-consumer`` before Kafka 3.8."""
_OLD_KEY: Final = re.compile(r"^(.*?)(?:,partition=(.+)-(\d+)|:([^:]+):(\d+))$")
_OLD_OFFSET: Final = re.compile(r"^(?:offset=)?(\d+)")
_OLD_MEMBER: Final = re.compile(r"[{,](?P<member>[^{}\[\]]*?)=\[(?P<partitions>[^\]]*)\]")
_CLASSIC: Final = 2
_YEAR_2286_MS: Final = 10**13
_DELETED: Final = frozenset({"<DELETE>", "null"})


def dumped(line: str, file: str, number: int) -> list[Recorded]:
    """The records of a line that a tool of Kafka printed; empty for other lines."""
    place = Place(file, number)
    try:
        if (found := _DUMPED.search(line)) is not None:
            value = None if found[4] in _DELETED else json.loads(found[4])
            return record_of(json.loads(found[3]), value, _seconds(int(found[2])), place)
        if line.startswith('{"key":'):
            held = json.loads(line)
            return record_of(held["key"], held.get("value"), None, place)
        if (old := _OLD_COMMIT.match(line)) is not None:
            return [_old_commit(old)]
        if (old := _OLD_DUMPED.search(line)) is not None and old["value"] not in _DELETED:
            return [_old_record(old, place)]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    return []


def _old_commit(found: re.Match[str]) -> Committed:
    return Committed(
        group=found["group"],
        partition=TopicPartition(found["topic"], int(found["number"])),
        offset=int(found["offset"] or found["offset2"]),
        at=_seconds(int(found["at"] or found["at2"])),
    )


def _old_record(found: re.Match[str], place: Place) -> Committed | Settled:
    """The record in a line of an old ``kafka-dump-log``: it has no hosts, topics and timeouts.

    Raises:
        ValueError, KeyError, TypeError: it is no such record.
    """
    at = _seconds(int(found[1]))
    if found["commit"]:
        key, offset = _OLD_KEY.match(found["key"]), _OLD_OFFSET.match(found["value"])
        if key is None or offset is None:
            raise ValueError("no commit")
        group, topic, number = key[1], key[2] or key[4], key[3] or key[5]
        partition = TopicPartition(topic, int(number))
        return Committed(group=group, partition=partition, offset=int(offset[1]), at=at)
    data = json.loads(found["value"])
    return Settled(
        group=found["key"],
        generation=int(data["generationId"]),
        at=at,
        protocol=data["protocol"] or "",
        members=tuple(
            SettledMember(
                member=each["member"],
                client=client_of(each["member"]),
                partitions=frozenset(map(TopicPartition.of, _listed(each["partitions"]))),
            )
            for each in _OLD_MEMBER.finditer(data["assignment"])
        ),
        place=place,
    )


def _listed(partitions: str) -> list[str]:
    return [part.strip() for part in partitions.split(",") if part.strip()]


def record_of(
    key: Mapping[str, Any], value: Mapping[str, Any] | None, at: float | None, place: Place
) -> list[Recorded]:
    """The value of one record; empty without members, owners and offsets.

    Args:
        key: with ``type`` and ``data``.
        value: with ``version`` and ``data``; None for a tombstone.
        at: the time of the record, in seconds since 1970; None if unknown.
        place: of the record.

    Raises:
        KeyError, TypeError, ValueError: the record has another form.
    """
    kind, names = int(key["type"]), key["data"]
    data = None if value is None else value["data"]
    if at is None and kind > _CLASSIC:
        return []  # the records of the new protocol have no time in themselves
    found: Recorded | None = None
    if kind == 5:
        found = _member(names, data or {}, at or 0.0, gone=data is None)
    elif kind == 8:
        found = _reconciled(names, data or {}, at or 0.0, gone=data is None)
    elif data is not None:
        if kind == 1:
            found = _commit(names, data)
        elif kind == _CLASSIC:
            found = _group(names["group"], data, at, place)
        elif kind == 3:
            found = Bumped(group=names["groupId"], epoch=data["epoch"], at=at or 0.0, place=place)
    return [] if found is None else [found]


def _commit(names: Mapping[str, Any], data: Mapping[str, Any]) -> Committed:
    return Committed(
        group=names["group"],
        partition=TopicPartition(names["topic"], int(names["partition"])),
        offset=int(data["offset"]),
        at=_seconds(data["commitTimestamp"]),
        topic_id=data.get("topicId", ""),
    )


def _group(group: str, data: Mapping[str, Any], at: float | None, place: Place) -> Settled:
    told = data.get("currentStateTimestamp", -1)  # Kafka before 2.1 wrote none
    return Settled(
        group=group,
        generation=int(data["generation"]),
        at=at if told < 0 and at is not None else _seconds(told),
        protocol=data["protocol"] or "",
        members=tuple(
            SettledMember(
                member=each["memberId"],
                instance=each.get("groupInstanceId") or "",
                client=each["clientId"],
                host=each["clientHost"],
                session_s=each["sessionTimeout"] / 1_000,
                rebalance_s=_timeout(each.get("rebalanceTimeout")),
                topics=_topics(each["subscription"]),
                partitions=_partitions(each["assignment"]),
            )
            for each in data["members"]
        ),
        place=place,
    )


def _seconds(millis: int) -> float:
    """Milliseconds since 1970 as seconds.

    Raises:
        ValueError: no broker can have written this time.
    """
    if not 0 <= millis < _YEAR_2286_MS:
        raise ValueError(f"{millis} is no time of a record")
    return millis / 1_000


def _timeout(millis: int | None) -> float | None:
    """A timeout in seconds; None if the record has none (Kafka before 0.10.1)."""
    return None if millis is None or millis < 0 else millis / 1_000


def _topics(told: str | Mapping[str, Any]) -> frozenset[str]:
    """Tools print the bytes of a subscription as Base64, or take them apart."""
    if isinstance(told, str):
        return topics_of(base64.b64decode(told))
    return frozenset(told["topics"])


def _partitions(told: str | Mapping[str, Any]) -> frozenset[TopicPartition]:
    if isinstance(told, str):
        return partitions_of(base64.b64decode(told))
    return frozenset(
        TopicPartition(each["topic"], number)
        for each in told["assignedPartitions"]
        for number in each["partitions"]
    )


def _member(
    names: Mapping[str, Any], data: Mapping[str, Any], at: float, *, gone: bool
) -> ServerMember:
    return ServerMember(
        group=names["groupId"],
        member=names["memberId"],
        instance=data.get("instanceId") or "",
        client=data.get("clientId", ""),
        host=data.get("clientHost", ""),
        topics=frozenset(data.get("subscribedTopicNames", ())),
        at=at,
        gone=gone,
    )


def _reconciled(
    names: Mapping[str, Any], data: Mapping[str, Any], at: float, *, gone: bool
) -> Reconciled:
    both = [*data.get("assignedPartitions", ()), *data.get("partitionsPendingRevocation", ())]
    return Reconciled(
        group=names["groupId"],
        member=names["memberId"],
        epoch=-1 if gone else int(data["memberEpoch"]),
        partitions=frozenset(
            TopicPartition(each["topicId"], number)
            for each in both
            for number in each["partitions"]
        ),
        at=at,
    )
