"""The memory of a member, object by object; ``bench.coordinator`` sees only pages."""

from __future__ import annotations

import gc
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from tests.engine.coordinator_bench import Bench, Client

from kohort.wire.messages.k11_join_group import JoinGroupRequestProtocol

pytestmark = pytest.mark.slow

MEMBERS = 30
LARGEST = 1_600
"""Bytes of a member that beats, with 100 B of metadata and of assignment, without its connection.
In a process it takes a fifth more, which has to stay under 2 KiB."""

GIVEN = bytes(100)


def together() -> tuple[Bench, list[Client]]:
    bench = Bench(delay=1_000)
    return bench, [bench.client(f"client-{number:04}") for number in range(MEMBERS)]


def join(client: Client, member_id: str) -> str:
    request = client.join_request("g", member_id)
    # Its own bytes: equal ones would be one object here, and never are in requests.
    own = bytes(10) + client.name.encode().rjust(90)
    request.protocols = [JoinGroupRequestProtocol(name="range", metadata=own)]
    client.send("JoinGroup", request)
    told: str = client.answers[-1].member_id if client.answers else ""
    return told


def settle(bench: Bench, clients: list[Client]) -> None:
    """A group of all of them, each of which beats twice."""
    ids = [join(client, "") for client in clients]
    for client, member_id in zip(clients, ids, strict=True):
        join(client, member_id)
    bench.wait(5_000)
    generation = clients[0].answers[-1].generation_id
    plan = {member_id: GIVEN + member_id.encode() for member_id in ids}
    for client, member_id in zip(clients, ids, strict=True):
        client.sync("g", generation, member_id, plan if client is clients[0] else {})
    bench.written()
    for _ in range(2):
        bench.wait(1_000)
        beats = [client.beat("g", generation, m) for client, m in zip(clients, ids, strict=True)]
        assert beats == [0] * MEMBERS


def forget(bench: Bench, clients: list[Client]) -> None:
    """Objects of the test itself."""
    for kept in (bench.journal, bench.facts, bench.stored):
        kept.clear()
    for client in clients:
        client.answers.clear()
        client._sent.clear()


def bytes_a_member() -> float:
    """The memory that one member of a group keeps, in bytes."""
    settle(*together())  # makes the codecs and tables, which later members share
    bench, clients = together()
    forget(bench, clients)
    gc.collect()
    tracemalloc.start()
    try:
        settle(bench, clients)
        forget(bench, clients)
        gc.collect()
        kept = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    ours = kept.filter_traces([tracemalloc.Filter(False, "*/tests/*")])
    return sum(trace.size for trace in ours.traces) / MEMBERS


def test_a_member_uses_little_memory() -> None:
    # A process of its own: tracemalloc counts all threads, and brokers of other tests run in some.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
        each = apart.submit(bytes_a_member).result()
    assert len(GIVEN) * 2 < each < LARGEST
