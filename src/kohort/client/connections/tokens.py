"""Tokens of SASL OAUTHBEARER: fetched by a function or by OIDC, kept, and renewed in time.

In: a function that fetches a token, which may take long. Out: the present token. Must not know:
connections, librdkafka's configuration.

A token is renewed in the background when a login uses the token after 80 % of its life. That login
gets a short session from the broker, and the next login has the new token.
"""

from __future__ import annotations

import base64
import json
import logging
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from kohort.model.errors import AuthenticationError

LOG: Final = logging.getLogger(__name__)

TokenCallback: TypeAlias = Callable[[str], tuple[Any, ...]]
"""confluent-kafka's ``oauth_cb``: gets ``sasl.oauthbearer.config`` and returns the token, the end
of its life (seconds since 1970), and if wanted the principal and a mapping of SASL extensions."""

_RENEW_AFTER: Final = 0.8
"""A token is renewed after this share of its life, as in librdkafka."""
_ASK_AGAIN_S: Final = 10.0
_OIDC_TIMEOUT_S: Final = 30.0
_MOST_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Token:
    """A token with the end of its life, in seconds since 1970."""

    value: str = field(repr=False)
    expires: float
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


class TokenSource:
    """The present token of all clients that were made with the same settings.

    Args:
        fetch: fetches a token; raises AuthenticationError.
    """

    def __init__(self, fetch: Callable[[], Token]) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._renew_at = 0.0
        self._renewing = False

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenSource, (self._fetch,)

    def wait(self) -> Token:
        """The present token, fetched if there is none; may take as long as the fetch.

        Raises:
            AuthenticationError: there is no token, and none could be fetched.
        """
        with self._lock:
            token, now = self._token, time.time()
            if token is not None and now < self._renew_at:
                return token
            try:
                return self._renew(now)
            except AuthenticationError as error:
                if token is None or token.expires <= now:
                    raise
                self._renew_at = now + _ASK_AGAIN_S
                left_s = token.expires - now
                LOG.warning("the token, valid for %.0f s more, was not renewed: %s", left_s, error)
                return token

    def present(self) -> Token:
        """The present token at once; a renewal begins in the background if one is due.

        Raises:
            AuthenticationError: there is no token that is still valid.
        """
        token, now = self._token, time.time()
        if now >= self._renew_at and not self._renewing:
            self._renewing = True
            threading.Thread(target=self._renew_later, name="kohort-token", daemon=True).start()
        if token is None or token.expires <= now:
            raise AuthenticationError("there is no valid token of SASL OAUTHBEARER yet")
        return token

    def for_librdkafka(self, _config: str) -> tuple[str, float, str, dict[str, str]]:
        """The ``oauth_cb`` of librdkafka's clients; raises nothing, as confluent-kafka requires.

        Without a token the broker refuses the login, and librdkafka asks again after some seconds.
        """
        try:
            found = self.wait()
        except AuthenticationError as error:
            LOG.warning("no token of SASL OAUTHBEARER: %s", error)
            found = Token("none", time.time() + _ASK_AGAIN_S)
        return found.value, found.expires, found.principal, dict(found.extensions)

    def _renew_later(self) -> None:
        try:
            self.wait()
        except AuthenticationError as error:
            LOG.warning("no new token of SASL OAUTHBEARER: %s", error)
        finally:
            self._renewing = False

    def _renew(self, now: float) -> Token:
        token = self._fetch()
        if token.expires <= now:
            raise AuthenticationError(
                f"the new token of SASL OAUTHBEARER ended {now - token.expires:.0f} s ago: check "
                "the clocks, and that oauth_cb tells the end in seconds since 1970"
            )
        self._renew_at = now + (token.expires - now) * _RENEW_AFTER
        self._token = token
        return token


@dataclass(frozen=True, slots=True)
class FromCallback:
    """Fetches tokens from the application's ``oauth_cb``."""

    callback: TokenCallback
    config: str = field(repr=False)

    def __call__(self) -> Token:
        """A token.

        Raises:
            AuthenticationError: the function raised, or returned something else.
        """
        try:
            told = tuple(self.callback(self.config))
            value, expires = str(told[0]), float(told[1])
            principal = str(told[2]) if len(told) > 2 else ""
            extensions = dict(told[3]) if len(told) > 3 else {}
        except Exception as error:
            raise AuthenticationError(
                f"oauth_cb gave no token: {type(error).__name__}: {error}; expected (token, end of "
                "its life in seconds since 1970)"
            ) from error
        return Token(value, expires, principal, extensions)


@dataclass(frozen=True, slots=True)
class FromOidc:
    """Fetches tokens from an OIDC server, by the grant of client credentials (KIP-768)."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)
    ca_location: str | None = None

    def __call__(self) -> Token:
        """A token.

        Raises:
            AuthenticationError: the server refused, or could not be reached.
        """
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        pair = f"{self.client_id}:{self.client_secret}".encode()
        request = urllib.request.Request(
            self.url,
            urllib.parse.urlencode(form).encode(),
            {"Authorization": f"Basic {base64.b64encode(pair).decode()}"},
        )
        try:
            context = ssl.create_default_context(cafile=self.ca_location)
            with urllib.request.urlopen(
                request, timeout=_OIDC_TIMEOUT_S, context=context
            ) as answer:
                return self._token(json.loads(answer.read(_MOST_BYTES)))
        except urllib.error.HTTPError as error:
            with error:
                raise AuthenticationError(
                    f"the token endpoint {self.url} answered {error.code} {_reason(error)}"
                ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AuthenticationError(
                f"the token endpoint {self.url} gave no token: {type(error).__name__}: {error}"
            ) from None

    def _token(self, answer: Any) -> Token:
        value = answer["access_token"]
        claims = _claims(value)
        expires = claims.get("exp") or time.time() + float(answer["expires_in"])
        return Token(value, float(expires), str(claims.get("sub", self.client_id)), self.extensions)


def _claims(token: str) -> dict[str, Any]:
    """The claims of a JWT; only the broker verifies them. Empty for any other token."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    body = parts[1]
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return claims if isinstance(claims, dict) else {}


def _reason(error: urllib.error.HTTPError) -> str:
    """The error fields of RFC 6749. Other parts of the body may hold secrets and are left out."""
    try:
        body = json.loads(error.read(_MOST_BYTES))
        return f"{body['error']}: {body.get('error_description', '')}".rstrip(": ")
    except (OSError, ValueError, KeyError, TypeError):
        return str(error.reason)
