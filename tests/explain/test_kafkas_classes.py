"""The messages in the classes of Kafka 4.3's coordinator: all that name a group are known.

The constant pool of a class file has its texts. A text with ``{}`` in a class with a logger is a
message. Messages without a value cannot be told from texts of errors and of settings; those that a
real Kafka wrote in the whole suite are listed.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator
from typing import Final

import pytest

from kohort.explain.causes import Cause, reason_of
from kohort.explain.events import Event
from kohort.explain.reading import LogReader
from kohort.testing.kafka_jars import KAFKA_VERSION, installed

pytestmark = [
    pytest.mark.real_kafka,
    pytest.mark.skipif(installed() is None, reason="needs `kohort kafka fetch`"),
]

_COORDINATOR: Final = (
    ("kafka-group-coordinator", "org/apache/kafka/coordinator/group/"),
    ("kafka-coordinator-common", "org/apache/kafka/coordinator/common/runtime/"),
)
_CLIENT: Final = (
    ("kafka-clients", "org/apache/kafka/clients/consumer/internals/AbstractCoordinator"),
    ("kafka-clients", "org/apache/kafka/clients/consumer/internals/ConsumerCoordinator"),
)
_IGNORED: Final = {
    "[GroupId {}] {}.": "the second value is a message of its own, such as «Assignment delayed …»",
    "Sending OffsetCommit request with {} to coordinator {}": "each commit at level debug",
}
_WITHOUT_VALUES: Final = ("Shutting down event processor.", "Event processor closed.")
_LOGGER: Final = "org/slf4j/Logger"
_SIZES: Final = {7: 3, 16: 3, 19: 3, 20: 3, 15: 4} | dict.fromkeys((3, 4, 9, 10, 11, 12, 17, 18), 5)
"""Bytes of the constants of other kinds, by tag (the Java Virtual Machine Specification, 4.4)."""
_FILLED: Final = (
    ("7",),
    ("x-1",),
    ("[t-0]",),
    ("__consumer_offsets-7",),
    ("__consumer_offsets-7", "5"),
    ("Generation{generationId=5, memberId='m', protocol='range'}",),
    ("{t-0=OffsetAndMetadata}", "x", "true"),
    ("and member id ", "x"),
)
"""Values of a message, in turn; all further values are equal to the last one."""
_LINE: Final = (
    "[2026-03-01 10:00:00,000] INFO [{}] {} (org.apache.kafka.coordinator.group.GroupCoordinator)"
)
_BROKER: Final = "GroupCoordinator id=1 topic=__consumer_offsets partition=7"


def texts(data: bytes) -> tuple[list[str], bool]:
    """The text constants of a class file, and whether the class has a logger."""
    (count,) = struct.unpack_from(">H", data, 8)
    at, number, written, named = 10, 1, dict[int, str](), list[int]()
    while number < count:
        tag = data[at]
        if tag in {1, 8}:
            (value,) = struct.unpack_from(">H", data, at + 1)
            if tag == 1:
                written[number] = data[at + 3 : at + 3 + value].decode("utf-8", "replace")
                at += value
            else:
                named.append(value)
            at += 3
        elif tag in {5, 6}:  # long and double take two numbers
            at, number = at + 9, number + 1
        else:
            at += _SIZES[tag]
        number += 1
    return [written[each] for each in named], _LOGGER in written.values()


def constants(jars: tuple[tuple[str, str], ...]) -> Iterator[str]:
    """The texts of the classes with a logger."""
    libs = installed()
    assert libs is not None
    for jar, package in jars:
        with zipfile.ZipFile(libs / f"{jar}-{KAFKA_VERSION}.jar") as packed:
            names = [n for n in packed.namelist() if n.startswith(package)]
            assert names, f"{jar} has no class {package}*"
            for name in names:
                if name.endswith(".class") and "/generated/" not in name:
                    found, logs = texts(packed.read(name))
                    yield from found if logs else ()


def messages(jars: tuple[tuple[str, str], ...]) -> list[str]:
    found = sorted({text for text in constants(jars) if "{}" in text})
    assert len(found) > 30, "the reader of class files finds few messages"
    return found


def filled(message: str, values: tuple[str, ...]) -> str:
    turn = iter(values)
    return re.sub(r"\{\}", lambda _: next(turn, values[-1]), message)


def told(message: str, context: str) -> tuple[bool, list[Event]]:
    """Whether the line of a message is known, and its events."""
    reader = LogReader("broker.log")
    events = [*reader.read(1, _LINE.format(context, message)), *reader.rest()]
    return reader.counts.understood == 1, events


@pytest.mark.parametrize(
    ("jars", "context"),
    [(_COORDINATOR, _BROKER), (_CLIENT, "Consumer clientId=c, groupId=g")],
    ids=["coordinator", "client"],
)
def test_each_message_of_kafkas_classes_about_groups_is_known(
    jars: tuple[tuple[str, str], ...], context: str
) -> None:
    unknown = [
        message
        for message in messages(jars)
        if message not in _IGNORED
        and not any(told(filled(message, values), context)[0] for values in _FILLED)
    ]
    assert unknown == []


def test_messages_without_values_are_known_too() -> None:
    assert {*_WITHOUT_VALUES} <= {*constants(_COORDINATOR)}
    assert [m for m in _WITHOUT_VALUES if not told(m, "GroupCoordinator id=1")[0]] == []


def test_an_ignored_message_is_one_of_kafkas() -> None:
    assert _IGNORED.keys() <= {*messages(_COORDINATOR), *messages(_CLIENT)}


def test_an_event_has_the_group_that_its_message_names() -> None:
    """A message of which only a part is known would have the group of another line."""
    wrong = []
    for message in messages(_COORDINATOR):
        begin, group, rest = message.partition("[GroupId {}]")
        if not group:
            begin, group, rest = message.partition("group {}")
        for values in _FILLED:
            text = f"{filled(begin, values)}{group.replace('{}', 'named')}{filled(rest, values)}"
            wrong += [
                (text, event.group)
                for event in told(text, _BROKER)[1]
                if group and event.group != "named"
            ]
    assert wrong == []


def test_each_reason_of_kafkas_coordinator_has_its_cause() -> None:
    """Kafka replaces each mark ``\\1`` by a value."""
    begins = ("removing member", "explicit `LeaveGroup`", "Removing \1", "Error \1", "Freshly-")
    reasons = {
        text
        for text in constants(_COORDINATOR)
        if "\1" in text and ("; client reason: \1" in text or text.startswith(begins))
    }
    assert len(reasons) > 8
    unknown = [r for r in reasons if reason_of(r.replace("\1", "m")).cause is Cause.OTHER]
    assert unknown == []
    changed = reason_of(
        "Group's selectedProtocol will change because static member m with instance id i joined "
        "with change of protocol; client reason: x"
    )
    assert (changed.cause, changed.member, changed.instance) == (Cause.STATIC_CHANGED, "m", "i")
