"""Admin requests to the embedded broker."""

from __future__ import annotations

import time
from collections.abc import Iterator

import confluent_kafka
import pytest
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.descriptions import NewTopic
from kohort.client.errors import BrokerUnreachable, Closed, RequestFailed
from kohort.client.membership import GroupMembership
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.positions import EARLIEST, LATEST

TP0, TP1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def admin(kohort_broker: EmbeddedBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as made:
        yield made


def refused(caught: pytest.ExceptionInfo[RequestFailed]) -> ErrorCode:
    return caught.value.code


def test_cluster_description_has_the_broker(admin: Admin, kohort_broker: EmbeddedBroker) -> None:
    cluster = admin.describe_cluster()
    assert [f"{b.host}:{b.port}" for b in cluster.brokers] == [kohort_broker.bootstrap_servers]
    assert cluster.controller_id == cluster.brokers[0].node_id
    assert cluster.cluster_id


def test_topics_are_created_seen_enlarged_and_deleted(admin: Admin) -> None:
    admin.create_topics(
        [NewTopic(name="t", partitions=2, replication_factor=1), NewTopic(name="u", partitions=1)]
    )
    assert admin.topics(["t"])["t"].topic_partitions == [TP0, TP1]
    assert {"t", "u"} <= admin.topics().keys()
    admin.create_partitions("t", 5)
    assert len(admin.topics(["t"])["t"].partitions) == 5
    admin.delete_topics(["t"])
    assert "t" not in admin.topics()


def test_validate_only_creates_nothing(admin: Admin) -> None:
    admin.create_topics([NewTopic(name="t", partitions=2)], validate_only=True)
    assert "t" not in admin.topics()


def test_refusal_of_a_broker_is_raised_at_once_with_kafkas_name(admin: Admin) -> None:
    admin.create_topic("t", 2)
    start = time.monotonic()
    with pytest.raises(RequestFailed, match=r"topic t: .*TOPIC_ALREADY_EXISTS") as caught:
        admin.create_topic("t", 2)
    assert refused(caught) is ErrorCode.TOPIC_ALREADY_EXISTS
    for ask in (
        lambda: admin.topics(["nope"]),
        lambda: admin.delete_topics(["nope"]),
        lambda: admin.list_offsets([TopicPartition("nope", 0)]),
        lambda: admin.list_offsets([TopicPartition("t", 9)]),
    ):
        with pytest.raises(RequestFailed) as caught:
            ask()
        assert refused(caught) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(RequestFailed) as caught:
        admin.delete_group("nope")
    assert refused(caught) is ErrorCode.GROUP_ID_NOT_FOUND
    assert time.monotonic() - start < 20, "none of these is worth a second try"


def test_settings_of_topics_are_returned_and_changed(admin: Admin) -> None:
    admin.create_topic("t", 1, configs={"retention.ms": "5000"})
    settings = admin.topic_settings("t")
    assert (settings["retention.ms"].value, settings["retention.ms"].source) == ("5000", "topic")
    assert settings["segment.bytes"].source == "default"
    admin.alter_topic("t", {"max.message.bytes": "77"}, back_to_default=["retention.ms"])
    settings = admin.topic_settings("t")
    assert (settings["max.message.bytes"].value, settings["retention.ms"].source) == (
        "77",
        "default",
    )
    admin.alter_topic("t", {"max.message.bytes": "88"}, validate_only=True)
    assert admin.topic_settings("t")["max.message.bytes"].value == "77"
    with pytest.raises(RequestFailed, match="nonsense") as caught:
        admin.alter_topic("t", {"nonsense": "1"})
    assert refused(caught) is ErrorCode.INVALID_CONFIG
    start = time.monotonic()
    for ask in (lambda: admin.topic_settings("nope"), lambda: admin.alter_topic("nope", {})):
        with pytest.raises(RequestFailed) as caught:
            ask()
        assert refused(caught) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert time.monotonic() - start < 20, "none of these is worth a second try"


def test_records_are_deleted(admin: Admin, kohort_broker: EmbeddedBroker) -> None:
    admin.create_topic("t", 2)
    producer = confluent_kafka.Producer({"bootstrap.servers": kohort_broker.bootstrap_servers})
    for _ in range(10):
        producer.produce("t", b"v", partition=0)
    assert producer.flush(10) == 0
    assert admin.delete_records({TP0: 4, TP1: LATEST}) == {TP0: 4, TP1: 0}
    assert admin.list_offsets([TP0], EARLIEST)[TP0].offset == 4
    with pytest.raises(RequestFailed, match=r"partition t-0: .*OFFSET_OUT_OF_RANGE"):
        admin.delete_records({TP0: 99})
    assert admin.delete_records({TP0: LATEST}) == {TP0: 10}
    assert admin.delete_records({}) == {}


def test_topics_have_ids_that_tell_one_from_the_next(admin: Admin) -> None:
    admin.create_topic("t", 1)
    first = admin.topics(["t"])["t"].topic_id
    admin.delete_topics(["t"])
    admin.create_topic("t", 1)
    second = admin.topics(["t"])["t"].topic_id
    assert first is not None
    assert second is not None
    assert len(first) == len(second) == 22
    assert first != second


def test_offsets_first_next_and_by_time(admin: Admin, kohort_broker: EmbeddedBroker) -> None:
    admin.create_topic("t", 2)
    producer = confluent_kafka.Producer({"bootstrap.servers": kohort_broker.bootstrap_servers})
    for number in range(10):
        producer.produce("t", b"x", partition=0, timestamp=1_000 + number)
        producer.flush()
    both = [TP0, TP1]
    assert {tp: at.offset for tp, at in admin.list_offsets(both, EARLIEST).items()} == {
        TP0: 0,
        TP1: 0,
    }
    assert {tp: at.offset for tp, at in admin.list_offsets(both, LATEST).items()} == {
        TP0: 10,
        TP1: 0,
    }
    epoch = admin.list_offsets([TP0], LATEST)[TP0].leader_epoch
    assert admin.epoch_ends({TP0: epoch, TP1: epoch}) == {TP0: 10, TP1: 0}
    assert admin.epoch_ends({}) == {}
    found = admin.list_offsets([TP0], 1_004)[TP0]
    assert (found.offset, found.timestamp) == (4, 1_004)
    assert admin.list_offsets([]) == {}


def test_a_group_with_its_members_and_offsets(admin: Admin, kohort_broker: EmbeddedBroker) -> None:
    admin.create_topic("t", 2)
    with GroupMembership(
        ["t"], bootstrap_servers=kohort_broker.bootstrap_servers, group_id="g", client_id="me"
    ) as member:
        until(lambda: member.snapshot().owned, "partitions are assigned")
        member.commit({TP0: 7})
        described = admin.describe_group("g")
        assert (described.state, described.protocol_type) == ("Stable", "consumer")
        assert described.protocol_name == "cooperative-sticky"
        assert [m.partitions for m in described.members] == [frozenset({TP0, TP1})]
        assert described.members[0].client_id == "me"
        assert [(g.group_id, g.state) for g in admin.list_groups()] == [("g", "Stable")]
        with pytest.raises(RequestFailed) as caught:
            admin.delete_group("g")
        assert refused(caught) is ErrorCode.NON_EMPTY_GROUP
    assert {tp: at.offset for tp, at in admin.committed("g").items()} == {TP0: 7}
    assert admin.committed("g", [TP1]) == {}
    admin.delete_group("g")
    assert admin.describe_group("g").state == "Dead"
    assert admin.committed("g") == {}


def test_address_where_nothing_listens() -> None:
    admin = Admin(bootstrap_servers="127.0.0.1:1", socket_connection_setup_timeout_ms=1_000)
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1, got: connection refused; check"):
        admin.topics()


def test_address_where_another_program_listens(kohort_broker: EmbeddedBroker) -> None:
    import socket
    import threading

    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            peer, _ = server.accept()
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            peer.close()

        threading.Thread(target=greet, daemon=True).start()
        admin = Admin(
            bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}",
            socket_connection_setup_timeout_ms=300,
        )
        with pytest.raises(BrokerUnreachable, match="expected a Kafka broker"):
            admin.topics()


def test_a_second_bootstrap_server_serves_when_the_first_is_down(
    kohort_broker: EmbeddedBroker,
) -> None:
    servers = f"127.0.0.1:1,{kohort_broker.bootstrap_servers}"
    with Admin(bootstrap_servers=servers) as admin:
        assert admin.describe_cluster().brokers


def test_wrong_use_of_admin_is_an_error(admin: Admin) -> None:
    admin.close()
    with pytest.raises(Closed):
        admin.topics()
    with pytest.raises(ConfigError, match="host:port"):
        Admin(bootstrap_servers="nowhere")
