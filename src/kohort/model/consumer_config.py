"""Settings of the consumer's core: commits, and the start of reading.

In: values with Kafka's defaults. Out: one frozen ``ConsumerConfig``. Must not know: sockets,
fetching and the names of settings, which belong to ``kohort.client.config``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from kohort.model.errors import ConfigError
from kohort.model.instants import Millis

_AUTO_COMMIT_INTERVAL: Final = Millis(5_000)
_RETRY_BACKOFF: Final = Millis(100)
_RETRY_BACKOFF_MAX: Final = Millis(1_000)


class OffsetReset(Enum):
    """``auto.offset.reset``: where to start when the group has no usable offset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """How a consumer commits and where it starts.

    Raises:
        ConfigError: an interval is not positive.
    """

    enable_auto_commit: bool = True
    """Commit positions automatically: at the interval, before a revocation and on close."""

    auto_commit_interval_ms: Millis = _AUTO_COMMIT_INTERVAL
    auto_offset_reset: OffsetReset = OffsetReset.LATEST

    retry_backoff_ms: Millis = _RETRY_BACKOFF
    """Wait before a failed request is repeated after a retriable error; doubles to the maximum."""

    retry_backoff_max_ms: Millis = _RETRY_BACKOFF_MAX

    def __post_init__(self) -> None:
        for name in ("auto_commit_interval_ms", "retry_backoff_ms", "retry_backoff_max_ms"):
            if getattr(self, name) <= 0:
                dotted = name.replace("_", ".")
                raise ConfigError(f"{dotted} must be positive, not {getattr(self, name)}")
