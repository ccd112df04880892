"""What a member core is told once: its group, its timeouts, its identity.

Comes in from a shell that has read settings; never changes afterwards. Must not know: how settings
are spelled (`client/`), what the protocol type means (`embedded/`).
"""

from __future__ import annotations

from dataclasses import dataclass

from kohort.model.errors import ConfigError
from kohort.model.ids import GroupId, GroupInstanceId, ProtocolType
from kohort.model.instants import Millis

JOIN_TIMEOUT_LAPSE = Millis(5_000)
"""A JoinGroup may be parked for a rebalance timeout; its answer gets this much longer (Kafka's)."""

MAX_INT32 = 2**31 - 1

CONSUMER_PROTOCOL_TYPE = ProtocolType("consumer")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """Settings of one member; durations in milliseconds, defaults are the Java consumer's.

    Raises:
        ConfigError: when values exclude each other (heartbeat interval not below the session
            timeout, empty group id, non-positive durations).
    """

    group_id: GroupId
    protocol_type: ProtocolType = CONSUMER_PROTOCOL_TYPE

    group_instance_id: GroupInstanceId | None = None
    """KIP-345 identity; sent in every request. None: a dynamic member."""

    session_timeout_ms: Millis = Millis(45_000)
    heartbeat_interval_ms: Millis = Millis(3_000)

    rebalance_timeout_ms: Millis = Millis(300_000)
    """How long the coordinator waits for this member to join and sync; the poll interval, often."""

    max_poll_interval_ms: Millis | None = Millis(300_000)
    """Longest time between two ``Polled`` events; None switches that health check off."""

    request_timeout_ms: Millis = Millis(30_000)
    retry_backoff_ms: Millis = Millis(100)
    retry_backoff_max_ms: Millis = Millis(1_000)

    def __post_init__(self) -> None:
        if not self.group_id:
            raise ConfigError("group.id is empty; a member needs the name of its group")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be below "
                f"session.timeout.ms ({self.session_timeout_ms}); a third of it is usual"
            )
        for name in (
            "session_timeout_ms",
            "heartbeat_interval_ms",
            "rebalance_timeout_ms",
            "request_timeout_ms",
            "retry_backoff_ms",
            "retry_backoff_max_ms",
        ):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be above 0")
        if self.max_poll_interval_ms is not None and self.max_poll_interval_ms <= 0:
            raise ConfigError(
                f"max.poll.interval.ms is {self.max_poll_interval_ms}; it must be above 0"
            )

    @property
    def join_timeout_ms(self) -> Millis:
        """How long JoinGroup's answer may take: rebalance timeout + 5 s, at least the default."""
        parked = min(self.rebalance_timeout_ms + JOIN_TIMEOUT_LAPSE, MAX_INT32)
        return Millis(max(parked, self.request_timeout_ms))
