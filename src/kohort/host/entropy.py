"""The only file of the broker's side that asks the machine for randomness.

Out go ids: of members, producers, clusters and topics. Cores are handed these functions, so that
a lab can hand in its own generator.
"""

from __future__ import annotations

import base64
import secrets
import uuid

from kohort.model.ids import MemberId

_PRODUCER_ID_BITS = 62


def new_member_id(prefix: str) -> MemberId:
    """A member id as Kafka makes it: the client's id (or instance id), a dash, a random UUID."""
    return MemberId(f"{prefix}-{uuid.uuid4()}")


def new_producer_id() -> int:
    """A producer id that no other producer has.

    Kafka hands out blocks of a durable counter. Random ids of 62 bits need no counter that must
    survive a crash: a million producers meet with probability 1e-7.
    """
    return secrets.randbits(_PRODUCER_ID_BITS)


def new_cluster_id() -> str:
    """A cluster id in Kafka's form: a random UUID in 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
