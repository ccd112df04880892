"""The exceptions that the client room raises.

    KohortError
    ├── ConfigError            a setting is wrong; nothing was started       (kohort.model.errors)
    └── ClientError
        ├── BrokerUnreachable  no bootstrap server, or not the broker in question, was reached
        ├── AuthenticationFailed  a login or a certificate was refused
        ├── RequestTimedOut    a broker was reached and did not answer in time
        ├── RequestFailed      a broker answered with an error code
        ├── CommitFailed       other members may own these partitions: do not retry
        ├── RebalanceInProgress  not now; the same commit may succeed after the rebalance
        ├── Fenced             another process has this group.instance.id; stop
        ├── NoOffset           auto.offset.reset=none, and the group has no usable offset
        ├── DeserializationFailed  one record's key or value; the exception has its offset
        ├── FetchFailed        librdkafka reports a failure that it does not repair by itself
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
    """No connection to a broker within the time given."""

    retriable = True


class ConnectionsRefused(BrokerUnreachable):
    """No process listens at the addresses of the brokers."""


class AuthenticationFailed(ClientError):
    """A broker refuses the login or the certificate of this client, or this client the broker's.

    The client keeps trying: another call may succeed once the cause is removed.
    """


class RequestTimedOut(ClientError):
    """A connected broker did not answer within the time given; the request may have been done."""

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
    """The commit was refused because the group has moved on; records may be processed again."""


class RebalanceInProgress(ClientError):
    """The group is between two generations; try the commit again after the rebalance."""

    retriable = True


class Fenced(ClientError):
    """Another member joined with the same ``group.instance.id`` (KIP-345); this one must stop."""


class NoOffset(ClientError):
    """No committed offset, or one that left the log, and no policy to choose another.

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

    No other record is lost. The ways on: poll again to leave the record out; ``DeadLetters.send``
    to keep it elsewhere; ``retry`` to read it again later, if the schema registry was the cause.

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
    """librdkafka stopped fetching and needs help: an unknown topic, no right, a bad batch."""


class WrongUse(ClientError):
    """The call does not fit the state; the text says what to do instead."""


class Closed(WrongUse):
    """The object was closed; make a new one."""
