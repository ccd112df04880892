"""The programs of the page about typed records work, with a broker and a schema registry."""

from __future__ import annotations

import json
import sys

import pytest
from confluent_kafka import Producer
from tests.client.schema_registry import schema_registry
from tests.tidy.blocks import block_with
from tests.tidy.terminals import PATIENCE_S, Terminals
from tests.tidy.test_blocks_run import TYPED, at, terminals

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin

__all__ = ["terminals"]
pytestmark = pytest.mark.slow

ORDERS = [{"id": 1, "item": "tea"}, {"id": 2, "item": "milk"}]
READ_ORDERS = "k Order(id=1, item='tea')\nk Order(id=2, item='milk')\n"


def test_the_programs_that_read_typed_records(
    kohort_broker: EmbeddedBroker, terminals: Terminals
) -> None:
    # Of the extra schemas, without which the other tests of this folder run.
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    address = kohort_broker.bootstrap_servers
    with Admin(bootstrap_servers=address) as admin, schema_registry() as registry:
        for topic in ("orders", "orders-dead"):
            admin.create_topic(topic, 1, 1)
        producer = Producer({"bootstrap.servers": address})

        def says(part: str) -> str:
            page = at(block_with(TYPED, part), address).replace(
                "http://localhost:8081", registry.url
            )
            (terminals.folder / "page.py").write_text(page)
            return terminals.run("page", sys.executable, "page.py")

        def put_orders(*values: bytes | None) -> None:
            admin.delete_topics(["orders"])
            admin.create_topic("orders", 1, 1)
            for value in values:
                producer.produce("orders", value, "k")
            assert producer.flush(PATIENCE_S) == 0

        put_orders(*(json.dumps(order).encode() for order in ORDERS))
        assert says("value_deserializer=order") == READ_ORDERS
        put_orders(b"no order", b"1")
        assert says("consumer.retry(error.record)") == "set aside orders-0 0\nread 1\n"
        fields = [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}]
        schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
        with SchemaRegistryClient({"url": registry.url}) as client:
            write = AvroSerializer(client, schema)
            context = SerializationContext("orders", MessageField.VALUE)
            put_orders(*(write(order, context) for order in ORDERS))
        assert says("AvroDeserializer(") == READ_ORDERS
