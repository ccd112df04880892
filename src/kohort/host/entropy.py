"""Makes random ids. No other module of the broker's side may use the machine's randomness.

In: nothing. Out: ids of members, clusters and topics. Must not know: cores, which get these
functions as arguments, so that a lab can pass its own generator.
"""

from __future__ import annotations

import base64
import uuid

from kohort.model.ids import MemberId


def new_member_id(prefix: str) -> MemberId:
    """A member id as Kafka makes it: the client's id (or instance id), a dash, a random UUID."""
    return MemberId(f"{prefix}-{uuid.uuid4()}")


def new_topic_id() -> bytes:
    """A topic id: the 16 bytes of a random UUID; its text form does not start with a dash."""
    while True:
        made = uuid.uuid4().bytes
        if not base64.urlsafe_b64encode(made).startswith(b"-"):
            return made


def new_cluster_id() -> str:
    """A cluster id in Kafka's form: a random UUID in 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
