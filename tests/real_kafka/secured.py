"""A real Kafka with secured listeners: certificates, users and tokens that are made for one run."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from tests.client.columns import rows_by_arrow, values_by_arrow
from tests.waiting import until

from kohort.client.admin import Admin
from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.consumer import Consumer
from kohort.client.errors import AuthenticationFailed
from kohort.client.producing import IdempotentProducer
from kohort.model.ids import TopicPartition
from kohort.testing.real_kafka import RealKafka

USER, PASSWORD = "alice", "correct-horse"
AUDIENCE = "kafka"
RENEWED_EVERY_MS = 2_000
RECORDS = 20

LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "LOGIN": "SASL_SSL",
    "TOKEN": "SASL_PLAINTEXT",
    "SHORT": "SASL_PLAINTEXT",
}

_MODULES = "org.apache.kafka.common.security"


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """Signs tokens (JWT, RS256) as an OIDC server does."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)

    def keys(self) -> str:
        numbers = self._key.public_key().public_numbers()
        number = {
            name: _b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))
            for name, value in (("n", numbers.n), ("e", numbers.e))
        }
        return json.dumps({"keys": [{"kty": "RSA", "kid": "one", "alg": "RS256", **number}]})

    def token(self, lives_s: float = 60.0) -> tuple[str, float]:
        now = time.time()
        claims = {"sub": USER, "aud": AUDIENCE, "iat": int(now) - 1, "exp": int(now + lives_s)}
        parts = [{"alg": "RS256", "kid": "one"}, claims]
        text = ".".join(_b64(json.dumps(part).encode()) for part in parts)
        signature = self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{_b64(signature)}", now + lives_s


@dataclass
class Secured:
    """The cluster and all that clients need."""

    kafka: RealKafka
    folder: Path
    issuer: Issuer
    authority: trustme.CA
    other_authority: trustme.CA = field(default_factory=trustme.CA)

    def file(self, name: str, *blobs: trustme.Blob) -> str:
        path = self.folder / name
        path.write_bytes(b"".join(blob.bytes() for blob in blobs))
        return str(path)

    @property
    def trusted(self) -> dict[str, str]:
        return {"ssl.ca.location": self.file("ca.pem", self.authority.cert_pem)}

    def certificate(self, authority: trustme.CA) -> dict[str, str]:
        mine = authority.issue_cert("client@example.org")
        return {
            "ssl.certificate.location": self.file("client.pem", *mine.cert_chain_pems),
            "ssl.key.location": self.file("client.key", mine.private_key_pem),
        }

    def certificate_as_text(self) -> dict[str, str]:
        mine = self.authority.issue_cert("client@example.org")
        return {
            "ssl.ca.pem": self.authority.cert_pem.bytes().decode(),
            "ssl.certificate.pem": "".join(b.bytes().decode() for b in mine.cert_chain_pems),
            "ssl.key.pem": mine.private_key_pem.bytes().decode(),
        }

    def at(self, listener: str, *more: Mapping[str, Any]) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.kafka.address(listener),
            "security.protocol": LISTENERS[listener],
        }
        for part in more:
            settings |= part
        return settings


def _pkcs8(key: bytes) -> bytes:
    """A key in the only form that Java reads."""
    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def login(mechanism: str, user: str = USER, password: str = PASSWORD) -> dict[str, str]:
    return {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}


@contextmanager
def secured_kafka(folder: Path) -> Iterator[Secured]:
    """One node with all the listeners."""
    authority, issuer = trustme.CA(), Issuer()
    server = authority.issue_cert("127.0.0.1")
    store, trusted, keys = folder / "server.pem", folder / "trusted.pem", folder / "keys.json"
    store.write_bytes(_pkcs8(server.private_key_pem.bytes()))
    for certificate in server.cert_chain_pems:
        certificate.write_to_path(str(store), append=True)
    authority.cert_pem.write_to_path(str(trusted))
    keys.write_text(issuer.keys(), encoding="ascii")
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    settings: dict[str, str | int] = {
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1_000,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",  # the node itself
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.login.plain.sasl.jaas.config": (
            f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
        "listener.name.login.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.login.scram-sha-512.sasl.jaas.config": scram,
        "listener.name.short.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.short.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.short.scram-sha-256.connections.max.reauth.ms": RENEWED_EVERY_MS,
        "listener.name.token.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.token.oauthbearer.sasl.jaas.config": (
            f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";'
        ),
        "listener.name.token.oauthbearer.sasl.server.callback.handler.class": (
            f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "listener.name.token.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "listener.name.token.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
        "listener.name.token.oauthbearer.connections.max.reauth.ms": RENEWED_EVERY_MS,
    }
    kafka = RealKafka(
        folder / "kafka",
        settings=settings,
        quick=True,
        listeners=LISTENERS,
        scram={USER: PASSWORD},
        options=[
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}",
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={keys}",
        ],
    )
    with kafka:
        yield Secured(kafka, folder, issuer, authority)


@contextmanager
def token_endpoint(issuer: Issuer, password: str) -> Iterator[tuple[str, list[str]]]:
    """An OIDC server's token endpoint; yields its address and the grants that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            given = base64.b64decode(self.headers["Authorization"].split()[1]).decode()
            asked.append(body)
            if given == f"client:{password}":
                token, _ = issuer.token()
                status, answer = 200, {"access_token": token, "expires_in": 60}
            else:
                status = 401
                answer = {"error": "invalid_client", "error_description": "unknown client"}
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token", asked
        finally:
            server.shutdown()
            thread.join()


def write(settings: ClientSettings, *topics: str, value: bytes = b"x") -> None:
    """Write a record to partition 0 of each topic."""
    producer = IdempotentProducer(settings)
    for topic in topics:
        producer.produce(topic, value=value, partition=0)
    producer.wait()
    producer.close()


def lives(settings: dict[str, Any], topic: str) -> None:
    """Make a topic, write, read, commit and look up the commit, all at one listener."""
    group = {"group.id": f"g-{topic}", "auto.offset.reset": "earliest"}
    with Admin(settings) as admin:
        admin.create_topic(topic, 2, 1)
        producer = IdempotentProducer(parse_client_settings(settings))
        for number in range(RECORDS):
            producer.produce(topic, value=b"%d" % number, partition=number % 2)
        producer.wait()
        producer.close()
        read: list[int] = []
        with Consumer(settings, **group) as consumer:
            consumer.subscribe([topic])

            def all_read() -> bool:
                read.extend(int(record.value() or b"") for record in consumer.consume(50, 0.2))
                return len(read) >= RECORDS

            until(all_read, "every record is read")
            consumer.commit()
            partitions = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
            found = consumer.committed(partitions)
            assert {at.offset for at in found.values()} == {RECORDS // 2}
        # The fetcher of columns has connections of its own.
        with Consumer(settings, **{**group, "group.id": f"columns-{topic}"}) as consumer:
            consumer.subscribe([topic])
            rows = rows_by_arrow(consumer, RECORDS)
        assert sorted(int(row[4]) for row in rows) == sorted(read)
        columns = asyncio.run(values_by_arrow(settings | group, topic, RECORDS))
        assert sorted(columns) == sorted(read)
        assert sorted(read) == list(range(RECORDS))


def denied(settings: dict[str, Any]) -> str:
    """The message of the failure that poll raises."""
    with Consumer(settings, group_id="g-denied") as consumer:
        consumer.subscribe(["any"])
        with pytest.raises(AuthenticationFailed) as raised:
            until(lambda: consumer.poll(0.2), "the failure")
        status = consumer.status()
        assert not status.owned
    return str(raised.value)
