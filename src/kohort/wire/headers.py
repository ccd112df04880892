"""Headers of requests and responses: which of their versions belongs to which message.

In: an API's message and version. Out: the header's fields and whether it ends in tagged fields.
Must not know: what the messages say.

A request header is key, version, correlation id and client id; its version 2, used by flexible
requests, adds tagged fields but keeps the client id in its old form, an int16 length. A response
header is the correlation id; its version 1 adds tagged fields. ApiVersions is the exception: its
response always has header version 0, since a client that asks does not know yet what the broker
can read (KIP-511).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from kohort.model.errors import ProtocolError
from kohort.schema.declare import Layout

API_VERSIONS_KEY = 18
_MAX_CLIENT_ID = 32_767


@dataclass(slots=True)
class RequestHeader:
    """What stands before every request. Made once per request, so cheap and not to be changed."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def response_header_is_tagged(layout: Layout, version: int) -> bool:
    """Whether the header of this response, in ``version``, ends in tagged fields."""
    return version in layout.flexible and layout.api_key != API_VERSIONS_KEY


@lru_cache(maxsize=256)
def client_id_bytes(client_id: str | None) -> bytes:
    """A client id as a request header writes it.

    Raises:
        ProtocolError: It takes more than 32,767 bytes.
    """
    if client_id is None:
        return b"\xff\xff"
    data = client_id.encode()
    if len(data) > _MAX_CLIENT_ID:
        raise ProtocolError(f"client id of {len(data)} bytes; at most {_MAX_CLIENT_ID} fit")
    return len(data).to_bytes(2, "big") + data
