"""Reads ``__consumer_offsets`` of a live cluster for ``kohort explain``.

In: the address of a cluster, names of groups. Out: records for an explainer. Must not know: the
meaning of generations. Nothing is written and no group is joined. The user needs the permission to
read the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from threading import Event

# list_topics imports this module in C, and loses a signal's exception that comes meanwhile: a
# program that got SIGTERM then ended with status 1 and ImportError.
import confluent_kafka.admin  # noqa: F401

from kohort import Consumer
from kohort.cli.explain.offsets_records import TOPIC, told_by
from kohort.client.admin import Admin
from kohort.client.records import Record
from kohort.coordinator.partitions import partition_for
from kohort.explain.events import Place
from kohort.explain.offsets_topic.leader_epochs import LeaderEpochs
from kohort.explain.told import Reader, Told
from kohort.model.errors import ConfigError, KohortError, ProtocolError
from kohort.model.ids import TopicPartition

_AT_ONCE = 2_000
_WAIT_S = 0.5
AGAIN_S = 5.0
"""The topic is tried again after this time, if it cannot be read."""


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
    unread, epochs = 0, LeaderEpochs()
    with Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
        ends = _begin(consumer, places)
        total, done = sum(ends.values()) - sum(consumer.position(p) for p in places), 0
        while any(consumer.position(place) < ends[place] for place in places):
            records = consumer.consume(_AT_ONCE, _WAIT_S)
            done += len(records)
            progress(done, total)
            unread += sum(not _feed(record, groups, reader.feed, epochs) for record in records)
    return f"{unread:,} records of {TOPIC} are in an unknown form" if unread else ""


def follow_offsets(
    settings: Mapping[str, object],
    feed: Callable[[Told], None],
    caught_up: Callable[[], None],
    ended: Callable[[], bool] = lambda: False,
    started: Callable[[Mapping[str, str]], None] = lambda names: None,
) -> None:
    """Read the topic from its start, and all records that come.

    Args:
        settings: of the cluster's clients.
        feed: gets the records.
        caught_up: called once, after the records that were there at the start.
        ended: called often; True ends the reading.
        started: called before the first record, with the names of topics by their ids.

    Raises:
        ConfigError: the cluster has no such topic.
    """
    places, names = _places(settings, ())
    started(names)
    with Consumer({**settings, "auto.offset.reset": "earliest"}) as reader:
        ends, epochs = _begin(reader, places), LeaderEpochs()
        behind = True
        while not ended():
            for record in reader.consume(_AT_ONCE, _WAIT_S):
                _feed(record, (), feed, epochs)
            if behind and all(reader.position(place) >= ends[place] for place in places):
                behind = False
                caught_up()


def keep_following(
    settings: Mapping[str, object],
    feed: Callable[[Told], None],
    caught_up: Callable[[], None],
    failed: Callable[[KohortError], None],
    *,
    ended: Event,
    started: Callable[[Mapping[str, str]], None],
) -> None:
    """Follow the offsets topic until ``ended`` is set; see `follow_offsets`.

    After a failure ``failed`` is called, and `AGAIN_S` later the topic is read from its beginning.
    ``started`` must forget the records of an earlier try.
    """
    while not ended.is_set():
        try:
            follow_offsets(settings, feed, caught_up, ended.is_set, started)
        except KohortError as error:
            failed(error)
            ended.wait(AGAIN_S)


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
    """Go to the start of the partitions; their present ends."""
    reader.assign(places)
    begins, ends = reader.beginning_offsets(places), reader.end_offsets(places)
    for place in places:
        reader.seek(place, begins[place])
    return ends


def _feed(
    record: Record,
    groups: Collection[str],
    feed: Callable[[Told], None],
    epochs: LeaderEpochs,
) -> bool:
    """Feed the values of a record, and a change of the leader; False if it cannot be read."""
    home, at = record.partition() or 0, record.timestamp()[1] / 1_000
    place = Place(f"{TOPIC}-{home}", record.offset() or 0)
    try:
        found = told_by(record.key(), record.value(), at=at, place=place, home=home, groups=groups)
    except ProtocolError:
        return False
    named = (told.group for told in found)
    for moved in epochs.note(home, record.leader_epoch(), at, place, named):
        feed(moved)
    for told in found:
        feed(told)
    return True
