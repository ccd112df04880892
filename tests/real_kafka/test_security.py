"""Consumers, admins and producers at the secured listeners of a real Kafka."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
import types
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from tests.cli.commands import Kohort, rows
from tests.client.columns import rows_by_arrow
from tests.client.refusals import Kind, OfAsync, Reader
from tests.real_kafka.secured import (
    PASSWORD,
    USER,
    Secured,
    denied,
    lives,
    login,
    secured_kafka,
    token_endpoint,
    write,
)
from tests.tidy.blocks import block_with
from tests.waiting import until

from kohort.client.admin import Admin
from kohort.client.config import parse_client_settings
from kohort.client.connections.client_loop import ClientLoop
from kohort.client.consumer import Consumer
from kohort.client.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    ClientError,
    FetchFailed,
    RequestFailed,
)
from kohort.client.membership import GroupMembership
from kohort.client.producing import IdempotentProducer
from kohort.spark.source.fetching import BatchFetcher
from kohort.testing.kafka_jars import installed
from kohort.testing.real_kafka import absence
from kohort.wire.client_connection import ClientConnection

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]

KOHORT = (sys.executable, "-m", "kohort.cli.main")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if installed() is None:
        pytest.skip(absence())
    with secured_kafka(tmp_path_factory.mktemp("secured")) as cluster:
        yield cluster


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_logins_over_tls(secured: Secured, mechanism: str) -> None:
    settings = secured.at("LOGIN", secured.trusted, login(mechanism))
    lives(settings, f"login-{mechanism.lower()}")


def test_tls(secured: Secured) -> None:
    lives(secured.at("TLS", secured.trusted), "tls")


def test_certificates_of_clients_as_files_and_as_texts(secured: Secured) -> None:
    mine = secured.certificate(secured.authority)
    lives(secured.at("MUTUAL", secured.trusted, mine), "mutual-files")
    lives(secured.at("MUTUAL", secured.certificate_as_text()), "mutual-texts")


def test_tokens_of_a_function_are_fetched_once_for_all_clients(secured: Secured) -> None:
    configs: list[str] = []

    def fetch(config: str) -> tuple[str, float]:
        configs.append(config)
        return secured.issuer.token()

    bearer = {
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": fetch,
        "sasl.oauthbearer.config": "from=test",
    }
    settings = parse_client_settings(
        secured.at("TOKEN", bearer), group_id="g-token", auto_offset_reset="earliest"
    )
    with Admin(settings) as admin, Consumer(settings) as consumer:
        admin.create_topic("tokens", 1, 1)
        write(settings, "tokens")
        consumer.subscribe(["tokens"])
        until(lambda: consumer.poll(0.2), "the record")
    assert configs == ["from=test"]


def test_tokens_of_an_oidc_server(secured: Secured) -> None:
    with token_endpoint(secured.issuer, "s3cret") as (url, asked):
        oidc = {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.oauthbearer.client.id": "client",
            "sasl.oauthbearer.client.secret": "s3cret",
            "sasl.oauthbearer.scope": "records",
        }
        lives(secured.at("TOKEN", oidc), "oidc")
        assert asked[0] == "grant_type=client_credentials&scope=records"
        wrong = denied(secured.at("TOKEN", oidc | {"sasl.oauthbearer.client.secret": "wr0ng"}))
    assert "answered 401 invalid_client: unknown client" in wrong
    assert "wr0ng" not in wrong


def test_connections_log_in_again_before_their_sessions_end(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = secured.at("SHORT", login("SCRAM-SHA-256"))
    with Admin(settings) as admin:
        admin.create_topic("short", 1, 1)
    # librdkafka warns if the first producer of a cluster asks for an id before there are any.
    write(parse_client_settings(settings), "short")
    caplog.clear()
    connects: list[object] = []
    connect = ClientLoop._connect

    def counted(loop: ClientLoop, wish: Any) -> None:
        connects.append(wish)
        connect(loop, wish)

    monkeypatch.setattr(ClientLoop, "_connect", counted)
    group = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 300}
    membership = GroupMembership(["short"], settings | group, group_id="g-short")
    with membership, Consumer(settings) as reader:
        membership.join()
        until(lambda: membership.snapshot().owned, "the assignment")
        reader.assign([("short", 0)])
        reader.seek(("short", 0), 1)
        seen, opened = membership.snapshot(), len(connects)
        # The broker closes every connection that is older than 2 s and did not log in again.
        until(
            lambda: (
                reader.poll(0.05) is None
                and membership.snapshot().confirmations >= seen.confirmations + 14
            ),
            "heartbeats for 4 s",
        )
        assert membership.snapshot().generation == seen.generation
        # The connection for other requests may rest: the broker closes that one when used late.
        assert len(connects) == opened
        write(parse_client_settings(settings), "short")
        until(lambda: reader.poll(0.2), "a record after three sessions of librdkafka's connection")
    assert not [r for r in caplog.records if r.name == "kohort.client.fetching.record_fetcher"]


def test_connections_for_columns_log_in_again_with_tokens(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    renewed: list[object] = []
    log_in_again = ClientConnection.log_in_again

    def counted(connection: ClientConnection) -> bytes:
        renewed.append(connection)
        return log_in_again(connection)

    monkeypatch.setattr(ClientConnection, "log_in_again", counted)
    bearer = {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda config: secured.issuer.token()}
    settings = secured.at("TOKEN", bearer)
    name = f"renewed-{uuid.uuid4().hex}"
    with Admin(settings) as admin:
        admin.create_topic(name, 1, 1)
    group = {"heartbeat.interval.ms": 300, "auto.offset.reset": "earliest"}
    lost: list[object] = []
    written = 0
    with Consumer(settings | group, group_id=name) as reader:
        reader.subscribe([name], on_lost=lambda _, partitions: lost.extend(partitions))
        producer = IdempotentProducer(parse_client_settings(settings))
        # The connection of the group and the connection of the fetcher log in again twice.
        while len(renewed) < 2 * len(set(renewed)) or len(set(renewed)) < 2:
            producer.produce(name, value=b"%d" % written, partition=0)
            producer.wait()
            assert [row[4] for row in rows_by_arrow(reader, 1)] == [b"%d" % written]
            reader.commit()
            written += 1
        producer.close()
    assert not lost
    assert not [m for m in caplog.messages if m.startswith("fetching: ")]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_one_clear_error_without_the_password(
    secured: Secured, mechanism: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    history = tmp_path / "history.jsonl"
    wrong = login(mechanism, password="wr0ng-horse")
    settings = secured.at("LOGIN", secured.trusted, wrong)
    # librdkafka then logs its settings, too.
    text = denied(settings | {"kohort.history.file": str(history), "debug": "conf,security"})
    assert f"the broker refuses the login by {mechanism}: " in text
    assert "uthentication failed" in text
    with Admin(settings) as admin, pytest.raises(AuthenticationFailed, match="refuses the login"):
        admin.topics()
    everything = text + caplog.text + history.read_text() + repr(parse_client_settings(settings))
    assert "wr0ng-horse" not in everything
    assert USER in repr(parse_client_settings(settings))


def test_a_mechanism_that_the_listener_does_not_take(secured: Secured) -> None:
    text = denied(secured.at("SHORT", login("PLAIN")))
    assert "refuses sasl.mechanism PLAIN (UNSUPPORTED_SASL_MECHANISM)" in text
    assert "this listener takes SCRAM-SHA-256" in text


def test_a_certificate_that_nobody_trusts(secured: Secured) -> None:
    other = secured.file("other.pem", secured.other_authority.cert_pem)
    text = denied(secured.at("TLS", {"ssl.ca.location": other}))
    assert "its certificate is refused: " in text
    lives(secured.at("TLS", {"enable.ssl.certificate.verification": "false"}), "not-verified")


def test_a_certificate_for_another_name(secured: Secured) -> None:
    port = secured.kafka.address("TLS").rpartition(":")[2]
    by_name = {"bootstrap.servers": f"localhost:{port}"}
    text = denied(secured.at("TLS", secured.trusted, by_name))
    assert "its certificate is refused: Hostname mismatch" in text
    unchecked = {"ssl.endpoint.identification.algorithm": "none"}
    lives(secured.at("TLS", secured.trusted, by_name, unchecked), "another-name")


def test_a_client_without_a_certificate_or_with_a_foreign_one(secured: Secured) -> None:
    assert "it refuses the certificate" in denied(secured.at("MUTUAL", secured.trusted))
    foreign = secured.certificate(secured.other_authority)
    assert "it refuses the certificate" in denied(secured.at("MUTUAL", secured.trusted, foreign))


def test_a_token_that_has_ended_and_a_token_that_the_broker_refuses(secured: Secured) -> None:
    def bearer(fetch: Any) -> dict[str, Any]:
        return secured.at("TOKEN", {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": fetch})

    old, _ = secured.issuer.token(-60)
    ended = denied(bearer(lambda config: (old, time.time() - 60)))
    assert "the new token of SASL OAUTHBEARER ended 60 s ago" in ended
    told_late = denied(bearer(lambda config: (old, time.time() + 60)))
    assert "the broker refuses the login by OAUTHBEARER: " in told_late
    assert old not in ended + told_late
    none = denied(bearer(lambda config: None))
    assert "oauth_cb gave no token: TypeError" in none


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        ({"security.protocol": "PLAINTEXT"}, "the listener wants security.protocol SSL"),
        (
            {"security.protocol": "SASL_PLAINTEXT", **login("PLAIN")},
            "the listener wants security.protocol SSL",
        ),
    ],
)
def test_a_listener_with_tls_and_a_client_without(
    secured: Secured, protocol: dict[str, str], expected: str
) -> None:
    settings = {"bootstrap.servers": secured.kafka.address("TLS"), **protocol}
    limit = {"socket.connection.setup.timeout.ms": 1_000}
    with Admin(settings, **limit) as admin, pytest.raises(BrokerUnreachable, match=expected):
        admin.topics()


def test_a_listener_without_tls_or_without_logins(secured: Secured) -> None:
    plain = {"bootstrap.servers": secured.kafka.bootstrap_servers}
    limit = {"socket.connection.setup.timeout.ms": 1_000}
    tls = {**plain, "security.protocol": "SSL", **secured.trusted, **limit}
    with Admin(tls) as admin, pytest.raises(BrokerUnreachable, match="its listener is SSL"):
        admin.topics()
    text = denied({**plain, "security.protocol": "SASL_PLAINTEXT", **login("PLAIN")})
    assert "this listener takes no logins" in text


def test_the_programs_of_the_page(
    secured: Secured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = "docs/howto/secured-clusters.md"
    with Admin(bootstrap_servers=secured.kafka.bootstrap_servers) as admin:
        admin.create_topic("orders", 1, 1)
    plain = parse_client_settings(bootstrap_servers=secured.kafka.bootstrap_servers)
    write(plain, "orders", value=b"an order")
    monkeypatch.chdir(tmp_path)
    secured.authority.cert_pem.write_to_path("ca.pem")
    Path("password").write_text(f"{PASSWORD}\n")
    company = types.ModuleType("my_company")
    monkeypatch.setattr(company, "sign_in", secured.issuer.token, raising=False)
    monkeypatch.setitem(sys.modules, "my_company", company)
    for part, listener in (('Path("password")', "LOGIN"), ("sign_in", "TOKEN")):
        program = block_with(page, part).replace("127.0.0.1:9092", secured.kafka.address(listener))
        exec(compile(program, page, "exec"), {})
    assert capsys.readouterr().out == "b'an order'\n" * 2


def test_commands_take_a_file_of_settings(secured: Secured, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    place = ["--bootstrap-server", secured.kafka.address("LOGIN")]
    for password, said in ((PASSWORD, ""), ("wr0ng", "the broker refuses the login by PLAIN")):
        given = secured.at("LOGIN", secured.trusted, login("PLAIN", password=password))
        del given["bootstrap.servers"]
        config.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        command = [*KOHORT, "topics", "list", *place, "--command-config", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == (2 if said else 0), done.stderr
        assert said in done.stderr
        assert "wr0ng" not in done.stderr


def test_a_pipeline_without_a_permission_on_its_topic_ends_with_one_line(
    secured: Secured, tmp_path: Path
) -> None:
    mine = secured.at("LOGIN", secured.trusted, login("SCRAM-SHA-256"))
    with Admin(mine) as admin:
        admin.create_topic("closed", 1, 1)
    give(mine, ResourceType.TOPIC, "closed", "bob", AclOperation.READ)
    config, query = tmp_path / "client.properties", tmp_path / "q.sql"
    config.write_text("".join(f"{name}={value}\n" for name, value in mine.items()))
    query.write_text("SELECT value FROM records")
    command = [
        *KOHORT, "pipeline", "--bootstrap-server", secured.kafka.address("LOGIN"),
        "--command-config", str(config), "--topic", "closed", "--group", "g",
        "--sql", str(query), "--output", str(tmp_path / "table"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines() == [
        "kohort: topic closed: the broker answered TOPIC_AUTHORIZATION_FAILED (29): the user of "
        "this client needs a permission there (an ACL), or another login"
    ]
    assert not (tmp_path / "table").exists()


def test_groups_are_changed_and_records_written_at_a_secured_listener(
    secured: Secured, tmp_path: Path
) -> None:
    config = tmp_path / "client.properties"
    given = secured.at("LOGIN", secured.trusted, login("SCRAM-SHA-512"))
    del given["bootstrap.servers"]
    config.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    kohort = Kohort(secured.kafka.address("LOGIN"))
    file = ("--command-config", str(config))
    kohort("topics", "create", "by-command", "--partitions", "1", *file)
    kohort("produce", "--topic", "by-command", *file, typed="one\ntwo\n")
    assert kohort.errors.startswith("2 records, ")
    reset = ("groups", "reset-offsets", "reset-here", "--topic", "by-command", "--to-earliest")
    assert rows(kohort(*reset, "--execute", *file))[1:] == [["reset-here", "by-command", "0", "0"]]
    assert rows(kohort("groups", "offsets", "reset-here", *file))[1][2:6] == ["0", "0", "2", "2"]
    assert "first  Empty, 0 members, lag 2" in kohort(
        *("groups", "watch", "reset-here", "--count", "1"), *file
    )


def test_sparks_fetcher_reads_at_a_secured_listener(secured: Secured) -> None:
    settings = parse_client_settings(secured.at("LOGIN", secured.trusted, login("SCRAM-SHA-512")))
    fetcher = BatchFetcher(settings)
    try:
        fetcher.warm_up()
    finally:
        fetcher.close()


def give(settings: dict[str, Any], kind: Any, name: str, user: str, operation: Any) -> None:
    """Permit an operation to one user: all other users lose every permission on it."""
    rule = AclBinding(
        kind,
        name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient(settings | {"log_level": 0})
    (done,) = admin.create_acls([rule]).values()
    done.result(20)


def told(consumer: Reader, kind: type[Exception], says: str, seen: set[str] | None = None) -> None:
    """Poll until the exception comes; notes the topics of records that come before."""
    seen = set() if seen is None else seen
    with pytest.raises(kind, match=says):
        until(lambda: notes(consumer, seen), "the exception")


def notes(consumer: Reader, seen: set[str]) -> None:
    record = consumer.poll(0.1)
    if isinstance(record, Message):
        seen.add(record.topic() or "")


def reads_again(consumer: Reader, seen: set[str], topic: str) -> bool:
    """As ``reads``; refused fetches may also be told a last time."""
    with suppress(ClientError):
        return reads(consumer, seen, topic)
    return False


def reads(consumer: Reader, seen: set[str], topic: str) -> bool:
    """Poll; whether a record of the topic came. Missing permissions are no failure here."""
    with suppress(RequestFailed):
        notes(consumer, seen)
    return topic in seen


@pytest.mark.parametrize("kind", [Consumer, OfAsync], ids=["Consumer", "AsyncConsumer"])
def test_missing_permissions_are_told_and_reading_begins_when_they_come(
    secured: Secured, kind: Kind
) -> None:
    mine = secured.at("LOGIN", secured.trusted, login("SCRAM-SHA-256"))
    name = f"rights-{kind.__name__}"
    with Admin(mine) as admin:
        for topic in (name, f"{name}-open", f"{name}-seen"):
            admin.create_topic(topic, 1, 1)
    write(parse_client_settings(mine), name, f"{name}-open", f"{name}-seen")
    read, describe = AclOperation.READ, AclOperation.DESCRIBE
    give(mine, ResourceType.TOPIC, name, "bob", read)
    give(mine, ResourceType.TOPIC, f"{name}-seen", USER, describe)
    give(mine, ResourceType.GROUP, f"{name}-theirs", "bob", read)
    given = mine | {"auto.offset.reset": "earliest", "metadata.max.age.ms": 1_000}

    with kind(given | {"group.id": f"{name}-theirs"}) as consumer:
        consumer.subscribe([f"{name}-open"])
        told(consumer, RequestFailed, r"GROUP_AUTHORIZATION_FAILED.*permission READ")
    with kind(given | {"group.id": f"{name}-seen"}) as consumer:
        consumer.subscribe([f"{name}-seen"])
        told(consumer, FetchFailed, r"fetching rights-.*-seen-0 at offset 0 .*authorization")
    with kind(given | {"group.id": name}) as consumer:
        consumer.subscribe([name, f"{name}-open"])
        seen: set[str] = set()
        refused = rf"topic {name}: .*TOPIC_AUTHORIZATION_FAILED.*permission READ on it"
        for _ in range(2):
            told(consumer, RequestFailed, refused, seen)
        until(lambda: reads(consumer, seen, f"{name}-open"), "the record of the other topic")
        give(mine, ResourceType.TOPIC, name, USER, read)
        until(lambda: reads(consumer, seen, name), "the record of the topic")


@pytest.mark.parametrize("kind", [Consumer, OfAsync], ids=["Consumer", "AsyncConsumer"])
def test_a_permission_that_is_lost_is_told_and_reading_goes_on_when_it_comes_back(
    secured: Secured, kind: Kind
) -> None:
    mine = secured.at("LOGIN", secured.trusted, login("SCRAM-SHA-256"))
    name = f"lost-{kind.__name__}"
    with Admin(mine) as admin:
        admin.create_topic(name, 1, 1)
    given = mine | {"auto.offset.reset": "earliest", "metadata.max.age.ms": 1_000}
    with kind(given | {"group.id": name}) as consumer:
        consumer.subscribe([name])
        until(lambda: consumer.poll(0.1) or consumer.assignment(), "the assignment")
        give(mine, ResourceType.TOPIC, name, "bob", AclOperation.READ)
        # Whichever comes first: a refused fetch, a refused offset, or the answer about the topic.
        told(consumer, ClientError, rf"{name}.*(?i:authorization)")
        give(mine, ResourceType.TOPIC, name, USER, AclOperation.READ)
        producer = IdempotentProducer(parse_client_settings(mine))
        give(mine, ResourceType.TOPIC, name, USER, AclOperation.WRITE)
        producer.produce(name, value=b"x", partition=0)
        producer.wait()
        producer.close()
        seen: set[str] = set()
        until(lambda: reads_again(consumer, seen, name), "the record after the permission")
