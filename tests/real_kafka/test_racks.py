"""Members of kohort in three racks, on a real Kafka with a node in each of them (KIP-881)."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.client import pieces
from tests.client.stage import Player, shared_out
from tests.waiting import until

from kohort.client.consumer import Consumer
from kohort.model.ids import TopicPartition
from kohort.testing.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]

RACKS = ("a", "b", "c")
"""Those of nodes 1 to 3."""
REPLICAS = [[2, 3], [3, 1], [1, 2]] * 2


def at_home(players: Iterable[Player]) -> bool:
    """Whether each partition is balanced and has a replica in its owner's rack."""
    owned = [(player.name[0], player.owned) for player in players]
    loads = [len(mine) for _, mine in owned]
    return max(loads) - min(loads) <= 1 and all(
        rack in {RACKS[node - 1] for node in REPLICAS[tp.partition]}
        for rack, mine in owned
        for tp in mine
    )


def nodes_that_serve(
    bootstrap: str, caplog: pytest.LogCaptureFixture, *, partition: int, rack: str
) -> set[int]:
    """The nodes from which a consumer in a rack fetched records of a partition (KIP-392)."""
    caplog.clear()
    producer = Producer({"bootstrap.servers": bootstrap})
    caplog.set_level(logging.DEBUG, "kohort.client.fetching.record_fetcher")
    with Consumer(
        bootstrap_servers=bootstrap, client_rack=rack, auto_offset_reset="earliest", debug="fetch"
    ) as consumer:
        consumer.assign([TopicPartition("t", partition)])
        for _ in range(3):
            producer.produce("t", b"v", partition=partition)
            assert producer.flush(30) == 0
            until(lambda: consumer.poll(1) is not None, "a record")
    asked = re.findall(rf"/(\d)\]: .*Fetch topic t \[{partition}\]", caplog.text)
    return {int(node) for node in asked}


@pytest.mark.usefixtures("real_kafka")
def columns_come_from_a_follower_and_from_the_next_leader(cluster: RealKafka) -> None:
    """The consumer in rack c has a follower there; the other one loses its leader."""
    bootstrap = cluster.bootstrap_servers
    producer = Producer({"bootstrap.servers": bootstrap})
    with ExitStack() as opened:
        readers = [
            opened.enter_context(Consumer(bootstrap_servers=bootstrap, client_rack=rack))
            for rack in ("c", "a")
        ]
        for reader in readers:
            reader.assign([TopicPartition("t", 0)])
            reader.seek_to_end()

        def all_read(text: bytes) -> None:
            producer.produce("t", text, partition=0)
            assert producer.flush(60) == 0
            for reader in readers:
                found: list[bytes] = []

                def came(reader: Consumer = reader, found: list[bytes] = found) -> bool:
                    if (batch := reader.poll_arrow(1)) is not None:
                        found += batch.column("value").to_pylist()
                    return text in found

                until(came, f"{text!r} comes as a column", 60)

        for text in (b"first", b"second"):
            all_read(text)
        assert [replica_of(reader) for reader in readers] == [3, -1]
        cluster.kill(2)
        all_read(b"from the next leader")


def replica_of(reader: Consumer) -> int:
    """The follower that the only partition is read from; -1 for the leader."""
    columns = reader._columns
    assert columns is not None
    (only,) = columns._reader._ranges.values()
    return only.replica


def test_members_get_partitions_with_replicas_in_their_racks_and_read_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The name of each member starts with its rack."""
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    settings = {"replica.selector.class": selector}
    with RealKafka(
        tmp_path, nodes=3, heap="256m", quick=True, racks=RACKS, settings=settings
    ) as cluster:
        bootstrap = cluster.bootstrap_servers
        new = NewTopic("t", num_partitions=len(REPLICAS), replica_assignment=REPLICAS)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([new])["t"].result(30)
        given = pieces.settings(bootstrap, "g")
        players: list[Player] = []

        def settled() -> bool:
            return shared_out(players, len(REPLICAS)) and at_home(players)

        for name in ("a1", "b1", "c1"):
            players.append(Player(name, {**given, "client.rack": name[0]}, ["t"]))
            until(lambda: shared_out(players, len(REPLICAS)), f"{name} has its share")
        until(settled, "each of three members has two partitions of its rack")
        players.append(Player("a2", {**given, "client.rack": "a"}, ["t"]))
        until(settled, "two members of one rack share its partitions")
        players.pop(1).stop()
        until(settled, "the members of the other racks have all partitions, two each")
        assert {tp.partition for tp in players[1].owned} == {0, 3}, "only c has replicas of both"
        for player in players:
            player.stop()
        assert nodes_that_serve(bootstrap, caplog, partition=0, rack="c") == {2, 3}
        assert nodes_that_serve(bootstrap, caplog, partition=0, rack="a") == {2}
        columns_come_from_a_follower_and_from_the_next_leader(cluster)
