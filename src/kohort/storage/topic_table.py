"""Stored topics: their rules, and ``topics.json``, which names all of them.

In: topics to add, replace and delete. Out: all topics, durable. Must not know: logs, requests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kohort.model.errors import ErrorCode
from kohort.storage.errors import CorruptLog, RefusedTopic
from kohort.storage.files import Files, read_json, replace_durably
from kohort.storage.log_config import LogConfig, log_config

OFFSETS_TOPIC: Final = "__consumer_offsets"

OFFSETS_TOPIC_CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "104857600",
}
"""Kafka's settings of its internal topic."""

TOPICS: Final = "topics.json"

MAX_PARTITIONS: Final = 10_000
"""Limit for one topic. Each partition has a directory, and a descriptor once it is written to."""

_OFFSETS_PREALLOCATE: Final = 256 << 10
_OFFSETS_MAX_MESSAGE_BYTES: Final = (1 << 31) - 1
"""The format's own limit: only the coordinator writes, and it has its own limits."""
_LONGEST_NAME: Final = 249
"""Kafka's: a directory is called name-partition, and file names end at 255 bytes."""
_LEGAL_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_LOG_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}-\d+")

NO_TOPIC_ID: Final = bytes(16)
"""For a topic from the time before topics had ids; ``LogDir.give_ids`` replaces it."""

Deleted = tuple[str, int]
"""Name and number of partitions of a deleted topic that still has directories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A stored topic. ``topic_id`` has 16 bytes; ``configs`` are the settings that were given."""

    name: str
    topic_id: bytes
    partitions: int
    configs: Mapping[str, str]
    replication_factor: int = 1
    replicas: tuple[tuple[int, ...], ...] = ()
    """The nodes of each partition, its leader first, if a client chose them; else empty."""

    @property
    def internal(self) -> bool:
        """Whether the broker itself uses the topic."""
        return self.name == OFFSETS_TOPIC


def why_illegal(name: str) -> str | None:
    """Why ``name`` cannot be a topic's name, as a sentence; None when it can. As in Kafka."""
    if not name:
        return "a topic's name cannot be empty"
    if name in (".", ".."):
        return f"a topic cannot be called {name!r}"
    if len(name) > _LONGEST_NAME:
        return f"a topic's name has at most {_LONGEST_NAME} characters, this one has {len(name)}"
    if not _LEGAL_NAME.fullmatch(name):
        return f"topic name {name!r} has characters other than letters, digits, '.', '_' and '-'"
    return None


def check_topic(topic: Topic) -> None:
    """Return if this name and this number of partitions are legal.

    Raises:
        RefusedTopic: INVALID_TOPIC_EXCEPTION or INVALID_PARTITIONS.
    """
    reason = why_illegal(topic.name)
    if reason is not None:
        raise RefusedTopic(reason, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not 1 <= topic.partitions <= MAX_PARTITIONS:
        raise RefusedTopic(
            f"{topic.partitions} partitions; from 1 to {MAX_PARTITIONS} are possible",
            ErrorCode.INVALID_PARTITIONS,
        )


def config_of(topic: Topic, defaults: LogConfig) -> LogConfig:
    """All settings of a topic, defaults included.

    Raises:
        RefusedTopic: INVALID_CONFIG.
    """
    config = log_config(topic.configs, defaults)
    if topic.internal:
        config = replace(
            config,
            sync_before_answer=True,
            preallocate_bytes=_OFFSETS_PREALLOCATE,
            max_message_bytes=_OFFSETS_MAX_MESSAGE_BYTES,
        )
    return config


def _read(stored: Any) -> tuple[dict[str, Topic], list[Deleted]]:
    """Topics and deleted topics of ``topics.json``."""
    topics = {
        entry["name"]: Topic(
            name=entry["name"],
            topic_id=_topic_id(entry.get("topic_id")),
            partitions=entry["partitions"],
            configs=entry["configs"],
            replication_factor=entry.get("replication_factor", 1),
            replicas=_replicas(entry.get("replicas", ()), entry["partitions"]),
        )
        for entry in stored["topics"]
    }
    return topics, [(name, partitions) for name, partitions in stored["deleting"]]


def _check_has_no_logs(names: Iterable[str], path: str) -> None:
    """Return if a data directory with these names may lack its table of topics.

    Raises:
        CorruptLog: it holds logs, and the table at ``path`` named them.
    """
    logs = [name for name in names if _LOG_NAME.fullmatch(name)]
    if logs:
        raise CorruptLog(f"{path} is missing, and there are logs ({logs[0]}); restore the file")


def _topic_id(text: str | None) -> bytes:
    topic_id = bytes.fromhex(text or "")
    if len(topic_id) not in (0, len(NO_TOPIC_ID)):
        raise ValueError(f"topic id {text!r} has {len(topic_id)} bytes, expected 16")
    return topic_id or NO_TOPIC_ID


def _replicas(stored: Sequence[Sequence[int]], partitions: int) -> tuple[tuple[int, ...], ...]:
    if stored and len(stored) != partitions:
        raise ValueError(f"replicas of {len(stored)} partitions, and there are {partitions}")
    return tuple(tuple(nodes) for nodes in stored)


class StoredTopics:
    """The topics of one data directory, as ``topics.json`` keeps them.

    Every change is durable on return. After an OSError nothing has changed.

    Raises:
        CorruptLog: the file is damaged, or missing although there are logs.
    """

    __slots__ = ("_files", "_path", "deleted", "topics")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self.topics: Mapping[str, Topic] = {}
        """All topics by name."""
        self.deleted: Sequence[Deleted] = ()
        """Deleted topics that still have directories."""
        found = read_json(files, f"{path}/{TOPICS}", _read)
        if found is not None:
            self.topics, self.deleted = found
            return
        _check_has_no_logs(files.list_directory(path), f"{path}/{TOPICS}")
        self._store({}, ())

    def put(self, *topics: Topic) -> None:
        """Add topics, or replace those of the same names."""
        self._store({**self.topics, **{topic.name: topic for topic in topics}}, self.deleted)

    def delete(self, topic: Topic) -> None:
        """Remove a topic; its directories are still there."""
        others = {name: other for name, other in self.topics.items() if name != topic.name}
        self._store(others, (*self.deleted, (topic.name, topic.partitions)))

    def forget_deleted(self) -> None:
        """The directories of all deleted topics are gone."""
        self._store(self.topics, ())

    def _store(self, topics: Mapping[str, Topic], deleted: Sequence[Deleted]) -> None:
        text = _topics_text(topics.values(), deleted)
        replace_durably(self._files, self._path, TOPICS, text)
        self.topics, self.deleted = topics, deleted


def _topics_text(topics: Iterable[Topic], deleted: Iterable[Deleted]) -> str:
    """The text of ``topics.json``."""
    stored = {
        "version": 1,
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id.hex(),
                "partitions": topic.partitions,
                "configs": dict(topic.configs),
                "replication_factor": topic.replication_factor,
                **({"replicas": topic.replicas} if topic.replicas else {}),
            }
            for topic in topics
        ],
        "deleting": list(deleted),
    }
    return json.dumps(stored, indent=1)
