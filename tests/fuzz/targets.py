"""The fuzz targets: each reads any bytes, and says whether the reader accepted them.

The oracle is the same everywhere: bytes from outside are accepted, or refused with the error that
the reader's docstring names. Any other exception is a finding. Accepted bytes can be written and
read again. The runner of a target bounds memory and time (``test_fuzz``, ``atheris_run``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from random import Random

from crc32c import crc32c
from tests.embedded.java_connect import encoded, values
from tests.storage.disks import content, cut, damage
from tests.stored_records import iterate_records
from tests.wire.oracles import messages
from tests.wire.samples import Sampler

from kohort.coordinator.records import CommittedOffset, OffsetRecord
from kohort.embedded import connect
from kohort.embedded import consumer as embedded
from kohort.engine.coordinator_engine import CoordinatorEngine
from kohort.engine.coordinator_outputs import Close, Handle
from kohort.model.errors import ProtocolError
from kohort.model.group_config import GroupConfig
from kohort.model.ids import ConnectionId, GenerationId, GroupId, TopicPartition
from kohort.model.instants import Instant, WallMillis
from kohort.schema.declare import layout_of
from kohort.storage.compression import CompressionType
from kohort.storage.errors import CorruptLog, RefusedBatch, StorageError
from kohort.storage.faulty_files import UnsyncedLossFiles
from kohort.storage.group_records import read_record, write_record
from kohort.storage.log_config import LogConfig
from kohort.storage.partition_log import PartitionLog
from kohort.storage.record_batch import check_batch, parse_header
from kohort.storage.records import Record, build_batch, keys_and_values
from kohort.wire.codec import (
    FrameSplitter,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

NOW = 1_700_000_000_000
MOST_FRAME = 1 << 16
RESPONSES = [(cls, version) for _, cls, version in messages() if not layout_of(cls).is_request]
REQUESTS = [(cls, version) for _, cls, version in messages() if layout_of(cls).is_request]
LOG = "/data/__consumer_offsets-0"
SEGMENT = f"{LOG}/00000000000000000000.log"
CONFIG = LogConfig(sync_before_answer=True, delete=False, compact=True)

Target = Callable[[bytes], bool]
"""Returns whether the bytes were accepted; False: they were refused, in the documented way."""


def frames(data: bytes) -> bool:
    """The frame splitter; the first bytes of the data are the sizes of the pieces."""
    steps, stream = data[:8] or b"\x01", data[8:]
    splitter = FrameSplitter(MOST_FRAME)
    given = taken = turn = 0
    try:
        while given < len(stream):
            size = steps[turn % len(steps)] + 1
            piece = stream[given : given + size]
            given += len(piece)
            turn += 1
            taken += sum(4 + len(frame) for frame in splitter.feed(piece))
            assert splitter.buffered == given - taken
            assert splitter.buffered <= MOST_FRAME + 4 + 256
    except ProtocolError:
        return False
    whole = FrameSplitter(MOST_FRAME)
    assert sum(4 + len(frame) for frame in whole.feed(stream)) == taken
    return taken > 0


def requests(data: bytes) -> bool:
    """Every request decoder: key and version are the data's own."""
    try:
        header, request = decode_request(data)
    except ProtocolError:
        return False
    again = encode_request(request, header.api_version, header.correlation_id, header.client_id)
    assert decode_request(again[4:])[1] == request
    return True


def responses(data: bytes) -> bool:
    """Every response decoder, which a hostile broker feeds."""
    if len(data) < 2:
        return False
    cls, version = RESPONSES[int.from_bytes(data[:2], "big") % len(RESPONSES)]
    response: object
    read_again: object
    try:
        correlation, response = decode_response(cls, version, data[2:])
    except ProtocolError:
        return False
    again = encode_response(response, version, correlation)
    _, read_again = decode_response(cls, version, again[4:])
    assert read_again == response
    return True


def embedded_protocol(data: bytes) -> bool:
    """The bytes inside JoinGroup and SyncGroup."""
    accepted = False
    try:
        subscription = embedded.decode_subscription(data)
    except ProtocolError:
        pass
    else:
        accepted = True
        again = embedded.decode_subscription(embedded.encode_subscription(subscription))
        assert again == subscription
    try:
        assignment = embedded.decode_assignment(data)
    except ProtocolError:
        pass
    else:
        accepted = True
        assert embedded.decode_assignment(embedded.encode_assignment(assignment)) == assignment
    sticky = embedded.decode_sticky_userdata(data)
    return accepted or sticky is not None or embedded.generation_in_userdata(data) >= 0


def connect_protocol(data: bytes) -> bool:
    """The bytes of Connect's workers inside JoinGroup and SyncGroup."""
    accepted = False
    try:
        state = connect.decode_worker_state(data)
    except ProtocolError:
        pass
    else:
        accepted = True
        assert connect.decode_worker_state(connect.encode_worker_state(state)) == state
    try:
        assignment = connect.decode_worker_assignment(data)
    except ProtocolError:
        return accepted
    again = connect.encode_worker_assignment(assignment)
    assert connect.decode_worker_assignment(again) == assignment
    return True


def group_records(data: bytes) -> bool:
    """Keys and values of ``__consumer_offsets``."""
    cut = data[0] if data else 0
    key, value = data[1 : 1 + cut], data[1 + cut :]
    try:
        record = read_record(key, value or None)
    except ProtocolError:
        return False
    if record is not None:
        assert read_record(*write_record(record)) == record
    return record is not None


def batches(data: bytes) -> bool:
    """Batches of producers, also with compressed records."""
    try:
        header, _ = check_batch(data, 1 << 20)
        count = sum(1 for _ in iterate_records(data))
        assert count == header.record_count == len(list(keys_and_values(header, data)))
    except RefusedBatch:
        return False
    return True


def sound_batches(data: bytes) -> bool:
    """Records in a batch with a correct checksum, which the fuzzer cannot guess."""
    if not data:
        return False
    plain = build_batch([Record(b"k", b"v", NOW)])
    count = data[0] >> 3
    head = struct.pack(">hi", data[0] & 7, count - 1)
    body = head + plain[27:57] + struct.pack(">i", count) + data[1:]
    return batches(_with_crc(plain[:17], body))


def columns(data: bytes) -> bool:
    """Records as both decoders of columns read them; they must judge alike."""
    from kohort.fetch import columns as decoding
    from kohort.fetch import numpy_decoder
    from kohort.fetch.rows import Run
    from kohort.fetch.sections import Damaged, Section

    if not data:
        return False
    header = parse_header(build_batch([Record(b"k", b"v", NOW)], base_offset=7))
    header = header._replace(
        record_count=data[0] >> 2, last_offset_delta=max(0, (data[0] >> 2) - 1)
    )
    place, found = TopicPartition("t", 0), []
    decoding.load()
    compiled = decoding._Chosen.decode
    for decode in (compiled, numpy_decoder.decode):
        decoding._Chosen.decode = staticmethod(decode)
        try:
            run = Run(place, [Section(header, data[1:])], 0, 100)
            wanted = decoding.WITH_HEADERS if data[0] & 1 else decoding.COLUMNS
            found.append(decoding.to_arrow([run], wanted).to_pydict())
        except Damaged as error:
            found.append(str(error.offset))
        finally:
            decoding._Chosen.decode = staticmethod(compiled)
    assert found[0] == found[1]
    return isinstance(found[0], dict)


def _with_crc(head: bytes, body: bytes) -> bytes:
    length = struct.pack(">i", len(head) - 12 + 4 + len(body))
    return head[:8] + length + head[12:17] + struct.pack(">I", crc32c(body)) + body


def _log_of_offsets() -> UnsyncedLossFiles:
    """A disk with a small log of committed offsets, written and never closed."""
    files = UnsyncedLossFiles()
    log = PartitionLog.open(files, LOG, CONFIG, leader_epoch=3, report=lambda _: None)
    for number in range(6):
        value = CommittedOffset(offset=number, commit_timestamp=WallMillis(NOW))
        record = OffsetRecord(
            group_id=GroupId("g"), partition=TopicPartition("t", number % 2), value=value
        )
        key, encoded = write_record(record)
        log.append(build_batch([Record(key, encoded, NOW)]), NOW)
        if number == 2:
            log.flush(checkpoint=True)
    return files


def journal(data: bytes) -> bool:
    """A segment as a start finds it: a sound one with bytes changed, or anything at all."""
    if not data:
        return False
    files = _log_of_offsets()
    names = [f"{LOG}/{name}" for name in files.list_directory(LOG)]
    if data[0] & 1:
        file = files.open(SEGMENT)
        file.truncate(0)
        file.pwrite([data[1:]], 0)
    else:
        for path, position, mask in _edits(data[1:], names):
            size = len(content(files, path))
            if mask == 0:
                cut(files, path, position % (size + 1))
            elif size:
                damage(files, path, position % size, mask)
    files.kill()
    first = _opened(files, restarted=bool(data[0] & 2))
    files.kill()
    assert _opened(files, restarted=bool(data[0] & 2)) == first, "recovering twice is not as once"
    return isinstance(first, tuple)


def _edits(data: bytes, names: list[str]) -> Iterator[tuple[str, int, int]]:
    for start in range(0, len(data) - 3, 4):
        which, position, mask = struct.unpack_from(">BHB", data, start)
        yield names[which % len(names)], position, mask


def _opened(files: UnsyncedLossFiles, *, restarted: bool) -> object:
    """The content of the opened log, or the error."""
    try:
        log = PartitionLog.open(
            files,
            LOG,
            CONFIG,
            leader_epoch=4,
            machine_restarted=restarted,
            report=lambda _: None,
        )
    except CorruptLog as error:
        return str(error)
    try:
        found = [
            (record.offset, record.key, record.value)
            for record in iterate_records(log.read(log.log_start_offset, 1 << 20))
        ]
    except StorageError as error:
        # Bytes before the checkpoint are checked when they are read.
        return str(error)
    return log.log_end_offset, found


def connection(data: bytes) -> bool:
    """A whole engine: bytes on one connection never harm another connection."""
    engine = CoordinatorEngine(
        GroupConfig(), lambda prefix: f"{prefix}-1", wall=WallMillis(NOW), now=Instant(0)
    )
    engine.loaded(Instant(0))
    bad, good = ConnectionId(1), ConnectionId(2)
    for conn in (bad, good):
        engine.connected(conn, "there", Instant(0))
    outputs = engine.received(bad, data, Instant(1))
    closed = any(isinstance(output, Close) for output in outputs)
    if not closed:
        engine.lost(bad, Instant(2))
    at = Instant(3)
    for _ in range(20):
        due = engine.next_deadline()
        if due is None:
            break
        at = max(at, due)
        engine.advance(at)
    (asked,) = [
        output for output in engine.received(good, _VERSIONS, at) if isinstance(output, Handle)
    ]
    assert asked.conn == good
    return not closed


_VERSIONS = encode_request(REQUESTS[0][0](), REQUESTS[0][1], 1, None)
for _cls, _version in REQUESTS:
    if layout_of(_cls).name == "ApiVersionsRequest":
        _VERSIONS = encode_request(_cls(), _version, 1, None)

TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        frames,
        requests,
        responses,
        embedded_protocol,
        connect_protocol,
        group_records,
        batches,
        sound_batches,
        columns,
        journal,
        connection,
    )
}


def seeds(name: str) -> list[bytes]:
    """Good bytes for a target to begin with: one of each kind, the same on every call."""
    return _SEEDS[name](Random(f"seeds of {name}"))


def _sent(rng: Random) -> list[bytes]:
    sent = [encode_request(_sample(cls, version), version, 7, "fuzz") for cls, version in REQUESTS]
    return [data for data in sent if len(data) < 2_000]


def _streams(rng: Random) -> list[bytes]:
    sent = _sent(rng)
    return [rng.randbytes(8) + b"".join(rng.sample(sent, 4)) for _ in range(20)]


def _answers(rng: Random) -> list[bytes]:
    return [
        index.to_bytes(2, "big") + encode_response(_sample(cls, version), version, 7)[4:]
        for index, (cls, version) in enumerate(RESPONSES)
    ]


def _stored_pairs(rng: Random) -> list[bytes]:
    stored = list(iterate_records(content(_log_of_offsets(), SEGMENT)))
    pairs = [(record.key or b"", record.value or b"") for record in stored]
    return [bytes([len(key)]) + key + value for key, value in pairs]


def _produced(rng: Random) -> list[bytes]:
    records = [Record(b"key", b"value" * 20, NOW + n, [("h", b"x")]) for n in range(5)]
    return [build_batch(records, compression=codec) for codec in CompressionType]


def _sections(rng: Random) -> list[bytes]:
    whole = _produced(rng)
    return [bytes([codec | 5 << 3]) + whole[codec][61:] for codec in CompressionType]


def _records(rng: Random) -> list[bytes]:
    found = []
    for count in range(1, 9):
        records = [
            Record(rng.randbytes(n) or None, b"value" * n, NOW + n, [("h", b"x"), ("i", None)])
            for n in range(count)
        ]
        section = build_batch(records)[61:]
        found += [bytes([count << 2 | headers]) + section for headers in (0, 1)]
    return found


def _disks(rng: Random) -> list[bytes]:
    stored = content(_log_of_offsets(), SEGMENT)
    edits = [bytes([mode]) + rng.randbytes(4 * n) for mode in (0, 2) for n in range(4)]
    return [b"\x01" + stored, b"\x03" + stored, b"\x01" + stored[:-7], *edits]


def _sample(cls: type, version: int) -> object:
    return Sampler(seed=version, nulls="never", tags="always").message(cls, version)


def _inside(rng: Random) -> list[bytes]:
    return list(_embedded_seeds())


def _embedded_seeds() -> Iterator[bytes]:
    partitions = frozenset(TopicPartition(topic, n) for topic in ("a", "b") for n in range(3))
    for version in range(4):
        subscription = embedded.Subscription(
            topics=frozenset({"a", "b"}),
            owned=partitions if version else frozenset(),
            generation_id=GenerationId(5 if version > 1 else -1),
        )
        yield embedded.encode_subscription(subscription, version)
        yield embedded.encode_assignment(embedded.Assignment(partitions=partitions), version)
    for version in (0, 1):
        yield embedded.encode_sticky_userdata(partitions, GenerationId(4), version)
    yield embedded.encode_generation_userdata(GenerationId(4))


def _workers(_rng: Random) -> list[bytes]:
    return [encoded(value, version) for version, value in values(0, 8)]


_SEEDS: dict[str, Callable[[Random], list[bytes]]] = {
    "frames": _streams,
    "requests": lambda rng: [data[4:] for data in _sent(rng)],
    "responses": _answers,
    "embedded_protocol": _inside,
    "connect_protocol": _workers,
    "group_records": _stored_pairs,
    "batches": _produced,
    "sound_batches": _sections,
    "columns": _records,
    "journal": _disks,
    "connection": _sent,
}
