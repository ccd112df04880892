"""Arguments in the forms of other clients."""

from __future__ import annotations

import threading

import aiokafka
import aiokafka.abc
import aiokafka.structs
import confluent_kafka
import numpy as np
import pytest

from kohort.client import arguments
from kohort.client.errors import WrongUse
from kohort.client.listeners import RebalanceListener, listener_of
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


@pytest.mark.parametrize(
    "name",
    [
        "on_partition_revoked",
        "on_partitions_assign",
        "onPartitionsRevoked",
        "on_lost",
        "on_revoked",
    ],
)
def test_a_misspelt_method_of_a_listener_is_an_error_with_the_right_names(name: str) -> None:
    """Nothing called the method, so that offsets were not committed, and nobody was told."""
    listener = type("Commits", (RebalanceListener,), {name: lambda *_: None})()
    expected = (
        rf"Commits has {name}, which nothing calls; .* on_partitions_assigned, on_partitions_r"
    )
    with pytest.raises(TypeError, match=expected):
        listener_of(listener)


def test_a_listener_may_have_other_methods() -> None:
    names = ["on_partitions_lost", "on_lost", "on_call", "once", "partitions"]
    listener = type("Mine", (RebalanceListener,), dict.fromkeys(names, lambda *_: None))()
    assert listener_of(listener) is listener


def test_whole_numbers_of_numpy_are_taken_and_travel_as_pythons() -> None:
    assert arguments.partition(("t", np.int32(3))) == TP
    found = arguments.offsets({TP: np.int64(7)})  # type: ignore[dict-item]
    assert found == {TP: Position(7)}
    assert type(found[TP].offset) is int
    for wrong in (np.float64(7), np.bool_(True), "7", None):
        with pytest.raises(TypeError, match="expected a whole number"):
            arguments.whole(wrong, "offset", 9)


def test_a_text_that_no_request_can_carry_is_named() -> None:
    with pytest.raises(WrongUse, match=r"reason is '\\ud800', expected text that UTF-8 can carry"):
        arguments.text("\ud800", "reason")


def test_every_time_is_one_for_which_a_lock_of_python_can_wait() -> None:
    longest = arguments.seconds(float("inf"))
    assert 1e9 <= longest <= threading.TIMEOUT_MAX / 2
    assert arguments.seconds(2.5) == 2.5
    with pytest.raises(WrongUse, match="expected 0 or more seconds"):
        arguments.seconds(float("nan"))
