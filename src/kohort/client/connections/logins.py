"""SASL's mechanisms, the client's side: PLAIN, SCRAM and OAUTHBEARER.

In: user and password, or a token. Out: the steps of one login, for ``ClientConnection``. Must not
know: connections, settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kohort.client.connections.tokens import Token
from kohort.model.errors import AuthenticationError

SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_KVSEP: Final = "\x01"
"""Separates the fields of OAUTHBEARER's message (RFC 7628)."""


class PlainLogin:
    """User and password as they are (RFC 4616)."""

    mechanism = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._user, self._password = user, password

    def first(self) -> bytes:
        """User and password."""
        return f"\0{self._user}\0{self._password}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """None: PLAIN has one message only."""
        del challenge
        return None


class ScramLogin:
    """Both sides prove that they know the password, and neither sends the password (RFC 5802).

    Raises:
        AuthenticationError: user or password have characters that SASLprep forbids.
    """

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        import scramp  # noqa: PLC0415 - takes 60 ms, and few clients log in by SCRAM

        self.mechanism = mechanism
        self._refusals = (scramp.ScramException, UnicodeDecodeError)
        try:
            self._client = scramp.ScramClient([mechanism], user, password)
        except scramp.ScramException as error:
            raise _refusal(mechanism, error) from None
        self._answers: list[Callable[[str], bytes | None]] = [self._proof, self._check_broker]

    def first(self) -> bytes:
        """The user, and a number that was drawn for this login."""
        first: str = self._client.get_client_first()
        return first.encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """The proof of this client; after it, None if the broker's proof is right."""
        if not self._answers:
            raise AuthenticationError(f"the broker goes on with {self.mechanism} after its end")
        try:
            return self._answers.pop(0)(challenge.decode())
        except self._refusals as error:
            raise _refusal(self.mechanism, error) from None

    def _proof(self, challenge: str) -> bytes:
        self._client.set_server_first(challenge)
        final: str = self._client.get_client_final()
        return final.encode()

    def _check_broker(self, challenge: str) -> None:
        self._client.set_server_final(challenge)


def _refusal(mechanism: str, error: Exception) -> AuthenticationError:
    return AuthenticationError(f"{mechanism}: {error}")


class BearerLogin:
    """A token (RFC 7628, KIP-255)."""

    mechanism = "OAUTHBEARER"

    def __init__(self, token: Token) -> None:
        self._token = token

    def first(self) -> bytes:
        """The token and the extensions (KIP-342)."""
        pairs = [f"{name}={value}" for name, value in self._token.extensions.items()]
        fields = [f"auth=Bearer {self._token.value}", *pairs]
        return f"n,,{_KVSEP}{_KVSEP.join(fields)}{_KVSEP}{_KVSEP}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """The request for the reason if the broker refuses the token; None otherwise."""
        return _KVSEP.encode() if challenge else None
