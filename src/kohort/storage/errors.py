"""Errors of stored data, each with the Kafka error code for the client.

In: nothing. Out: exceptions that every module of this room raises; the broker turns ``code`` into
the answer. Must not know: files, batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kohort.model.errors import ErrorCode, KohortError


class StorageError(KohortError):
    """The disk failed, or its content is not what was written; a log then accepts no appends.

    Attributes:
        code: the error code for the client that asked for the operation.
    """

    code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(self, message: str, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class CorruptLog(StorageError):
    """Durable data fails its check; the message names file and position."""


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


@contextmanager
def disk(failure: str) -> Iterator[None]:
    """Raise an OSError of the body as a StorageError that begins with ``failure``."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{failure}: {error}") from error
