"""Measures CPU microseconds for a message: kohort's codec, kio and kafka-python, in one run.

    python -m bench.codec [--seconds 0.4]

Each library gets the same content as its own objects, and all must produce the same bytes first. A
figure is the best of many short batches of CPU time of this process. The libraries take turns, so
that other work on the machine affects them equally. Making the objects does not count, except in
the heartbeat turn. That is the work of a broker for one frame: decode header and request, make the
response, encode it with header and size.

The heartbeat turn goes through the frames of 2,000 members again and again, as a broker sees them.
A connection recognises its previous heartbeat (``kohort.engine.coordinator_connection``). In the
second line each frame is decoded, as if another request were open on the connection.
"""

from __future__ import annotations

import argparse
import gc
import io
import struct
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import cycle
from typing import Any

from bench.results import Row, emit
from kafka.protocol.consumer import group as kafka_group
from kafka.protocol.metadata.metadata import MetadataResponse as KafkaMetadata
from kio.schema.errors import ErrorCode as KioError
from kio.schema.heartbeat.v4.request import HeartbeatRequest as KioHeartbeat
from kio.schema.heartbeat.v4.response import HeartbeatResponse as KioBeaten
from kio.schema.join_group.v9.response import JoinGroupResponse as KioJoin
from kio.schema.metadata.v12.response import MetadataResponse as KioMetadata
from kio.schema.request_header.v2.header import RequestHeader as KioRequestHeader
from kio.schema.response_header.v1.header import ResponseHeader as KioResponseHeader
from kio.schema.sync_group.v5.request import SyncGroupRequest as KioSync
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta

from kohort.coordinator.group import Group
from kohort.coordinator.interface import HeartbeatAnswer
from kohort.coordinator.liveness import HeartbeatHandle
from kohort.coordinator.member import Member
from kohort.coordinator.timers import session_timer
from kohort.engine.coordinator_connection import LastHeartbeat
from kohort.model.deadlines import Deadline
from kohort.model.ids import GroupId, MemberId
from kohort.model.instants import Instant
from kohort.schema import decode, encode
from kohort.wire.codec import (
    decode_request,
    encode_request,
    response_route,
)
from kohort.wire.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.messages.k11_join_group import JoinGroupResponse, JoinGroupResponseMember
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment

MEMBERS = 1_000
BEATING = 2_000
TOPICS, PARTITIONS = 10, 100
TURNS = ("turn", "turn unseen")
GOAL_TURN_US = 1.0
GOAL_TIMES_KIO = 5.0

Run = Callable[[], Any]


@dataclass(slots=True)
class Case:
    """One line of the table: the same work, by each library."""

    name: str
    size: int
    runs: dict[str, Run]


def member_id(n: int) -> str:
    return f"consumer-payments-{n:04}-6f1c1f0e-7a55-4c57-9a43-0123456789ab"


SUBSCRIPTION = b"\x00\x03" + bytes(range(88))
ASSIGNMENT = b"\x00\x01" + bytes(range(46))


# --- kohort ------------------------------------------------------------------------------------


def kohort_join() -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=7,
        protocol_type="consumer",
        protocol_name="cooperative-sticky",
        leader=member_id(0),
        member_id=member_id(0),
        members=[
            JoinGroupResponseMember(member_id=member_id(n), metadata=SUBSCRIPTION)
            for n in range(MEMBERS)
        ],
    )


def kohort_sync() -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id="payments",
        generation_id=7,
        member_id=member_id(0),
        protocol_type="consumer",
        protocol_name="cooperative-sticky",
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id(n), assignment=ASSIGNMENT)
            for n in range(MEMBERS)
        ],
    )


def kohort_metadata() -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=n, host=f"broker-{n}", port=9092) for n in range(3)
        ],
        cluster_id="kohort-bench",
        controller_id=0,
        topics=[
            MetadataResponseTopic(
                name=f"topic-{t}",
                topic_id=bytes([t + 1] * 16),
                partitions=[
                    MetadataResponsePartition(
                        partition_index=p,
                        leader_id=p % 3,
                        leader_epoch=4,
                        replica_nodes=[0, 1, 2],
                        isr_nodes=[0, 1, 2],
                    )
                    for p in range(PARTITIONS)
                ],
            )
            for t in range(TOPICS)
        ],
    )


def kohort_runs(frames: list[bytes]) -> dict[str, Run]:
    following = cycle(frames).__next__
    write = response_route(HeartbeatResponse, 4)
    alive = HeartbeatResponse()

    def turn_unseen() -> bytes:
        header, _ = decode_request(following())
        return write(alive, header.correlation_id)

    join, sync, metadata = kohort_join(), kohort_sync(), kohort_metadata()
    join_bytes, sync_bytes = encode(join, 9), encode(sync, 5)
    metadata_bytes = encode(metadata, 12)
    return {
        "turn": kohort_turn(frames),
        "turn unseen": turn_unseen,
        "join enc": lambda: encode(join, 9),
        "join dec": lambda: decode(JoinGroupResponse, 9, join_bytes),
        "sync enc": lambda: encode(sync, 5),
        "sync dec": lambda: decode(SyncGroupRequest, 5, sync_bytes),
        "meta enc": lambda: encode(metadata, 12),
        "meta dec": lambda: decode(MetadataResponse, 12, metadata_bytes),
    }


def kohort_turn(frames: list[bytes]) -> Run:
    """Each connection compares with its last heartbeat, as the broker's engine has it do."""
    whole = [len(frame).to_bytes(4, "big") + frame for frame in frames]
    group = Group(group_id=GroupId("payments"))
    member = Member(
        member_id=MemberId(""),
        group_instance_id=None,
        client_id="",
        client_host="",
        session_timeout_ms=0,
        rebalance_timeout_ms=0,
        protocols=(),
        session_timer=session_timer(group.group_id, MemberId("")),
    )
    handle = HeartbeatHandle(group, member, Deadline(member.session_timer, Instant(0), 0))
    following = cycle([(LastHeartbeat(frame, 4, handle), frame) for frame in whole]).__next__
    alive = HeartbeatAnswer()

    def turn() -> bytes:
        beat, frame = following()
        if not beat.is_again(frame):
            raise SystemExit("a heartbeat was expected to be known again")
        return beat.response(frame, alive)

    return turn


# --- kio ---------------------------------------------------------------------------------------


def kio_turn(frames: list[bytes]) -> Run:
    read_header, read_body = entity_reader(KioRequestHeader), entity_reader(KioHeartbeat)
    write_header = entity_writer(KioResponseHeader)
    write_body = entity_writer(KioBeaten)
    no_time, size = i32Timedelta.parse(timedelta(0)), struct.Struct(">i")

    following = cycle(frames).__next__

    def turn() -> bytes:
        frame = following()
        header, used = read_header(frame, 0)
        read_body(frame, used)
        out = io.BytesIO()
        write_header(out, KioResponseHeader(correlation_id=header.correlation_id))
        answer = KioBeaten(throttle_time=no_time, error_code=KioError.none)
        write_body(out, answer)
        data = out.getvalue()
        return size.pack(len(data)) + data

    return turn


def kio_runs(frames: list[bytes]) -> dict[str, Run]:
    runs = {key: kio_turn(frames) for key in TURNS}
    same = (("join", KioJoin, kohort_join(), 9), ("sync", KioSync, kohort_sync(), 5))
    for name, theirs, ours, version in (*same, ("meta", KioMetadata, kohort_metadata(), 12)):
        data = encode(ours, version)
        read, write = entity_reader(theirs), entity_writer(theirs)
        entity, _ = read(data, 0)

        def enc(write: Any = write, entity: Any = entity) -> bytes:
            out = io.BytesIO()
            write(out, entity)
            return out.getvalue()

        def dec(read: Any = read, data: bytes = data) -> Any:
            return read(data, 0)

        runs[f"{name} enc"], runs[f"{name} dec"] = enc, dec
    return runs


# --- kafka-python ------------------------------------------------------------------------------


def kafka_python_turn(frames: list[bytes]) -> Run:
    following = cycle(frames).__next__

    def turn() -> bytes:
        request = kafka_group.HeartbeatRequest.decode(following(), version=4, header=True)
        answer = kafka_group.HeartbeatResponse(version=4, throttle_time_ms=0, error_code=0)
        answer.with_header(correlation_id=request.header.correlation_id)
        return bytes(answer.encode(header=True, framed=True))

    return turn


def kafka_python_runs(frames: list[bytes]) -> dict[str, Run]:
    join = kafka_group.JoinGroupResponse(
        version=9,
        throttle_time_ms=0,
        error_code=0,
        generation_id=7,
        protocol_type="consumer",
        protocol_name="cooperative-sticky",
        leader=member_id(0),
        skip_assignment=False,
        member_id=member_id(0),
        members=[
            kafka_group.JoinGroupResponse.JoinGroupResponseMember(
                version=9, member_id=member_id(n), group_instance_id=None, metadata=SUBSCRIPTION
            )
            for n in range(MEMBERS)
        ],
    )
    sync = kafka_group.SyncGroupRequest(
        version=5,
        group_id="payments",
        generation_id=7,
        member_id=member_id(0),
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="cooperative-sticky",
        assignments=[
            kafka_group.SyncGroupRequest.SyncGroupRequestAssignment(
                version=5, member_id=member_id(n), assignment=ASSIGNMENT
            )
            for n in range(MEMBERS)
        ],
    )
    metadata = kafka_python_metadata(KafkaMetadata)
    join_bytes, sync_bytes = encode(kohort_join(), 9), encode(kohort_sync(), 5)
    metadata_bytes = encode(kohort_metadata(), 12)
    return {
        **{key: kafka_python_turn(frames) for key in TURNS},
        "join enc": join.encode,
        "join dec": lambda: kafka_group.JoinGroupResponse.decode(join_bytes, version=9),
        "sync enc": sync.encode,
        "sync dec": lambda: kafka_group.SyncGroupRequest.decode(sync_bytes, version=5),
        "meta enc": metadata.encode,
        "meta dec": lambda: KafkaMetadata.decode(metadata_bytes, version=12),
    }


def kafka_python_metadata(metadata: Any) -> Any:
    topic = metadata.MetadataResponseTopic
    return metadata(
        version=12,
        throttle_time_ms=0,
        brokers=[
            metadata.MetadataResponseBroker(
                version=12, node_id=n, host=f"broker-{n}", port=9092, rack=None
            )
            for n in range(3)
        ],
        cluster_id="kohort-bench",
        controller_id=0,
        topics=[
            topic(
                version=12,
                error_code=0,
                name=f"topic-{t}",
                topic_id=uuid.UUID(bytes=bytes([t + 1] * 16)),
                is_internal=False,
                partitions=[
                    topic.MetadataResponsePartition(
                        version=12,
                        error_code=0,
                        partition_index=p,
                        leader_id=p % 3,
                        leader_epoch=4,
                        replica_nodes=[0, 1, 2],
                        isr_nodes=[0, 1, 2],
                        offline_replicas=[],
                    )
                    for p in range(PARTITIONS)
                ],
                authorized_operations=None,
            )
            for t in range(TOPICS)
        ],
    )


def heartbeat_frame(n: int) -> bytes:
    request = HeartbeatRequest(group_id="payments", generation_id=7, member_id=member_id(n))
    return encode_request(request, 4, 100_000 + n, "consumer-payments")[4:]


# --- measuring ---------------------------------------------------------------------------------


def cases() -> list[Case]:
    frames = [heartbeat_frame(n) for n in range(BEATING)]
    runs = {
        "kohort": kohort_runs(frames),
        "kio": kio_runs(frames),
        "kafka-python": kafka_python_runs(frames),
    }
    for key in (*TURNS, "join enc", "sync enc", "meta enc"):
        outputs = {name: bytes(by_key[key]()) for name, by_key in runs.items()}
        if len(set(outputs.values())) != 1:
            raise SystemExit(f"{key}: the libraries do not write the same bytes")
    names = {
        "turn": (f"heartbeat turn v4, {BEATING:,} members", len(frames[0])),
        "turn unseen": ("the same, every frame read in full", len(frames[0])),
        "join enc": (f"JoinGroup response v9, {MEMBERS:,} members, encode", 0),
        "join dec": ("the same, decode", 0),
        "sync enc": (f"SyncGroup request v5, {MEMBERS:,} assignments, encode", 0),
        "sync dec": ("the same, decode", 0),
        "meta enc": (f"Metadata response v12, {TOPICS * PARTITIONS:,} partitions, encode", 0),
        "meta dec": ("the same, decode", 0),
    }
    sizes = {key: len(runs["kohort"][f"{key} enc"]()) for key in ("join", "sync", "meta")}
    return [
        Case(name, size or sizes[key[:4]], {lib: by_key[key] for lib, by_key in runs.items()})
        for key, (name, size) in names.items()
    ]


def batch_size(run: Run) -> int:
    """How often to run so that a batch takes about two milliseconds."""
    count = 1
    while True:
        start = time.process_time_ns()
        for _ in range(count):
            run()
        spent = time.process_time_ns() - start
        if spent > 1_000_000:
            return max(1, count * 2_000_000 // spent)
        count *= 4


def measure(case: Case, seconds: float) -> dict[str, float]:
    """Best CPU microseconds per operation of each library."""
    counts = {name: batch_size(run) for name, run in case.runs.items()}
    best = dict.fromkeys(case.runs, float("inf"))
    until = time.monotonic() + seconds * len(case.runs)
    while time.monotonic() < until:
        for name, run in case.runs.items():
            repeat = range(counts[name])
            start = time.process_time_ns()
            for _ in repeat:
                run()
            spent = (time.process_time_ns() - start) / 1_000 / counts[name]
            best[name] = min(best[name], spent)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU microseconds per message, three codecs")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="per line and library (default 1.0)"
    )
    options = parser.parse_args()
    head = f"{'CPU us per message (ratio to kohort)':52}{'bytes':>9}{'kohort':>10}"
    print(head + f"{'kio':>18}{'kafka-python':>18}")
    gc.disable()
    turn: dict[str, float] = {}
    rows: list[Row] = []
    message = ""
    for case in cases():
        best = measure(case, options.seconds)
        turn = turn or best
        ours = best["kohort"]
        others = "".join(
            f"{best[n]:10.2f} ({best[n] / ours:4.1f}x)" for n in ("kio", "kafka-python")
        )
        print(f"{case.name:52}{case.size:9,}{ours:10.2f} {others}")
        message = case.name.replace("the same", message.rpartition(", ")[0] or message)
        rows.append({"message": message} | {f"{n}_us": round(us, 3) for n, us in best.items()})
        gc.collect()
    ratio = turn["kio"] / turn["kohort"]
    print(
        f"heartbeat turn: {turn['kohort']:.2f} us (goal {GOAL_TURN_US:.0f}), "
        f"{ratio:.1f} times as fast as kio (goal {GOAL_TIMES_KIO:.0f})"
    )
    for row in rows:
        emit("codec", row)


if __name__ == "__main__":
    main()
