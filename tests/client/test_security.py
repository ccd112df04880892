"""Settings of TLS and SASL, the mechanisms, and the source of tokens."""

from __future__ import annotations

import json
import pickle
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import scramp
import trustme
from tests.tidy.blocks import blocks_of
from tests.tidy.trees import ROOT
from tests.waiting import until

from kohort.client.admin import Admin
from kohort.client.config import parse_client_settings
from kohort.client.connections.logins import BearerLogin, PlainLogin, ScramLogin
from kohort.client.connections.tokens import FromOidc, Token, TokenSource
from kohort.client.errors import AuthenticationFailed, BrokerUnreachable
from kohort.host.settings import parse_assignments
from kohort.model.errors import AuthenticationError, ConfigError

TLS = {"security.protocol": "SSL"}
SASL = {"security.protocol": "SASL_SSL"}
USER = {"sasl.username": "u", "sasl.password": "p"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (USER, r"sasl\.username is given, but security\.protocol is PLAINTEXT, expected SASL_SSL"),
        ({"ssl.ca.location": "ca"}, "is PLAINTEXT, expected SSL or SASL_SSL"),
        (TLS | USER, "is SSL, expected SASL_SSL or SASL_PLAINTEXT"),
        ({"security.protocol": "TLS"}, "expected PLAINTEXT or SSL or SASL_PLAINTEXT or SASL_SSL"),
        (SASL | USER, r"sasl\.mechanism is missing: .* needs one of PLAIN, SCRAM-SHA-256"),
        (SASL | {"sasl.mechanism": "GSSAPI"}, "expected PLAIN or SCRAM-SHA-256"),
        (SASL | {"sasl.mechanism": "PLAIN"}, r"PLAIN needs sasl\.username and sasl\.password"),
        (SASL | {"sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs oauth_cb, or"),
        (SASL | {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": "x"}, "expected a function that"),
        (TLS | {"ssl.certificate.pem": "x"}, r"needs both ssl\.certificate\.location and"),
        ({"sasl.jaas.config": "x"}, r"not a setting here: give sasl\.username and sasl\.password"),
        ({"ssl.truststore.location": "x.jks"}, r"give the certificates as PEM: ssl\.ca\.location"),
        ({"sasl.kerberos.service.name": "k"}, "not supported"),
        ({"sasl_plain_password": "x"}, r"sasl\.password is given, but security\.protocol is"),
        ({"sasl_kerberos_domain_name": "k"}, "GSSAPI .* not supported"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        parse_client_settings(given)


def test_the_files_of_the_page() -> None:
    page = ROOT / "docs" / "howto" / "secured-clusters.md"
    files = [block.text for block in blocks_of(page) if block.language == "properties"]
    assert len(files) == 4
    for text in files:
        settings = parse_client_settings(parse_assignments(text.splitlines()))
        assert settings.security_protocol != "PLAINTEXT"


def test_a_secret_of_another_type_is_refused_without_the_secret() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_client_settings(SASL | {"sasl.password": 12345})
    assert str(refused.value) == "sasl.password is of type int, expected a text"


@pytest.mark.parametrize(
    "more",
    [
        {"ssl.ca.location": "/nowhere/ca.pem"},
        {"ssl.ca.pem": "no certificate"},
        {"ssl.certificate.location": "/nowhere/c.pem", "ssl.key.location": "/nowhere/k.pem"},
        {"ssl.cipher.suites": "NONE-OF-THESE"},
    ],
)
def test_files_and_ciphers_that_cannot_be_used_are_refused_before_anything_starts(
    more: dict[str, str],
) -> None:
    with pytest.raises(ConfigError, match=next(iter(more))):
        Admin(TLS, bootstrap_servers="127.0.0.1:9", **more)


def test_a_key_with_a_password(tmp_path: Path) -> None:
    mine = trustme.CA().issue_cert("client@example.org")
    paths = {"ssl.certificate.location": tmp_path / "c.pem", "ssl.key.location": tmp_path / "k.pem"}
    mine.cert_chain_pems[0].write_to_path(str(paths["ssl.certificate.location"]))
    mine.private_key_pem.write_to_path(str(paths["ssl.key.location"]))
    given = TLS | {name: str(path) for name, path in paths.items()}
    assert parse_client_settings(given).tls() is not None
    paths["ssl.key.location"].write_text("no key")
    with pytest.raises(ConfigError, match="expected PEM, and the password that fits"):
        parse_client_settings(given).tls()


def test_names_of_other_clients_are_understood() -> None:
    settings = parse_client_settings(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "scram-sha-512",
            "ssl.truststore.certificates": "ca",
            "ssl.keystore.certificate.chain": "certificate",
            "ssl.keystore.key": "key",
            "sasl_plain_username": "u",
            "sasl_plain_password": "p",
            "ssl_password": "of the key",
        }
    )
    assert (settings.sasl_password, settings.ssl_key_password) == ("p", "of the key")
    assert settings.security_protocol == "SASL_SSL"
    assert settings.sasl_mechanism == "SCRAM-SHA-512"
    assert (settings.ssl_ca_pem, settings.ssl_key_pem) == ("ca", "key")
    share = settings.librdkafka()
    assert share["security.protocol"] == "sasl_ssl"
    assert share["sasl.mechanism"] == "SCRAM-SHA-512"
    assert share["ssl.certificate.pem"] == "certificate"
    assert parse_client_settings({}).security_of_librdkafka() == {}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("secret", ["right", "wrong"])
def test_both_sides_of_scram_prove_that_they_know_the_password(mechanism: str, secret: str) -> None:
    known = scramp.ScramMechanism(mechanism).make_auth_info("right")
    server = scramp.ScramMechanism(mechanism).make_server(lambda _user: known)
    login = ScramLogin(mechanism, "a=b,c", secret)
    server.set_client_first(login.first().decode())
    proof = login.answer(server.get_server_first().encode())
    assert proof is not None
    if secret == "wrong":
        with pytest.raises(scramp.ScramException):
            server.set_client_final(proof.decode())
        with pytest.raises(AuthenticationError, match=f"{mechanism}: "):
            login.answer(server.get_server_final().encode())
        return
    server.set_client_final(proof.decode())
    assert login.answer(server.get_server_final().encode()) is None
    with pytest.raises(AuthenticationError, match="after its end"):
        login.answer(b"more")


def test_a_broker_that_does_not_know_the_password_is_refused() -> None:
    known = scramp.ScramMechanism().make_auth_info("right")
    server = scramp.ScramMechanism().make_server(lambda _user: known)
    login = ScramLogin("SCRAM-SHA-256", "u", "right")
    server.set_client_first(login.first().decode())
    login.answer(server.get_server_first().encode())
    with pytest.raises(AuthenticationError, match="SCRAM-SHA-256"):
        login.answer(b"v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
    garbage = ScramLogin("SCRAM-SHA-256", "u", "right")
    with pytest.raises(AuthenticationError):
        garbage.answer(b"\xff")


def test_messages_of_plain_and_oauthbearer() -> None:
    assert PlainLogin("me", "söcret").first() == "\0me\0söcret".encode()
    bearer = BearerLogin(Token("abc", 1.0, extensions={"logicalCluster": "lkc-1"}))
    assert bearer.first() == b"n,,\x01auth=Bearer abc\x01logicalCluster=lkc-1\x01\x01"
    assert bearer.answer(b"") is None
    assert bearer.answer(b'{"status":"invalid_token"}') == b"\x01"
    assert "abc" not in repr(Token("abc", 1.0))


def test_a_token_is_fetched_once_and_renewed_in_the_background() -> None:
    fetched: list[Token] = []
    renewed = threading.Event()

    def fetch() -> Token:
        # The first token is past 80 % of its life at once.
        life = 0.05 if not fetched else 3_600.0
        fetched.append(Token(f"t{len(fetched)}", time.time() + life))
        if len(fetched) == 2:
            renewed.set()
        return fetched[-1]

    source = TokenSource(fetch)
    with pytest.raises(AuthenticationError, match="no valid token"):
        TokenSource(lambda: Token("x", time.time() + 60)).present()
    assert source.wait().value == "t0"
    until(lambda: time.time() > fetched[0].expires, "the end of the token")
    with pytest.raises(AuthenticationError):
        source.present()
    assert renewed.wait(10)
    assert source.wait().value == "t1"
    assert [source.present().value for _ in range(3)] == ["t1"] * 3
    assert len(fetched) == 2


def test_a_renewal_that_fails_keeps_the_token_that_is_still_valid() -> None:
    answers: list[Token | AuthenticationError] = [
        Token("first", time.time() + 60),
        AuthenticationError("the server is down"),
    ]

    def fetch() -> Token:
        answer = answers.pop(0)
        if isinstance(answer, AuthenticationError):
            raise answer
        return answer

    source = TokenSource(fetch)
    assert source.wait().value == "first"
    source._renew_at = 0.0
    assert source.wait().value == "first"
    assert not answers
    assert source.wait().value == "first", "no third fetch so soon"


def test_settings_with_tokens_travel_to_other_processes() -> None:
    oidc = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:9/token",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "s3cret",
        "sasl.oauthbearer.extensions": "a=1, b=2",
    }
    settings = parse_client_settings(SASL | oidc)
    again = pickle.loads(pickle.dumps(settings))
    assert again == settings
    assert again.tokens is not None
    assert "s3cret" not in repr(settings)
    with pytest.raises(ConfigError, match=r"oauthbearer\.extensions: expected name=value"):
        parse_client_settings(SASL | oidc | {"sasl.oauthbearer.extensions": "a"})


def test_a_token_endpoint_that_cannot_be_reached() -> None:
    with pytest.raises(AuthenticationError, match="gave no token: URLError") as failed:
        FromOidc("http://127.0.0.1:9/token", "me", "s3cret")()
    assert "s3cret" not in str(failed.value)


def test_a_login_without_a_token_is_a_failure_of_the_call() -> None:
    def fetch(config: str) -> tuple[str, float]:
        raise RuntimeError("no network")

    settings = {
        "bootstrap.servers": "127.0.0.1:9",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": fetch,
    }
    with Admin(settings) as admin, pytest.raises(AuthenticationFailed, match="no network"):
        admin.topics()


# Python's ssl leaves the half-made socket of a connection that has ended to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_listener_that_resets_every_connection_is_a_failure_of_the_call() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reset() -> None:
            with suppress(OSError):
                while True:
                    accepted, _ = server.accept()
                    at_once = struct.pack("ii", 1, 0)
                    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
                    accepted.close()

        thread = threading.Thread(target=reset, daemon=True)
        thread.start()
        more = {"socket.connection.setup.timeout.ms": 1_000, "retry.backoff.ms": 1}
        settings = {"bootstrap.servers": f"127.0.0.1:{server.getsockname()[1]}", **TLS, **more}
        try:
            with Admin(settings) as admin, pytest.raises(BrokerUnreachable, match="is SSL"):
                admin.topics()
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_secrets_are_in_no_representation() -> None:
    secret = "correct-horse"
    secrets = {
        "ssl.key.pem": secret,
        "ssl.key.password": secret,
        "ssl.certificate.pem": "c",
        "sasl.password": secret,
        "sasl.oauthbearer.client.secret": secret,
        "sasl.oauthbearer.config": secret,
    }
    named = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    settings = parse_client_settings({**secrets, **named})
    assert secret not in repr(settings)
    assert secret in json.dumps(list(settings.librdkafka().values()), default=str)
