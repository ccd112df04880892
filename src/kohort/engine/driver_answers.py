"""Answers of brokers to the requests of a consumer's core, as events of the core.

In: an effect of the core, and the member engine's answer. Out: the event, with the text of an error
that a second request cannot mend. Must not know: connections, the time, the application.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kohort.consumer.effects import CommitOffsets, FetchOffsets, ListOffsets
from kohort.consumer.events import CommitAnswered, OffsetsCommitted, OffsetsFetched, OffsetsListed
from kohort.engine import member_outputs as engine
from kohort.engine.member_outputs import Answered, Committed, RequestError, RequestErrorKind
from kohort.model.client_facts import Outcome
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

_PERMANENT = frozenset({RequestErrorKind.UNSUPPORTED, RequestErrorKind.CLOSED})


def accepted(
    offsets: Mapping[TopicPartition, Position], answer: Committed
) -> OffsetsCommitted | None:
    """The accepted offsets of a commit of the application; None if the commit failed."""
    if answer.error is not None:
        return None
    return OffsetsCommitted(
        offsets={tp: at for tp, at in offsets.items() if tp not in answer.refused}
    )


def commit_answer(effect: CommitOffsets) -> Callable[[Committed], CommitAnswered]:
    """A reader of the answer to a commit of the core."""
    return lambda answer: CommitAnswered(
        request=effect.request, refused=answer.refused, failed=answer.error is not None
    )


def offsets_fetched(effect: FetchOffsets, answer: engine.OffsetsFetched) -> OffsetsFetched:
    """The group's committed offsets. Without an answer, or with a refusal, all of them failed."""
    wanted = sorted(effect.partitions)
    if answer.error is None and not answer.refused:
        offsets = {tp: answer.offsets.get(tp) for tp in wanted}
        return OffsetsFetched(request=effect.request, offsets=offsets)
    fatal = _permanent(answer.error)
    for tp, code in sorted(answer.refused.items()):
        fatal = fatal or _permanent_code(code, tp)
    return OffsetsFetched(request=effect.request, offsets={}, failed=effect.partitions, fatal=fatal)


def offsets_listed(effect: ListOffsets, answer: Answered) -> OffsetsListed:
    """The offsets that one leader told; its other partitions failed."""
    fatal = _permanent(answer.error)
    offsets: dict[TopicPartition, Position] = {}
    for topic in answer.message.topics if answer.message is not None else ():
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            code = ErrorCode.of(row.error_code)
            if code is ErrorCode.NONE:
                offsets[partition] = Position(row.offset, row.leader_epoch)
            else:
                fatal = fatal or _permanent_code(code, partition)
    failed = frozenset(answer.partitions) - offsets.keys()
    return OffsetsListed(request=effect.request, offsets=offsets, failed=failed, fatal=fatal)


def outcome(error: RequestError | None) -> Outcome:
    """The certain outcome: a refused commit may have been accepted in an earlier attempt."""
    if error is None:
        return Outcome.OK
    return Outcome.FAILED if error.kind is RequestErrorKind.UNSUPPORTED else Outcome.UNKNOWN


def _permanent(error: RequestError | None) -> str | None:
    """The text of an error that a second request cannot mend."""
    if error is None:
        return None
    refused = error.kind is RequestErrorKind.UNAVAILABLE and not error.code.retriable
    return error.message if refused or error.kind in _PERMANENT else None


def _permanent_code(code: ErrorCode, partition: TopicPartition) -> str | None:
    return None if code.retriable else f"offset of {partition}: {code.name}"
