"""Why a rebalance began: the reason that a broker writes, in the words of each version.

In: the reason in a broker's line. Out: a cause, the member and its instance id, the client's own
reason (KIP-800). Must not know: lines, times.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from kohort.explain.events import Event, Kind, Side
from kohort.explain.wordings.templates import Wording, wording


class Cause(StrEnum):
    """Why a rebalance began, as the end of a sentence."""

    __hash__ = str.__hash__

    NEW_MEMBER = "a new member joined"
    LEFT = "a member left"
    EXPIRED = "a member's session expired"
    TOO_SLOW = "a member did not give its partitions up in time"
    GONE = "a member left or expired"
    LEADER_REJOINED = "the leader joined again"
    MEMBER_REJOINED = "a member joined again while the group changed"
    METADATA = "a member changed its subscription or its assignors"
    TOPICS_CHANGED = "the partitions of a topic changed"
    STATIC_CHANGED = "a static member came back with other assignors"
    SYNC_EXPIRED = "members did not fetch their assignment in time"
    STORE_FAILED = "the broker could not store the assignment"
    OVER_CAPACITY = "the group has more members than the broker allows"
    OTHERS = "another member began a rebalance"
    JOIN_FAILED = "the last join failed"
    SECOND_ROUND = "a cooperative rebalance needs a second round"
    WORKER_BEHIND = "a worker of Kafka Connect had an old configuration"
    POLL_EXPIRED = "the client had not polled in time"
    OTHER = "the log tells an unknown reason"
    UNTOLD = "a reason that the log does not tell"


class Reason(NamedTuple):
    """A reason taken apart."""

    cause: Cause
    member: str = ""
    instance: str = ""
    client_reason: str = ""


_TABLE: Final = (
    (Cause.NEW_MEMBER, "dding new member <member> with group instanceid <instance>"),
    (Cause.NEW_MEMBER, "dding new member <member> with group instance id <instance>"),
    (Cause.NEW_MEMBER, "dding new member <member>"),
    (
        Cause.STATIC_CHANGED,
        "pdating metadata for static member <member> with instance id <instance>",
    ),
    (
        Cause.STATIC_CHANGED,
        "selectedProtocol will change because static member <member> with instance id <instance> "
        "joined with change of protocol",
    ),
    (Cause.STATIC_CHANGED, "selectedProtocol will change because static member <instance> …"),
    (Cause.METADATA, "pdating metadata for member <member> during <state>"),
    (Cause.METADATA, "pdating metadata for member <member>"),
    (Cause.LEADER_REJOINED, "eader <member> re-joining group during <state>"),
    (Cause.MEMBER_REJOINED, "ember <member> is joining group during <state>"),
    (Cause.MEMBER_REJOINED, "ember <member> joining group during <state>"),
    (Cause.LEFT, "emoving member <member> on LeaveGroup"),
    (Cause.LEFT, "explicit `LeaveGroup` request for (<member>) members"),
    (Cause.LEFT, "explicit `LeaveGroup` request for (<member>"),
    (Cause.EXPIRED, "emoving member <member> on heartbeat expiration"),
    (Cause.SYNC_EXPIRED, "emoving <list> on pending sync request expiration"),
    (Cause.STORE_FAILED, "rror when storing group assignment during SyncGroup (member: <member>)"),
    (
        Cause.STORE_FAILED,
        "rror <code> when storing group assignment during SyncGroup (member: <member>)",
    ),
    (
        Cause.STORE_FAILED,
        "rror <code> when storing group assignmentduring SyncGroup (member: <member>)",
    ),
    (Cause.STORE_FAILED, "rror <code> when storing group assignment…"),
    (Cause.OVER_CAPACITY, "group is over capacity…"),
    (Cause.OVER_CAPACITY, "reshly-loaded group <group> (size <size>) is over capacity …"),
)
"""A template without its first letter fits a reason with a capital letter, too."""
_WORDINGS: Final[tuple[tuple[Cause, Wording], ...]] = tuple(
    (cause, wording(Kind.PREPARING, Side.BROKER, "Kafka", template)) for cause, template in _TABLE
)
_REJOINS: Final = frozenset({Cause.METADATA, Cause.LEADER_REJOINED, Cause.MEMBER_REJOINED})
_SECOND_ROUND: Final = ("revoke partitions", "gave up", "after revoking what we lost")
"""Parts of the reasons of Java's, kohort's and franz-go's members that join after a revocation."""
_TOPICS_CHANGED: Final = ("metadata has changed", "partition counts changed")
"""Parts of the reasons with which Java's and kohort's leaders tell new topics or partitions."""
_CLIENTS: Final = "; client reason: "
_NEEDS_ID: Final = "Broker: Group member needs a valid member ID"
"""librdkafka's text of MEMBER_ID_REQUIRED."""
_NO_OTHER: Final = len("Broker: Group m")
"""The length of the shortest beginning of that text with which no other error begins."""
_NOTHING: Final = frozenset({"None", "null", "not provided", ""})
_CLIENTS_WORDS: Final = (
    ("already rebalancing", Cause.OTHERS),
    ("roup is rebalancing, so a rejoin", Cause.OTHERS),
    ("roup is rebalancing", Cause.OTHERS),
    ("ebalance in progress", Cause.OTHERS),
    *((words, Cause.SECOND_ROUND) for words in _SECOND_ROUND),
    ("metadata change", Cause.TOPICS_CHANGED),
    ("metadata has changed", Cause.TOPICS_CHANGED),
    ("partition counts changed", Cause.TOPICS_CHANGED),
    ("not match group assignment", Cause.WORKER_BEHIND),
    ("subscription", Cause.METADATA),
    ("poll timeout", Cause.POLL_EXPIRED),
    ("rebalance failed", Cause.JOIN_FAILED),
    ("timeout", Cause.JOIN_FAILED),
)


def clients_cause(text: str, kind: Kind) -> Cause:
    """The cause in the words of a client that joins again."""
    if kind is Kind.HEARTBEAT_REBALANCING:
        return Cause.OTHERS
    return _in_words(text) if text else Cause.UNTOLD


@lru_cache(maxsize=256)
def _in_words(text: str) -> Cause:
    return next((cause for words, cause in _CLIENTS_WORDS if words in text), Cause.UNTOLD)


def reason_of(text: str) -> Reason:
    """Take a reason apart; the cause is OTHER for words that no known version uses."""
    if not text:
        return Reason(Cause.UNTOLD)
    brokers, _, clients = text.partition(_CLIENTS)
    clients = clients.rstrip(").")
    for cut in range(len(_CLIENTS) - 1, 1, -1) if not clients else ():
        brokers = brokers.removesuffix(_CLIENTS[:cut])  # a line without its end
    for cause, each in _WORDINGS:
        if each.mark in brokers and (values := each.match(brokers)) is not None:
            instance = values.get("instance", "")
            return Reason(
                _told_by_client(cause, clients),
                values.get("member", ""),
                "" if instance in _NOTHING else instance.removeprefix("Some(").removesuffix(")"),
                "" if clients in _NOTHING else clients,
            )
    return Reason(Cause.OTHER, client_reason="" if clients in _NOTHING else clients)


def _told_by_client(cause: Cause, reason: str) -> Cause:
    """The cause of a member that joins again, in the words of its client if they tell more."""
    if cause in _REJOINS:
        if any(words in reason for words in _SECOND_ROUND):
            return Cause.SECOND_ROUND
        if any(words in reason for words in _TOPICS_CHANGED):
            return Cause.TOPICS_CHANGED
    return cause


def is_benign(event: Event) -> bool:
    """Whether a line looks like a failure and is a normal first join (KIP-394)."""
    reason = event.reason
    return event.kind in {Kind.REQUESTED, Kind.JOIN_FAILED} and (
        "MemberIdRequired" in reason
        or "need to re-join with the given member-id" in reason
        or "valid member ID" in reason
        or (len(reason) >= _NO_OTHER and _NEEDS_ID.startswith(reason))
    )
