"""The exceptions that the client room raises.

    KohortError
    ├── ConfigError            a setting is wrong; nothing was started       (kohort.model.errors)
    └── ClientError
        ├── BrokerUnreachable  no bootstrap server was reached, or not the broker of the request
        ├── AuthenticationFailed  a login or a certificate was refused
        ├── RequestTimedOut    a broker was reached and did not answer in time
        ├── RequestFailed      a broker answered with an error code
        ├── CommitFailed       other members may own these partitions: do not retry
        ├── RebalanceInProgress  a rebalance runs; the same commit may succeed after it
        ├── Fenced             another process has this group.instance.id; stop
        ├── NoOffset           auto.offset.reset=none, and the group has no usable offset
        ├── DeserializationFailed  a key or value was refused; the exception has the offset
        ├── FetchFailed        a partition cannot be read; librdkafka does not repair this by itself
        ├── WrongUse           called in a way that cannot work: the text says what to do instead
        └── Closed             the consumer, membership or admin was closed before

Only this room raises exceptions for users; the cores below it return values.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Message

from kohort.model.errors import ErrorCode, KohortError
from kohort.model.ids import TopicPartition


class ClientError(KohortError):
    """Base of the exceptions of the client room."""

    retriable = False
    """Whether the same call may succeed later without a change."""


class BrokerUnreachable(ClientError):
    """No broker was reached within the given time."""

    retriable = True


class ConnectionsRefused(BrokerUnreachable):
    """No process listens at the addresses of the brokers."""


class AuthenticationFailed(ClientError):
    """A broker refused this client's login or certificate, or this client refused the broker's.

    The client keeps trying: another call may succeed once the cause is removed.
    """


class RequestTimedOut(ClientError):
    """A connected broker did not answer within the given time; the request may have been done."""

    retriable = True


class RequestFailed(ClientError):
    """A broker answered with an error code.

    Attributes:
        code: the error code, Kafka's name.
        about: the subject of the request: a topic, a partition, a group.
    """

    def __init__(self, code: ErrorCode, about: str, message: str | None = None) -> None:
        self.code = code
        self.about = about
        if not message and code.name.endswith("_AUTHORIZATION_FAILED"):
            message = "the user of this client needs a permission there (an ACL), or another login"
        if not message and code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            message = "check the name and the number (`kohort topics describe` shows what exists)"
        detail = f": {message}" if message else ""
        super().__init__(f"{about}: the broker answered {code.name} ({int(code)}){detail}")

    @property
    def retriable(self) -> bool:  # type: ignore[override]
        """As Kafka's own clients treat this code."""
        return self.code.retriable


class CommitFailed(ClientError):
    """The commit was refused: other members may own the partitions, and read the records again."""


class RebalanceInProgress(ClientError):
    """The group is between two generations; try the commit again after the rebalance."""

    retriable = True


class Fenced(ClientError):
    """Another member joined with the same ``group.instance.id`` (KIP-345); this one must stop."""


class NoOffset(ClientError):
    """A partition has no usable committed offset, and ``auto.offset.reset`` is none.

    Attributes:
        partitions: the partitions that have no position; seek them, or set auto.offset.reset.
    """

    def __init__(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        self.partitions = dict(partitions)
        shown = ", ".join(
            f"{tp} ({'nothing committed' if at is None else f'offset {at} is not in the log'})"
            for tp, at in sorted(self.partitions.items())
        )
        super().__init__(
            f"no position for {shown} and auto.offset.reset is none: "
            "seek() these partitions, or set auto.offset.reset to earliest or latest"
        )


class DeserializationFailed(ClientError):
    """A deserializer raised. The position is after the record: the next poll continues there.

    No other record is lost. Poll again to leave the record out, call ``DeadLetters.send`` to keep
    the record elsewhere, or ``retry`` to read it later, if the schema registry was the cause.

    Attributes:
        record: the record with its bytes, as it is in the log.
        partition: where the record is.
        offset: its offset there.
        field: ``key`` or ``value``.
        data: the bytes that were refused.
    """

    def __init__(
        self, record: Message, partition: TopicPartition, field: str, data: bytes, cause: Exception
    ) -> None:
        self.record = record
        self.partition = partition
        self.offset = record.offset() or 0
        self.field = field
        self.data = data
        super().__init__(
            f"{field} of record {partition} offset {self.offset} ({len(data)} bytes) could not be "
            f"deserialized: {type(cause).__name__}: {cause}; poll again to go on after it, "
            "DeadLetters.send(error.record, error) to keep it, retry(error.record) to read it again"
        )


class FetchFailed(ClientError):
    """A partition cannot be read: an unknown topic, a missing permission, or a damaged batch."""


class WrongUse(ClientError):
    """The call does not fit the state; the text says what to do instead."""


class Closed(WrongUse):
    """The object was closed; make a new one."""
