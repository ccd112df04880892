"""A client of bytes: one socket, frames by hand, answers in the order in which they come."""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from contextlib import ExitStack

import pytest

from kohort.schema import layout_of
from kohort.storage.records import Record, build_batch, iterate_records
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

    def send(self, request, version=None, *, answered=True) -> None:
        """Send a request, in the newest version that kohort's client has unless told otherwise."""
        api = BY_KEY[layout_of(type(request)).api_key]
        version = min(api.handled.high, api.client.high) if version is None else version
        self._correlation += 1
        if answered:
            self._asked.append((self._correlation, api.response, version))
        self.sock.sendall(encode_request(request, version, self._correlation, "raw"))

    def send_all(self, requests) -> None:
        """Send requests in one write."""
        whole, self.sock = self.sock, _Collected()
        for request in requests:
            self.send(request)
        collected, self.sock = self.sock, whole
        self.sock.sendall(collected.data)

    def receive(self, timeout: float = PATIENCE_S):
        """The next answer, which must be that of the oldest request without one."""
        self.sock.settimeout(timeout)
        frame = self._exactly(struct.unpack(">i", self._exactly(4))[0])
        expected, response, version = self._asked.popleft()
        correlation, message = decode_response(response, version, frame)
        assert correlation == expected
        return message

    def ask(self, request, version=None):
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

    # What many tests ask.

    def create(self, name, partitions=1, **configs):
        topic = k19_create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                k19_create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
                for key, value in configs.items()
            ],
        )
        result = self.ask(k19_create_topics.CreateTopicsRequest(topics=[topic])).topics[0]
        assert result.error_code == 0, result
        return result

    def produce(self, topic, values, partition=0, *, version=None, acks=-1, **batch):
        """Produce one batch; returns the row of its partition."""
        answer = self.ask(produce_request(topic, values, partition, acks=acks, **batch), version)
        return answer.responses[0].partition_responses[0]

    def fetch(self, topic, offset=0, partition=0, *, version=None, **fields):
        """Fetch one partition; returns its row."""
        answer = self.ask(fetch_request({(topic, partition): offset}, **fields), version)
        assert answer.error_code == 0
        return answer.responses[0].partitions[0]

    def offset_at(self, topic, timestamp, partition=0, version=None):
        """Ask ListOffsets; returns the row."""
        m = k02_list_offsets
        asked = m.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = m.ListOffsetsRequest(
            replica_id=-1, topics=[m.ListOffsetsTopic(name=topic, partitions=[asked])]
        )
        return self.ask(request, version).topics[0].partitions[0]

    def join(self, group, member_id="", *, session_ms=30_000, wait=True):
        """Send a JoinGroup v9 of a consumer that knows range; returns the answer if waited for."""
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
        return self.receive() if wait else None

    def become_member(self, group):
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


class _Collected:
    """Stands in for a socket that is written to."""

    def __init__(self) -> None:
        self.data = b""

    def sendall(self, data) -> None:
        self.data += data


SUBSCRIPTION = struct.pack(">hih", 0, 1, 1) + b"t" + struct.pack(">i", -1)


def produce_request(topic, values, partition=0, *, acks=-1, records=None, **batch):
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


def fetch_request(positions, *, max_wait_ms=0, min_bytes=1, partition_max_bytes=1 << 20, **fields):
    """A Fetch of {(topic, partition): offset}."""
    m = k01_fetch
    epoch = fields.pop("current_leader_epoch", -1)
    topics: dict[str, list] = {}
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


def values_of(records):
    """The values in the records of a fetch answer."""
    return [record.value for record in iterate_records(records or b"")]


@pytest.fixture(name="produce_request")
def _produce_request():
    return produce_request


@pytest.fixture(name="fetch_request")
def _fetch_request():
    return fetch_request


@pytest.fixture(name="values_of")
def _values_of():
    return values_of


@pytest.fixture
def connect():
    """Opens raw connections to a broker and closes them at the end."""
    with ExitStack() as stack:

        def open_one(broker) -> RawClient:
            client = RawClient(broker.bootstrap_servers)
            stack.callback(client.close)
            return client

        yield open_one


@pytest.fixture
def raw(kohort_broker, connect) -> RawClient:
    """One raw connection to a fresh broker."""
    return connect(kohort_broker)
