"""Who sent a request to a coordinator, as far as turning it into an event needs to know."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kohort.model.ids import ConnectionId, Token, TopicPartition


class Sender(NamedTuple):
    """Who sent a request, and in which version."""

    token: Token
    version: int
    client_id: str
    client_host: str
    """As Kafka writes it: a slash and the address."""

    knows_partition: Callable[[TopicPartition], bool]
    """Whether the broker has that partition."""

    connection: ConnectionId
    """What the request came over: a higher number was opened later."""
