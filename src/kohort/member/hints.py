"""Advice for users: the remedy of an error of the coordinator that ends a membership.

In: an error code, the settings and the offers of the member. Out: the end of a sentence. Must not
know: states.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kohort.member.config import MemberConfig
from kohort.model.errors import ErrorCode
from kohort.model.join import JoinProtocol


def hint(
    error: ErrorCode,
    config: MemberConfig | None = None,
    protocols: Iterable[JoinProtocol] | None = None,
) -> str:
    """The hint, after a semicolon; empty if there is none."""
    if error is ErrorCode.INVALID_SESSION_TIMEOUT and config is not None:
        return (
            f"; session.timeout.ms is {config.session_timeout_ms}, outside the broker's "
            "group.min.session.timeout.ms and group.max.session.timeout.ms (Kafka's defaults: 6000 "
            "and 1800000). Set session.timeout.ms between the two, or change them at the brokers"
        )
    if error is not ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        return _HINTS.get(error, "")
    offered = ", ".join(protocol.name for protocol in protocols or ())
    return (
        f"; this member offers {offered}, which is not known to all others. A group changes its "
        "assignor in two rolling restarts: offer both names in the first one. Or the group id is "
        "used for something else"
    )


_HINTS: Final = {
    ErrorCode.INVALID_GROUP_ID: (
        "; the broker does not take this group.id: set another name, such as letters, digits and -"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "; the group is full (the broker's group.max.size; at a kohort broker also "
        "kohort.max.group.bytes, kohort.max.metadata.bytes and kohort.max.pending.members, and its "
        "log tells which, with the numbers)"
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        "; not authorised for this group: the user of this client needs the permission READ on it"
    ),
    ErrorCode.FENCED_INSTANCE_ID: (
        "; another process uses the same group.instance.id: give each process its own"
    ),
    ErrorCode.UNSUPPORTED_VERSION: "; the broker does not support group.instance.id here",
    ErrorCode.UNKNOWN_SERVER_ERROR: (
        "; if subscriptions and assignments of the whole group are large, they do not fit the "
        "broker's message size (1 MiB by default)"
    ),
}
