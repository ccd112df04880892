"""Settings of TLS and SASL, for kohort's connections and for librdkafka's.

In: values by Kafka's and librdkafka's names. Out: a TLS context, logins, librdkafka's share. Must
not know: sockets, requests.

One set of settings serves the member's connections and librdkafka's. Certificates and keys are PEM.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from kohort.client.connections.logins import SCRAM, BearerLogin, PlainLogin, ScramLogin
from kohort.client.connections.tokens import FromCallback, FromOidc, TokenCallback, TokenSource
from kohort.host.settings import dotted, flag, secret, word
from kohort.model.errors import ConfigError
from kohort.wire.client_connection import Login

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """How connections to brokers are secured. Sources: Kafka's and librdkafka's settings."""

    security_protocol: str = word("PLAINTEXT", PROTOCOLS, "The security of the listeners.")
    ssl_ca_location: str = word(
        "", (), "PEM file or folder of the trusted certificates; the system's if empty."
    )
    ssl_ca_pem: str = word("", (), "The trusted certificates as PEM text.")
    ssl_certificate_location: str = word("", (), "PEM file of this client's certificate.")
    ssl_certificate_pem: str = word("", (), "This client's certificate as PEM text.")
    ssl_key_location: str = word("", (), "PEM file of this client's key.")
    ssl_key_pem: str | None = secret("This client's key as PEM text.")
    ssl_key_password: str | None = secret("Password of the key.")
    ssl_cipher_suites: str = word("", (), "Ciphers of TLS 1.2, in OpenSSL's notation.")
    ssl_endpoint_identification_algorithm: str = word(
        "https", ("https", "none"), "Compare the broker's name with its certificate, or not."
    )
    enable_ssl_certificate_verification: bool = flag(True, "Verify the broker's certificate.")

    sasl_mechanism: str | None = word(None, (PLAIN, *SCRAM, OAUTHBEARER), "How a client logs in.")
    sasl_username: str = word("", (), "User of PLAIN and SCRAM.")
    sasl_password: str | None = secret("Password of PLAIN and SCRAM.")
    sasl_oauthbearer_config: str | None = secret("The argument of `oauth_cb`.")
    sasl_oauthbearer_method: str = word(
        "default", ("default", "oidc"), "Tokens come from `oauth_cb`, or from an OIDC server."
    )
    sasl_oauthbearer_token_endpoint_url: str = word("", (), "Where the OIDC server gives tokens.")
    sasl_oauthbearer_client_id: str = word("", (), "User at the OIDC server.")
    sasl_oauthbearer_client_secret: str | None = secret("Password at the OIDC server.")
    sasl_oauthbearer_scope: str = word("", (), "Scope of the tokens.")
    sasl_oauthbearer_extensions: str = word(
        "", (), "Extensions for the broker: `name=value`, comma separated (KIP-342)."
    )
    https_ca_location: str = word("", (), "PEM file of the certificates for the OIDC server.")

    # No rules: these two are not parsed from text.
    oauth_cb: TokenCallback | None = field(default=None, repr=False, metadata={"rule": None})
    tokens: TokenSource | None = field(
        default=None, init=False, repr=False, compare=False, metadata={"rule": None}
    )
    """The one source of tokens for all clients with these settings."""

    @property
    def uses_tls(self) -> bool:
        """Whether connections use TLS."""
        return self.security_protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether connections begin with a login."""
        return self.security_protocol.startswith("SASL")

    def login(self) -> Callable[[], Login] | None:
        """Makes the login of a connection; None if the listeners want none."""
        if not self.uses_sasl:
            return None
        tokens = self.tokens
        if tokens is not None:
            return lambda: BearerLogin(tokens.present())
        user, password = self.sasl_username, self.sasl_password or ""
        if self.sasl_mechanism == PLAIN:
            return partial(PlainLogin, user, password)
        return partial(ScramLogin, self.sasl_mechanism or "", user, password)

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context of connections; None without TLS.

        Raises:
            ConfigError: a file cannot be read, or holds something else.
        """
        if not self.uses_tls:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        verify = self.enable_ssl_certificate_verification
        context.check_hostname = verify and self.ssl_endpoint_identification_algorithm == "https"
        context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
        self._load_trusted(context)
        self._load_certificate(context)
        if self.ssl_cipher_suites:
            try:
                context.set_ciphers(self.ssl_cipher_suites)
            except ssl.SSLError:
                raise ConfigError(
                    f"ssl.cipher.suites is {self.ssl_cipher_suites!r}, expected names of OpenSSL "
                    "with colons between"
                ) from None
        return context

    def _load_trusted(self, context: ssl.SSLContext) -> None:
        place = self.ssl_ca_location
        try:
            if self.ssl_ca_pem:
                context.load_verify_locations(cadata=self.ssl_ca_pem)
            elif place:
                folder = Path(place).is_dir()
                context.load_verify_locations(
                    cafile=None if folder else place, capath=place if folder else None
                )
            else:
                context.load_default_certs()
        except (OSError, ValueError) as error:
            raise _unreadable("ssl.ca.location", place, "ssl.ca.pem", error) from None

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        if not (self.ssl_certificate_location or self.ssl_certificate_pem):
            return
        with tempfile.TemporaryDirectory(prefix="kohort-tls-") as folder:  # of mode 700
            certificate = _as_file(self.ssl_certificate_location, self.ssl_certificate_pem, folder)
            key = _as_file(self.ssl_key_location, self.ssl_key_pem, folder)
            try:
                # Without a password OpenSSL would ask at the terminal.
                context.load_cert_chain(certificate, key, self.ssl_key_password or "")
            except (OSError, ValueError) as error:
                raise _unreadable(
                    "ssl.certificate.location and ssl.key.location",
                    f"{self.ssl_certificate_location} and {self.ssl_key_location}".strip(),
                    "ssl.certificate.pem and ssl.key.pem, and ssl.key.password",
                    error,
                ) from None

    def security_of_librdkafka(self) -> dict[str, Any]:
        """The share of librdkafka, in its names; the same for its consumers and producers."""
        if self.security_protocol == "PLAINTEXT":
            return {}
        share: dict[str, Any] = {"security.protocol": self.security_protocol.lower()}
        if self.uses_tls:
            names = [n for n in self.__dataclass_fields__ if n.startswith("ssl_")]
            share |= {dotted(n): given for n in names if (given := getattr(self, n))}
            share["enable.ssl.certificate.verification"] = self.enable_ssl_certificate_verification
            if not (self.ssl_ca_location or self.ssl_ca_pem):
                share["ssl.ca.location"] = "probe"
        if not self.uses_sasl:
            return share
        share["sasl.mechanism"] = self.sasl_mechanism
        tokens = self.tokens
        if tokens is None:
            user = {"sasl.username": self.sasl_username, "sasl.password": self.sasl_password}
            return share | user
        return share | {"oauth_cb": tokens.for_librdkafka}


def check_security(settings: SecuritySettings) -> None:
    """Check that the settings fit one another; raises ConfigError."""
    protocol, mechanism = settings.security_protocol, settings.sasl_mechanism
    defaults = SecuritySettings.__dataclass_fields__
    for name, spec in defaults.items():
        without = (name.startswith(("sasl_", "oauth_", "https_")) and not settings.uses_sasl) or (
            "ssl_" in name and not settings.uses_tls
        )
        if without and getattr(settings, name) != spec.default:
            kind = "SASL_SSL or SASL_PLAINTEXT" if "ssl_" not in name else "SSL or SASL_SSL"
            raise ConfigError(
                f"{dotted(name)} is given, but security.protocol is {protocol}, expected {kind}"
            )
    has_key = bool(settings.ssl_key_location or settings.ssl_key_pem)
    has_certificate = bool(settings.ssl_certificate_location or settings.ssl_certificate_pem)
    if has_key != has_certificate:
        raise ConfigError(
            "a certificate of this client needs both ssl.certificate.location and "
            "ssl.key.location (or both as PEM texts), or neither"
        )
    if not settings.uses_sasl:
        return
    if not mechanism:
        raise ConfigError(
            f"sasl.mechanism is missing: security.protocol {protocol} needs one of "
            f"{', '.join((PLAIN, *SCRAM, OAUTHBEARER))}"
        )
    if mechanism != OAUTHBEARER and not (settings.sasl_username and settings.sasl_password):
        raise ConfigError(f"{mechanism} needs sasl.username and sasl.password")


def token_source(settings: SecuritySettings) -> TokenSource | None:
    """The source of tokens; None if the mechanism is not OAUTHBEARER.

    Raises:
        ConfigError: the settings name no source.
    """
    if not (settings.uses_sasl and settings.sasl_mechanism == OAUTHBEARER):
        return None
    if settings.oauth_cb is not None:
        return TokenSource(FromCallback(settings.oauth_cb, settings.sasl_oauthbearer_config or ""))
    url, client = settings.sasl_oauthbearer_token_endpoint_url, settings.sasl_oauthbearer_client_id
    password = settings.sasl_oauthbearer_client_secret
    if settings.sasl_oauthbearer_method != "oidc" or not (url and client and password):
        raise ConfigError(
            "OAUTHBEARER needs oauth_cb, or sasl.oauthbearer.method=oidc with "
            "sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.client.id and "
            "sasl.oauthbearer.client.secret"
        )
    extensions = {}
    for pair in filter(None, settings.sasl_oauthbearer_extensions.split(",")):
        name, equals, value = pair.strip().partition("=")
        if not (name and equals):
            raise ConfigError("sasl.oauthbearer.extensions: expected name=value, comma separated")
        extensions[name] = value
    return TokenSource(
        FromOidc(
            url,
            client,
            password,
            settings.sasl_oauthbearer_scope,
            extensions,
            settings.https_ca_location or None,
        )
    )


def _as_file(place: str, text: str | None, folder: str) -> str:
    """A file with this PEM; Python's ssl reads certificates and keys from files only."""
    if not text:
        return place
    path = Path(folder, f"{len(list(Path(folder).iterdir()))}.pem")
    path.write_text(text, encoding="ascii")
    return str(path)


def _unreadable(name: str, place: str, others: str, error: Exception) -> ConfigError:
    why = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    given = f"{name} is {place}" if place else f"{others} cannot be used"
    return ConfigError(f"{given}: {why}; expected PEM, and the password that fits")
