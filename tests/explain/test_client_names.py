"""Names of clients: the client id, or else the log of the process."""

from __future__ import annotations

import pytest

from kohort.explain.client_names import ClientNames
from kohort.explain.events import Event, Kind, Place, Side


def event(file: str, maker: str = "franz-go", client: str = "", source: str = "") -> Event:
    place = Place(file, 1)
    return Event(Kind.JOINED, Side.CLIENT, place, "", source=source, maker=maker, client=client)


def test_a_client_is_named_by_its_id_or_by_the_container_in_front_of_the_line() -> None:
    names = ClientNames()
    assert names.of(event("a.log", client="orders-1")) == "orders-1"
    assert names.of(event("b.log", client="orders-1")) == "orders-1 in b.log"
    assert names.of(event("a.log", client="orders-1", source="pod-7")) == "pod-7"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("pod-1.log", "pod-1"),
        ("logs/orders-5f7c9.json", "orders-5f7c9"),
        ("pod-1.log.3.gz", "pod-1"),
        ("worker.out.log", "worker"),
        ("consumer", "consumer"),
        ("-", "franz-go"),
        (".log", "franz-go"),
    ],
)
def test_a_client_without_an_id_is_named_by_its_log(file: str, name: str) -> None:
    assert ClientNames().of(event(file)) == name


def test_parts_of_one_log_are_one_client_and_other_logs_others() -> None:
    names = ClientNames()
    assert names.of(event("a/app.log.1")) == "app"
    assert names.of(event("a/app.log")) == "app"
    assert names.of(event("b/app.log")) == "app in b/app.log"
    assert names.of(event("a/app.log", maker="sarama")) == "sarama"
