"""Typed records: confluent-kafka's deserializers, with a schema registry over HTTP.

Records are written by confluent-kafka's own serializers.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, assert_type

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import (
    Deserializer,
    MessageField,
    SerializationContext,
    StringDeserializer,
)
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.client.one_consumer import TP0, committed, read
from tests.client.schema_registry import SchemaRegistry, schema_registry
from tests.client.stage import QUICK
from tests.waiting import until

from kohort import AsyncConsumer, Consumer, DeadLetters
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.errors import DeserializationFailed, WrongUse
from kohort.client.records import Record


@dataclass(frozen=True)
class Order:
    id: int
    item: str


AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
    }
)
SCHEMA = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "item": {"type": "string"}},
        "required": ["id", "item"],
    }
)


def _message_class() -> Any:
    """The class that protoc makes of ``message Order { int64 id = 1; string item = 2; }``."""
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    fields = file.message_type.add(name="Order").field
    for number, (name, kind) in enumerate((("id", "TYPE_INT64"), ("item", "TYPE_STRING")), 1):
        fields.add(
            name=name,
            number=number,
            type=descriptor_pb2.FieldDescriptorProto.Type.Value(kind),
            label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


PROTOBUF = _message_class()
Serialize = Callable[[Order, SerializationContext], bytes | None]


def _order(fields: Any, _context: object) -> Order:
    return Order(**fields)


def _fields(order: Any, _context: object) -> dict[str, Any]:
    return asdict(order)


def avro(client: SchemaRegistryClient) -> tuple[Serialize, Deserializer]:
    return AvroSerializer(client, AVRO, _fields), AvroDeserializer(client, from_dict=_order)


def json_schema(client: SchemaRegistryClient) -> tuple[Serialize, Deserializer]:
    reader = JSONDeserializer(None, _order, client)
    return JSONSerializer(SCHEMA, client, _fields), reader


def protobuf(client: SchemaRegistryClient) -> tuple[Serialize, Deserializer]:
    serialize = ProtobufSerializer(PROTOBUF, client)

    def written(order: Order, context: SerializationContext) -> bytes | None:
        data: bytes | None = serialize(PROTOBUF(**asdict(order)), context)
        return data

    return written, ProtobufDeserializer(PROTOBUF, schema_registry_client=client)


FORMATS = [avro, json_schema, protobuf]
ORDERS = [Order(number, f"item {number}") for number in range(6)]
BROKEN = 3
"""The offset at which the broken record is."""


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as made:
        yield made


@pytest.fixture
def client(registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    """A client that knows no schema yet."""
    with client_of(registry) as made:
        yield made


def client_of(registry: SchemaRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url, "max.retries": 0})


@pytest.fixture
def address(kohort_broker: EmbeddedBroker) -> str:
    with Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as admin:
        admin.create_topic("t", 2, 1)
        admin.create_topic("dead", 1, 1)
    return kohort_broker.bootstrap_servers


def put(address: str, *values: bytes | None) -> None:
    """Write records into partition 0."""
    producer = Producer({"bootstrap.servers": address, "log_level": 0})
    for number, value in enumerate(values):
        producer.produce("t", value, key=f"k{number}", partition=0)
    assert producer.flush(30) == 0


def serialized(serialize: Serialize) -> list[bytes | None]:
    context = SerializationContext("t", MessageField.VALUE)
    return [serialize(order, context) for order in ORDERS]


def settings_of(address: str) -> dict[str, object]:
    return {**QUICK, "bootstrap.servers": address, "group.id": "g"}


def fields_of(value: Any) -> Order:
    return Order(value.id, value.item)


@pytest.mark.parametrize("made", FORMATS)
def test_a_consumer_reads_what_confluents_serializers_wrote(
    address: str,
    client: SchemaRegistryClient,
    made: Callable[[SchemaRegistryClient], tuple[Serialize, Deserializer]],
) -> None:
    serialize, deserialize = made(client)
    put(address, *serialized(serialize), None)
    with Consumer[str, Any](
        settings_of(address),
        key_deserializer=StringDeserializer(),
        value_deserializer=deserialize,
    ) as consumer:
        consumer.subscribe(["t"])
        *records, null = read(consumer, len(ORDERS) + 1)
    assert [fields_of(record.value()) for record in records] == ORDERS
    assert [record.key() for record in records] == [f"k{n}" for n in range(len(ORDERS))]
    assert null.value() is None


@pytest.mark.parametrize("made", FORMATS)
def test_asyncio_reads_the_same(
    address: str,
    client: SchemaRegistryClient,
    made: Callable[[SchemaRegistryClient], tuple[Serialize, Deserializer]],
) -> None:
    serialize, deserialize = made(client)
    put(address, *serialized(serialize))

    async def run() -> list[Order]:
        found: list[Order] = []
        async with AsyncConsumer[bytes, Any](
            settings_of(address), value_deserializer=deserialize
        ) as consumer:
            consumer.subscribe(["t"])
            async for record in consumer:
                found.append(fields_of(record.value()))
                if len(found) == len(ORDERS):
                    break
        return found

    assert asyncio.run(run()) == ORDERS


# -- a record that no deserializer takes ----------------------------------------------------------


def by_poll(consumer: Consumer[str, Order]) -> list[Record[str, Order]]:
    record = consumer.poll(0.2)
    return [] if record is None else [record]


def by_consume(consumer: Consumer[str, Order]) -> list[Record[str, Order]]:
    return consumer.consume(10, 0.2)


def by_iteration(consumer: Consumer[str, Order]) -> list[Record[str, Order]]:
    return [next(iter(consumer))]


def by_batches(consumer: Consumer[str, Order]) -> list[Record[str, Order]]:
    return next(consumer.batches(10, 0.1))


@pytest.mark.parametrize("take", [by_poll, by_consume, by_iteration, by_batches])
@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"no schema",
        lambda data: data[:-1],
        lambda data: b"\0\0\0\x0f\xff" + data[5:],
    ],
    ids=["of another program", "cut off", "of an unknown schema"],
)
def test_a_broken_record_is_named_and_set_aside_and_no_other_is_lost(
    address: str,
    client: SchemaRegistryClient,
    take: Callable[[Consumer[str, Order]], list[Record[str, Order]]],
    damage: Callable[[bytes], bytes],
) -> None:
    serialize, deserialize = avro(client)
    values = serialized(serialize)
    broken = damage(values[0] or b"")
    put(address, *values[:BROKEN], broken, *values[BROKEN:])
    found: list[Order | None] = []
    failures: list[DeserializationFailed] = []
    settings = settings_of(address)
    with (
        Consumer[str, Order](
            settings, key_deserializer=bytes.decode, value_deserializer=deserialize
        ) as consumer,
        DeadLetters(settings, "dead") as letters,
    ):
        consumer.subscribe(["t"])
        while len(found) < len(ORDERS):
            try:
                found += [record.value() for record in take(consumer)]
            except DeserializationFailed as error:
                letters.send(error.record, error)
                failures.append(error)
        consumer.commit()
        assert committed_of(consumer) == len(ORDERS) + 1
    assert found == ORDERS
    (failure,) = failures
    assert (failure.partition, failure.offset, failure.field) == (TP0, BROKEN, "value")
    assert (failure.data, failure.record.key(), failure.record.value()) == (broken, b"k3", broken)
    for part in (str(TP0), f"offset {BROKEN}", "poll again", "DeadLetters.send", "retry("):
        assert part in str(failure)
    (letter,) = letters_in(address)
    assert (letter.key(), letter.value()) == (b"k3", broken)
    assert ("kohort.errors.offset", b"3") in (letter.headers() or [])


def committed_of(consumer: Consumer[Any, Any]) -> int:
    return consumer.committed([TP0])[TP0].offset


def letters_in(address: str) -> list[Message]:
    with Consumer({"bootstrap.servers": address}, auto_offset_reset="earliest") as consumer:
        consumer.assign([("dead", 0)])
        return list(read(consumer, 1))


def test_a_program_that_ends_with_the_failure_has_committed_only_what_came_before(
    kohort_broker: EmbeddedBroker, address: str
) -> None:
    put(address, b"1", b"2", b"not a number", b"4")

    def program() -> None:
        with Consumer(settings_of(address), value_deserializer=int) as consumer:
            consumer.subscribe(["t"])
            for record in consumer:
                assert_type(record, Record[bytes, int])
                consumer.commit()

    with pytest.raises(DeserializationFailed):
        program()
    assert committed(kohort_broker)[TP0] == 2


# After a refusal confluent-kafka's HTTP client drops a connection without closing it.
@pytest.mark.filterwarnings("ignore:.*socket.socket:pytest.PytestUnraisableExceptionWarning")
def test_records_come_again_when_the_registry_is_back(
    address: str, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    _with_a_registry_that_comes_back(address, registry, client)
    gc.collect()


def _with_a_registry_that_comes_back(
    address: str, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    serialize, _ = avro(client)
    put(address, *serialized(serialize))
    _, deserialize = avro(client_of(registry))
    failures: list[DeserializationFailed] = []
    registry.down = True
    with Consumer[bytes, Order](settings_of(address), value_deserializer=deserialize) as consumer:
        consumer.subscribe(["t"])
        found: list[Order | None] = []

        def step() -> int:
            try:
                found.extend(record.value() for record in consumer.consume(10, 0.1))
            except DeserializationFailed as error:
                failures.append(error)
                consumer.retry(error.record, backoff=0.05)
                registry.down = len(failures) < 2
            return len(found) == len(ORDERS)

        try:
            until(step, "all orders came")
        finally:
            registry.down = False
    assert found == ORDERS
    assert [failure.offset for failure in failures] == [0, 0]
    assert isinstance(failures[0].__cause__, SchemaRegistryError)


def test_a_deserializer_that_is_a_coroutine_is_refused(address: str) -> None:
    async def later(_data: bytes) -> int:
        return 1

    put(address, b"1")
    with Consumer(settings_of(address), value_deserializer=later) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(DeserializationFailed, match="is a coroutine, expected a function"):
            read(consumer, 1)


def test_a_letter_needs_the_bytes_of_the_record(address: str) -> None:
    put(address, b"1")
    settings = settings_of(address)
    with (
        Consumer(settings, value_deserializer=int) as consumer,
        DeadLetters(settings, "dead") as letters,
    ):
        consumer.subscribe(["t"])
        (record,) = read(consumer, 1)
        with pytest.raises(WrongUse, match=r"value of t-0 offset 0 is int, expected bytes"):
            letters.send(record, ValueError("no"))


# -- the types, which mypy checks in this file ----------------------------------------------------


def test_the_types_of_keys_and_values_follow_the_deserializers(address: str) -> None:
    settings: dict[str, object] = {"bootstrap.servers": address}
    with Consumer(settings) as plain:
        assert_type(plain, Consumer[bytes, bytes])
    with Consumer(bootstrap_servers=address) as plain:
        assert_type(plain, Consumer[bytes, bytes])
    options = {"bootstrap_servers": address}
    with Consumer(**options) as plain:
        assert_type(plain, Consumer[bytes, bytes])
    given = {**settings, "value.deserializer": _parsed}
    with Consumer[bytes, Order](given) as half_typed:
        assert_type(half_typed, Consumer[bytes, Order])
    orders = Consumer(settings, key_deserializer=bytes.decode, value_deserializer=_parsed)
    assert_type(orders, Consumer[str, Order])
    if orders.subscription():
        for record in orders:
            assert_type(record.key(), str | None)
            assert_type(record.value(), Order | None)
            message: Message = record
            assert message.topic() == "t"
        assert_type(orders.consume(), list[Record[str, Order]])
        assert_type(next(orders.batches()), list[Record[str, Order]])
        wrong: Consumer[str, int] = orders  # type: ignore[assignment]
        wrong.close()
    for consumer in (plain, orders):
        consumer.close()


def _parsed(data: bytes) -> Order:
    return Order(**json.loads(data))


async def types_of_asyncio(address: str) -> None:
    """Never called: mypy reads it."""
    consumer = AsyncConsumer(bootstrap_servers=address, value_deserializer=_parsed)
    assert_type(consumer, AsyncConsumer[bytes, Order])
    assert_type(await consumer.poll(), Record[bytes, Order] | None)
    assert_type(await consumer.consume(), list[Record[bytes, Order]])
    async for record in consumer:
        assert_type(record.value(), Order | None)
    async for batch in consumer.batches():
        assert_type(batch, list[Record[bytes, Order]])
