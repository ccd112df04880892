"""Settings of a group coordinator, by Kafka's names and with Kafka's defaults.

In: dotted settings as an operator writes them. Out: one frozen ``GroupConfig``, checked when it is
built. Must not know: files, command lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from kohort.model.errors import ConfigError
from kohort.model.instants import Millis

INT32_MAX = 2**31 - 1

NEW_MEMBER_JOIN_TIMEOUT_MS = Millis(300_000)
"""How long a parked member without a generation is kept: its client cannot heartbeat then.

A constant in Kafka, too (KAFKA-7610), no setting.
"""

PENDING_MEMBER_GRACE_MS = Millis(1_000)
"""How long an unused member id may hold a join phase open.

Clients come back within a round trip; Kafka waits a session timeout for a client that never does.
"""

LONGEST_TEXT = 32_767
"""Most bytes of a string in Kafka's protocol and in its records."""

MAX_REQUEST_BYTES = 1 << 30
"""Limit for requests: with the group's data, a request must fit the int32 of a batch's length."""

REASON_MAX_CHARS = 255
"""Longest stored client reason. KIP-800 asks clients to cut reasons to this length."""


def _setting(name: str, default: int, low: int, high: int = INT32_MAX) -> int:
    value: int = field(default=default, metadata={"name": name, "low": low, "high": high})
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Settings of a coordinator. Durations are in milliseconds unless the name has another unit.

    Raises:
        ConfigError: a value is outside its range, or the session timeouts contradict each other.
    """

    initial_rebalance_delay_ms: int = _setting("group.initial.rebalance.delay.ms", 3_000, 0)
    min_session_timeout_ms: int = _setting("group.min.session.timeout.ms", 6_000, 1)
    max_session_timeout_ms: int = _setting("group.max.session.timeout.ms", 1_800_000, 1)
    max_size: int = _setting("group.max.size", INT32_MAX, 1)
    offset_metadata_max_bytes: int = _setting("offset.metadata.max.bytes", 4_096, 0)
    offsets_retention_minutes: int = _setting("offsets.retention.minutes", 10_080, 1)
    offsets_retention_check_interval_ms: int = _setting(
        "offsets.retention.check.interval.ms", 600_000, 1
    )
    offsets_topic_num_partitions: int = _setting("offsets.topic.num.partitions", 50, 1, 10_000)
    message_max_bytes: int = _setting("message.max.bytes", 1_048_588, 1_024)
    """Largest write of offsets to ``__consumer_offsets``; a group's own record may be larger."""

    max_groups: int = _setting("kohort.max.groups", 100_000, 1)
    """Kafka has no such limit; clients could fill memory with groups of one request each."""

    max_pending_members: int = _setting("kohort.max.pending.members", 10_000, 1)
    """Limit for member ids that were handed out and not used; Kafka has none."""

    max_rebalance_timeout_ms: int = _setting("kohort.max.rebalance.timeout.ms", 3_600_000, 1)
    """Longest time that a rebalance waits for a member, whatever timeout the member asks for.

    Kafka waits as long as the longest rebalance timeout of the group, which may be 24 days.
    """

    max_metadata_bytes: int = _setting("kohort.max.metadata.bytes", 1_048_576, 1)
    """Limit for one member's offer, over all its protocols; Kafka has no such limit."""

    max_group_bytes: int = _setting("kohort.max.group.bytes", 16_777_216, 1_024, 60 << 20)
    """Limit for a group's record, with the budget for assignments.

    Kafka limits the record by ``message.max.bytes`` and refuses the leader's SyncGroup; here a
    JoinGroup is refused, and a SyncGroup never.
    """

    assignment_budget_bytes: int = _setting("kohort.assignment.budget.bytes", 256, 0)
    """Bytes that are kept free for each member's assignment, in the group's record and in requests.

    A leader may use more: the limit for requests applies.
    """

    max_request_bytes: int = _setting("socket.request.max.bytes", 104_857_600, 1, MAX_REQUEST_BYTES)
    """Largest request: a leader's SyncGroup must fit."""

    def __post_init__(self) -> None:
        for spec in fields(self):
            value, low, high = getattr(self, spec.name), spec.metadata["low"], spec.metadata["high"]
            if not low <= value <= high:
                raise ConfigError(
                    f"{spec.metadata['name']} must be between {low} and {high}, but is {value}"
                )
        if self.min_session_timeout_ms > self.max_session_timeout_ms:
            raise ConfigError(
                "group.min.session.timeout.ms must not exceed group.max.session.timeout.ms, but "
                f"they are {self.min_session_timeout_ms} and {self.max_session_timeout_ms}"
            )

    @property
    def join_bound(self) -> tuple[str, int]:
        """Most bytes that joins can give a group, and the setting with this limit."""
        if self.max_request_bytes < self.max_group_bytes:
            return "socket.request.max.bytes", self.max_request_bytes
        return "kohort.max.group.bytes", self.max_group_bytes

    @classmethod
    def from_settings(cls, settings: Mapping[str, object]) -> GroupConfig:
        """Build a config from dotted settings; names of other settings are skipped.

        Raises:
            ConfigError: a value is no whole number or is outside its range.
        """
        chosen: dict[str, int] = {}
        for spec in fields(cls):
            name = spec.metadata["name"]
            if name in settings:
                chosen[spec.name] = _whole_number(name, settings[name])
        return cls(**chosen)


def _whole_number(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ConfigError(f"{name} must be a whole number, but is {value!r}")
    try:
        return int(value)
    except ValueError:
        raise ConfigError(f"{name} must be a whole number, but is {value!r}") from None
