"""API key 17, SaslHandshake: the mechanism by which a client will prove its identity (KIP-43).

| version | request | response |
|---|---|---|
| 1 | SaslAuthenticate follows, in place of bare tokens (KIP-152) | |
"""

from __future__ import annotations

from kohort.schema import INT16, STRING, array, field, request, response


@request(api_key=17, versions="0-1")
class SaslHandshakeRequest:
    """Begin a login, or renew one (KIP-368)."""

    mechanism: str = field(STRING)


@response(api_key=17, versions="0-1")
class SaslHandshakeResponse:
    """NONE, or an error with the mechanisms of this listener."""

    error_code: int = field(INT16)
    mechanisms: list[str] = field(array(STRING))
