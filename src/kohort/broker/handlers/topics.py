"""Topics: CreateTopics, CreatePartitions, DeleteTopics.

In: requests. Out: responses. Must not know: connections. Each topic of a request has its own error;
a topic that is named twice is refused twice, as in Kafka. All changes are on disk when the answer
leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from kohort.broker.handlers.configs import topic_settings, without_nulls
from kohort.broker.handlers.placing import grown, placed
from kohort.broker.state import BrokerState
from kohort.model.errors import ErrorCode
from kohort.storage.errors import RefusedTopic, StorageError
from kohort.storage.topic_table import NO_TOPIC_ID
from kohort.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kohort.wire.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kohort.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

T = TypeVar("T")


def create_topics(
    state: BrokerState, request: CreateTopicsRequest, version: int
) -> CreateTopicsResponse:
    """Create topics, or only say whether they could be."""
    often = _named_more_than_once(topic.name for topic in request.topics)
    results = []
    for wanted in request.topics:
        try:
            if wanted.name in often:
                raise RefusedTopic(f"topic {wanted.name!r} is named more than once")
            results.append(_create(state, wanted, request.validate_only))
        except StorageError as refused:
            results.append(
                CreatableTopicResult(
                    name=wanted.name, error_code=refused.code, error_message=str(refused)
                )
            )
    return CreateTopicsResponse(topics=results)


def _create(
    state: BrokerState, wanted: CreatableTopic, validate_only: bool
) -> CreatableTopicResult:
    placement = placed(state, wanted)
    configs = {config.name: config.value for config in wanted.configs}
    given = without_nulls(configs, "topic configs", ErrorCode.INVALID_CONFIG)
    topic = state.topics.create(
        wanted.name,
        placement.partitions,
        given,
        replication_factor=placement.replication_factor,
        replicas=placement.replicas,
        validate_only=validate_only,
    )
    return CreatableTopicResult(
        name=wanted.name,
        topic_id=topic.topic_id,
        error_code=ErrorCode.NONE,
        num_partitions=placement.partitions,
        replication_factor=placement.replication_factor,
        configs=[
            CreatableTopicConfigs(name=row.name, value=row.value, config_source=row.source)
            for row in topic_settings(state, topic)
        ],
    )


def create_partitions(
    state: BrokerState, request: CreatePartitionsRequest, version: int
) -> CreatePartitionsResponse:
    """Raise the number of partitions of topics."""
    often = _named_more_than_once(topic.name for topic in request.topics)
    results = []
    for wanted in request.topics:
        error, message = ErrorCode.NONE, None
        try:
            if wanted.name in often:
                raise RefusedTopic(f"topic {wanted.name!r} is named more than once")
            _grow(state, wanted, request.validate_only)
        except StorageError as refused:
            error, message = refused.code, str(refused)
        results.append(
            CreatePartitionsTopicResult(name=wanted.name, error_code=error, error_message=message)
        )
    return CreatePartitionsResponse(results=results)


def _grow(state: BrokerState, wanted: CreatePartitionsTopic, validate_only: bool) -> None:
    topic = state.topics.get(wanted.name)
    replicas = () if topic is None else grown(state, topic, wanted)
    state.topics.grow(wanted.name, wanted.count, replicas=replicas, validate_only=validate_only)


def delete_topics(
    state: BrokerState, request: DeleteTopicsRequest, version: int
) -> DeleteTopicsResponse:
    """Delete topics with their records, by name or (from version 6 on) by id."""
    if version >= 6:
        asked = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        asked = [(name, NO_TOPIC_ID) for name in request.topic_names]
    often = _named_more_than_once(asked)
    named = {name for name, _ in asked}
    by_id = {state.topics.name_of(topic_id) for name, topic_id in asked if name is None}
    results = []
    for name, topic_id in dict.fromkeys(asked):
        if name is not None and name in by_id:
            continue  # A topic that is named by name and id is refused once, at its id.
        result = DeletableTopicResult(name=name, topic_id=topic_id, error_code=ErrorCode.NONE)
        try:
            if (name, topic_id) in often:
                raise RefusedTopic(f"Duplicate topic {'id' if name is None else 'name'}.")
            found = _to_delete(state, name, topic_id)
            result.name, result.topic_id = found, state.topics.id_of(found) or NO_TOPIC_ID
            if name is None and found in named:
                raise RefusedTopic(
                    "The provided topic name maps to an ID that was already supplied."
                )
            state.topics.delete(found)
        except StorageError as refused:
            result.error_code, result.error_message = refused.code, str(refused)
        results.append(result)
    return DeleteTopicsResponse(responses=results)


def _to_delete(state: BrokerState, name: str | None, topic_id: bytes) -> str:
    """The name of a topic that is asked for one way or the other.

    Raises:
        RefusedTopic: both ways, neither, or an id that no topic has.
    """
    if name is not None:
        if topic_id != NO_TOPIC_ID:
            raise RefusedTopic("You may not specify both topic name and topic id.")
        return name
    if topic_id == NO_TOPIC_ID:
        raise RefusedTopic("Neither topic name nor id were specified.")
    found = state.topics.name_of(topic_id)
    if found is None:
        raise RefusedTopic("no topic has this id", ErrorCode.UNKNOWN_TOPIC_ID)
    return found


def _named_more_than_once(names: Iterable[T]) -> set[T]:
    return {name for name, count in Counter(names).items() if count > 1}
