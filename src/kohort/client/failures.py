"""Exceptions for the errors and refusals that the cores and engines return as values.

In: ``RequestError``, refused partitions, ``Trouble``. Out: exceptions of ``client.errors``. Must
not know: threads, callers.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.client.errors import (
    BrokerUnreachable,
    ClientError,
    Closed,
    CommitFailed,
    Fenced,
    NoOffset,
    RebalanceInProgress,
    RequestFailed,
    RequestTimedOut,
)
from kohort.consumer.effects import Trouble, TroubleKind
from kohort.engine.member_outputs import RequestError, RequestErrorKind
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition


def request_failure(error: RequestError, group_id: str) -> ClientError:
    """The exception for a request that got no response."""
    text = f"group {group_id}: {error.message}"
    made: ClientError
    match error.kind:
        case RequestErrorKind.TIMED_OUT:
            made = RequestTimedOut(text)
        case RequestErrorKind.UNAVAILABLE if not error.code.retriable:
            made = RequestFailed(error.code, f"group {group_id}", error.message)
        case (
            RequestErrorKind.DISCONNECTED | RequestErrorKind.UNAVAILABLE | RequestErrorKind.REFUSED
        ):
            made = BrokerUnreachable(text)
        case RequestErrorKind.UNSUPPORTED:
            code = ErrorCode.UNSUPPORTED_VERSION
            made = RequestFailed(code, f"group {group_id}", error.message)
        case RequestErrorKind.MEMBERSHIP if error.code is ErrorCode.FENCED_INSTANCE_ID:
            made = Fenced(text)
        case RequestErrorKind.MEMBERSHIP:
            made = CommitFailed(
                f"{text}; other members may own the partitions now and repeat the records since "
                "the last commit. Process less between two polls or raise max.poll.interval.ms"
            )
        case RequestErrorKind.REBALANCING:
            made = RebalanceInProgress(f"{text}; commit again after the rebalance")
        case RequestErrorKind.CLOSED:
            made = Closed(text)
    return made


def raise_refused(refused: Mapping[TopicPartition, ErrorCode], about: str) -> None:
    """Raise RequestFailed for the first refused partition, if there is one.

    Args:
        refused: partitions with the code of their refusal.
        about: the subject of the request: "commit of group orders".
    """
    if refused:
        tp, code = min(refused.items())
        more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
        raise RequestFailed(code, f"{about} for {tp}{more}")


def trouble_failure(trouble: Trouble, group_id: str) -> ClientError:
    """The exception for a member or a partition in trouble."""
    if trouble.kind is TroubleKind.NO_OFFSET:
        return NoOffset(trouble.partitions)
    if trouble.kind is TroubleKind.FENCED:
        return Fenced(f"group {group_id}: {trouble.message}")
    if trouble.error is ErrorCode.NONE:
        return ClientError(f"group {group_id}: {trouble.message}")
    return RequestFailed(trouble.error, f"group {group_id}", trouble.message)
