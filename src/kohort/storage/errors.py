"""What can go wrong with stored data, each with the Kafka error code a client is told.

Raised by every module of this room; the broker turns ``code`` into the answer. Nothing here knows
of files or batches.
"""

from __future__ import annotations

from kohort.model.errors import ErrorCode, KohortError


class StorageError(KohortError):
    """The disk failed, or what lies on it is not what was written; a log refuses to go on.

    Attributes:
        code: what a client that asked for the operation is to be told.
    """

    code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(self, message: str, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class CorruptLog(StorageError):
    """Data that was durable fails its check; the message names file and position."""


class DirectoryInUse(StorageError):
    """Another process holds the lock of this data directory."""


class RefusedBatch(StorageError):
    """A batch that breaks Kafka's rules, or its producer's sequence; nothing was written."""

    code = ErrorCode.INVALID_RECORD


class RefusedTopic(StorageError):
    """A topic, partition or topic setting that cannot be created, or does not exist."""

    code = ErrorCode.INVALID_REQUEST


class OffsetOutOfRange(StorageError):
    """An offset below the log's start or above its end."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE
