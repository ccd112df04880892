"""Exceptions for the errors and refusals that the cores and engines return as values.

In: ``RequestError``, refused partitions, ``Trouble``. Out: exceptions of ``client.errors``. Must
not know: threads, callers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kohort.client.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    ClientError,
    Closed,
    CommitFailed,
    ConnectionsRefused,
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


def request_failure(error: RequestError, group_id: str = "") -> ClientError:
    """The exception for a request that got no response.

    Args:
        error: the engine's.
        group_id: the group to name in the text, if the request was about one.
    """
    kind, code = error.kind, error.code
    about, text = "", error.message
    if group_id:
        about, text = f"group {group_id}", f"group {group_id}: {text}"
    if kind is RequestErrorKind.UNSUPPORTED:
        request, _, why = error.message.partition(": ")
        return RequestFailed(ErrorCode.UNSUPPORTED_VERSION, about or request, why)
    if kind is RequestErrorKind.UNAVAILABLE and not code.retriable:
        return RequestFailed(code, about, error.message)
    if kind is RequestErrorKind.MEMBERSHIP and code is not ErrorCode.FENCED_INSTANCE_ID:
        return CommitFailed(
            f"{text}; other members may own the partitions now and repeat the records since "
            "the last commit. Process less between two polls or raise max.poll.interval.ms"
        )
    if kind is RequestErrorKind.REBALANCING:
        return RebalanceInProgress(f"{text}; commit again after the rebalance")
    return _CLASSES[kind](text)


_CLASSES: Final[dict[RequestErrorKind, type[ClientError]]] = {
    RequestErrorKind.TIMED_OUT: RequestTimedOut,
    RequestErrorKind.DISCONNECTED: BrokerUnreachable,
    RequestErrorKind.UNAVAILABLE: BrokerUnreachable,
    RequestErrorKind.REFUSED: ConnectionsRefused,
    RequestErrorKind.DENIED: AuthenticationFailed,
    RequestErrorKind.MEMBERSHIP: Fenced,
    RequestErrorKind.CLOSED: Closed,
}


def refusal(refused: Mapping[TopicPartition, ErrorCode], about: str) -> RequestFailed:
    """The exception for refused partitions, which names the first of them.

    Args:
        refused: partitions with the code of their refusal; at least one.
        about: the subject of the request: "commit of group orders".
    """
    tp, code = min(refused.items())
    more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
    return RequestFailed(code, f"{about} for {tp}{more}")


def raise_refused(refused: Mapping[TopicPartition, ErrorCode], about: str) -> None:
    """Raise the `refusal` of partitions, if there are any."""
    if refused:
        raise refusal(refused, about)


def trouble_failure(trouble: Trouble, group_id: str) -> ClientError:
    """The exception for a member or a partition in trouble."""
    if trouble.kind is TroubleKind.NO_OFFSET:
        return NoOffset(trouble.partitions)
    if trouble.kind is TroubleKind.FENCED:
        return Fenced(f"group {group_id}: {trouble.message}")
    if trouble.error is ErrorCode.NONE:
        return ClientError(f"group {group_id}: {trouble.message}")
    return RequestFailed(trouble.error, f"group {group_id}", trouble.message)
