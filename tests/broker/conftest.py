"""A client of bytes: one socket, frames by hand, answers in the order in which they come."""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import pytest
from tests.stored_records import iterate_records

from kohort.broker.embedded import EmbeddedBroker
from kohort.schema import layout_of
from kohort.storage.records import Record, build_batch
from kohort.wire.apis import BY_KEY
from kohort.wire.codec import decode_response, encode_request
from kohort.wire.messages import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k11_join_group,
    k14_sync_group,
    k19_create_topics,
)

PATIENCE_S = 20.0


class RawClient:
    """Speaks to a broker without any client library."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self._asked: deque[tuple[int, type, int]] = deque()
        self._correlation = 0

    def close(self) -> None:
        self.sock.close()

    def send(self, request: object, version: int | None = None, *, answered: bool = True) -> None:
        """Send a request, in the newest version that kohort's client has unless told otherwise."""
        self.sock.sendall(self._frame(request, version, answered=answered))

    def send_all(self, requests: Iterable[object]) -> None:
        """Send requests in one write."""
        self.sock.sendall(b"".join([self._frame(request) for request in requests]))

    def _frame(
        self, request: object, version: int | None = None, *, answered: bool = True
    ) -> bytes:
        """The bytes of a request, which counts as sent."""
        key = layout_of(type(request)).api_key
        assert key is not None
        api = BY_KEY[key]
        version = min(api.handled.high, api.client.high) if version is None else version
        self._correlation += 1
        if answered:
            self._asked.append((self._correlation, api.response, version))
        return encode_request(request, version, self._correlation, "raw")

    def receive(self, timeout: float = PATIENCE_S) -> Any:
        """The next answer, which must be that of the oldest request without one."""
        self.sock.settimeout(timeout)
        frame = self._exactly(struct.unpack(">i", self._exactly(4))[0])
        expected, response, version = self._asked.popleft()
        message: object
        correlation, message = decode_response(response, version, frame)
        assert correlation == expected
        return message

    def ask(self, request: object, version: int | None = None) -> Any:
        self.send(request, version)
        return self.receive()

    def silent(self, seconds: float) -> bool:
        """Whether nothing comes for that long."""
        self.sock.settimeout(seconds)
        try:
            data = self.sock.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        assert data, "the broker hung up"
        return False

    def hung_up(self) -> bool:
        """Whether the broker closes the connection, without a word."""
        self.sock.settimeout(PATIENCE_S)
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            assert more, "the broker hung up"
            data += more
        return data

    # Requests of many tests.

    def create(
        self, name: str, partitions: int = 1, **configs: object
    ) -> k19_create_topics.CreatableTopicResult:
        topic = k19_create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                k19_create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
                for key, value in configs.items()
            ],
        )
        answer: k19_create_topics.CreateTopicsResponse
        answer = self.ask(k19_create_topics.CreateTopicsRequest(topics=[topic]))
        result = answer.topics[0]
        assert result.error_code == 0, result
        return result

    def produce(
        self,
        topic: str,
        values: Sequence[bytes],
        partition: int = 0,
        *,
        version: int | None = None,
        acks: int = -1,
        **batch: Any,
    ) -> k00_produce.PartitionProduceResponse:
        """Produce one batch; returns the row of its partition."""
        answer: k00_produce.ProduceResponse
        answer = self.ask(produce_request(topic, values, partition, acks=acks, **batch), version)
        return answer.responses[0].partition_responses[0]

    def fetch(
        self,
        topic: str,
        offset: int = 0,
        partition: int = 0,
        *,
        version: int | None = None,
        **fields: Any,
    ) -> k01_fetch.PartitionData:
        """Fetch one partition; returns its row."""
        answer: k01_fetch.FetchResponse
        answer = self.ask(fetch_request({(topic, partition): offset}, **fields), version)
        assert answer.error_code == 0
        return answer.responses[0].partitions[0]

    def offset_at(
        self, topic: str, timestamp: int, partition: int = 0, version: int | None = None
    ) -> k02_list_offsets.ListOffsetsPartitionResponse:
        """Ask ListOffsets; returns the row."""
        m = k02_list_offsets
        asked = m.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = m.ListOffsetsRequest(
            replica_id=-1, topics=[m.ListOffsetsTopic(name=topic, partitions=[asked])]
        )
        answer: m.ListOffsetsResponse = self.ask(request, version)
        return answer.topics[0].partitions[0]

    def join(
        self, group: str, member_id: str = "", *, session_ms: int = 30_000
    ) -> k11_join_group.JoinGroupResponse:
        """Send a JoinGroup and wait for its answer."""
        self.send_join(group, member_id, session_ms=session_ms)
        answer: k11_join_group.JoinGroupResponse = self.receive()
        return answer

    def send_join(self, group: str, member_id: str = "", *, session_ms: int = 30_000) -> None:
        """Send a JoinGroup v9 of a consumer that knows range."""
        m = k11_join_group
        request = m.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=session_ms,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[m.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )
        self.send(request)

    def become_member(self, group: str) -> tuple[str, int]:
        """Join as the only member of a group; returns (member id, generation)."""
        member_id = self.join(group).member_id
        joined = self.join(group, member_id)
        assert joined.error_code == 0, joined
        m = k14_sync_group
        synced = self.ask(
            m.SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    m.SyncGroupRequestAssignment(member_id=member_id, assignment=b"\x00\x00mine")
                ],
            )
        )
        assert (synced.error_code, bytes(synced.assignment)) == (0, b"\x00\x00mine")
        return member_id, joined.generation_id


SUBSCRIPTION = struct.pack(">hih", 0, 1, 1) + b"t" + struct.pack(">i", -1)


def produce_request(
    topic: str,
    values: Sequence[bytes],
    partition: int = 0,
    *,
    acks: int = -1,
    records: bytes | None = None,
    **batch: Any,
) -> k00_produce.ProduceRequest:
    m = k00_produce
    if records is None:
        now = int(time.time() * 1000)
        records = build_batch([Record(None, value, now) for value in values], **batch)
    data = m.PartitionProduceData(index=partition, records=records)
    return m.ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[m.TopicProduceData(name=topic, partition_data=[data])],
    )


def fetch_request(
    positions: Mapping[tuple[str, int], int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    partition_max_bytes: int = 1 << 20,
    **fields: Any,
) -> k01_fetch.FetchRequest:
    """A Fetch of {(topic, partition): offset}."""
    m = k01_fetch
    epoch = fields.pop("current_leader_epoch", -1)
    topics: dict[str, list[k01_fetch.FetchPartition]] = {}
    for (topic, partition), offset in positions.items():
        row = m.FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=epoch,
        )
        topics.setdefault(topic, []).append(row)
    return m.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        topics=[m.FetchTopic(topic=topic, partitions=rows) for topic, rows in topics.items()],
        **fields,
    )


def bytes_of(row: k01_fetch.PartitionData) -> bytes:
    """The records of a fetch answer as they came."""
    assert row.records is not None
    return bytes(row.records)


def values_of(records: bytes | memoryview | None) -> list[bytes | None]:
    """The values in the records of a fetch answer."""
    return [record.value for record in iterate_records(records or b"")]


def loop_of(broker: EmbeddedBroker) -> Any:
    """The broker loop of an embedded broker, private parts included."""
    assert broker._server is not None
    return broker._server._broker_loop


class Reachable(Protocol):
    """A broker, or a proxy in front of it."""

    @property
    def bootstrap_servers(self) -> str: ...


Connect = Callable[[Reachable], RawClient]
MakeProduce = Callable[..., k00_produce.ProduceRequest]
MakeFetch = Callable[..., k01_fetch.FetchRequest]
ValuesOf = Callable[[bytes | memoryview | None], list[bytes | None]]


@pytest.fixture(name="produce_request")
def _produce_request() -> MakeProduce:
    return produce_request


@pytest.fixture(name="fetch_request")
def _fetch_request() -> MakeFetch:
    return fetch_request


@pytest.fixture(name="values_of")
def _values_of() -> ValuesOf:
    return values_of


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Opens raw connections to a broker and closes them at the end."""
    with ExitStack() as stack:

        def open_one(broker: Reachable) -> RawClient:
            client = RawClient(broker.bootstrap_servers)
            stack.callback(client.close)
            return client

        yield open_one


@pytest.fixture
def raw(kohort_broker: EmbeddedBroker, connect: Connect) -> RawClient:
    """One raw connection to a fresh broker."""
    return connect(kohort_broker)
