"""API key 36, SaslAuthenticate: one step of a login, in the bytes of the mechanism (KIP-152).

| version | request | response |
|---|---|---|
| 1 | | lifetime of the session (KIP-368) |
| 2 | flexible | flexible |
"""

from __future__ import annotations

from kohort.schema import BYTES, INT16, INT64, STRING, field, request, response


@request(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    """The client's step."""

    auth_bytes: bytes = field(BYTES)


@response(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """The broker's step, or why the broker refuses the login."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    auth_bytes: bytes = field(BYTES)
    session_lifetime_ms: int = field(INT64, versions="1+", ignorable=True)
