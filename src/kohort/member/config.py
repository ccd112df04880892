"""The settings of a member core: its group, its timeouts, its identity.

In: values from a shell that has read the settings. Out: one frozen object. Must not know: the names
of settings (`client/`), the meaning of the protocol type (`embedded/`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kohort.model.errors import ConfigError
from kohort.model.ids import GroupId, GroupInstanceId, ProtocolType
from kohort.model.instants import Millis

JOIN_TIMEOUT_LAPSE = Millis(5_000)
"""A JoinGroup may be parked for a rebalance timeout; its answer may take this time longer."""

MAX_INT32 = 2**31 - 1

CONSUMER_PROTOCOL_TYPE = ProtocolType("consumer")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """Settings of one member; durations in milliseconds, defaults are the Java consumer's.

    Raises:
        ConfigError: the group id is empty, a duration is not positive, or the heartbeat interval is
            not below the session timeout.
    """

    group_id: GroupId
    protocol_type: ProtocolType = CONSUMER_PROTOCOL_TYPE

    group_instance_id: GroupInstanceId | None = None
    """KIP-345 identity; sent in every request. None: a dynamic member."""

    session_timeout_ms: Millis = Millis(45_000)
    heartbeat_interval_ms: Millis = Millis(3_000)

    rebalance_timeout_ms: Millis = Millis(300_000)
    """How long the coordinator waits for this member to join and sync; often the poll interval."""

    max_poll_interval_ms: Millis | None = Millis(300_000)
    """Longest time between two ``Polled`` events; None disables this check."""

    busy_with: Callable[[], str] = lambda: ""
    """Tells what the application does; asked when it has not polled in time."""

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
        """The timeout of JoinGroup: rebalance timeout + 5 s, at least the request timeout."""
        parked = min(self.rebalance_timeout_ms + JOIN_TIMEOUT_LAPSE, MAX_INT32)
        return Millis(max(parked, self.request_timeout_ms))
