"""Arguments in the forms of other clients."""

from __future__ import annotations

import aiokafka
import aiokafka.abc
import aiokafka.structs
import confluent_kafka
import pytest

from kohort.client import arguments
from kohort.client.listeners import listener_of
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

TP = TopicPartition("t", 3)


@pytest.mark.parametrize("client", [aiokafka, confluent_kafka], ids=lambda client: client.__name__)
def test_partitions_of_other_clients_are_taken(client: object) -> None:
    theirs = client.TopicPartition("t", 3)  # type: ignore[attr-defined]
    assert arguments.partitions([theirs]) == {TP}


@pytest.mark.parametrize(
    "theirs",
    [
        aiokafka.structs.OffsetAndMetadata(7, "text"),
        confluent_kafka.TopicPartition("t", 3, 7, metadata="text"),
    ],
    ids=["aiokafka", "confluent_kafka"],
)
def test_offsets_with_metadata_of_other_clients_are_taken(theirs: object) -> None:
    assert arguments.offsets({TP: theirs}) == {TP: Position(7, metadata="text")}  # type: ignore[dict-item]


def test_one_partition_in_place_of_a_list_is_an_error_with_the_list() -> None:
    with pytest.raises(TypeError, match=r"is one partition, expected a list: \[TopicPartition\("):
        arguments.partitions(TP)  # type: ignore[arg-type]


def test_a_listener_of_another_client_is_an_error_with_the_class_to_use() -> None:
    class Listener(aiokafka.abc.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: object) -> None:
            """Never called."""

        def on_partitions_assigned(self, assigned: object) -> None:
            """Never called."""

    with pytest.raises(TypeError, match=r"a RebalanceListener of kohort\.client\.listeners"):
        listener_of(Listener())
