"""A commit repeated with other offsets is read the short way, with the same answers."""

from __future__ import annotations

from typing import Any, TypeAlias

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.engine.coordinator_bench import Bench, Client, stable

from kohort.engine.coordinator_connection import Again
from kohort.engine.coordinator_engine import CoordinatorEngine
from kohort.engine.coordinator_outputs import Observed
from kohort.engine.coordinator_recording import RecordingCoordinatorEngine
from kohort.engine.coordinator_writes import Write
from kohort.engine.known_requests import MAX_KNOWN_SIZE, KnownCommit, known_commit
from kohort.model.errors import ErrorCode
from kohort.model.facts import OffsetsCommitted
from kohort.model.ids import ConnectionId, Ticket, Token, TopicPartition
from kohort.wire.codec import RequestHeader, decode_request, encode_request
from kohort.wire.coordinator_offsets import commit_again, commit_event
from kohort.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.server_connection import Received, ServerConnection

VERSIONS = st.integers(2, 10)
INT64 = st.one_of(st.integers(0, 300), st.integers(-(2**63), 2**63 - 1))


# -- life with and without the short way -----------------------------------------------------------

Shape: TypeAlias = tuple[tuple[str, int, str | None], ...]
"""The topic, partition and metadata of each committed offset."""

SHAPES: tuple[Shape, ...] = (
    (("t", 0, None),),
    (("t", 1, ""),),
    (("t", 0, "a note"), ("t", 1, None), ("u", 7, None)),
    (("t", 0, "n" * 5_000),),
    (("t", 0, None), ("t", 0, None)),
    (("gone", 0, None), ("t", 2, None)),
)
"""The fourth has more metadata than is stored."""

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(0, 2), INT64, st.integers(0, len(SHAPES) - 1)),
        st.tuples(st.just("commit"), st.integers(0, 2), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("torn commit"), st.integers(0, 2), st.integers(0, 90), st.just(0)),
        st.tuples(st.just("two commits"), st.integers(0, 2), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("late commit"), st.integers(0, 2), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("simple commit"), st.integers(0, 2), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("beat"), st.integers(0, 2), st.just(0), st.just(0)),
        st.tuples(st.just("join"), st.integers(0, 2), st.just(0), st.just(0)),
        st.tuples(st.just("sync"), st.integers(0, 2), st.just(0), st.just(0)),
        st.tuples(st.just("move"), st.integers(0, 2), st.just(0), st.just(0)),
        st.tuples(st.just("former commit"), st.integers(0, 2), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("lose"), st.integers(0, 2), st.just(0), st.just(0)),
        st.tuples(st.just("wait"), st.just(0), st.integers(0, 12_000), st.just(0)),
        st.tuples(st.just("write"), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("write all"), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("fail"), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("topic"), st.just(0), st.just(0), st.just(0)),
    ),
    max_size=40,
)


class LongWayEngine(CoordinatorEngine):
    """Reads every request in full."""

    _kept_apis = frozenset()


class LongWayRecordingEngine(RecordingCoordinatorEngine):
    """Reads every request in full, and reports facts."""

    _kept_apis = frozenset()


class Life(Bench):
    """A bench; the attribute ``gone`` removes the topic of that name and restores it."""

    def __init__(self, engine: type[CoordinatorEngine]) -> None:
        self._make = engine
        self.gone = False
        self.told: list[Observed] = []
        super().__init__(knows_partition=self.knows)

    def make_engine(self, *args: Any, **more: Any) -> CoordinatorEngine:
        return self._make(*args, **more)

    def knows(self, partition: TopicPartition) -> bool:
        return not self.gone or partition.topic != "gone"

    def carry_out(self, outputs: Any) -> None:
        self.told += [output for output in outputs if isinstance(output, Observed)]
        super().carry_out(outputs)


def request_of(shape: Shape, offset: int, **fields: Any) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for number, (topic, partition, metadata) in enumerate(shape):
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset ^ number,
                committed_metadata=metadata,
            )
        )
    return OffsetCommitRequest(
        topics=[
            OffsetCommitRequestTopic(name=name, topic_id=b"\1" * 16, partitions=partitions)
            for name, partitions in topics.items()
        ],
        **fields,
    )


def play(life: Life, steps: list[tuple[str, int, int, int]], version: int) -> list[str]:
    """Play the same steps on any bench; returns all visible results."""
    seats = [stable(life, f"g{n}", OffsetCommit=version) for n in range(3)]
    former = dict(enumerate(client for client, _ in seats))
    for what, who, number, shape in steps:
        client, member_id = seats[who]
        match what:
            case "wait":
                life.wait(number)
            case "write":
                if life.writes:
                    life._write(life.writes[0])
            case "write all":
                write_together(life)
            case "fail":
                fail_first(life)
            case "topic":
                life.gone = not life.gone
            case "lose" | "move":
                former[who] = client
                seats[who] = moved(life, client, version, lost=what == "lose"), member_id
            case "former commit":
                say(former[who], member_id, f"g{who}", ("commit", number, shape))
            case _:
                say(client, member_id, f"g{who}", (what, number, shape))
        life.journal.append(f"due {life.engine.next_deadline()}")
    write_together(life)
    life.journal.append(f"log {life.stored}")
    return life.journal


def moved(life: Life, client: Client, version: int, *, lost: bool) -> Client:
    """Another connection for a client; the earlier connection breaks or stays open."""
    if lost:
        life.carry_out(life.engine.lost(client.conn, life.now))
    return life.client(f"c{len(life.clients)}", OffsetCommit=version)


def write_together(life: Bench) -> None:
    """One sync completes all open writes."""
    writes: list[Write] = life.writes[:]
    life.writes.clear()
    for write in writes:
        life.stored.setdefault(write.partition, []).extend(write.records)
    life.carry_out(life.engine.all_appended([Ticket(w.ticket) for w in writes], life.now))


def fail_first(life: Bench) -> None:
    if life.writes:
        write = life.writes.pop(0)
        failed = life.engine.append_failed(write.ticket, ErrorCode.KAFKA_STORAGE_ERROR, life.now)
        life.carry_out(failed)


def say(client: Client, member_id: str, group: str, words: tuple[str, int, int]) -> None:
    what, number, shape = words
    if client.closed:
        return
    generation = 2 if what == "late commit" else 1
    fields = {"member_id": member_id, "generation_id_or_member_epoch": generation}
    if what == "simple commit":
        fields = {"member_id": "", "generation_id_or_member_epoch": -1}
    request = request_of(SHAPES[shape], number, group_id=group, **fields)
    match what:
        case "commit" | "late commit" | "simple commit":
            client.send("OffsetCommit", request)
        case "torn commit":
            frame = client.frame("OffsetCommit", request)
            client.push(frame[:number])
            client.push(frame[number:])
        case "two commits":
            frame = client.frame("OffsetCommit", request)
            client.push(frame + client.frame("OffsetCommit", request))
        case "beat":
            beat = HeartbeatRequest(group_id=group, generation_id=1, member_id=member_id)
            client.send("Heartbeat", beat)
        case "join":
            client.join(group, member_id)
        case "sync":
            client.sync(group, 2, member_id, {member_id: b"again"})
        case _:
            raise AssertionError(what)


@given(steps=STEPS, version=VERSIONS)
def test_the_short_way_and_the_long_way_give_the_same_results(
    steps: list[tuple[str, int, int, int]], version: int
) -> None:
    short, long = Life(CoordinatorEngine), Life(LongWayEngine)
    assert play(short, steps, version) == play(long, steps, version)


@given(steps=STEPS, version=VERSIONS)
def test_the_short_way_and_the_long_way_record_the_same_facts(
    steps: list[tuple[str, int, int, int]], version: int
) -> None:
    short, long = Life(RecordingCoordinatorEngine), Life(LongWayRecordingEngine)
    assert play(short, steps, version) == play(long, steps, version)
    assert short.told == long.told


@pytest.mark.parametrize("engine", [CoordinatorEngine, LongWayEngine])
def test_a_commit_over_an_earlier_connection_does_not_move_offsets_back(
    engine: type[CoordinatorEngine],
) -> None:
    life = Life(engine)
    client, member_id = stable(life, "g", OffsetCommit=9)
    later = life.client("later", OffsetCommit=9)

    def commit(over: Client, offset: int) -> int:
        say(over, member_id, "g", ("commit", offset, 0))
        life.written()
        error: int = over.answers[-1].topics[0].partitions[0].error_code
        return error

    told = [commit(client, 1), commit(client, 2), commit(later, 9), commit(client, 3)]
    assert told == [0, 0, 0, ErrorCode.REQUEST_TIMED_OUT]
    assert [commit(client, 9), commit(later, 8)] == [0, 0]


# -- bytes -----------------------------------------------------------------------------------------

text = st.text(max_size=12)
partitions = st.builds(
    OffsetCommitRequestPartition,
    partition_index=st.integers(-(2**31), 2**31 - 1),
    committed_offset=INT64,
    committed_leader_epoch=st.integers(-(2**31), 2**31 - 1),
    committed_metadata=st.one_of(st.none(), text),
)
topics = st.builds(
    OffsetCommitRequestTopic,
    name=st.one_of(text, st.sampled_from(["\0" * 20, "\x7f" * 20])),
    partitions=st.lists(partitions, max_size=3),
)
requests = st.builds(
    OffsetCommitRequest,
    group_id=text,
    generation_id_or_member_epoch=st.integers(-(2**31), 2**31 - 1),
    member_id=text,
    group_instance_id=st.one_of(st.none(), text),
    retention_time_ms=st.integers(-1, 2**40),
    topics=st.lists(topics, max_size=3),
)


def knows(partition: TopicPartition) -> bool:
    return partition.partition >= 0


def frame_of(request: OffsetCommitRequest, version: int, *header: Any) -> bytes:
    if version < 7:  # without a field for the instance id
        request.group_instance_id = None
    return encode_request(request, version, *header)


def read(frame: bytes, token: Token) -> tuple[RequestHeader, OffsetCommitRequest, Any]:
    """The header, the request and the event that the long way reads from a frame."""
    header, request = decode_request(frame[4:])
    client = ServerConnection(id=ConnectionId(1), host="/h")
    return header, request, commit_event(Received(token, header, request), client, knows)


def known(frame: bytes) -> KnownCommit | None:
    header, request, event = read(frame, Token(1))
    return known_commit(frame, header, request, event)


@given(
    request=requests,
    version=st.integers(2, 9),
    client_id=st.one_of(st.none(), text),
    ids=st.tuples(*[st.integers(-(2**31), 2**31 - 1)] * 2),
    data=st.data(),
)
def test_the_event_equals_the_event_of_a_full_read(
    request: OffsetCommitRequest,
    version: int,
    client_id: str | None,
    ids: tuple[int, int],
    data: st.DataObject,
) -> None:
    commit = known(frame_of(request, version, ids[0], client_id))
    assert commit is not None
    for topic in request.topics:
        for partition in topic.partitions:
            partition.committed_offset = data.draw(INT64)
    again = frame_of(request, version, ids[1], client_id)
    assert len(again) == commit.size
    numbers = commit.values(memoryview(again))
    assert numbers is not None
    assert numbers[0] == ids[1]
    token = Token(2)
    assert commit_again(commit.event, token, numbers[1:], knows) == read(again, token)[2]


@given(request=requests, version=st.integers(2, 9), data=st.data())
def test_every_changed_byte_is_noticed(
    request: OffsetCommitRequest, version: int, data: st.DataObject
) -> None:
    frame = frame_of(request, version, 5, "c")
    commit = known(frame)
    assert commit is not None
    other = bytearray(frame)
    at = data.draw(st.integers(0, len(frame) - 1))
    other[at] = data.draw(st.integers(0, 255))
    numbers = commit.values(other)
    if numbers is not None:
        header, _, event = read(bytes(other), Token(2))
        assert commit_again(commit.event, Token(2), numbers[1:], knows) == event
        assert (header.correlation_id, header.client_id) == (numbers[0], "c")
        assert header.api_version == version


def test_a_frame_in_another_encoding_is_not_kept() -> None:
    request = request_of(SHAPES[0], 5, group_id="g")
    frame = encode_request(request, 8, 1, "c")
    tagged = frame[:-1] + b"\x01\x05\x01x"  # one tagged field that nobody knows, at the end
    tagged = (len(tagged) - 4).to_bytes(4, "big") + tagged[4:]
    assert known(frame) is not None
    assert known(tagged) is None


@pytest.mark.parametrize(("length", "kept"), [(10, True), (MAX_KNOWN_SIZE, False)])
def test_a_long_commit_is_not_kept(length: int, kept: bool) -> None:
    request = request_of(SHAPES[0], 5, group_id="g" * length)
    assert (known(encode_request(request, 8, 1, "c")) is not None) is kept


# -- which way is taken ----------------------------------------------------------------------------


def commit(
    client: Client, member_id: str, offset: int, shape: Shape = SHAPES[0], generation: int = 1
) -> int:
    fields = {"member_id": member_id, "generation_id_or_member_epoch": generation}
    client.send("OffsetCommit", request_of(shape, offset, group_id="g", **fields))
    client.bench.written()
    error: int = client.answers[-1].topics[0].partitions[0].error_code
    return error


@pytest.mark.parametrize("engine", [CoordinatorEngine, RecordingCoordinatorEngine])
def test_only_the_first_of_many_commits_is_read_in_full(
    read_in_full: list[str], engine: type[CoordinatorEngine]
) -> None:
    life = Life(engine)
    client, member_id = stable(life, OffsetCommit=9)
    read_in_full.clear()
    assert [commit(client, member_id, offset) for offset in range(4)] == [ErrorCode.NONE] * 4
    assert read_in_full == ["OffsetCommitRequest"]
    fact = [o.fact for o in life.told if isinstance(o.fact, OffsetsCommitted)][-1]
    assert fact.offsets == ((TopicPartition("t", 0), 3),)


def test_the_short_way_refuses_each_commit_that_the_long_way_refuses(
    read_in_full: list[str],
) -> None:
    life = Life(CoordinatorEngine)
    client, member_id = stable(life, OffsetCommit=9)
    read_in_full.clear()
    assert commit(client, member_id, 1, shape=SHAPES[5]) == ErrorCode.NONE
    life.gone = True
    assert commit(client, member_id, 2, shape=SHAPES[5]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    life.gone = False
    assert commit(client, member_id, 3, shape=SHAPES[5]) == ErrorCode.NONE
    newcomer = life.client("n")
    newcomer.enter("g")
    client.join("g", member_id)
    life.wait(1_000)
    client.sync("g", 2, member_id, {})
    life.written()
    read_in_full.clear()
    assert commit(client, member_id, 4, shape=SHAPES[5]) == ErrorCode.ILLEGAL_GENERATION
    assert read_in_full == []


def test_a_repeated_commit_extends_the_session_as_a_heartbeat_does() -> None:
    life = Life(CoordinatorEngine)
    client, member_id = stable(life, OffsetCommit=9)
    for offset in range(6):
        assert commit(client, member_id, offset) == ErrorCode.NONE
        life.wait(6_000)  # of a session of 10,000
    life.wait(4_000)
    assert commit(client, member_id, 6) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_repeated_commit_is_refused_while_the_leader_has_not_assigned() -> None:
    life = Life(CoordinatorEngine)
    client, member_id = stable(life, OffsetCommit=9)
    client.join("g", member_id)
    life.wait(1_000)
    codes = [commit(client, member_id, offset, generation=2) for offset in range(3)]
    assert codes == [ErrorCode.REBALANCE_IN_PROGRESS] * 3
    client.sync("g", 2, member_id, {member_id: b"again"})
    life.written()
    assert commit(client, member_id, 3, generation=2) == ErrorCode.NONE


def test_a_repeated_commit_is_one_write_and_any_other_is_left_to_the_long_way() -> None:
    life = Life(CoordinatorEngine)
    client, member_id = stable(life, "g", OffsetCommit=9)
    line = life.engine.connection(client.conn)

    def again(offset: int, generation: int = 1) -> Again | None:
        fields = {"member_id": member_id, "generation_id_or_member_epoch": generation}
        frame = client.frame("OffsetCommit", request_of(SHAPES[5], offset, group_id="g", **fields))
        outputs = life.engine.again(line, frame, life.now)
        if outputs is None:  # nothing was done
            assert line.is_idle
            life.carry_out(life.engine.received(client.conn, frame, life.now))
        else:
            assert [type(output) for output in outputs] == [Write]
            life.carry_out(outputs)
        life.written()
        return outputs

    assert again(1) is None, "the first one is read in full"
    assert again(2) is not None
    life.gone = True
    assert again(3) is None
    life.gone = False
    assert again(4) is not None
    assert again(5, generation=2) is None
    life.client("n").enter("g")  # now the group prepares a rebalance
    assert again(6) is None, "the commit before was another one"
    assert again(7) is not None
    later = life.client("later", OffsetCommit=9)
    say(later, member_id, "g", ("commit", 9, 5))
    life.written()
    assert again(8) is None, "a commit on an older connection may be late"
    errors = [[p.error_code for t in a.topics for p in t.partitions] for a in client.answers[-8:]]
    unknown, illegal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.ILLEGAL_GENERATION
    late = ErrorCode.REQUEST_TIMED_OUT
    assert errors == [
        [0, 0],
        [0, 0],
        [unknown, 0],
        [0, 0],
        [illegal] * 2,
        [0, 0],
        [0, 0],
        [late] * 2,
    ]


def test_commits_of_a_client_without_repetition_are_kept_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[int] = []
    life = Life(CoordinatorEngine)
    client, member_id = stable(life, OffsetCommit=9)

    def noted(*args: Any) -> KnownCommit | None:
        kept.append(turn)
        return known_commit(*args)

    monkeypatch.setattr("kohort.engine.coordinator_connection.known_commit", noted)
    for turn in range(1, 17):
        commit(client, member_id, 1, (("t", 0, f"note {turn}"),))
    assert kept == [1, 2, 4, 8, 16]
    turn = 17
    commit(client, member_id, 2, (("t", 0, "note 16"),))  # known: the count begins anew
    turn = 18
    commit(client, member_id, 3, (("t", 0, "note 18"),))
    assert kept == [1, 2, 4, 8, 16, 18]


def test_a_fact_without_a_listener_is_not_reported() -> None:
    life, quiet = Bench(), Bench(hears=lambda fact: type(fact) is not OffsetsCommitted)
    for bench in (life, quiet):
        client, member_id = stable(bench, OffsetCommit=9)
        assert [commit(client, member_id, offset) for offset in range(3)] == [ErrorCode.NONE] * 3
    assert life.facts.count("OffsetsCommitted") == 3
    assert quiet.facts == [name for name in life.facts if name != "OffsetsCommitted"]
    assert quiet.stored == life.stored
