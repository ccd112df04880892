"""Topic ids in OffsetCommit and OffsetFetch (version 10): to names, and back to ids.

In: requests with ids, responses with names. Out: the same messages with both. Must not know:
groups. A coordinator knows topics by name only. An unknown id gets a stand-in that no topic can
have as its name, and the answer is UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from kohort.model.errors import ErrorCode
from kohort.wire.messages.k08_offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kohort.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchResponse

FROM_VERSION: Final = 10
"""The first version of both with ids instead of names; no other group API has such a version."""

_STAND_IN: Final = "?"
"""A character that no topic's name contains."""


class TopicIds(Protocol):
    """A table of topics and their ids."""

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of the topic that has this id."""

    def id_of(self, name: str) -> bytes | None:
        """The id of a topic."""


class NoTopicIds:
    """The table of a broker without topic ids."""

    def name_of(self, topic_id: bytes) -> str | None:
        """None: no topic has this id."""
        return None

    def id_of(self, name: str) -> bytes | None:
        """None: the topic has no id."""
        return None


def put_names(request: object, topics: TopicIds) -> dict[str, bytes]:
    """Set the names of a request's topics from their ids; returns the ids by these names."""
    ids: dict[str, bytes] = {}
    for topic in _topics_of(request):
        topic.name = topics.name_of(topic.topic_id) or f"{_STAND_IN}{topic.topic_id.hex()}"
        ids[topic.name] = topic.topic_id
    return ids


def _topics_of(request: object) -> list[Any]:
    if isinstance(request, OffsetCommitRequest):
        return [*request.topics]
    if isinstance(request, OffsetFetchRequest):
        return [topic for group in request.groups for topic in group.topics or ()]
    return []


def put_ids(response: object, asked: Mapping[str, bytes], topics: TopicIds) -> None:
    """Set the ids of a response's topics: the requested ids, or else the present ones.

    In the answer to a request for all topics, deleted topics are left out, because they have no id
    any more.
    """
    if isinstance(response, OffsetCommitResponse):
        for topic in response.topics:
            _identify(topic, asked[topic.name])
    elif isinstance(response, OffsetFetchResponse):
        for group in response.groups:
            ids = {t.name: asked.get(t.name) or topics.id_of(t.name) for t in group.topics}
            group.topics = [topic for topic in group.topics if ids[topic.name] is not None]
            for fetched in group.topics:
                _identify(fetched, ids[fetched.name] or bytes(16))


def _identify(topic: Any, topic_id: bytes) -> None:
    topic.topic_id = topic_id
    if topic.name.startswith(_STAND_IN):
        for partition in topic.partitions:
            partition.error_code = ErrorCode.UNKNOWN_TOPIC_ID
