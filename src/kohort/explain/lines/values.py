"""Values of a line of a log: those in front of its message and beside it, and without wrappings.

In: the frame of a line, its message. Out: texts, the kind of the event. Must not know: groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from kohort.explain.events import Kind
from kohort.explain.lines.frames import Framed
from kohort.explain.wordings.matching import Found

_CONTEXT: Final = re.compile(
    r"\[(?:Consumer|Worker|Producer|Streams) (?:instanceId=([^,\]]*), )?"
    r"(?:clientId=)?([^,\]]*?),? groupId=([^\]]*)\]"
)
"""People leave a part of the context out: ``[Consumer … groupId=g]``."""
_ELIDED: Final = frozenset({"...", "…", "xxx", "XXX"})
_RDKAFKA: Final = re.compile(r"(?:(?<=\|)[^|\[]*|[\w.-]+)#consumer-\d+\b")
"""librdkafka's name of a client; between its marks, the client id may have spaces."""
_SPRING: Final = re.compile(r"([^\s:]+): partitions (?:assigned|revoked|lost):")
"""Spring Kafka's listener names the group in front of its message, since 2.3."""
_PARTITION: Final = re.compile(r"\[GroupCoordinator id=\d+ topic=\S+ partition=(\d+)\]")
_UUID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}").fullmatch
_HEX: Final = re.compile(r"[0-9a-f]{32}").fullmatch
_NOTHING: Final = frozenset({"None", "null", "none", "<nil>", "{}", "(no error)", "Success"})
_SOME: Final = re.compile(r"^Some\((.*)\)$")
_LONGEST_CONTEXT: Final = 300
_LONGEST_JOIN_MS: Final = 86_400_000


def in_context(
    frame: Framed, group: str, member: str, instance: str, client: str
) -> tuple[str, str, str, str]:
    """Values that stand in front of the message, or beside the message in a JSON line."""
    text = frame.text
    if "groupId=" in text and (found := _context_in(text)) is not None:
        named, client, context_group = found
        group, instance = group or context_group, instance or named
    elif "#consumer-" in text and (of_librdkafka := _RDKAFKA.search(text)):
        client = of_librdkafka[0]
    elif ": partitions " in text and (of_spring := _SPRING.search(text)):
        group = of_spring[1]
    if frame.fields:
        beside = frame.fields.get
        group = group or str(beside("groupId") or "")
        member = member or str(beside("memberId") or "")
        client = client or str(beside("clientId") or "")
    return group, member, instance, client


def beside_kafkajs(fields: Mapping[str, Any]) -> dict[str, str]:
    """Values beside a join of KafkaJS: partitions, assignor, milliseconds of the join."""
    found = {}
    if isinstance(assigned := fields.get("memberAssignment"), dict):
        numbers = [(t, n) for t, many in assigned.items() if isinstance(many, list) for n in many]
        found["partitions"] = ", ".join(f"{t}-{n}" for t, n in numbers if isinstance(n, int))
    if isinstance(protocol := fields.get("groupProtocol"), str):
        found["protocol"] = protocol
    if isinstance(took := fields.get("duration"), int) and 0 <= took <= _LONGEST_JOIN_MS:
        found["took_ms"] = str(took)
    return found


def _context_in(text: str) -> tuple[str, str, str] | None:
    """Instance id, client id and group that Java's clients write in front of a message."""
    end = text.find("]") + 1
    # A context has one closing bracket: if the first one ends a context, that is the first context.
    found = _kept_context(text[:end]) if end < _LONGEST_CONTEXT else None
    return _context(text) if found is None else found


def _context(text: str) -> tuple[str, str, str] | None:
    found = _CONTEXT.search(text)
    if found is None:
        return None
    instance, client, group = found.groups()
    client = "" if client in _ELIDED else client
    return plain(instance) if instance else "", client, plain(group)


_kept_context: Final = lru_cache(maxsize=4_096)(_context)


def kind_of(found: Found, fields: Mapping[str, Any], *, java: bool) -> Kind:
    """The event of a client's message, which may depend on other lines and on fields beside it.

    Args:
        found: the message.
        fields: beside it. KafkaJS writes each answer on DEBUG, and failed ones on ERROR, too.
        java: Java's consumer wrote to the log, too: Spring's lines repeat the consumer's.
    """
    kind = found.wording.kind
    if java and found.wording.maker == "Spring":
        return Kind.PROGRESS
    if "answered" not in found.details:
        return kind
    error = str(fields.get("error") or "")
    if not error or fields.get("level") == "DEBUG":
        return Kind.PROGRESS
    if "not aware of this member" in error or "generation id is not valid" in error:
        return Kind.UNKNOWN_MEMBER
    if "coordinator" in error:
        return Kind.COORDINATOR_LOST
    return kind


def reason_in(text: str) -> str:
    """The reason in a message; empty for an object of a program."""
    return "" if text.startswith("{'") else plain(text)


def plain(text: str) -> str:
    """``Some(x)`` as ``x``; empty for ``None`` and ``null``."""
    if text in _NOTHING:
        return ""
    if text.startswith("Some(") and (found := _SOME.match(text)):
        return found[1]
    return text.strip()


@lru_cache(maxsize=4_096)
def client_of(member: str) -> str:
    """The client id in a member id: a broker appends a random UUID to it."""
    for length, random in ((36, _UUID), (32, _HEX)):
        if len(member) >= length and random(member, len(member) - length):
            return member[:-length].removesuffix("-")
    return ""


def partition_in(text: str) -> str:
    """The partition of the offsets topic that the coordinator names; empty if it names none."""
    found = _PARTITION.search(text)
    return "" if found is None else found[1]
